//! Real timely workers, driven by hand: checkpoints, restore, failures, ends.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Collected, Driven, Numbers, Options, operator};
use tidegate_runtime::{
    BoxError, ByKeyGroup, ByValue, Collector, Count, EdgeKind, FlatMap, JobPlan, Rebalance,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::Report;
use tidegate_types::{AlignmentMode, CheckpointId, OperatorId, SubtaskId};

/// numbers → count by `number % keys` → collect
fn keyed_count(source: Numbers, keys: u64, parallelism: u32) -> (JobPlan, Collected<(u64, u64)>) {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", parallelism), source);
    let by_key = ByValue::new(move |number: &u64| number % keys);
    let selector = by_key.clone();
    let count = plan.operator(operator("count", parallelism), move |context| {
        Count::<u64, _>::open(selector.clone(), context)
    });
    let collected = Collected::default();
    let sink = plan.sink(operator("sink", parallelism), collected.clone());
    plan.connect::<u64>(
        (numbers, count),
        Partitioning::KeyGroups,
        EdgeKind::Records,
        move |context| {
            let (max, parallelism) = (context.max_parallelism, context.parallelism);
            Box::new(ByKeyGroup::new(by_key.clone(), max, parallelism))
        },
    );
    plan.connect::<(u64, u64)>(
        (count, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    (plan, collected)
}

fn assert_counts(updates: &[(u64, u64)], keys: u64, each: u64) {
    let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, count) in updates {
        by_key.entry(*key).or_default().push(*count);
    }
    assert_eq!(by_key.len() as u64, keys);
    for (key, mut counts) in by_key {
        counts.sort_unstable();
        assert!(counts.iter().copied().eq(1..=each), "key {key}: {counts:?}");
    }
}

fn wait_for_all_ends(driven: &Driven, readers: u32) {
    for _ in 0..readers {
        driven.wait_for("end", |report| matches!(report, Report::SourceEnded { .. }));
    }
}

#[test]
fn a_bounded_job_counts_everything_once() {
    for (parallelism, serialize) in [(1, false), (2, false), (3, false), (2, true)] {
        let (plan, collected) = keyed_count(Numbers::up_to(30_000), 30, parallelism);
        let options = Options {
            serialize,
            ..Options::default()
        };
        let mut driven = Driven::start(plan, options);
        driven.trigger(1);
        driven.acknowledgements(1);
        // The first checkpoint may have come before the end; this one shows that ended sources
        // still take part, and that everything before it has arrived.
        wait_until(|| collected.0.lock().unwrap().len() == 30_000);
        driven.trigger(2);
        driven.acknowledgements(2);
        driven.stop();
        assert_counts(&collected.0.lock().unwrap(), 30, 1000);
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + support::PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "condition not met in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

// IT-02, A1: what was counted before the snapshot is in it, and nothing else.
#[test]
fn a_restored_job_goes_on_exactly_where_the_snapshot_was() {
    let (plan, before) = keyed_count(Numbers::up_to(2_000_000), 100, 2);
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| before.0.lock().unwrap().len() > 100_000);
    driven.trigger(7);
    let states = driven.acknowledgements(7);
    driven.stop();
    let files = driven.files.clone();

    let (plan, after) = keyed_count(Numbers::up_to(2_000_000), 100, 2);
    let restored = Some((CheckpointId(7), &states));
    let mut driven = Driven::start_from(plan, Options::default(), files, restored);
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

/// numbers → `function` → collect
fn mapped(
    source: Numbers,
    parallelism: [u32; 3],
    function: impl FnMut(u64, &mut Collector<u64>) -> Result<(), BoxError>
    + Clone
    + Send
    + Sync
    + 'static,
) -> (JobPlan, Collected<u64>) {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", parallelism[0]), source);
    let map = plan.operator::<u64, u64, _>(operator("map", parallelism[1]), move |_| {
        Ok(FlatMap::new(function.clone()))
    });
    let collected = Collected::default();
    let sink = plan.sink(operator("sink", parallelism[2]), collected.clone());
    for edge in [(numbers, map), (map, sink)] {
        plan.connect::<u64>(
            edge,
            Partitioning::Rebalance,
            EdgeKind::Records,
            |context| Box::new(Rebalance::starting_at(context.origin as usize)),
        );
    }
    (plan, collected)
}

#[test]
fn operators_have_their_own_parallelism() {
    let (plan, collected) = mapped(Numbers::up_to(50_000), [1, 4, 2], |number, out| {
        out.emit(number);
        Ok(())
    });
    let mut driven = Driven::start(plan, Options::default());
    assert_eq!(driven.subtasks(), 1 + 1 + 4 + 2);
    wait_for_all_ends(&driven, 1);
    driven.trigger(1);
    driven.acknowledgements(1);
    driven.stop();
    let mut numbers = collected.0.lock().unwrap().clone();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..50_000));
}

#[test]
fn a_panic_names_the_subtask_and_its_message() {
    let (plan, _collected) = mapped(Numbers::endless(), [1, 2, 1], |number, _out| {
        assert!(number != 12_345, "the number is {number}");
        Ok(())
    });
    let mut driven = Driven::start(plan, Options::default());
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(failure.subtask.unwrap().operator, OperatorId(2));
            assert!(
                failure.cause.contains("the number is 12345"),
                "{}",
                failure.cause
            );
            true
        }
        _ => false,
    });
    driven.stop();
}

#[test]
fn an_error_names_the_subtask_and_its_causes() {
    let (plan, _collected) = mapped(Numbers::endless(), [2, 2, 2], |number, _out| {
        if number == 777 {
            Err("a bad number".into())
        } else {
            Ok(())
        }
    });
    let mut driven = Driven::start(plan, Options::default());
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => failure.cause.contains("a bad number"),
        _ => false,
    });
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

#[test]
fn stopping_a_busy_attempt_joins_everything() {
    for _ in 0..20 {
        let (plan, _collected) = keyed_count(Numbers::endless(), 100_000, 3);
        let mut driven = Driven::start(plan, Options::default());
        driven.trigger(1);
        driven.stop();
    }
}
