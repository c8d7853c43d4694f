//! Stopping with a savepoint, and going on.

#[cfg(feature = "fault-points")]
use tidegate::{CheckpointId, JobClient, JobOptions, RestartStrategy};
use tidegate::{JobOutcome, RequestError};

use crate::{Run, Site, alone, folder, picture};

// SP-08: the same command goes on from the savepoint, at another parallelism; all output together
// is that of a run that was never stopped.
#[test]
fn a_stopped_job_goes_on_and_its_output_is_that_of_an_undisturbed_run() {
    let _alone = alone();
    let site = Site::new();
    for interval in [None, Some(20)] {
        let name = format!("stopped-{interval:?}");
        let run = Run {
            interval,
            ..Run::slow()
        };
        let job = site.running(&name, run);
        let savepoint = job.stop_with_savepoint(Some(&site.savepoints()), false);
        let savepoint = savepoint.unwrap();
        let report = job.wait().unwrap();
        let expected = JobOutcome::Stopped {
            savepoint: savepoint.checkpoint,
            location: savepoint.location.clone().unwrap(),
        };
        assert_eq!(report.outcome, expected);
        assert_eq!(site.completed(&name).last(), Some(&savepoint.checkpoint.0));

        let again = Run {
            parallelism: 3,
            interval,
            ..Run::default()
        };
        let report = site.start(&name, again).unwrap().wait().unwrap();
        assert_eq!(report.outcome, JobOutcome::Finished);
        assert_eq!(report.restored, Some(savepoint.checkpoint));
        site.assert_exact(&[&name]);
        // It outlives the job, to the last byte.
        picture(&folder(&savepoint));
        assert_eq!(site.completed(&name), Vec::<u64>::new());
    }
    site.start("undisturbed", Run::default())
        .unwrap()
        .wait()
        .unwrap();
    site.assert_exact(&["undisturbed"]);
}

#[test]
fn a_drained_job_is_finished() {
    let _alone = alone();
    let site = Site::new();
    let job = site.running("a", Run::slow());
    let savepoint = job.stop_with_savepoint(Some(&site.savepoints()), true);
    let savepoint = savepoint.unwrap();
    let report = job.wait().unwrap();
    let expected = JobOutcome::Drained {
        savepoint: savepoint.checkpoint,
        location: savepoint.location.clone().unwrap(),
    };
    assert_eq!(report.outcome, expected);
    picture(&folder(&savepoint));
    let output = crate::support::files(&site.output("a"));
    let again = site.start("a", Run::default()).unwrap().wait().unwrap();
    assert_eq!(again.outcome, JobOutcome::AlreadyFinished);
    assert!(crate::support::files(&site.output("a")) == output);
}

// Whoever is told that the job has stopped may run it again: its lock is free, and what doesn't
// outlive its end is gone.
#[test]
fn a_stopped_job_may_be_started_again_at_once() {
    let _alone = alone();
    let site = Site::new();
    for drain in [false, false, false, true] {
        let job = site.running("a", Run::slow());
        job.checkpoint().unwrap();
        let savepoint = job.stop_with_savepoint(Some(&site.savepoints()), drain);
        assert!(job.has_ended());
        let savepoint = savepoint.unwrap().checkpoint.0;
        let left = if drain { vec![] } else { vec![savepoint] };
        assert_eq!(site.completed("a"), left);
        assert!(!site.namespace("a").join("chk-1").exists());
    }
    let again = site.start("a", Run::default()).unwrap().wait().unwrap();
    assert_eq!(again.outcome, JobOutcome::AlreadyFinished);
}

// The same but for the folder of the output: what is committed stays as it is where it is.
#[test]
fn a_stopped_job_goes_on_with_another_output_folder() {
    let _alone = alone();
    let site = Site::new();
    let job = site.running("a", Run::slow());
    job.checkpoint().unwrap();
    crate::wait_for_output(&site.output("a"));
    let savepoint = job.stop_with_savepoint(Some(&site.savepoints()), false);
    let before = crate::support::files(&site.output("a"));

    let elsewhere = Run {
        parallelism: 3,
        output: Some("b"),
        ..Run::default()
    };
    let report = site.start("a", elsewhere).unwrap().wait().unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    assert_eq!(report.restored, Some(savepoint.unwrap().checkpoint));
    assert!(crate::support::files(&site.output("a")) == before);
    site.assert_exact(&["a", "b"]);
}

