//! Checkpoints that rest on earlier ones: what they tell of their size is what lies on the disk.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use support::place::names;
use support::process::wait_until;
use tidegate::prelude::*;
use tidegate::{
    CheckpointLocation, CompletedSummary, JobClient, RestartStrategy, SnapshotFormat,
    StatePlacement,
};
use url::Url;

const KEYS: u64 = 20_000;
/// Keys that go on being counted when all have come once.
const HOT: u64 = 10;
const CHECKPOINTS: usize = 8;
/// What everything but keyed state may come to in a checkpoint: positions of sources.
const LISTS_BYTES_MAX: u64 = 1000;

/// Counts every key once, then few of them for ever. Returns when all have come once.
fn start(folder: &Path, format: SnapshotFormat) -> JobClient {
    let env = Environment::for_tests()
        .with_parallelism(2)
        .with_options(|options| {
            options.location = CheckpointLocation::Directory(Url::from_file_path(folder).unwrap());
            options.settings.restart = RestartStrategy::None;
            options.settings.checkpoints.format = format;
            options.settings.checkpoints.retained = 2 * CHECKPOINTS as u32;
            options.placement = StatePlacement::Files {
                inline_bytes_max: 0,
            };
        });
    let came = Arc::new(AtomicU64::new(0));
    let all = Arc::clone(&came);
    env.source(
        "numbers",
        Generator::new(None, |index| index).rate(100_000.0),
    )
    .map("keys", move |number: u64| {
        if number < KEYS {
            all.fetch_add(1, Ordering::Relaxed);
            return number;
        }
        number % HOT
    })
    .key_by(|key| key)
    .count("count")
    .sink("counts", Discard);
    let job = env.start("job").unwrap();
    wait_until("every key has come", || {
        came.load(Ordering::Relaxed) == KEYS
    });
    job
}

fn checkpoint_folder(folder: &Path, checkpoint: &CompletedSummary) -> PathBuf {
    folder.join(format!("job/{}", checkpoint.checkpoint))
}

/// Bytes of the state files in the folder of a snapshot.
fn state_bytes_in(folder: &Path) -> u64 {
    let names = names(folder).into_iter();
    let state = names.filter(|name| name != "_metadata");
    state
        .map(|name| fs::metadata(folder.join(name)).unwrap().len())
        .sum()
}

fn assert_is_files_and_lists(bytes: u64, files: u64) {
    let lists = bytes.checked_sub(files);
    let lists = lists.unwrap_or_else(|| panic!("{bytes} is less than the files' {files}"));
    assert!(lists <= LISTS_BYTES_MAX, "{bytes} against {files} in files");
}

// O4, SS-03: full sizes stay what they are; what was written is what changed, and is the length of
// the files in the folder of each checkpoint.
#[test]
fn full_and_new_sizes_are_what_lies_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("incremental");
    let job = start(&folder, SnapshotFormat::Incremental);
    let taken: Vec<_> = (0..CHECKPOINTS)
        .map(|_| job.checkpoint().unwrap())
        .collect();
    let full = &taken[0];
    assert_eq!(full.new_bytes, full.bytes, "it rests on nothing");
    let mut files = 0;
    for checkpoint in &taken {
        let new = state_bytes_in(&checkpoint_folder(&folder, checkpoint));
        assert_is_files_and_lists(checkpoint.new_bytes, new);
        // It rests on everything since the last that was whole by itself.
        if checkpoint.new_bytes == checkpoint.bytes {
            files = 0;
        }
        files += new;
        assert_is_files_and_lists(checkpoint.bytes, files);
        assert!(checkpoint.bytes < full.bytes + full.bytes / 2);
    }
    let sum = |of: fn(&CompletedSummary) -> u64| taken.iter().map(of).sum::<u64>();
    // Changes are kept track of from the first checkpoint that may rest on another.
    assert!(taken[2..].iter().all(|c| c.new_bytes * 10 < c.bytes));
    let (held, written) = (sum(|c| c.bytes), sum(|c| c.new_bytes));
    assert!(held > (CHECKPOINTS as u64 - 1) * full.bytes);
    assert!(written < 3 * full.bytes, "{written} of {held}");

    let statistics = job.statistics();
    assert_eq!(statistics.bytes.sum(), u128::from(held));
    assert_eq!(statistics.new_bytes.sum(), u128::from(written));
    let last = taken.last().unwrap();
    let details = statistics.checkpoint(last.checkpoint).unwrap();
    let of_operators = details.operators().map(|operator| operator.new_bytes());
    assert_eq!(of_operators.sum::<u64>(), last.new_bytes);

    // A savepoint rests on nothing.
    let savepoints = dir.path().join("savepoints").display().to_string();
    let savepoint = job.savepoint(Some(&savepoints)).unwrap();
    assert_eq!(savepoint.new_bytes, savepoint.bytes);
    let location = Url::parse(savepoint.location.unwrap().as_str()).unwrap();
    let files = state_bytes_in(&location.to_file_path().unwrap());
    assert_is_files_and_lists(savepoint.bytes, files);
    job.cancel();
    job.wait().unwrap_err();

    // The same state in full checkpoints, each of which is all new.
    let folder = dir.path().join("full");
    let job = start(&folder, SnapshotFormat::Full);
    for _ in 0..2 {
        let same = job.checkpoint().unwrap();
        assert_eq!(same.new_bytes, same.bytes);
        assert!(same.bytes < last.bytes + LISTS_BYTES_MAX);
        assert!(last.bytes < same.bytes + same.bytes / 2);
    }
    job.cancel();
    job.wait().unwrap_err();
}
