//! Beginning from a snapshot with and without claiming it, and from which.

use tidegate::{JobOutcome, RestoreMode};

use crate::support::wait_until;
use crate::{Run, Site, alone, assert_says, folder, wait_for_output};

/// A job `a` that was stopped in the middle, and its savepoint.
fn stopped(site: &Site) -> std::path::PathBuf {
    let job = site.running("a", Run::slow());
    let savepoint = job.stop_with_savepoint(Some(&site.savepoints()), false);
    job.wait().unwrap();
    folder(&savepoint.unwrap())
}

// SP-13: what is claimed is the job's, and deleted like a checkpoint once it is subsumed.
#[test]
fn a_claimed_savepoint_is_deleted_when_it_is_subsumed() {
    let _alone = alone();
    let site = Site::new();
    let savepoint = stopped(&site);
    let mut run = Run::from(&savepoint, RestoreMode::Claim);
    run.rate = Some(20_000.0);
    let job = site.running("b", run);
    assert!(savepoint.exists(), "it is needed until something is newer");
    job.checkpoint().unwrap();
    wait_until("the savepoint is gone", || !savepoint.exists());
    let report = job.wait().unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    site.assert_exact(&["a", "b"]);
}

// What a job was drained into has nothing left to go on with.
#[test]
fn nothing_is_begun_from_a_drained_savepoint() {
    let _alone = alone();
    let site = Site::new();
    let job = site.running("a", Run::slow());
    let savepoint = job.stop_with_savepoint(Some(&site.savepoints()), true);
    let savepoint = folder(&savepoint.unwrap());
    let before = crate::picture(&savepoint);
    for mode in [RestoreMode::NoClaim, RestoreMode::Claim] {
        let error = site.start("b", Run::from(&savepoint, mode)).unwrap_err();
        assert_says(&error, &["chk-1", "taken by draining"]);
        assert!(crate::picture(&savepoint) == before);
    }
    // Nothing has been recorded of it.
    let report = site.start("b", Run::default()).unwrap().wait().unwrap();
    assert_eq!(report.restored, None);
    site.assert_exact(&["b"]);
}

// P10: the user's choice among the retained checkpoints of a job that has ended, not the latest.
#[test]
fn an_older_retained_checkpoint_is_gone_back_to() {
    let _alone = alone();
    let site = Site::new();
    let run = Run {
        interval: Some(10),
        change: |options| options.settings.checkpoints.retained = 3,
        ..Run::slow()
    };
    let job = site.running("a", run);
    wait_for_output(&site.output("a"));
    wait_until("there are three", || site.completed("a").len() >= 3);
    job.cancel();
    job.wait().unwrap_err();
    let completed = site.completed("a");
    assert_eq!(completed.len(), 3);
    let before = crate::support::files(&site.namespace("a"));
    for (index, id) in completed.into_iter().enumerate() {
        let name = format!("from-{index}");
        let checkpoint = site.namespace("a").join(format!("chk-{id}"));
        let run = Run::from(&checkpoint, RestoreMode::NoClaim);
        let report = site.start(&name, run).unwrap().wait().unwrap();
        assert_eq!(report.restored.map(|id| id.0), Some(id));
        assert!(report.records < crate::KEYS * crate::EACH, "it began anew");
    }
    assert!(crate::support::files(&site.namespace("a")) == before);
}

// IT-09: each job is begun from the checkpoint that the one before it has left, and ends in the
// same way. What the one before had not published in time is published by the next.
#[test]
fn a_chain_of_retained_checkpoints_resumes_each_time() {
    let _alone = alone();
    let site = Site::new();
    let mut previous: Option<std::path::PathBuf> = None;
    for (name, parallelism) in [("a", 2), ("b", 1), ("c", 3)] {
        let run = Run {
            parallelism,
            restore: previous
                .as_ref()
                .map(|place| crate::restore(place, RestoreMode::NoClaim)),
            ..Run::slow()
        };
        let job = site.running(name, run);
        let restored = job.statistics().latest_restored.clone();
        assert_eq!(restored.is_some(), previous.is_some());
        let checkpoint = job.checkpoint().unwrap().checkpoint;
        job.cancel();
        job.wait().unwrap_err();
        previous = Some(site.namespace(name).join(checkpoint.to_string()));
    }
    let run = Run::from(&previous.unwrap(), RestoreMode::NoClaim);
    site.start("d", run).unwrap().wait().unwrap();
    site.assert_exact(&["a", "b", "c", "d"]);
}

// RS-07: without a checkpoint a job starts empty, unless one was asked for.
#[test]
fn a_job_starts_empty_unless_it_was_to_be_begun_from_something() {
    let _alone = alone();
    let site = Site::new();
    let nothing = site.path("nothing");
    let run = Run::from(&nothing, RestoreMode::NoClaim);
    let error = site.start("a", run).unwrap_err();
    assert_says(&error, &[&nothing.display().to_string(), "is missing"]);
    let report = site.start("a", Run::default()).unwrap().wait().unwrap();
    assert_eq!(report.restored, None);
    site.assert_exact(&["a"]);
}

// A namespace goes on from what it was begun from, with or without being told; nothing else.
#[test]
fn a_namespace_has_one_origin() {
    let _alone = alone();
    let site = Site::new();
    let savepoint = stopped(&site);
    let other = site.path("copy");
    std::fs::create_dir(&other).unwrap();
    for name in crate::support::place::names(&savepoint) {
        std::fs::copy(savepoint.join(&name), other.join(&name)).unwrap();
    }
    let begin = |place: &std::path::Path, mode| site.start("b", Run::from(place, mode));
    let slow = Run {
        rate: Some(1_000.0),
        ..Run::from(&savepoint, RestoreMode::NoClaim)
    };
    let job = site.running("b", slow);
    job.cancel();
    job.wait().unwrap_err();

    let [first, second] = [&savepoint, &other].map(|path| path.display().to_string());
    let error = begin(&other, RestoreMode::NoClaim).unwrap_err();
    assert_says(&error, &["was begun from", &first, &second]);
    let error = begin(&savepoint, RestoreMode::Claim).unwrap_err();
    assert_says(&error, &["was begun from", "no-claim", "(claim)"]);

    // Without being told, and told the same once more.
    let slow = Run {
        rate: Some(1_000.0),
        ..Run::default()
    };
    let job = site.running("b", slow);
    let restored = job.statistics().latest_restored.clone();
    assert_eq!(
        crate::path_of(&restored.unwrap().location.unwrap()),
        savepoint
    );
    job.checkpoint().unwrap();
    job.cancel();
    job.wait().unwrap_err();
    let report = begin(&savepoint, RestoreMode::NoClaim)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    site.assert_exact(&["a", "b"]);

    // A job that has finished begins from nothing; one with checkpoints from nothing else.
    let error = begin(&other, RestoreMode::NoClaim).unwrap_err();
    assert_says(&error, &["has finished", &second]);
    let error = site
        .start("a", Run::from(&other, RestoreMode::NoClaim))
        .unwrap_err();
    assert_says(&error, &["has completed checkpoints of its own", "chk-1"]);
}
