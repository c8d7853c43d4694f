//! Snapshots that are slow, aborted, or fail; triggers that come early or to the dead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tidegate_runtime::Batch;
use tidegate_runtime::{
    BoxError, ByValue, Collector, EdgeKind, Flow, HeldBackBy, JobPlan, KeyedMap, Logic, Rebalance,
    Snapshot,
};
use tidegate_state::ValueStateDescriptor;
use tidegate_types::graph::Partitioning;
use tidegate_types::message::{DeclineReason, Notice, Report};
use tidegate_types::{CheckpointBarrier, CheckpointId, SnapshotKind, SubtaskId};

use crate::pipelines::{keyed_count, summed, wait_for_all_ends, wait_until};
use crate::support::{Collected, Driven, Files, Gate, Numbers, Options, States, operator};

/// Reports until every subtask has acknowledged `last`.
fn reports_until_acknowledged(driven: &Driven, last: u64) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut left = driven.subtasks();
    while left > 0 {
        let report = driven.next_report();
        if let Report::Acknowledged { checkpoint, .. } = &report {
            left -= usize::from(*checkpoint == CheckpointId(last));
        }
        reports.push(report);
    }
    reports
}

fn acknowledged(reports: &[Report], wanted: u64, by: SubtaskId) -> bool {
    reports.iter().any(|report| {
        matches!(report, Report::Acknowledged { checkpoint, subtask, .. }
            if *checkpoint == CheckpointId(wanted) && *subtask == by)
    })
}

fn declines(reports: &[Report]) -> Vec<(u64, DeclineReason)> {
    let decline = |report: &Report| match report {
        Report::Declined {
            checkpoint, reason, ..
        } => Some((checkpoint.0, reason.clone())),
        _ => None,
    };
    reports.iter().filter_map(decline).collect()
}

// SC-02, SC-08, J7: the writing of 42 stops half-way and leaves nothing, 43 completes.
#[test]
fn an_abort_stops_the_writing_and_spares_the_next_checkpoint() {
    let (plan, collected) = keyed_count(Numbers::endless(), 1000, 1);
    let mut driven = Driven::start(plan, Options::default());
    let count = driven.subtask("count[0]");
    wait_until(|| collected.0.lock().unwrap().len() > 1000);
    driven.files.gate.close();
    driven.trigger(42);
    wait_until(|| driven.files.gate.waiting() == 1);
    assert_eq!(driven.files.open_count(), 1);
    driven.trigger(43);
    driven.abort(42, 0);
    wait_until(|| driven.metrics.passed(count) == CheckpointId(43));
    driven.files.gate.open();

    let reports = reports_until_acknowledged(&driven, 43);
    assert!(!acknowledged(&reports, 42, count));
    assert_eq!(declines(&reports), [], "nobody asked any more");
    assert_eq!(driven.files.names(), ["chk-43/count[0]"]);
    wait_until(|| driven.files.open_count() == 0);
    assert_eq!(driven.metrics.held_back(CheckpointId(42)), []);
    driven.stop();
}

// J6, J14: while a snapshot is being written for ever, records flow, and notices are taken.
#[test]
fn a_slow_write_holds_up_nothing_but_its_acknowledgement() {
    let (plan, collected) = keyed_count(Numbers::endless(), 1000, 1);
    let mut driven = Driven::start(plan, Options::default());
    let (count, sink) = (driven.subtask("count[0]"), driven.subtask("sink[0]"));
    wait_until(|| collected.0.lock().unwrap().len() > 1000);
    driven.files.gate.close();
    for checkpoint in 1..=5 {
        driven.trigger(checkpoint);
    }
    wait_until(|| driven.metrics.passed(sink) == CheckpointId(5));
    let before = driven.metrics.records_in(sink);
    wait_until(|| driven.metrics.records_in(sink) > before + 50_000);
    driven.files.gate.open();
    let reports = reports_until_acknowledged(&driven, 5);
    assert!((1..=5).all(|checkpoint| acknowledged(&reports, checkpoint, count)));
    driven.stop();
}

// FT-05: the end of all data doesn't cut off acknowledgements that are on their way.
#[test]
fn what_is_being_written_at_the_end_is_still_acknowledged() {
    let (plan, _collected) = keyed_count(Numbers::up_to(5000), 1000, 1);
    let files = Files::default();
    let gate = files.gate.clone();
    gate.close();
    let mut driven = Driven::start_from(plan, Options::default(), files, None);
    let sink = driven.subtask("sink[0]");
    wait_until(|| driven.metrics.records_in(sink) > 0);
    driven.trigger(1);
    driven.trigger(2);
    wait_until(|| driven.metrics.passed(sink) == CheckpointId(2));
    wait_until(|| driven.metrics.records_in(sink) == 5000);
    gate.open();
    let reports = reports_until_acknowledged(&driven, 2);
    assert!(acknowledged(&reports, 1, driven.subtask("count[0]")));
    driven.stop();
}

