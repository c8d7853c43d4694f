//! Real timely workers, driven by hand: checkpoints, restore, failures, ends.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Collected, Driven, Numbers, Options, operator};
use tidegate_runtime::sink::{
    Committer, PreCommitted, SinkContext, TransactionWriter, TwoPhaseSink,
};
use tidegate_runtime::{
    BoxError, ByKeyGroup, ByValue, Collector, Count, EdgeKind, FlatMap, Flow, JobPlan, Logic,
    Rebalance, Ticks,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::{Notice, Report};
use tidegate_types::{AlignmentMode, AttemptNumber, CheckpointId, OperatorId, SubtaskId};

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

/// Adds up slowly what it gets, and emits the sum at the end.
struct SlowSum(u64);

impl Logic<u64, u64> for SlowSum {
    fn process(
        &mut self,
        input: &mut std::vec::IntoIter<u64>,
        _out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        self.0 += input.next().unwrap_or(0);
        Ok(Flow::PauseUntil(
            Ticks::now().after(Duration::from_millis(3)),
        ))
    }

    fn finish(&mut self, out: &mut Collector<u64>) -> Result<(), BoxError> {
        out.emit(self.0);
        Ok(())
    }
}

// FT-08: what `finish()` emits is before the final barrier, also behind a backlog.
#[test]
fn the_final_snapshot_includes_what_finish_emits() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::up_to(20));
    let sum = plan.operator::<u64, u64, _>(operator("sum", 1), |_| Ok(SlowSum(0)));
    let collected = Collected::<u64>::default();
    let sink = plan.sink(operator("sink", 1), collected.clone());
    for edge in [(numbers, sum), (sum, sink)] {
        plan.connect::<u64>(edge, Partitioning::Forward, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    let mut driven = Driven::start(plan, Options::default());
    wait_for_all_ends(&driven, 1);
    driven.trigger(1);
    let states = driven.acknowledgements(1);
    assert_eq!(*collected.0.lock().unwrap(), [190]);
    assert!(states.values().all(|state| state.finished), "{states:?}");
    driven.stop();
}

// Records that weigh nothing are bounded like all others.
#[test]
fn empty_records_are_flow_controlled() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let empty = plan.operator::<u64, (), _>(operator("empty", 1), |_| {
        Ok(FlatMap::new(|_: u64, out: &mut Collector<()>| {
            out.emit(());
            Ok(())
        }))
    });
    let slow = plan.operator::<(), u64, _>(operator("slow", 1), |_| {
        Ok(FlatMap::new(|(), out: &mut Collector<u64>| {
            std::thread::sleep(Duration::from_micros(200));
            out.emit(1);
            Ok(())
        }))
    });
    let sink = plan.sink(operator("sink", 1), Collected::<u64>::default());
    let forward = Partitioning::Forward;
    plan.connect::<u64>((numbers, empty), forward, EdgeKind::Records, |_| {
        Box::new(Rebalance::default())
    });
    plan.connect::<()>((empty, slow), forward, EdgeKind::Records, |_| {
        Box::new(Rebalance::default())
    });
    plan.connect::<u64>((slow, sink), forward, EdgeKind::Records, |_| {
        Box::new(Rebalance::default())
    });
    let mut driven = Driven::start(plan, Options::default());
    for checkpoint in 1..=5 {
        let began = Instant::now();
        driven.trigger(checkpoint);
        driven.acknowledgements(checkpoint);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
    driven.stop();
}

/// Makes one empty transaction per checkpoint; committing or sealing it fails as told.
#[derive(Clone, Copy)]
struct Fragile {
    seal_fails: bool,
}

impl TwoPhaseSink<u64> for Fragile {
    type Transaction = u64;
    type Writer = Fragile;
    type Committer = Fragile;

    fn writer(&self, _context: SinkContext) -> Result<Fragile, BoxError> {
        Ok(*self)
    }

    fn committer(&self, _context: SinkContext) -> Result<Fragile, BoxError> {
        Ok(*self)
    }
}

impl TransactionWriter<u64> for Fragile {
    type Transaction = u64;

    fn write(&mut self, records: &mut std::vec::IntoIter<u64>) -> Result<Flow, BoxError> {
        records.for_each(drop);
        Ok(Flow::Continue)
    }

    fn pre_commit(&mut self, checkpoint: CheckpointId) -> Result<Vec<PreCommitted<u64>>, BoxError> {
        let fails = self.seal_fails;
        let seal = move || if fails { Err("no sync".into()) } else { Ok(()) };
        Ok(vec![PreCommitted {
            transaction: checkpoint.0,
            seal: Box::new(seal),
        }])
    }
}

impl Committer for Fragile {
    type Transaction = u64;

    fn commit(&mut self, transaction: &u64) -> Result<(), BoxError> {
        panic!("commit of {transaction} went wrong");
    }

    fn clean_up(&mut self, _attempt: AttemptNumber) -> Result<(), BoxError> {
        Ok(())
    }
}

fn fragile(seal_fails: bool) -> Driven {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let sink = plan.two_phase_sink::<u64, _>(operator("sink", 1), Fragile { seal_fails });
    plan.connect::<u64>(
        (numbers, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    Driven::start(plan, Options::default())
}

fn assert_sink_fails(driven: &Driven, text: &str) {
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(
                failure.subtask.map(|subtask| subtask.operator),
                Some(OperatorId(2))
            );
            assert!(failure.cause.contains(text), "{}", failure.cause);
            true
        }
        _ => false,
    });
}

// A commit that panics ends the attempt rather than leaving it to wait for ever.
#[test]
fn a_panic_in_a_commit_fails_the_attempt() {
    let mut driven = fragile(false);
    driven.trigger(1);
    driven.acknowledgements(1);
    driven.notify(Notice::Completed {
        checkpoint: CheckpointId(1),
    });
    assert_sink_fails(&driven, "commit of 1 went wrong");
    driven.stop();
}

// What can't be made durable would be part of every later checkpoint: only a restart helps.
#[test]
fn a_failed_seal_fails_the_attempt() {
    let mut driven = fragile(true);
    driven.trigger(1);
    assert_sink_fails(&driven, "no sync");
    driven.stop();
}
