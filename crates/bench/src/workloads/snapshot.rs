//! Keyed state of one subtask is frozen, written to memory and to a file, and restored: the parts
//! of a checkpoint and of a restart that grow with the state, without the job around them.

use std::fs::File;
use std::io::{BufWriter, Cursor, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_state::{At, HeapKeyedBackend, ValueState, ValueStateDescriptor};
use tidegate_types::MaxParallelism;

use crate::error::{Error, Result};
use crate::measure::{Meter, thread_cpu_time};
use crate::options::Common;
use crate::outcome::{Outcome, Quantiles, SnapshotExtra, quantile};

const KEYS: u64 = 10_000_000;
const ROUNDS: usize = 5;
/// What files are written through.
const BUFFER: usize = 1 << 20;

fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> Error {
    move |cause| Error::Other {
        what,
        cause: cause.into(),
    }
}

/// State of all key groups: a number per key.
struct State {
    backend: HeapKeyedBackend<u64>,
    counts: ValueState<u64, u64>,
}

impl State {
    fn empty() -> Result<Self> {
        let max = MaxParallelism::derive(1);
        let range = max.range(0, 1).expect("one subtask owns all key groups");
        let mut backend = HeapKeyedBackend::new(max, range);
        let descriptor = ValueStateDescriptor::new("count");
        let counts = backend.bind(&descriptor).map_err(failed("bind state"))?;
        Ok(State { backend, counts })
    }

    fn filled(keys: u64) -> Result<Self> {
        let state = State::empty()?;
        for key in 0..keys {
            let set = state.counts.set(&At::key(&key), key);
            set.map_err(failed("fill state"))?;
        }
        Ok(state)
    }

    /// Writes a snapshot; returns how long the freeze took.
    fn write(&mut self, out: &mut dyn Write) -> Result<Duration> {
        let start = Instant::now();
        let frozen = self.backend.freeze();
        let pause = start.elapsed();
        self.backend.finish_snapshots();
        frozen.write_to(out).map_err(failed("write the snapshot"))?;
        Ok(pause)
    }
}

/// Megabytes per second, a value per round.
#[derive(Default)]
struct Speeds(Vec<f64>);

impl Speeds {
    fn add(&mut self, bytes: usize, time: Duration) {
        self.0.push(bytes as f64 / 1e6 / time.as_secs_f64());
    }

    fn median(mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        quantile(&self.0, 500)
    }
}

/// Writes a snapshot to a file and syncs it; returns how long that took.
fn write_file(state: &mut State, path: &Path) -> Result<Duration> {
    let start = Instant::now();
    let file = File::create(path).map_err(Error::io("create", path))?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    state.write(&mut out)?;
    let file = out.into_inner().map_err(failed("write the snapshot"))?;
    file.sync_all().map_err(Error::io("sync", path))?;
    Ok(start.elapsed())
}

/// Restores a snapshot into a backend where its state is bound; returns how long that took.
fn restore(bytes: &[u8], keys: u64) -> Result<Duration> {
    let mut restored = State::empty()?;
    let start = thread_cpu_time();
    let file = restored
        .backend
        .restore_file("snapshot", &mut Cursor::new(bytes));
    file.map_err(failed("restore"))?;
    let time = thread_cpu_time() - start;
    Error::unless_equal("keys restored", keys, restored.backend.entries() as u64)?;
    let last = keys - 1;
    let value = restored.counts.get(&At::key(&last));
    let value = value.map_err(failed("read state"))?.unwrap_or(0);
    Error::unless_equal("value restored", last, value)?;
    Ok(time)
}

pub(super) fn run(common: &Common) -> Result<Outcome> {
    let keys = common.keys.unwrap_or(KEYS).max(1);
    let parent = common.data_dir();
    let folder = tempfile::TempDir::with_prefix_in("tidegate-bench-", &parent)
        .map_err(Error::io("make a folder in", &parent))?;
    let meter = Meter::start();
    let mut state = State::filled(keys)?;
    let (mut encoded, mut to_file, mut read) = <(Speeds, Speeds, Speeds)>::default();
    let mut pauses = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..ROUNDS {
        bytes.clear();
        let start = thread_cpu_time();
        let pause = state.write(&mut bytes)?;
        encoded.add(bytes.len(), thread_cpu_time() - start);
        pauses.push(pause.as_secs_f64() * 1e6);
        let path = folder.path().join("snapshot");
        to_file.add(bytes.len(), write_file(&mut state, &path)?);
        read.add(bytes.len(), restore(&bytes, keys)?);
    }
    let records = keys * ROUNDS as u64;
    let mut outcome = Outcome::new(("snapshot", "tidegate"), records, 1, meter.stop()?);
    outcome.keys = Some(keys);
    outcome.extra.snapshot = Some(SnapshotExtra {
        bytes: bytes.len() as u64,
        freeze_us: Quantiles::of(pauses),
        encode_mb_per_second: encoded.median(),
        file_mb_per_second: to_file.median(),
        restore_mb_per_second: read.median(),
    });
    Ok(outcome)
}
