//! How long snapshots hold the worker's thread up, and how fast updates go on meanwhile: with 10 M
//! small keys, and with 1 GiB of values of mixed sizes.
//!
//! Run with `cargo bench -p tidegate-state --bench pauses [-- FOLDER]`. Snapshots are written to
//! files in the folder, synced, and deleted; it defaults to the system's for temporary files. Times
//! are of the worker's thread alone, so other load on the machine counts less.
#![allow(clippy::print_stdout)]

mod support;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::{BATCH, Keys, Pauses, backend, cpu_time};
use tidegate_state::{
    FrozenKeyedState, HeapKeyedBackend, KeyedFileSummary, StateError, StateValue, ValueState,
    ValueStateDescriptor,
};

/// Budget between two batches, as the runtime has it.
const PAGES_PER_STEP: usize = 128;

/// Snapshots that are taken.
const ROUNDS: usize = 3;

type Batch = Vec<(u64, u64)>;

/// A backend under load.
struct Load<V, U> {
    backend: HeapKeyedBackend<u64>,
    state: ValueState<u64, V>,
    keys: Keys,
    update: U,
    batch: Batch,
}

impl<V: StateValue, U: Fn(&ValueState<u64, V>, &Batch)> Load<V, U> {
    /// Updates one batch, and returns how long that took.
    fn batch(&mut self) -> Duration {
        self.keys.fill(&mut self.batch);
        let start = cpu_time();
        (self.update)(&self.state, &self.batch);
        cpu_time() - start
    }

    /// Nanoseconds per update without a snapshot.
    fn at_rest(&mut self) -> f64 {
        let batches = 512;
        let spent: Duration = (0..batches).map(|_| self.batch()).sum();
        spent.as_nanos() as f64 / (batches * BATCH) as f64
    }

    /// One snapshot under load, with `rest` nanoseconds per update otherwise. Returns what it cost
    /// the worker: time beyond that of the updates.
    fn snapshot(&mut self, file: &Path, rest: f64, pauses: &mut [Pauses; 3]) -> Cost {
        let [freeze, steps, updates] = pauses;
        let (start, before) = (Instant::now(), cpu_time());
        let mut filling = Duration::ZERO;
        let frozen = freeze.time(|| self.backend.freeze());
        let writer = write(frozen, file.to_owned());
        let (mut batches, mut copied) = (0, false);
        while !writer.is_finished() {
            let fill = cpu_time();
            self.keys.fill(&mut self.batch);
            filling += cpu_time() - fill;
            let update = cpu_time();
            (self.update)(&self.state, &self.batch);
            batches += 1;
            if !copied {
                updates.add(cpu_time() - update);
                let step = || self.backend.advance_snapshots(PAGES_PER_STEP);
                copied = steps.time(step).is_done();
            }
        }
        let spent = cpu_time() - before - filling;
        let elapsed = start.elapsed();
        let written = writer.join().expect("the writer runs");
        let (written, writer) = written.expect("it is written");
        let plain = Duration::from_nanos((rest * (batches * BATCH) as f64) as u64);
        let cost = spent.saturating_sub(plain);
        println!(
            "    {} MB, durable after {elapsed:.2?}; cost the worker {cost:.1?}, the writer \
             {writer:.2?}; {batches} batches",
            written.bytes / 1_000_000,
        );
        Cost {
            cost,
            elapsed,
            writer,
        }
    }

    fn report(&mut self, file: &Path) {
        let mut pauses: [Pauses; 3] = Default::default();
        let mut total = Cost::default();
        for _ in 0..ROUNDS {
            let rest = self.at_rest();
            println!("    at rest {rest:.1} ns/update");
            let cost = self.snapshot(file, rest, &mut pauses);
            total.cost += cost.cost;
            total.elapsed += cost.elapsed;
            total.writer += cost.writer;
        }
        let whats = ["freeze", "advance", "batch while pages are copied"];
        for (what, pauses) in whats.into_iter().zip(&mut pauses) {
            println!("  {what}: {}", pauses.summary());
        }
        let left = |of: Duration| 100.0 * (1.0 - total.cost.as_secs_f64() / of.as_secs_f64());
        println!(
            "  speed of updates on a core of their own: {:.0} % until durable; {:.0} % while the \
             writer computes, as if the disk took no time",
            left(total.elapsed),
            left(total.writer)
        );
    }
}

/// What snapshots took.
#[derive(Default)]
struct Cost {
    /// Of the worker's time, beyond the updates.
    cost: Duration,
    /// From the freeze until the file was synced.
    elapsed: Duration,
    /// Of the writer's time.
    writer: Duration,
}

fn write(
    frozen: FrozenKeyedState,
    path: PathBuf,
) -> JoinHandle<Result<(KeyedFileSummary, Duration), StateError>> {
    thread::spawn(move || {
        let write = |cause| StateError::Write { cause };
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(write)?);
        let summary = frozen.write_to(&mut out)?;
        let file = out
            .into_inner()
            .map_err(|error| write(error.into_error()))?;
        file.sync_all().map_err(write)?;
        Ok((summary, cpu_time()))
    })
}

fn small(keys: u64, file: &Path) {
    println!("{keys} keys, 8-byte keys and values");
    let mut backend = backend();
    let descriptor = ValueStateDescriptor::<u64>::new("state").with_default(0);
    let state = backend.bind(&descriptor).expect("nothing is bound yet");
    let update = |state: &ValueState<u64, u64>, batch: &Batch| {
        let mut table = state.borrow_mut();
        for (hash, key) in batch {
            table.update(*hash, key, |count| *count += 1);
        }
    };
    let (keys, batch) = (Keys::new(keys), Vec::new());
    let mut load = Load {
        backend,
        state,
        keys,
        update,
        batch,
    };
    let all: Batch = (0..load.keys.keys)
        .map(|key| (tidegate_state::StateKey::key_hash(&key), key))
        .collect();
    (load.update)(&load.state, &all);
    drop(all);
    load.report(file);
}

/// Sizes from 16 bytes to 64 KiB, each order of magnitude as frequent as any other.
fn mixed(total: u64, file: &Path) {
    let mut backend = backend();
    let descriptor = ValueStateDescriptor::<Vec<u8>>::new("state");
    let state = backend.bind(&descriptor).expect("nothing is bound yet");
    let mut sizes = Keys::new(12 * 1024);
    let (mut bytes, mut count) = (0, 0u64);
    while bytes < total {
        let size = 16.0 * (sizes.next() as f64 / 1024.0).exp2();
        let value = vec![count as u8; size as usize];
        bytes += value.len() as u64;
        state
            .set(&tidegate_state::At::key(&count), value)
            .expect("the heap never fails");
        count += 1;
    }
    println!("{count} keys, values of 16 bytes to 64 KiB, {bytes} bytes");
    let update = |state: &ValueState<u64, Vec<u8>>, batch: &Batch| {
        let mut table = state.borrow_mut();
        for (hash, key) in batch {
            table.update(*hash, key, |value| {
                let middle = value.len() / 2;
                value[middle] = value[middle].wrapping_add(1);
            });
        }
    };
    let (keys, batch) = (Keys::new(count), Vec::new());
    Load {
        backend,
        state,
        keys,
        update,
        batch,
    }
    .report(file);
}

fn main() {
    let given = std::env::args()
        .skip(1)
        .find(|given| !given.starts_with('-'));
    let folder = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!("tidegate-bench-{}.state", std::process::id()));
    small(10_000_000, &file);
    mixed(1 << 30, &file);
    // Nothing is left to do if it is gone already.
    let _ = fs::remove_file(&file);
}
