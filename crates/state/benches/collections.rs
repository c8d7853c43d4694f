//! Plain timings of maps, lists and timers on the heap: accesses by size, the first change after a
//! freeze, and the longest that one change of a timer takes.
//!
//! Run with `cargo bench -p tidegate-state --bench collections [-- maps|lists|timers]`.
#![allow(clippy::print_stdout)]

mod support;

use std::hint::black_box;
use std::time::Duration;

use support::{Keys, backend, cpu_time};
use tidegate_state::{
    At, HeapKeyedBackend, ListStateDescriptor, MapState, MapStateDescriptor, Timers,
    TimersDescriptor,
};

/// Accesses per measurement.
const ACCESSES: u64 = 2 << 20;

/// Entries of the largest map, elements of the largest list.
const HUGE: u64 = 10_000_000;

/// Measurements of the same, of which the least counts.
const ROUNDS: usize = 5;

fn spent(work: impl FnOnce()) -> Duration {
    let start = cpu_time();
    work();
    cpu_time() - start
}

fn below(random: &mut Keys, limit: u64) -> u64 {
    ((u128::from(random.random()) * u128::from(limit)) >> 64) as u64
}

/// The least nanoseconds per access.
fn per_access(mut work: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| spent(&mut work));
    let least = rounds.min().unwrap_or_default();
    least.as_nanos() as f64 / ACCESSES as f64
}

/// `keys` maps with every other map key below `2 * entries`.
fn maps(keys: u64, entries: u64) -> (HeapKeyedBackend<u64>, MapState<u64, u64, u64>) {
    let mut backend = backend();
    let maps = backend
        .bind(&MapStateDescriptor::new("maps"))
        .expect("nothing is bound yet");
    for key in 0..keys {
        let entries = (0..entries).map(|at| (2 * at, at));
        maps.put_all(&At::key(&key), entries).expect("on the heap");
    }
    (backend, maps)
}

/// Accesses of maps with so many entries.
fn report_maps(keys: u64, entries: u64) {
    let (_backend, maps) = maps(keys, entries);
    let mut random = Keys::new(u64::MAX);
    let mut pick = move || (below(&mut random, keys), 2 * below(&mut random, entries));
    let get = per_access(|| {
        for _ in 0..ACCESSES {
            let (key, at) = pick();
            black_box(maps.get(&At::key(&key), &at).expect("on the heap"));
        }
    });
    let update = per_access(|| {
        for _ in 0..ACCESSES {
            let (key, at) = pick();
            let add = |value: &mut u64| *value += 1;
            black_box(maps.update(&At::key(&key), &at, add).expect("on the heap"));
        }
    });
    let put = per_access(|| {
        for _ in 0..ACCESSES {
            let (key, at) = pick();
            maps.put(&At::key(&key), at, 7).expect("on the heap");
        }
    });
    let churn = per_access(|| {
        for _ in 0..ACCESSES / 2 {
            let (key, at) = pick();
            let scope = At::key(&key);
            maps.put(&scope, at + 1, 7).expect("on the heap");
            black_box(maps.remove(&scope, &(at + 1)).expect("on the heap"));
        }
    });
    println!(
        "{keys:>9} maps of {entries:>7}: get {get:6.1}, update {update:6.1}, put {put:6.1}, \
         insert or remove {churn:6.1} ns"
    );
}

/// The first changes of one huge map after a freeze, and what comes later.
fn report_huge_map() {
    let (mut backend, maps) = maps(1, HUGE);
    let scope = At::key(&0);
    let mut random = Keys::new(u64::MAX);
    let mut update = || {
        let at = 2 * below(&mut random, HUGE);
        let add = |value: &mut u64| *value += 1;
        black_box(maps.update(&scope, &at, add).expect("on the heap"));
    };
    for _ in 0..ROUNDS {
        let frozen = backend.freeze();
        let first = spent(&mut update);
        let second = spent(&mut update);
        let later = spent(|| (0..10_000).for_each(|_| update())) / 10_000;
        println!("map of {HUGE} after a freeze: {first:?}, {second:?}, then {later:?} each");
        backend.finish_snapshots();
        drop(frozen);
    }
    let frozen = backend.freeze();
    let none = spent(|| maps.retain(&scope, |_, _| true).expect("on the heap"));
    println!("map of {HUGE} after a freeze: retain all {none:?}");
    drop(frozen);
}

