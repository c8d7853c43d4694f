//! Plain timings of the heap backend: updates against a bare hash map, the pause of a freeze, and
//! updates while snapshots are pending.
//!
//! Run with `cargo bench -p tidegate-state --bench heap [-- KEYS…]`; sizes default to 1 k, 1 M and
//! 10 M keys.
#![allow(clippy::print_stdout)]

use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_state::{HeapKeyedBackend, StateKey, ValueState, ValueStateDescriptor};
use tidegate_types::MaxParallelism;

/// Keys per batch, hashed beforehand as routing does.
const BATCH: usize = 4096;

/// Updates per measurement.
const UPDATES: usize = 8 << 20;

/// Takes the canonical hash as it is, so that the bare map pays for the same hash.
#[derive(Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only u64 keys are hashed");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.key_hash();
    }
}

type BareMap = hashbrown::HashMap<u64, u64, BuildHasherDefault<Passed>>;

/// Keys of a batch and their hashes.
#[derive(Default)]
struct Batch {
    hashes: Vec<u64>,
    keys: Vec<u64>,
}

/// Evenly spread keys below `keys`, in an order that no prefetcher knows.
struct Keys {
    state: u64,
    keys: u64,
}

impl Keys {
    fn fill(&mut self, batch: &mut Batch) {
        batch.hashes.clear();
        batch.keys.clear();
        for _ in 0..BATCH {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            let key = ((u128::from(self.state) * u128::from(self.keys)) >> 64) as u64;
            batch.hashes.push(key.key_hash());
            batch.keys.push(key);
        }
    }
}

/// Time this thread has spent on a processor, so that other load on the machine counts less.
/// Zero where the system doesn't tell.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Nanoseconds of processor time per update over `UPDATES`, of `apply` alone, and its longest call.
fn measure(keys: u64, mut apply: impl FnMut(&Batch)) -> (f64, Duration) {
    let mut source = Keys { state: 42, keys };
    let mut batch = Batch::default();
    let (mut spent, mut longest) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..UPDATES / BATCH {
        source.fill(&mut batch);
        let start = cpu_time();
        apply(&batch);
        let call = cpu_time() - start;
        spent += call;
        longest = longest.max(call);
    }
    (spent.as_nanos() as f64 / UPDATES as f64, longest)
}

fn bare(keys: u64) -> f64 {
    let mut map = BareMap::default();
    for key in 0..keys {
        map.insert(key, 0);
    }
    let (nanos, _) = measure(keys, |batch| {
        for key in &batch.keys {
            *map.entry(*key).or_insert(0) += 1;
        }
        black_box(&map);
    });
    nanos
}

fn filled(keys: u64) -> (HeapKeyedBackend<u64>, ValueState<u64, u64>) {
    let max = MaxParallelism::derive(1);
    let range = max.range(0, 1).expect("one subtask owns all key groups");
    let mut backend = HeapKeyedBackend::new(max, range);
    let descriptor = ValueStateDescriptor::new("count").with_default(0);
    let counts = backend
        .value_state(&descriptor)
        .expect("nothing is bound yet");
    for key in 0..keys {
        counts
            .borrow_mut()
            .update(key.key_hash(), &key, |count| *count += 1);
    }
    (backend, counts)
}

fn update(counts: &ValueState<u64, u64>, batch: &Batch) {
    let mut table = counts.borrow_mut();
    for (hash, key) in batch.hashes.iter().zip(&batch.keys) {
        table.update(*hash, key, |count| *count += 1);
    }
}

/// Batches with a snapshot every `interval`, each written to nowhere by another thread.
fn with_snapshots(
    backend: &mut HeapKeyedBackend<u64>,
    counts: &ValueState<u64, u64>,
    keys: u64,
    interval: Duration,
    budget: usize,
) {
    let (mut pause, mut writers, mut last) = (Duration::ZERO, Vec::new(), None::<Instant>);
    let (nanos, longest) = measure(keys, |batch| {
        let due = last.is_none_or(|last| last.elapsed() >= interval);
        if due && !backend.has_pending_snapshots() {
            let start = Instant::now();
            last = Some(start);
            let frozen = backend.freeze();
            pause = pause.max(start.elapsed());
            writers.push(thread::spawn(move || frozen.write_to(&mut io::sink())));
        }
        update(counts, batch);
        backend.advance_snapshots(budget);
    });
    backend.finish_snapshots();
    let taken = writers.len();
    for writer in writers {
        writer
            .join()
            .expect("the writer runs")
            .expect("the snapshot completes");
    }
    println!(
        "  snapshot every {interval:?}, {budget:4} pages/batch: {nanos:6.1} ns/update, freeze max \
         {pause:?}, batch max {longest:?}, {taken} snapshots"
    );
}

fn report(keys: u64) {
    println!("{keys} keys");
    println!("  bare hashbrown map   {:6.1} ns/update", bare(keys));
    let (mut backend, counts) = filled(keys);
    for _ in 0..3 {
        let (nanos, longest) = measure(keys, |batch| update(&counts, batch));
        println!("  value state          {nanos:6.1} ns/update, batch max {longest:?}");
    }
    for (interval, budget) in [(0, 64), (20, 64), (100, 64), (100, 512), (1000, 64)] {
        let interval = Duration::from_millis(interval);
        with_snapshots(&mut backend, &counts, keys, interval, budget);
    }
    for _ in 0..3 {
        at_rest(&mut backend);
    }
}

fn at_rest(backend: &mut HeapKeyedBackend<u64>) {
    let start = Instant::now();
    let frozen = backend.freeze();
    let pause = start.elapsed();
    backend.finish_snapshots();
    let copied = start.elapsed();
    let summary = frozen.write_to(&mut io::sink()).expect("all was copied");
    let written = start.elapsed();
    println!(
        "  one snapshot at rest: freeze {pause:?}, copied after {copied:?}, {} bytes encoded \
         after {written:?}",
        summary.bytes
    );
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
