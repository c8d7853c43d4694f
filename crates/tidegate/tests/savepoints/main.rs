//! Savepoints, stops, and jobs that are begun from a snapshot by its path: within this process
//! where nothing has to be killed, as processes of their own otherwise.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../examples/support/oracle.rs"]
mod oracle;
#[path = "../support/mod.rs"]
mod support;

mod begin;
mod dry_run;
mod kills;
mod modes;
mod stop;
mod take;

use std::collections::BTreeMap;
#[cfg(feature = "fault-points")]
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use support::place::files;
use tidegate::prelude::*;
use tidegate::{
    CheckpointLocation, CompletedSummary, JobClient, JobOptions, MaxParallelism, RestartStrategy,
    RestoreMode, RestoreOptions, SnapshotLocation, StatePlacement,
};
use url::Url;

/// Numbers that a job counts, each key so often.
const KEYS: u64 = 50;
const EACH: u64 = 300;

/// Injected errors hit every job of the process: jobs run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for namespaces, output folders and savepoints of several jobs.
struct Site {
    dir: tempfile::TempDir,
}

/// How one job runs.
struct Run {
    parallelism: u32,
    /// Records a second; as fast as possible if there is none.
    rate: Option<f64>,
    interval: Option<u64>,
    restore: Option<RestoreOptions>,
    max_parallelism: Option<u32>,
    count: &'static str,
    /// The job whose output folder it writes to, if that isn't its own.
    output: Option<&'static str>,
    change: fn(&mut JobOptions),
}

impl Default for Run {
    fn default() -> Self {
        Run {
            parallelism: 2,
            rate: None,
            interval: None,
            restore: None,
            max_parallelism: None,
            count: "count",
            output: None,
            change: |_| {},
        }
    }
}

impl Run {
    /// Slow enough to be stopped before its end.
    fn slow() -> Self {
        Run {
            rate: Some(10_000.0),
            ..Run::default()
        }
    }

    fn from(place: &Path, mode: RestoreMode) -> Self {
        Run {
            restore: Some(restore(place, mode)),
            parallelism: 3,
            ..Run::default()
        }
    }
}

fn restore(place: &Path, mode: RestoreMode) -> RestoreOptions {
    let url = Url::from_file_path(place).unwrap();
    let from = SnapshotLocation::new(url.as_str());
    RestoreOptions { from, mode }
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        Site { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn namespace(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}/job"))
    }

    fn output(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}-output"))
    }

    /// The pointers of a job, ascending.
    fn completed(&self, name: &str) -> Vec<u64> {
        let names = support::place::names(&self.namespace(name).join("completed"));
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// Where savepoints are made, as the handle takes it.
    fn savepoints(&self) -> String {
        self.path("savepoints").display().to_string()
    }

    /// Starts the job with its namespace below `name`, and an output folder of its own.
    fn start(&self, name: &str, run: Run) -> tidegate::Result<JobClient> {
        let directory = Url::from_file_path(self.path(name)).unwrap();
        let env = Environment::for_tests()
            .with_parallelism(run.parallelism)
            .with_options(|options| {
                options.location = CheckpointLocation::Directory(directory);
                options.settings.checkpoints.interval = run.interval.map(Duration::from_millis);
                options.settings.restart = RestartStrategy::None;
                options.restore = run.restore;
                // However small: so that there are state files.
                options.placement = StatePlacement::Files {
                    inline_bytes_max: 0,
                };
                (run.change)(options);
            });
        let mut numbers = Generator::new(Some(KEYS * EACH), |index| (index % KEYS).to_string());
        if let Some(rate) = run.rate {
            numbers = numbers.rate(rate);
        }
        let mut counts = env
            .source("numbers", numbers)
            .key_by(|key| key)
            .count(run.count);
        if let Some(max) = run.max_parallelism {
            counts = counts.max_parallelism(MaxParallelism::new(max).unwrap());
        }
        let output = self.output(run.output.unwrap_or(name));
        counts.sink("sink", FileSink::new(output));
        env.start("job")
    }

    /// Starts it and waits until snapshots can be taken.
    fn running(&self, name: &str, run: Run) -> JobClient {
        let job = self.start(name, run).unwrap();
        assert!(job.wait_until_running(), "{:?}", job.wait());
        job
    }

    /// Checks that the output of these jobs together is each count of each key once.
    fn assert_exact(&self, names: &[&str]) {
        let outputs: Vec<PathBuf> = names.iter().map(|name| self.output(name)).collect();
        let expected = (0..KEYS).map(|key| (key.to_string(), EACH)).collect();
        assert_exact(&outputs, &expected);
    }
}

/// Checks that what lies in these output folders together is each count of each word once.
fn assert_exact(outputs: &[PathBuf], expected: &BTreeMap<String, u64>) {
    let merged = tempfile::tempdir().unwrap();
    for (index, output) in outputs.iter().enumerate() {
        for file in oracle::visible_files(output).unwrap_or_default() {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            fs::copy(&file, merged.path().join(format!("{index}-{name}"))).unwrap();
        }
    }
    oracle::verify(merged.path(), expected).unwrap();
}

/// The lines that lie in an output folder, published or staged.
#[cfg(feature = "fault-points")]
fn written(output: &Path) -> BTreeSet<String> {
    let folders = [output, &output.join(".tidegate/staged")];
    let files = folders.map(|folder| oracle::visible_files(folder).unwrap());
    let texts = files
        .iter()
        .flatten()
        .map(|file| fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Checks that these lines are published, each once, and that no count is left out; returns how
/// many there are.
#[cfg(feature = "fault-points")]
fn assert_drained(output: &Path, written: &BTreeSet<String>) -> u64 {
    let mut expected = BTreeMap::new();
    for line in written {
        let (word, _) = line.rsplit_once('\t').unwrap();
        *expected.entry(word.to_owned()).or_insert(0) += 1;
    }
    assert!(!expected.is_empty(), "nothing had been written");
    oracle::verify(output, &expected).unwrap()
}

/// The local folder of a snapshot.
fn folder(savepoint: &CompletedSummary) -> PathBuf {
    let location = savepoint.location.as_ref().expect("a savepoint has one");
    path_of(location)
}

fn path_of(location: &SnapshotLocation) -> PathBuf {
    let url = Url::parse(location.as_str()).unwrap();
    url.to_file_path().unwrap()
}

/// Bytes and times of everything in a folder.
fn picture(folder: &Path) -> BTreeMap<String, (std::time::SystemTime, Vec<u8>)> {
    let found = files(folder);
    assert!(found.contains_key("_metadata"), "{:?}", found.keys());
    found
}

/// Waits for some output, so that there is something to be lost or doubled.
fn wait_for_output(output: &Path) {
    support::wait_until("something is published", || {
        oracle::visible_files(output).is_ok_and(|files| !files.is_empty())
    });
}

fn assert_says(error: &impl std::fmt::Debug, parts: &[&str]) {
    let text = format!("{error:?}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
