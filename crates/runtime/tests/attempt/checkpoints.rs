//! Checkpoints of running jobs, and what a restored job starts from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_runtime::StatePlacement;
use tidegate_types::message::Report;
use tidegate_types::{AlignmentMode, CheckpointId, SubtaskId};

use crate::pipelines::{keyed_count, wait_for_all_ends, wait_until};
use crate::support::{ALL_IN_FILES, Driven, Files, Numbers, Options};

// IT-02, A1, J19: what was counted before the snapshot is in it, and nothing else.
#[test]
fn a_restored_job_goes_on_exactly_where_the_snapshot_was() {
    let files = restored_job_goes_on(ALL_IN_FILES);
    assert_eq!(files.names().len(), 4);
}

// IT-02, A1, J19, L2: the same, with no file at all.
#[test]
fn state_that_was_inline_is_restored() {
    let files = restored_job_goes_on(StatePlacement::default());
    assert_eq!(files.names(), [""; 0]);
}

fn restored_job_goes_on(placement: StatePlacement) -> Files {
    let options = || Options {
        placement,
        ..Options::default()
    };
    let (plan, before) = keyed_count(Numbers::up_to(2_000_000), 100, 2);
    let mut driven = Driven::start(plan, options());
    wait_until(|| before.0.lock().unwrap().len() > 100_000);
    driven.trigger(7);
    let states = driven.acknowledgements(7);
    driven.stop();
    let files = driven.files.clone();

    let (plan, after) = keyed_count(Numbers::up_to(2_000_000), 100, 2);
    let restored = Some((CheckpointId(7), &states));
    let mut driven = Driven::start_from(plan, options(), files.clone(), restored);
    wait_for_all_ends(&driven, 2);
    driven.trigger(8);
    driven.acknowledgements(8);
    driven.stop();

    let after = after.0.lock().unwrap();
    assert!(after.len() < 1_900_000, "it started from the beginning");
    let mut last: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (key, count) in after.iter() {
        let (low, high) = last.entry(*key).or_insert((*count, *count - 1));
        assert_eq!(*count, *high + 1, "counts of key {key} go up one by one");
        *high = *count;
        assert!(*low <= *count);
    }
    assert!(last.values().all(|(_, high)| *high == 20_000), "{last:?}");
    files
}

// CC-14, D15: several checkpoints in flight, acknowledged in order by each subtask.
#[test]
fn several_checkpoints_may_be_in_flight() {
    let (plan, _collected) = keyed_count(Numbers::endless(), 1000, 2);
    let mut driven = Driven::start(plan, Options::default());
    for checkpoint in 1..=20 {
        driven.trigger(checkpoint);
    }
    let mut newest: BTreeMap<SubtaskId, u64> = BTreeMap::new();
    while newest.len() < driven.subtasks() || newest.values().any(|newest| *newest < 20) {
        match driven.next_report() {
            Report::Acknowledged {
                checkpoint,
                subtask,
                ..
            } => {
                let last = newest.insert(subtask, checkpoint.0).unwrap_or(0);
                assert_eq!(checkpoint.0, last + 1, "{subtask}");
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    driven.stop();
}

#[test]
fn an_old_trigger_is_declined() {
    let (plan, _collected) = keyed_count(Numbers::endless(), 10, 1);
    let mut driven = Driven::start(plan, Options::default());
    driven.trigger(5);
    driven.acknowledgements(5);
    driven.trigger(4);
    driven.wait_for("decline", |report| {
        matches!(
            report,
            Report::Declined {
                checkpoint: CheckpointId(4),
                ..
            }
        )
    });
    driven.stop();
}

// DESIGN 4: triggers are idempotent by id.
#[test]
fn a_repeated_trigger_changes_nothing() {
    let (plan, _collected) = keyed_count(Numbers::endless(), 10, 1);
    let mut driven = Driven::start(plan, Options::default());
    driven.trigger(5);
    driven.trigger(5);
    driven.acknowledgements(5);
    driven.trigger(5);
    driven.trigger(6);
    // Anything but acknowledgements would be unexpected here.
    driven.acknowledgements(6);
    driven.stop();
}

// A7
#[test]
fn at_least_once_takes_checkpoints_too() {
    let (plan, _collected) = keyed_count(Numbers::endless(), 10, 3);
    let options = Options {
        mode: AlignmentMode::AtLeastOnce,
        ..Options::default()
    };
    let mut driven = Driven::start(plan, options);
    for checkpoint in 1..=10 {
        driven.trigger(checkpoint);
        driven.acknowledgements(checkpoint);
    }
    driven.stop();
}

// DESIGN 3: an idle job sleeps, and still takes checkpoints at once.
#[test]
fn an_idle_job_takes_checkpoints() {
    let limit = Arc::new(Mutex::new(0));
    let source = Numbers {
        limit: Some(limit),
        ..Numbers::endless()
    };
    let (plan, _collected) = keyed_count(source, 10, 2);
    let mut driven = Driven::start(plan, Options::default());
    let began = Instant::now();
    for checkpoint in 1..=50 {
        driven.trigger(checkpoint);
        driven.acknowledgements(checkpoint);
    }
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    driven.stop();
}