// SC-09, J13, J15: both parts of a snapshot may fail; the checkpoint is declined, the job goes on.
#[test]
fn a_failed_write_declines_and_the_job_goes_on() {
    let (plan, collected) = keyed_count(Numbers::endless(), 1000, 1);
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| collected.0.lock().unwrap().len() > 1000);
    driven.files.full.store(true, Ordering::SeqCst);
    driven.trigger(1);
    driven.wait_for("decline", |report| match report {
        Report::Declined {
            checkpoint,
            subtask,
            reason: DeclineReason::WriteFailed { cause },
        } => {
            assert_eq!(*checkpoint, CheckpointId(1));
            assert_eq!(*subtask, driven.subtask("count[0]"));
            cause.contains("no space")
        }
        _ => false,
    });
    assert_eq!(driven.files.names(), [""; 0]);
    driven.files.full.store(false, Ordering::SeqCst);
    driven.trigger(2);
    driven.acknowledgements(2);
    let before = collected.0.lock().unwrap().len();
    wait_until(|| collected.0.lock().unwrap().len() > before);
    driven.stop();
}

/// Passes records on; freezing its state takes until the gate opens, and fails if it is told to.
#[derive(Clone, Default)]
struct Unfreezable {
    fails: Arc<AtomicBool>,
    gate: Gate,
}

fn pass_on(input: &mut Batch<u64>, out: &mut Collector<u64>) -> Result<Flow, BoxError> {
    input.for_each(|number| out.emit(number));
    Ok(Flow::Continue)
}

impl Logic<u64, u64> for Unfreezable {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        pass_on(input, out)
    }

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        self.gate.pass();
        match self.fails.load(Ordering::SeqCst) {
            true => Err("too hot".into()),
            false => Ok(Snapshot::default()),
        }
    }
}

