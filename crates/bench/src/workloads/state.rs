//! Each kind of state is read and changed at random keys, without a job around it.

use std::hint::black_box;
use std::time::Duration;

use tidegate_state::{
    AggregatingStateDescriptor, At, HeapKeyedBackend, ListStateDescriptor, MapStateDescriptor,
    ReducingStateDescriptor, StateError, StateKey, TimersDescriptor, ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

use crate::error::{Error, Result};
use crate::generate::key;
use crate::measure::{Meter, thread_cpu_time};
use crate::options::Common;
use crate::outcome::{Access, Outcome};

const KEYS: u64 = 1_000_000;
/// Accesses per measurement.
const ACCESSES: u64 = 4_000_000;
/// Keys that are hashed before the clock is started, as routing does.
const BATCH: u64 = 4096;
/// Elements of a list, entries of a map.
const PER_KEY: u64 = 4;

type Done = std::result::Result<(), StateError>;

/// What is measured, and what has been.
struct Bench {
    keys: u64,
    accesses: u64,
    measured: Vec<Access>,
}

impl Bench {
    fn backend() -> HeapKeyedBackend<u64> {
        let max = MaxParallelism::derive(1);
        let range = max.range(0, 1).expect("one subtask owns all key groups");
        HeapKeyedBackend::new(max, range)
    }

    fn fill(&self, mut insert: impl FnMut(At<'_, u64>) -> Done) -> Done {
        (0..self.keys).try_for_each(|key| insert(At::key(&key)))
    }

    /// Times calls of `access` with random keys and their indexes.
    fn measure(
        &mut self,
        (kind, operation): (&str, &str),
        mut access: impl FnMut(At<'_, u64>, u64) -> Done,
    ) -> Done {
        let mut batch = Vec::with_capacity(BATCH as usize);
        let mut spent = Duration::ZERO;
        for first in (0..self.accesses).step_by(BATCH as usize) {
            batch.clear();
            let indexes = first..self.accesses.min(first + BATCH);
            batch.extend(indexes.map(|index| {
                let key = key(index, self.keys);
                (key.key_hash(), key, index)
            }));
            let start = thread_cpu_time();
            for (hash, key, index) in &batch {
                access(At::hashed(*hash, key), *index)?;
            }
            spent += thread_cpu_time() - start;
        }
        self.push((kind, operation), spent, self.accesses);
        Ok(())
    }

    fn push(&mut self, (kind, operation): (&str, &str), spent: Duration, accesses: u64) {
        self.measured.push(Access {
            kind: kind.to_owned(),
            operation: operation.to_owned(),
            nanos: spent.as_nanos() as f64 / accesses.max(1) as f64,
        });
    }
}

/// Keeps the compiler from leaving out what nobody uses.
fn consume<T>(value: T) {
    black_box(value);
}

fn value(bench: &mut Bench) -> Done {
    let state = Bench::backend().bind(&ValueStateDescriptor::<u64>::new("state"))?;
    bench.fill(|at| state.set(&at, 1))?;
    bench.measure(("value", "get"), |at, _| state.get(&at).map(consume))?;
    bench.measure(("value", "update"), |at, _| {
        state.update_or(&at, 0, |value| *value += 1)
    })
}

fn list(bench: &mut Bench) -> Done {
    let state = Bench::backend().bind(&ListStateDescriptor::<u64>::new("state"))?;
    for element in 0..PER_KEY {
        bench.fill(|at| state.add(&at, element))?;
    }
    bench.measure(("list", "get"), |at, _| {
        state.with(&at, |list| consume(list.sum::<u64>()))
    })?;
    bench.measure(("list", "update"), |at, index| state.add(&at, index))
}

fn map(bench: &mut Bench) -> Done {
    let state = Bench::backend().bind(&MapStateDescriptor::<u64, u64>::new("state"))?;
    for map_key in 0..PER_KEY {
        bench.fill(|at| state.put(&at, map_key, 1))?;
    }
    bench.measure(("map", "get"), |at, index| {
        state.get(&at, &(index % PER_KEY)).map(consume)
    })?;
    bench.measure(("map", "update"), |at, index| {
        state.update_or(&at, index % PER_KEY, 0, |value| *value += 1)
    })
}

fn reducing(bench: &mut Bench) -> Done {
    let sum = |sum: &mut u64, n: u64| *sum += n;
    let state = Bench::backend().bind(&ReducingStateDescriptor::with_reduce("state", sum))?;
    bench.fill(|at| state.add(&at, 1))?;
    bench.measure(("reducing", "get"), |at, _| state.get(&at).map(consume))?;
    bench.measure(("reducing", "update"), |at, index| state.add(&at, index))
}

fn aggregating(bench: &mut Bench) -> Done {
    let fold = |(sum, count): &mut (u64, u64), n: u64| {
        *sum = sum.wrapping_add(n);
        *count += 1;
    };
    let descriptor = AggregatingStateDescriptor::folding("state", (0, 0), fold);
    let state = Bench::backend().bind(&descriptor)?;
    bench.fill(|at| state.add(&at, 1))?;
    bench.measure(("aggregating", "get"), |at, _| state.get(&at).map(consume))?;
    bench.measure(("aggregating", "update"), |at, index| state.add(&at, index))
}

fn timers(bench: &mut Bench) -> Done {
    let timers = Bench::backend().bind(&TimersDescriptor::event_time("timers"))?;
    timers.earliest();
    bench.measure(("timers", "register"), |at, index| {
        timers.register(&at, index as i64).map(drop)
    })?;
    let due = timers.len() as u64;
    let start = thread_cpu_time();
    for _ in 0..due {
        consume(timers.next_due(i64::MAX)?);
    }
    let spent = thread_cpu_time() - start;
    bench.push(("timers", "fire"), spent, due);
    Ok(())
}

pub(super) fn run(common: &Common) -> Result<Outcome> {
    let mut bench = Bench {
        keys: common.keys.unwrap_or(KEYS).max(1),
        accesses: common.records.unwrap_or(ACCESSES).max(1),
        measured: Vec::new(),
    };
    let meter = Meter::start();
    for kind in [value, list, map, reducing, aggregating, timers] {
        kind(&mut bench).map_err(|cause| Error::Other {
            what: "use state",
            cause: cause.into(),
        })?;
    }
    let records = bench.accesses * bench.measured.len() as u64;
    let mut outcome = Outcome::new(("state", "tidegate"), records, 1, meter.stop()?);
    outcome.keys = Some(bench.keys);
    outcome.extra.state = bench.measured;
    Ok(outcome)
}