/// Appending to a huge list, at rest and after a freeze.
fn report_huge_list() {
    let mut backend = backend();
    let lists = backend
        .bind(&ListStateDescriptor::new("lists"))
        .expect("nothing is bound yet");
    let scope = At::key(&0);
    let filled = spent(|| (0..HUGE).for_each(|at| lists.add(&scope, at).expect("on the heap")));
    println!("list of {HUGE}: filled in {filled:?}");
    for _ in 0..ROUNDS {
        let frozen = backend.freeze();
        let first = spent(|| lists.add(&scope, 1).expect("on the heap"));
        let later =
            spent(|| (0..10_000).for_each(|at| lists.add(&scope, at).expect("on the heap")));
        let later = later / 10_000;
        println!("list of {HUGE} after a freeze: {first:?}, then {later:?} each");
        backend.finish_snapshots();
        drop(frozen);
    }
}

/// Sets `keys` timers, one per key, `spread` apart in time at most.
fn set_timers(keys: u64, spread: u64) -> (HeapKeyedBackend<u64>, Timers<u64>) {
    let mut backend = backend();
    let timers = backend
        .bind(&TimersDescriptor::event_time("timers"))
        .expect("nothing is bound yet");
    assert_eq!(timers.earliest(), None);
    let mut random = Keys::new(u64::MAX);
    for key in 0..keys {
        let time = below(&mut random, spread) as i64;
        timers.register(&At::key(&key), time).expect("on the heap");
    }
    (backend, timers)
}

/// Sessions: each record moves the timer of its key.
fn report_moved_timers(keys: u64) {
    let (_backend, timers) = set_timers(keys, 1);
    let mut until = vec![0i64; keys as usize];
    let mut random = Keys::new(keys);
    let (mut now, mut longest) = (0i64, Duration::MAX);
    let nanos = per_access(|| {
        let mut longest_now = Duration::ZERO;
        for _ in 0..ACCESSES / 64 {
            let batch = spent(|| {
                for _ in 0..64 {
                    now += 1;
                    let key = random.next();
                    let scope = At::key(&key);
                    let last = std::mem::replace(&mut until[key as usize], now / 16 + 1000);
                    if last != now / 16 + 1000 {
                        timers
                            .register(&scope, now / 16 + 1000)
                            .expect("on the heap");
                        timers.delete(&scope, last).expect("on the heap");
                    }
                }
            });
            longest_now = longest_now.max(batch);
        }
        longest = longest.min(longest_now);
    });
    println!("{keys:>9} timers, moved: {nanos:6.1} ns, at most {longest:?} for 64");
}

/// Windows: timers are set at random, and fire in order.
fn report_fired_timers(keys: u64, spread: u64) {
    let (mut set, mut fired) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let mut made = None;
        set = set.min(spent(|| made = Some(set_timers(keys, spread))));
        let (_backend, timers) = made.expect("they were just made");
        fired = fired.min(spent(|| {
            while timers.next_due(i64::MAX).expect("on the heap").is_some() {}
        }));
    }
    let each = |time: Duration| time.as_nanos() as f64 / keys as f64;
    println!(
        "{keys:>9} timers within {spread:>7} ms: set {:6.1}, fired {:6.1} ns",
        each(set),
        each(fired)
    );
}

/// Binding restored timers, and the first look at them.
fn report_restored_timers(keys: u64) {
    let (mut saved, _timers) = set_timers(keys, keys);
    let frozen = saved.freeze();
    saved.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).expect("all was copied");
    let mut restored = backend();
    restored
        .restore_file("file", &mut std::io::Cursor::new(file))
        .expect("the file was just written");
    let mut timers = None;
    let bound = spent(|| timers = restored.bind(&TimersDescriptor::event_time("timers")).ok());
    let timers = timers.expect("they are the same timers");
    let first = spent(|| assert!(timers.earliest().is_some()));
    println!("{keys:>9} timers, restored: bound in {bound:?}, first look {first:?}");
}

fn main() {
    let given: Vec<String> = std::env::args()
        .skip(1)
        .filter(|part| !part.starts_with('-'))
        .collect();
    let wanted = |part: &str| given.is_empty() || given.iter().any(|given| given == part);
    if wanted("maps") {
        for (keys, entries) in [(1000, 1), (1000, 4), (100_000, 4), (1000, 16), (100, 100)] {
            report_maps(keys, entries);
        }
        report_maps(1, 100_000);
        report_maps(1, 1_000_000);
        report_huge_map();
    }
    if wanted("lists") {
        report_huge_list();
    }
    if wanted("timers") {
        for keys in [1_000, 100_000, 1_000_000] {
            report_moved_timers(keys);
        }
        for keys in [100_000, 1_000_000] {
            report_fired_timers(keys, 1);
            report_fired_timers(keys, 1000);
            report_fired_timers(keys, keys * 100);
            report_restored_timers(keys);
        }
    }
}
