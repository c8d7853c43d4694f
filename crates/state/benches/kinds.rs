//! Plain timings of reading and changing each kind of state, by key, against a bare hash map.
//!
//! Run with `cargo bench -p tidegate-state --bench kinds [-- KEYS…]`; sizes default to 1 k, 1 M and
//! 10 M keys.
#![allow(clippy::print_stdout)]

mod support;

use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

use support::{BATCH, Keys, backend, cpu_time, sizes};
use tidegate_state::{
    AggregatingStateDescriptor, At, ListStateDescriptor, MapStateDescriptor,
    ReducingStateDescriptor, StateError, StateKey, TimersDescriptor, ValueStateDescriptor,
};

/// Accesses per measurement.
const ACCESSES: usize = 4 << 20;

/// Takes the canonical hash as it is given, as the backend does.
#[derive(Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only u64 keys are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash ^ (hash << 32);
    }
}

/// A key that brings its hash along.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hashed {
    hash: u64,
    key: u64,
}

impl std::hash::Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

type Scope<'a> = At<'a, u64>;

/// Nanoseconds per call of `access`, over random keys.
fn measure(keys: u64, mut access: impl FnMut(Scope<'_>, usize) -> Result<(), StateError>) -> f64 {
    let mut source = Keys::new(keys);
    let mut batch = Vec::new();
    let mut spent = 0;
    for _ in 0..ACCESSES / BATCH {
        source.fill(&mut batch);
        let start = cpu_time();
        for (at, (hash, key)) in batch.iter().enumerate() {
            access(At::hashed(*hash, key), at).expect("the heap never fails");
        }
        spent += (cpu_time() - start).as_nanos();
    }
    spent as f64 / ACCESSES as f64
}

/// Keeps the compiler from leaving out what nobody uses.
fn consume<T>(value: T) {
    black_box(value);
}

fn fill(keys: u64, mut insert: impl FnMut(Scope<'_>) -> Result<(), StateError>) {
    for key in 0..keys {
        insert(At::key(&key)).expect("the heap never fails");
    }
}

fn print(what: &str, get: f64, update: f64) {
    println!("  {what:<44} get {get:6.1} ns   update {update:6.1} ns");
}

fn bare(keys: u64) {
    let mut map = hashbrown::HashMap::<Hashed, u64, BuildHasherDefault<Passed>>::default();
    for key in 0..keys {
        let hash = key.key_hash();
        map.insert(Hashed { hash, key }, key);
    }
    let mut source = Keys::new(keys);
    let mut batch = Vec::new();
    let (mut get, mut update) = (0, 0);
    for _ in 0..ACCESSES / BATCH {
        source.fill(&mut batch);
        let start = cpu_time();
        for &(hash, key) in &batch {
            black_box(map.get(&Hashed { hash, key }).copied());
        }
        let read = cpu_time();
        source.fill(&mut batch);
        let again = cpu_time();
        for &(hash, key) in &batch {
            *map.entry(Hashed { hash, key }).or_insert(0) += 1;
        }
        get += (read - start).as_nanos();
        update += (cpu_time() - again).as_nanos();
    }
    let each = |nanos: u128| nanos as f64 / ACCESSES as f64;
    print("bare hashbrown map of u64", each(get), each(update));
}

fn value(keys: u64) -> Result<(), StateError> {
    let state = backend().bind(&ValueStateDescriptor::<u64>::new("state"))?;
    fill(keys, |at| state.set(&at, 1));
    let get = measure(keys, |at, _| state.get(&at).map(consume));
    let update = measure(keys, |at, _| state.update_or(&at, 0, |value| *value += 1));
    print("value of u64", get, update);
    let set = measure(keys, |at, n| state.set(&at, n as u64));
    println!("  {:<44}               set    {set:6.1} ns", "");
    Ok(())
}

fn namespaced(keys: u64) -> Result<(), StateError> {
    let state = backend().bind_within::<u32, _>(&ValueStateDescriptor::<u64>::new("state"))?;
    fill(keys, |at| state.set(&at.within(&7), 1));
    let get = measure(keys, |at, _| state.get(&at.within(&7)).map(consume));
    let update = measure(keys, |at, _| {
        state.update_or(&at.within(&7), 0, |value| *value += 1)
    });
    print("value of u64 within u32", get, update);
    Ok(())
}

fn reducing(keys: u64) -> Result<(), StateError> {
    let sum = |sum: &mut u64, n: u64| *sum += n;
    let state = backend().bind(&ReducingStateDescriptor::with_reduce("state", sum))?;
    fill(keys, |at| state.add(&at, 1));
    let get = measure(keys, |at, _| state.get(&at).map(consume));
    let update = measure(keys, |at, n| state.add(&at, n as u64));
    print("reducing of u64", get, update);
    Ok(())
}

fn aggregating(keys: u64) -> Result<(), StateError> {
    let fold = |(sum, count): &mut (u64, u64), n: u64| {
        *sum += n;
        *count += 1;
    };
    let fold = AggregatingStateDescriptor::folding("state", (0, 0), fold);
    let state = backend().bind(&fold)?;
    fill(keys, |at| state.add(&at, 1));
    let get = measure(keys, |at, _| state.get(&at).map(consume));
    let update = measure(keys, |at, n| state.add(&at, n as u64));
    print("aggregating of u64 in (u64, u64)", get, update);
    Ok(())
}

fn list(keys: u64) -> Result<(), StateError> {
    let state = backend().bind(&ListStateDescriptor::<u64>::new("state"))?;
    for n in 0..4 {
        fill(keys, |at| state.add(&at, n));
    }
    let get = measure(keys, |at, _| {
        state.with(&at, |list| consume(list.sum::<u64>()))
    });
    let update = measure(keys, |at, n| state.add(&at, n as u64));
    print("list of u64: sum of 4, append", get, update);
    Ok(())
}

fn map(keys: u64, map_keys: u32) -> Result<(), StateError> {
    let state = backend().bind(&MapStateDescriptor::<u32, u64>::new("state"))?;
    for n in 0..map_keys {
        fill(keys, |at| state.put(&at, n, 1));
    }
    let get = measure(keys, |at, n| {
        let map_key = n as u32 % map_keys;
        state.get(&at, &map_key).map(consume)
    });
    let update = measure(keys, |at, n| {
        state.update_or(&at, n as u32 % map_keys, 0, |value| *value += 1)
    });
    print(
        &format!("map from u32 to u64, {map_keys} each"),
        get,
        update,
    );
    Ok(())
}

fn timers(keys: u64) -> Result<(), StateError> {
    let timers = backend().bind(&TimersDescriptor::event_time("timers"))?;
    timers.earliest();
    fill(keys, |at| timers.register(&at, 0).map(drop));
    let mut now = 0;
    let register = measure(keys, |at, _| {
        now += 1;
        timers.register(&at, now).map(drop)
    });
    let fired = timers.len().min(ACCESSES);
    let start = cpu_time();
    for _ in 0..fired {
        timers.next_due(i64::MAX)?;
    }
    let fire = (cpu_time() - start).as_nanos() as f64 / fired as f64;
    println!(
        "  {:<44} fire {fire:5.1} ns  register {register:5.1} ns",
        "timers"
    );
    Ok(())
}

fn main() -> Result<(), StateError> {
    for keys in sizes(&[1_000, 1_000_000, 10_000_000]) {
        println!("{keys} keys");
        bare(keys);
        value(keys)?;
        namespaced(keys)?;
        reducing(keys)?;
        aggregating(keys)?;
        list(keys)?;
        map(keys, 4)?;
        if keys <= 1_000_000 {
            map(keys, 40)?;
        }
        timers(keys)?;
        bare(keys);
    }
    Ok(())
}
