//! Disks that are full, and commits that fail: injected where the product writes.

#![cfg(feature = "fault-points")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;
use tidegate::{JobReport, RestartStrategy};
use tidegate_fault::inject;

use crate::oracle;
use crate::restores::{alone, assert_counts, environment, numbers};
use crate::support::place::names;

fn restarting(dir: &Path, tolerable: Option<u32>) -> Environment {
    environment(dir).with_options(|options| {
        options.settings.checkpoints.tolerable_failures = tolerable;
        options.settings.restart = RestartStrategy::FixedDelay {
            attempts: 5,
            delay: Duration::from_millis(1),
        };
    })
}

/// Runs a whole job, of whose writes of state files those in `calls` find the disk full.
fn with_full_disk(calls: Range<u64>, tolerable: Option<u32>) -> JobReport {
    let dir = tempfile::tempdir().unwrap();
    let counts = CollectCommitted::new();
    let env = restarting(dir.path(), tolerable);
    numbers(&env)
        .key_by(|key| key)
        .count("count")
        .sink("sink", counts.clone());
    let full = inject("state-file:write", ErrorKind::StorageFull, calls);
    let report = env.execute("full").unwrap();
    assert_eq!(full.remaining(), 0, "not all was injected");
    assert_counts(counts.take());
    // Nothing is left, neither of the checkpoints that failed nor, since the job has finished, of
    // the others.
    let folders = names(&dir.path().join("full"));
    let folders = folders.iter().filter(|name| name.starts_with("chk-"));
    assert_eq!(folders.count(), 0);
    report
}

// CC-09: a snapshot that can't be written is declined, and the job goes on.
#[test]
fn a_full_disk_costs_checkpoints_and_nothing_else() {
    let _alone = alone();
    let statistics = with_full_disk(2..5, Some(10)).statistics;
    assert_eq!(
        (statistics.failed, statistics.restarts),
        (3, 0),
        "{statistics:?}"
    );
    assert!(statistics.completed >= 3, "{statistics:?}");
    let reason = statistics.latest_failed.expect("some failed").reason;
    for part in ["`count[0]` declined", ".state", "injected"] {
        assert!(reason.contains(part), "`{part}` is not in: {reason}");
    }
}

#[test]
fn more_failed_checkpoints_than_are_tolerable_restart_the_job() {
    let _alone = alone();
    let statistics = with_full_disk(2..3, Some(0)).statistics;
    assert_eq!(
        (statistics.failed, statistics.restarts),
        (1, 1),
        "{statistics:?}"
    );
    // A success in between starts the count again.
    let statistics = with_full_disk(2..5, Some(3)).statistics;
    assert_eq!(
        (statistics.failed, statistics.restarts),
        (3, 0),
        "{statistics:?}"
    );
    let statistics = with_full_disk(2..5, Some(2)).statistics;
    assert_eq!(
        (statistics.failed, statistics.restarts),
        (3, 1),
        "{statistics:?}"
    );
}

#[test]
fn a_job_whose_disk_stays_full_says_so_in_the_end() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let env = restarting(dir.path(), Some(1));
    numbers(&env)
        .key_by(|key| key)
        .count("count")
        .sink("sink", Discard);
    let full = inject("state-file:write", ErrorKind::StorageFull, 0..u64::MAX);
    let error = format!("{:?}", env.execute("full").unwrap_err());
    drop(full);
    for part in [
        "job `full` failed",
        "checkpoint",
        "`count[0]` declined",
        "injected",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

// TP-03, BC-14: a checkpoint is completed before its commits, so they are made good for.
#[test]
fn a_commit_that_fails_is_made_up_for_after_a_restart() {
    let _alone = alone();
    for calls in [0..1, 3..6] {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("output");
        let env = restarting(&dir.path().join("checkpoints"), Some(10));
        numbers(&env)
            .key_by(|key| key)
            .count("count")
            .sink("counts", FileSink::new(&output));
        let failing = inject("commit:write", ErrorKind::StorageFull, calls.clone());
        let report = env.execute("commits").unwrap();
        assert_eq!(failing.remaining(), 0, "not all was injected");
        // Both subtasks may fail in one attempt.
        let restarts = report.statistics.restarts;
        assert!(
            (1..=calls.end - calls.start).contains(&restarts),
            "{:?}",
            report.statistics
        );
        let expected: BTreeMap<String, u64> = (0..10).map(|key| (key.to_string(), 1_000)).collect();
        oracle::verify(&output, &expected).unwrap();
        assert_eq!(
            names(&output.join(".tidegate/staged")),
            Vec::<String>::new()
        );
    }
}

// BC-02: the answer to a write is lost, whatever had become of the write.
#[test]
fn lost_answers_of_the_disk_change_nothing() {
    let _alone = alone();
    for operation in [
        "metadata:reply",
        "pointer:reply",
        "metadata:write",
        "pointer:write",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let counts = CollectCommitted::new();
        let env = restarting(dir.path(), Some(10));
        numbers(&env)
            .key_by(|key| key)
            .count("count")
            .sink("sink", counts.clone());
        let lost = inject(operation, ErrorKind::TimedOut, 2..4);
        env.execute("answers").unwrap();
        assert_eq!(lost.remaining(), 0, "not all was injected into {operation}");
        assert_counts(counts.take());
        let pointers = names(&dir.path().join("answers/completed"));
        assert_eq!(pointers, Vec::<String>::new(), "{operation}");
    }
}
