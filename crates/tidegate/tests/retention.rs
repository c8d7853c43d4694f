//! Which ends of a job its checkpoints outlive, with real folders.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::place::names;
use tidegate::prelude::*;
use tidegate::{
    CheckpointId, CheckpointLocation, JobClient, RestartStrategy, Retention, RunError,
    StatePlacement,
};
use url::Url;

/// A job that fails when it is told to, and finishes unless it is endless.
fn start(
    folder: &Path,
    retention: Retention,
    records: Option<u64>,
) -> (JobClient, Arc<AtomicBool>) {
    let failing = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&failing);
    let env = Environment::for_tests().with_options(|options| {
        options.location = CheckpointLocation::Directory(Url::from_file_path(folder).unwrap());
        options.settings.checkpoints.retention = retention;
        options.settings.restart = RestartStrategy::None;
        options.placement = StatePlacement::Files {
            inline_bytes_max: 0,
        };
    });
    env.source(
        "numbers",
        Generator::new(records, |index| index).rate(10_000.0),
    )
    .map("fragile", move |number: u64| {
        assert!(!fails.load(Ordering::Relaxed), "told to fail");
        number
    })
    .key_by(|number| number)
    .count("count")
    .sink("sink", Discard);
    (env.start("job").unwrap(), failing)
}

/// Takes a checkpoint as soon as the job runs.
fn checkpoint(job: &JobClient) -> CheckpointId {
    assert!(job.wait_until_running());
    job.checkpoint().unwrap().checkpoint
}

/// The checkpoint that is listed and whole, if there is one; then nothing else is there either.
fn kept(folder: &Path) -> Option<CheckpointId> {
    let namespace = folder.join("job");
    let pointers = names(&namespace.join("completed"));
    let mut folders = names(&namespace);
    folders.retain(|name| name.starts_with("chk-"));
    assert_eq!(pointers.len(), folders.len(), "{pointers:?} {folders:?}");
    assert!(pointers.len() <= 1, "{pointers:?}");
    let id = CheckpointId(pointers.first()?.parse().unwrap());
    assert_eq!(folders, [format!("{id}")]);
    let files = names(&namespace.join(&folders[0]));
    assert!(files.contains(&"_metadata".to_owned()) && files.len() == 2);
    Some(id)
}

enum End {
    Cancel,
    Fail,
    Finish,
}

/// Brings a job to its end; says whether its checkpoint outlived it.
fn outlives(retention: Retention, end: End) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let records = matches!(end, End::Finish).then_some(3_000);
    let (job, failing) = start(folder.path(), retention, records);
    let taken = checkpoint(&job);
    let told = match end {
        End::Cancel => {
            job.cancel();
            match job.wait().unwrap_err() {
                RunError::Cancelled { latest, .. } => latest,
                other => panic!("{other}"),
            }
        }
        End::Fail => {
            failing.store(true, Ordering::Relaxed);
            let error = job.wait().unwrap_err();
            assert!(matches!(error, RunError::Failed { .. }), "{error}");
            kept(folder.path())
        }
        End::Finish => {
            job.wait().unwrap();
            kept(folder.path())
        }
    };
    assert_eq!(kept(folder.path()), told);
    assert!(told.is_none_or(|told| told == taken));
    if told.is_some() {
        // What is kept is good for going on.
        let (again, _) = start(folder.path(), retention, None);
        checkpoint(&again);
        let restored = again.statistics().latest_restored.clone();
        assert_eq!(restored.map(|restored| restored.checkpoint), told);
        again.cancel();
        again.wait().unwrap_err();
    }
    told.is_some()
}

// CO-06
#[test]
fn retain_on_cancellation_keeps_on_cancel_and_failure() {
    let retention = Retention::RetainOnCancellation;
    assert!(outlives(retention, End::Cancel));
    assert!(outlives(retention, End::Fail));
    assert!(!outlives(retention, End::Finish));
}

// CO-07
#[test]
fn delete_on_cancellation_keeps_on_failure_only() {
    let retention = Retention::DeleteOnCancellation;
    assert!(!outlives(retention, End::Cancel));
    assert!(outlives(retention, End::Fail));
    assert!(!outlives(retention, End::Finish));
}

// CO-08
#[test]
fn no_retention_keeps_nothing() {
    let retention = Retention::NoRetention;
    assert!(!outlives(retention, End::Cancel));
    assert!(!outlives(retention, End::Fail));
    assert!(!outlives(retention, End::Finish));
}
