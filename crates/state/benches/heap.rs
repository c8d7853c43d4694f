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

/// Evenly spread keys below `keys`, in an order that no prefetcher knows.
struct Keys {
    state: u64,
    keys: u64,
}

impl Keys {
    fn batch(&mut self, out: &mut Vec<(u64, u64)>) {
        out.clear();
        for _ in 0..BATCH {
            self.state = self
                .state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let key = ((u128::from(self.state) * u128::from(self.keys)) >> 64) as u64;
            out.push((key.key_hash(), key));
        }
    }
}

/// Nanoseconds per update over `UPDATES`, of `apply` alone.
fn measure(keys: u64, mut apply: impl FnMut(&[(u64, u64)])) -> f64 {
    let mut source = Keys { state: 42, keys };
    let mut batch = Vec::with_capacity(BATCH);
    let mut spent = Duration::ZERO;
    for _ in 0..UPDATES / BATCH {
        source.batch(&mut batch);
        let start = Instant::now();
        apply(&batch);
        spent += start.elapsed();
    }
    spent.as_nanos() as f64 / UPDATES as f64
}

fn bare(keys: u64) -> f64 {
    let mut map = BareMap::default();
    for key in 0..keys {
        map.insert(key, 0);
    }
    measure(keys, |batch| {
        for (_, key) in batch {
            *map.entry(*key).or_insert(0) += 1;
        }
        black_box(&map);
    })
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

fn update(counts: &ValueState<u64, u64>, batch: &[(u64, u64)]) {
    let mut table = counts.borrow_mut();
    for (hash, key) in batch {
        table.update(*hash, key, |count| *count += 1);
    }
}

/// Updates with snapshots one after the other, each written to nowhere by another thread.
fn with_snapshots(
    backend: &mut HeapKeyedBackend<u64>,
    counts: &ValueState<u64, u64>,
    keys: u64,
    budget: usize,
) -> (f64, Duration, usize) {
    let mut pauses = Vec::new();
    let mut writers = Vec::new();
    let nanos = measure(keys, |batch| {
        if !backend.has_pending_snapshots() {
            let start = Instant::now();
            let frozen = backend.freeze();
            pauses.push(start.elapsed());
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
    (nanos, pauses.into_iter().max().unwrap_or_default(), taken)
}

fn report(keys: u64) {
    println!("{keys} keys");
    let bare = bare(keys);
    println!("  bare hashbrown map            {bare:6.1} ns/update");
    let (mut backend, counts) = filled(keys);
    let plain = measure(keys, |batch| update(&counts, batch));
    println!("  value state                   {plain:6.1} ns/update");
    for budget in [1, 4, 16] {
        let (nanos, pause, taken) = with_snapshots(&mut backend, &counts, keys, budget);
        println!(
            "  back to back, {budget:2} pages/batch   {nanos:6.1} ns/update, freeze max \
             {pause:?}, {taken} snapshots"
        );
    }
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