// D4: a job is stopped once. Everybody is told.
#[test]
fn a_second_stop_is_refused() {
    let _alone = alone();
    let site = Site::new();
    let job = site.running("a", Run::slow());
    let asked: Vec<_> = (0..2)
        .map(|_| {
            let (job, savepoints) = (job.clone(), site.savepoints());
            std::thread::spawn(move || job.stop_with_savepoint(Some(&savepoints), false))
        })
        .collect();
    let answers: Vec<_> = asked
        .into_iter()
        .map(|asked| asked.join().unwrap())
        .collect();
    let stopped = answers.iter().filter(|answer| answer.is_ok()).count();
    let refused = |answer: &&Result<_, _>| matches!(answer, Err(RequestError::Refused(_)));
    assert_eq!(stopped, 1, "{answers:?}");
    assert_eq!(answers.iter().filter(refused).count(), 1, "{answers:?}");
    let report = job.wait().unwrap();
    assert!(matches!(report.outcome, JobOutcome::Stopped { .. }));
    assert_eq!(report.statistics.latest_savepoint.unwrap().checkpoint.0, 1);
}

#[cfg(feature = "fault-points")]
fn restarting(options: &mut JobOptions) {
    options.settings.restart = RestartStrategy::FixedDelay {
        attempts: 3,
        delay: std::time::Duration::from_millis(1),
    };
}

/// Takes a checkpoint and waits until both subtasks have committed it.
#[cfg(feature = "fault-points")]
fn checkpoint_and_commits(site: &Site, job: &JobClient) -> CheckpointId {
    let checkpoint = job.checkpoint().unwrap().checkpoint;
    crate::wait_for_output(&site.output("a"));
    let staged = site.output("a").join(".tidegate/staged");
    crate::support::wait_until("both subtasks have committed", || {
        crate::support::place::names(&staged).is_empty()
    });
    checkpoint
}

// SP-10, BC-22: the savepoint is complete, a commit fails. Whoever asked is told its path; the job
// goes on from it and from nothing older, and what was not committed is.
#[test]
#[cfg(feature = "fault-points")]
fn a_stop_whose_commit_fails_names_its_savepoint_and_goes_on_from_it() {
    let _alone = alone();
    let site = Site::new();
    let run = Run {
        change: restarting,
        ..Run::slow()
    };
    let job = site.running("a", run);
    let older = checkpoint_and_commits(&site, &job);
    let failing = tidegate_fault::inject("commit:write", std::io::ErrorKind::StorageFull, 0..1);
    let error = job.stop_with_savepoint(Some(&site.savepoints()), false);
    let error = error.unwrap_err();
    assert_eq!(failing.remaining(), 0, "not all was injected");
    let RequestError::NotStopped { savepoint, .. } = &error else {
        panic!("{error:?}")
    };
    let text = error.to_string();
    let location = savepoint.location.as_ref().unwrap().to_string();
    assert!(
        text.contains(&location) && text.contains("not everything"),
        "{text}"
    );
    assert!(savepoint.checkpoint > older);
    picture(&folder(savepoint));

    let report = job.wait().unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    assert_eq!(report.statistics.restarts, 1);
    let restored = report.statistics.latest_restored.unwrap();
    assert_eq!(restored.checkpoint, savepoint.checkpoint);
    site.assert_exact(&["a"]);
}

// SP-10: the same of a drain. The job restarts, but for its commits: it ends by itself, and
// what had not been read by then never is.
#[test]
#[cfg(feature = "fault-points")]
fn a_drain_whose_commit_fails_is_committed_and_finished_by_a_restart() {
    let _alone = alone();
    let site = Site::new();
    let run = Run {
        change: restarting,
        ..Run::slow()
    };
    let job = site.running("a", run);
    checkpoint_and_commits(&site, &job);
    let failing = tidegate_fault::inject("commit:write", std::io::ErrorKind::StorageFull, 0..1);
    let error = job.stop_with_savepoint(Some(&site.savepoints()), true);
    let error = error.unwrap_err();
    assert_eq!(failing.remaining(), 0, "not all was injected");
    let RequestError::NotStopped { savepoint, .. } = &error else {
        panic!("{error:?}")
    };
    let report = job.wait().unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    let restored = report.statistics.latest_restored.unwrap();
    assert_eq!(restored.checkpoint, savepoint.checkpoint);
    picture(&folder(savepoint));
    assert_eq!(site.completed("a"), Vec::<u64>::new());

    let output = site.output("a");
    let lines = crate::assert_drained(&output, &crate::written(&output));
    assert!(lines < crate::KEYS * crate::EACH, "it went on");
    assert_eq!(lines, report.records);
    let staged = output.join(".tidegate/staged");
    assert_eq!(crate::support::place::names(&staged), Vec::<String>::new());
    let again = site.start("a", Run::default()).unwrap().wait().unwrap();
    assert_eq!(again.outcome, JobOutcome::AlreadyFinished);
}
