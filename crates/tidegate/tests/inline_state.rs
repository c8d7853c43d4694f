//! State that gets no file of its own: because it is small, or because everything is to lie in the
//! metadata.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use support::place::names;
use support::process::PATIENCE;
use tidegate::prelude::*;
use tidegate::{
    CheckpointLocation, JobClient, JobOptions, RequestError, RestartStrategy, RestoreMode,
    RestoreOptions, SnapshotLocation, StatePlacement,
};
use tidegate_types::ErrorChain;
use url::Url;

const KEYS: u64 = 50;
const EACH: u64 = 200;

fn environment(folder: &Path, change: impl FnOnce(&mut JobOptions)) -> Environment {
    Environment::for_tests()
        .with_parallelism(2)
        .with_options(|options| {
            options.location = CheckpointLocation::Directory(Url::from_file_path(folder).unwrap());
            options.settings.restart = RestartStrategy::None;
            change(options);
        })
}

/// Counts numbers by key until each has come so often.
fn start(
    folder: &Path,
    rate: f64,
    change: impl FnOnce(&mut JobOptions),
) -> (JobClient, Collect<(u64, u64)>) {
    let env = environment(folder, change);
    let counts = Collect::new();
    env.source(
        "numbers",
        Generator::new(Some(KEYS * EACH), |index| index % KEYS).rate(rate),
    )
    .key_by(|key| key)
    .count("count")
    .sink("counts", counts.clone());
    (env.start("job").unwrap(), counts)
}

// L2, FS-02: a savepoint whose state is small is its metadata and nothing else, wherever it is
// moved to.
#[test]
fn a_savepoint_of_little_state_is_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let (job, _) = start(&dir.path().join("a"), 5_000.0, |_| {});
    assert!(job.wait_until_running());
    let checkpoint = job.checkpoint().unwrap().checkpoint;
    let chk = dir.path().join(format!("a/job/{checkpoint}"));
    assert_eq!(names(&chk), ["_metadata"]);
    let savepoints = dir.path().join("savepoints").display().to_string();
    let savepoint = job.savepoint(Some(&savepoints)).unwrap();
    assert!(savepoint.bytes > 0);
    job.cancel();
    job.wait().unwrap_err();

    let location = Url::parse(savepoint.location.unwrap().as_str()).unwrap();
    let folder = location.to_file_path().unwrap();
    assert_eq!(names(&folder), ["_metadata"]);
    let moved = dir.path().join("moved");
    fs::rename(&folder, &moved).unwrap();
    let from = SnapshotLocation::new(Url::from_file_path(&moved).unwrap().as_str());
    let (job, counts) = start(&dir.path().join("b"), 1e9, |options| {
        let mode = RestoreMode::NoClaim;
        options.restore = Some(RestoreOptions { from, mode });
    });
    job.wait().unwrap();
    let counts = counts.take();
    assert!(counts.len() < (KEYS * EACH) as usize, "it went on");
    let mut last = BTreeMap::new();
    for (key, count) in counts {
        let latest: &mut u64 = last.entry(key).or_default();
        *latest = count.max(*latest);
    }
    assert_eq!(last, (0..KEYS).map(|key| (key, EACH)).collect());
}

// L3, FS-05: as long as it fits, all state is in the metadata; what doesn't fit is told, with what
// to set.
#[test]
fn the_job_manager_takes_state_up_to_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let env = environment(dir.path(), |options| {
        options.placement = StatePlacement::Inline {
            bytes_max: StatePlacement::JOB_MANAGER_BYTES_MAX,
        };
        options.settings.checkpoints.tolerable_failures = None;
    });
    env.source("numbers", Generator::new(None, |index| index))
        .key_by(|key| key)
        .count("count")
        .sink("counts", Discard);
    let job = env.start("job").unwrap();
    assert!(job.wait_until_running());
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut bytes_max = 0;
    let error = loop {
        assert!(std::time::Instant::now() < deadline, "{bytes_max} bytes");
        match job.checkpoint() {
            Ok(completed) => {
                bytes_max = completed.bytes;
                let chk = dir.path().join(format!("job/{}", completed.checkpoint));
                assert_eq!(names(&chk), ["_metadata"]);
            }
            Err(error) => break error,
        }
    };
    job.cancel();
    job.wait().unwrap_err();
    assert!(matches!(error, RequestError::Failed { .. }), "{error:?}");
    let text = ErrorChain(&error).to_string();
    for part in [
        "`count[",
        "`jobmanager`",
        "`5242880`",
        "`checkpoint-storage` to `filesystem`",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
