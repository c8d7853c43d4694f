//! Savepoints of a job that goes on.

use std::fs;

use tidegate::{JobOutcome, RequestError, RestoreMode, TriggerRefusal};

use crate::support::wait_until;
use crate::{Run, Site, alone, assert_says, folder, picture, wait_for_output};

// SP-01, SP-13, SP-14, ID-06: the job goes on; another namespace begins from it at another
// parallelism, from another place, and never changes it.
#[test]
fn a_savepoint_is_taken_while_the_job_goes_on_and_begins_another() {
    let _alone = alone();
    let site = Site::new();
    let run = Run {
        interval: Some(20),
        ..Run::slow()
    };
    let job = site.running("a", run);
    wait_for_output(&site.output("a"));
    let savepoint = job.savepoint(Some(&site.savepoints())).unwrap();
    let id = savepoint.checkpoint;
    assert_eq!(
        job.statistics().latest_savepoint,
        Some(savepoint.clone()),
        "it counts as completed"
    );
    assert!(!site.completed("a").contains(&id.0), "it isn't retained");
    let report = job.wait().unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    site.assert_exact(&["a"]);

    let moved = site.path("elsewhere");
    fs::rename(folder(&savepoint), &moved).unwrap();
    let before = picture(&moved);
    let mut run = Run::from(&moved, RestoreMode::NoClaim);
    (run.interval, run.rate) = (Some(10), Some(20_000.0));
    let other = site.running("b", run);
    wait_until("it has checkpoints of its own", || {
        let completed = site.completed("b");
        assert!(completed.iter().all(|own| *own > id.0), "{completed:?}");
        completed.len() == 1 && other.statistics().completed > 3
    });
    let report = other.wait().unwrap();
    assert_eq!(report.restored, Some(id));
    assert!(picture(&moved) == before, "the savepoint was changed");
    assert_goes_on(&site);
}

/// Checks that job `b` has counted each key on from somewhere behind its beginning.
fn assert_goes_on(site: &Site) {
    let mut counts = std::collections::BTreeMap::<String, Vec<u64>>::new();
    for file in crate::oracle::visible_files(&site.output("b")).unwrap() {
        for line in fs::read_to_string(file).unwrap().lines() {
            let (key, count) = line.split_once('\t').unwrap();
            let counts = counts.entry(key.to_owned()).or_default();
            counts.push(count.parse().unwrap());
        }
    }
    assert_eq!(counts.len() as u64, crate::KEYS);
    for (key, mut counts) in counts {
        counts.sort_unstable();
        let first = counts[0];
        assert!(first > 1, "key {key} began anew");
        assert!(counts.iter().copied().eq(first..=crate::EACH), "key {key}");
    }
}

// SP-01, SP-12: with checkpointing off; nothing is announced or committed. What it holds of
// uncommitted output is published by whoever goes on from it, where it was written.
#[test]
fn a_savepoint_without_checkpointing_holds_uncommitted_output() {
    let _alone = alone();
    let site = Site::new();
    let job = site.running("a", Run::slow());
    let mut savepoint = job.savepoint(Some(&site.savepoints())).unwrap();
    let staged = site.output("a").join(".tidegate/staged");
    wait_until("a savepoint has something to hold", || {
        savepoint = job.savepoint(Some(&site.savepoints())).unwrap();
        !crate::support::place::names(&staged).is_empty()
    });
    job.cancel();
    job.wait().unwrap_err();
    let published = |name| {
        crate::oracle::visible_files(&site.output(name))
            .unwrap()
            .len()
    };
    assert_eq!(published("a"), 0, "a savepoint commits nothing");

    let run = Run::from(&folder(&savepoint), RestoreMode::NoClaim);
    site.start("b", run).unwrap().wait().unwrap();
    assert!(
        published("a") > 0,
        "what was pending is where it was written"
    );
    site.assert_exact(&["a", "b"]);
}

// SP-12: clear errors, and nothing is left behind.
#[test]
fn savepoints_that_cannot_be_made_are_refused() {
    let _alone = alone();
    let site = Site::new();
    let job = site.running("a", Run::slow());
    let error = job.savepoint(None).unwrap_err();
    assert!(matches!(
        error,
        RequestError::Refused(TriggerRefusal::NoSavepointDirectory)
    ));
    let error = job.savepoint(Some("hdfs://bucket/savepoints")).unwrap_err();
    assert_says(&error, &["hdfs://bucket/savepoints", "UnsupportedScheme"]);
    let file = site.path("file");
    fs::write(&file, "").unwrap();
    let error = job
        .savepoint(Some(&file.display().to_string()))
        .unwrap_err();
    assert!(
        matches!(error, RequestError::Failed { .. }),
        "it isn't begun: {error:?}"
    );
    assert_says(&error, &["NotPrepared", "create the folder"]);
    assert_eq!(job.statistics().latest_savepoint, None);
    // The job is none the worse for it.
    job.savepoint(Some(&site.savepoints())).unwrap();
    job.cancel();
    job.wait().unwrap_err();
}