/// numbers → middle, with one subtask → sink, with two
fn unfreezable(middle: &Unfreezable) -> JobPlan {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let logic = middle.clone();
    let middle = plan.operator::<u64, u64, _>(operator("middle", 1), move |_| Ok(logic.clone()));
    let sink = plan.sink(operator("sink", 2), Collected::<u64>::default());
    for edge in [(numbers, middle), (middle, sink)] {
        plan.connect::<u64>(edge, Partitioning::Rebalance, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    plan
}

// J12: receivers on other workers align, snapshot and acknowledge while a state is being frozen.
#[test]
fn a_barrier_leaves_before_the_state_is_frozen() {
    let middle = Unfreezable::default();
    let mut driven = Driven::start(unfreezable(&middle), Options::default());
    middle.gate.close();
    driven.trigger(1);
    let elsewhere = driven.subtask("sink[1]");
    let frozen = driven.subtask("middle[0]");
    driven.wait_for(
        "acknowledgement",
        |report| matches!(report, Report::Acknowledged { subtask, .. } if *subtask == elsewhere),
    );
    let held_back = driven.metrics.held_back(CheckpointId(1));
    let of_middle = held_back.iter().find(|held| held.subtask == frozen);
    assert_eq!(of_middle.unwrap().by, HeldBackBy::Freezing);
    middle.gate.open();
    driven.stop();
}

// SC-09, J13
#[test]
fn a_failed_freeze_declines_and_the_job_goes_on() {
    let middle = Unfreezable::default();
    middle.fails.store(true, Ordering::SeqCst);
    let plan = unfreezable(&middle);
    let mut driven = Driven::start(plan, Options::default());
    driven.trigger(1);
    driven.wait_for("decline", |report| match report {
        Report::Declined {
            reason: DeclineReason::SnapshotFailed { cause },
            ..
        } => cause == "too hot",
        _ => false,
    });
    middle.fails.store(false, Ordering::SeqCst);
    driven.trigger(2);
    let reports = reports_until_acknowledged(&driven, 2);
    assert_eq!(declines(&reports), []);
    driven.stop();
}

// SC-10: a write that fails after the attempt was stopped is nobody's concern.
#[test]
fn a_write_that_fails_after_the_stop_is_not_declined() {
    let token = Arc::new(());
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::up_to(5000));
    let in_logic = Arc::clone(&token);
    let keyed = plan.operator(operator("keyed", 1), move |context| {
        let (alive, selector) = (Arc::clone(&in_logic), ByValue::new(|number: &u64| *number));
        let update = move |number: u64, sum: &mut u64, out: &mut Collector<u64>| {
            let _ = &alive;
            *sum += number;
            out.emit(*sum);
            Ok(())
        };
        let descriptor = ValueStateDescriptor::<u64>::new("sum");
        KeyedMap::open(selector, &descriptor, 0, update, context)
    });
    let sink = plan.sink(operator("sink", 1), Collected::<u64>::default());
    for edge in [(numbers, keyed), (keyed, sink)] {
        plan.connect::<u64>(edge, Partitioning::Forward, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    let without_logic = Arc::strong_count(&token);
    let mut driven = Driven::start(plan, Options::default());
    driven.files.gate.close();
    driven.trigger(1);
    wait_until(|| driven.files.gate.waiting() == 1);
    let attempt = driven.attempt.take().unwrap();
    let stopping = thread::spawn(move || attempt.stop());
    wait_until(|| Arc::strong_count(&token) == without_logic);
    driven.files.full.store(true, Ordering::SeqCst);
    driven.files.gate.open();
    stopping.join().unwrap();
    let reports: Vec<Report> = driven.reports.try_iter().collect();
    assert_eq!(declines(&reports), []);
    assert_eq!(driven.files.open_count(), 0);
}

// J9: the last operator learns from the barrier where its files go, like the first.
#[test]
fn a_savepoint_lies_in_its_own_folder() {
    let (plan, collected) = keyed_count(Numbers::endless(), 1000, 2);
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| collected.0.lock().unwrap().len() > 1000);
    driven.trigger_savepoint(1, SnapshotKind::Savepoint);
    let states = driven.acknowledgements(1);
    let of_states = |states: &States| -> Vec<String> {
        let files = states.values().flat_map(|state| state.files());
        files.map(|file| file.name.clone()).collect()
    };
    let savepoint = ["memory:/savepoint/count[0]", "memory:/savepoint/count[1]"];
    assert_eq!(of_states(&states), savepoint);
    driven.trigger(2);
    let checkpoint = ["chk-2/count[0]", "chk-2/count[1]"];
    assert_eq!(of_states(&driven.acknowledgements(2)), checkpoint);
    driven.stop();
}

// J5: a trigger that comes before anything runs is neither lost nor acted on too early.
#[test]
fn a_trigger_waits_until_its_source_runs() {
    let gate = Gate::default();
    gate.close();
    let source = Numbers {
        opening_gate: gate.clone(),
        ..Numbers::up_to(1000)
    };
    let (plan, _collected) = summed(vec![source], 1);
    let mut driven = Driven::launch(plan, Options::default(), Files::default(), None);
    driven.trigger(1);
    wait_until(|| gate.waiting() == 1);
    gate.open();
    let reports = reports_until_acknowledged(&driven, 1);
    assert_eq!(declines(&reports), []);
    for (at, report) in reports.iter().enumerate() {
        let Report::Acknowledged { subtask, .. } = report else {
            continue;
        };
        let running = Report::Running { subtask: *subtask };
        assert!(reports[..at].contains(&running), "{subtask}");
    }
    driven.stop();
}

// J3, J5: whoever triggers a source that could not be opened is told.
#[test]
fn a_dead_source_declines() {
    let source = Numbers {
        opens: false,
        ..Numbers::endless()
    };
    let (plan, _collected) = summed(vec![source], 1);
    let mut driven = Driven::launch(plan, Options::default(), Files::default(), None);
    driven.trigger(1);
    driven.wait_for("failure", |report| matches!(report, Report::Failed(_)));
    driven.trigger(2);
    driven.wait_for("decline", |report| match report {
        Report::Declined {
            checkpoint: CheckpointId(2),
            reason,
            ..
        } => *reason == DeclineReason::NotReady,
        _ => false,
    });
    driven.stop();
}

// J3: sources that have ended take part like those that haven't.
#[test]
fn ended_sources_take_part() {
    for mode in [
        tidegate_types::AlignmentMode::ExactlyOnce,
        tidegate_types::AlignmentMode::AtLeastOnce,
    ] {
        let (plan, _collected) = summed(vec![Numbers::up_to(1000), Numbers::endless()], 2);
        let options = Options {
            mode,
            ..Options::default()
        };
        let mut driven = Driven::start(plan, options);
        wait_for_all_ends(&driven, 2);
        driven.trigger(1);
        let states = driven.acknowledgements(1);
        let sum = driven.subtask("sum[0]");
        assert!(states[&driven.subtask("numbers0[0]")].finished);
        assert!(!states[&driven.subtask("numbers1[0]")].finished);
        assert!(!states[&sum].finished);
        driven.stop();
    }
}

/// Passes records on, and notes whose snapshots it may give up.
#[derive(Clone, Default)]
struct Frugal(Arc<Mutex<Vec<u64>>>);

impl Logic<u64, u64> for Frugal {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        pass_on(input, out)
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId) {
        self.0.lock().unwrap().push(checkpoint.0);
    }
}

// SC-02: neither is of any use any more, and a snapshot that is complete is not given up.
#[test]
fn an_operator_is_told_of_snapshots_that_are_aborted_or_subsumed() {
    let frugal = Frugal::default();
    let logic = frugal.clone();
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let middle = plan.operator::<u64, u64, _>(operator("middle", 1), move |_| Ok(logic.clone()));
    let sink = plan.sink(operator("sink", 1), Collected::<u64>::default());
    for edge in [(numbers, middle), (middle, sink)] {
        plan.connect::<u64>(edge, Partitioning::Forward, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    let mut driven = Driven::start(plan, Options::default());
    for checkpoint in 1..=4 {
        driven.trigger(checkpoint);
        driven.acknowledgements(checkpoint);
    }
    driven.abort(3, 0);
    wait_until(|| *frugal.0.lock().unwrap() == [3]);
    driven.notify(Notice::Completed {
        checkpoint: CheckpointId(2),
    });
    wait_until(|| *frugal.0.lock().unwrap() == [3, 1]);
    driven.abort(4, 2);
    wait_until(|| *frugal.0.lock().unwrap() == [3, 1, 4]);
    driven.stop();
}
