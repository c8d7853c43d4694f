//! Plain timings of snapshots of changes: what keeping track costs an update, and how much smaller
//! and faster a snapshot is when little has changed.
//!
//! Run with `cargo bench -p tidegate-state --bench changes [-- KEYS…]`; sizes default to 1 k, 1 M
//! and 10 M keys.
#![allow(clippy::print_stdout)]

mod support;

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use support::cpu_time;
use tidegate_state::{
    HeapKeyedBackend, KeyedFileSummary, StateKey, TrackedSnapshot, ValueState, ValueStateDescriptor,
};
use tidegate_types::{CheckpointId, MaxParallelism};

/// Keys per batch, hashed beforehand as routing does.
const BATCH: usize = 4096;

/// Updates per measurement.
const UPDATES: usize = 4 << 20;

/// Whole snapshots, and restores.
const SNAPSHOTS: usize = 3;

/// Measurements of each kind, in turns: the least disturbed counts.
const ROUNDS: usize = 7;

/// Evenly spread keys below `keys`, in an order that no prefetcher knows.
struct Keys {
    state: u64,
    keys: u64,
}

impl Keys {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.keys)) >> 64) as u64
    }
}

struct State {
    backend: HeapKeyedBackend<u64>,
    counts: ValueState<u64, u64>,
    last: u64,
}

impl State {
    fn filled(keys: u64) -> Self {
        let max = MaxParallelism::derive(1);
        let range = max.range(0, 1).expect("one subtask owns all key groups");
        let mut backend = HeapKeyedBackend::new(max, range);
        let descriptor = ValueStateDescriptor::new("count").with_default(0);
        let counts = backend.value_state(&descriptor).expect("nothing is bound");
        let state = State {
            backend,
            counts,
            last: 0,
        };
        (0..keys).for_each(|key| state.add(key));
        state
    }

    fn add(&self, key: u64) {
        let mut table = self.counts.borrow_mut();
        table.update(key.key_hash(), &key, |count| *count += 1);
    }

    /// Nanoseconds of processor time per update, of the updates alone.
    fn updates(&self, keys: &mut Keys) -> f64 {
        let mut spent = Duration::ZERO;
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..UPDATES / BATCH {
            batch.clear();
            batch.extend(
                (0..BATCH)
                    .map(|_| keys.next())
                    .map(|key| (key.key_hash(), key)),
            );
            let start = cpu_time();
            let mut table = self.counts.borrow_mut();
            for (hash, key) in &batch {
                table.update(*hash, key, |count| *count += 1);
            }
            drop(table);
            spent += cpu_time() - start;
            black_box(&self.counts);
        }
        spent.as_nanos() as f64 / UPDATES as f64
    }

    /// Takes a checkpoint that rests on the one before, and prints how long it took.
    fn checkpoint(&mut self, what: &str) -> KeyedFileSummary {
        let base = Some(CheckpointId(self.last)).filter(|base| *base != CheckpointId::NONE);
        self.last += 1;
        let snapshot = TrackedSnapshot {
            checkpoint: CheckpointId(self.last),
            base,
            whole: false,
        };
        let start = Instant::now();
        let frozen = self.backend.freeze_tracked(&snapshot);
        let pause = start.elapsed();
        self.backend.finish_snapshots();
        let copied = start.elapsed();
        let summary = frozen.write_to(&mut io::sink()).expect("all was copied");
        println!(
            "  {what}: {} bytes, {} entries, {} tombstones; freeze {pause:?}, copied after \
             {copied:?}, encoded after {:?}",
            summary.bytes,
            summary.entries,
            summary.tombstones,
            start.elapsed()
        );
        summary
    }
}

/// Prints how fast a whole state is copied, encoded and restored, from and to memory: the least of
/// a few rounds, of which the first brings the memory.
fn restore(state: &mut State) {
    let (mut copying, mut encoding, mut restoring) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let mut bytes = Vec::new();
    for _ in 0..SNAPSHOTS {
        let start = cpu_time();
        let frozen = state.backend.freeze();
        state.backend.finish_snapshots();
        copying = copying.min(cpu_time() - start);
        bytes.clear();
        let start = cpu_time();
        frozen.write_to(&mut bytes).expect("all was copied");
        encoding = encoding.min(cpu_time() - start);
    }
    for _ in 0..SNAPSHOTS {
        let max = MaxParallelism::derive(1);
        let range = max.range(0, 1).expect("one subtask owns all key groups");
        let mut restored = HeapKeyedBackend::<u64>::new(max, range);
        let descriptor = ValueStateDescriptor::<u64>::new("count").with_default(0);
        let counts = restored.value_state(&descriptor).expect("nothing is bound");
        let mut input = io::Cursor::new(&bytes);
        let start = cpu_time();
        restored
            .restore_file("full", &mut input)
            .expect("it was just written");
        restoring = restoring.min(cpu_time() - start);
        assert_eq!(counts.borrow().len(), state.counts.borrow().len());
    }
    let megabytes = bytes.len() as f64 / 1e6;
    let speed = |time: Duration| megabytes / time.as_secs_f64();
    println!(
        "  {megabytes:.1} MB: copied by the worker at {:.0} MB/s, encoded by the writer at {:.0} \
         MB/s, both {:.0} MB/s; restored at {:.0} MB/s",
        speed(copying),
        speed(encoding),
        speed(copying + encoding),
        speed(restoring)
    );
}

fn report(keys: u64) {
    println!("{keys} keys");
    let (mut plain, mut tracked) = (State::filled(keys), State::filled(keys));
    restore(&mut plain);
    tracked.checkpoint("full");
    let mut source = Keys { state: 42, keys };
    let (mut off, mut on) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        off = off.min(plain.updates(&mut source));
        on = on.min(tracked.updates(&mut source));
    }
    println!(
        "  update: {off:.1} ns without, {on:.1} ns with tracking, ratio {:.3}",
        on / off
    );
    tracked.checkpoint("all changed");
    for (share, text) in [(1000, "0.1 %"), (100, "1 %"), (10, "10 %")] {
        for _ in 0..keys / share {
            tracked.add(source.next());
        }
        tracked.checkpoint(&format!("{text} of the keys updated"));
    }
    let mut table = tracked.counts.borrow_mut();
    for _ in 0..keys / 100 {
        let key = source.next();
        table.remove(key.key_hash(), &key);
    }
    drop(table);
    tracked.checkpoint("1 % of the keys removed");
    tracked.checkpoint("nothing changed");
}

fn main() {
    let given: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let sizes = if given.is_empty() {
        vec![1_000, 1_000_000, 10_000_000]
    } else {
        given
    };
    for keys in sizes {
        report(keys);
    }
}
