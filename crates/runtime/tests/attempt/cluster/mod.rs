//! Attempts in several parts: exchange, checkpoints and credit between processes, and the loss of
//! one.

mod parts;
mod start;
mod traffic;

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_runtime::{Broadcast, Collector, EdgeKind, FlatMap, JobPlan, Rebalance, Stage};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::{FailureOrigin, Report};

use crate::pipelines::{assert_counts, keyed_count, mapped, wait_until};
use crate::support::{Collected, Gate, Numbers, operator};

use parts::{Parts, Shape};

/// A keyed count whose results from all processes come together.
fn counts(source: Numbers, keys: u64, parallelism: u32) -> (impl Fn() -> JobPlan, Results) {
    let results = Results::default();
    let shared = results.clone();
    let plan = move || {
        let (plan, collected) = keyed_count(source.clone(), keys, parallelism);
        shared.0.lock().unwrap().push(collected);
        plan
    };
    (plan, results)
}

type Counts = Collected<(u64, u64)>;

/// The sinks of all processes.
#[derive(Clone, Default)]
struct Results(Arc<Mutex<Vec<Counts>>>);

impl Results {
    fn all(&self) -> Vec<(u64, u64)> {
        let sinks = self.0.lock().unwrap();
        let each = sinks.iter().map(|sink| sink.0.lock().unwrap().clone());
        each.flatten().collect()
    }

    fn len(&self) -> usize {
        let sinks = self.0.lock().unwrap();
        sinks.iter().map(|sink| sink.0.lock().unwrap().len()).sum()
    }
}

// With fewer subtasks than workers, and with each in a process of its own.
#[test]
fn counts_are_exact_over_several_processes() {
    for (processes, threads) in [(2, 2), (3, 1), (1, 3)] {
        let (plan, results) = counts(Numbers::up_to(30_000), 30, 3);
        let parts = Parts::start(Shape { processes, threads }, plan, None);
        parts.trigger(1);
        parts.acknowledgements(1);
        wait_until(|| results.len() == 30_000);
        parts.trigger(2);
        parts.acknowledgements(2);
        parts.stop();
        assert_counts(&results.all(), 30, 1000);
    }
}

// IT-02: in other processes, and at another parallelism.
#[test]
fn a_checkpoint_is_restored_in_another_layout() {
    let source = || Numbers::up_to(1_000_000);
    let (plan, before) = counts(source(), 100, 3);
    let shape = |processes, threads| Shape { processes, threads };
    let parts = Parts::start(shape(2, 2), plan, None);
    wait_until(|| before.len() > 100_000);
    parts.trigger(7);
    let states = parts.acknowledgements(7);
    let files = parts.files.clone();
    parts.stop();

    for (layout, parallelism) in [(shape(3, 1), 3), (shape(2, 1), 2), (shape(2, 3), 5)] {
        let (plan, after) = counts(source(), 100, parallelism);
        let parts = Parts::start(layout, plan, Some((&files, &states)));
        parts.wait_for_ends(parallelism);
        // Behind all data.
        parts.trigger(8);
        parts.acknowledgements(8);
        parts.stop();
        let updates = after.all();
        assert!(updates.len() < 900_000, "it started from the beginning");
        for key in 0..100 {
            let of_key = updates.iter().filter(|(of, _)| *of == key);
            let mut counts: Vec<u64> = of_key.map(|(_, count)| *count).collect();
            counts.sort_unstable();
            let first = counts[0];
            assert!(counts.into_iter().eq(first..=10_000), "key {key}");
        }
    }
}

#[test]
fn the_loss_of_a_process_is_told_from_failures_of_the_job() {
    let (plan, results) = counts(Numbers::endless(), 1000, 3);
    let shape = Shape {
        processes: 3,
        threads: 1,
    };
    let mut parts = Parts::start(shape, plan, None);
    wait_until(|| results.len() > 10_000);
    parts.abandon(1);
    let mut missing = vec![0, 2];
    while !missing.is_empty() {
        let (reporter, failure) = parts.failure();
        assert_eq!(failure.origin, FailureOrigin::Peer { process: 1 });
        if failure
            .cause
            .contains("lost the connection to process `1` at `127.0.0.1:")
        {
            missing.retain(|process| *process != reporter);
        }
    }
    // They may still say that their workers have ended for this reason, and nothing else.
    parts.abandon(0);
    parts.abandon(2);
    wait_until(|| parts.parts.iter().all(|part| part.plan.strong_count() == 0));
    for (_, report) in parts.reports.try_iter() {
        if let Report::Failed(failure) = report {
            assert_ne!(failure.origin, FailureOrigin::Here, "{failure:?}");
        }
    }
}

// Each of timely's communication threads panics, and each worker; none of them has anything to say.
#[test]
fn the_loss_of_a_process_prints_no_panics() {
    let test = "cluster::the_loss_of_a_process_is_told_from_failures_of_the_job";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .output()
        .unwrap();
    let (out, err) = (output.stdout, output.stderr);
    let (out, err) = (
        String::from_utf8(out).unwrap(),
        String::from_utf8(err).unwrap(),
    );
    assert!(out.contains("1 passed"), "{out}{err}");
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn a_failure_of_the_job_is_its_own_cause() {
    let plan = || {
        let fails = |number, _: &mut _| {
            assert!(number != 12_345, "the number is {number}");
            Ok(())
        };
        mapped(Numbers::endless(), [1, 2, 1], fails).0
    };
    let shape = Shape {
        processes: 2,
        threads: 1,
    };
    let mut parts = Parts::start(shape, plan, None);
    let (process, failure) = parts.failure();
    assert_eq!(failure.origin, FailureOrigin::Here);
    assert_eq!(failure.subtask.map(|subtask| subtask.index), Some(process));
    assert!(failure.cause.contains("the number is 12345"), "{failure:?}");
    parts.abandon(process);
    let (other, failure) = parts.failure();
    assert_eq!(other, 1 - process);
    assert_eq!(failure.origin, FailureOrigin::Peer { process });
}

/// An upper bound of what may be on its way to a subtask on one channel, in records of 8 bytes: a
/// window and a batch, and what is staged.
const CHANNEL_MAX: u64 = (512 + 64 + 16) * 1024 / 8;

/// numbers → two times the same, of which the second passes a gate → collect
fn gated(gate: &Gate) -> JobPlan {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let gate = gate.clone();
    let map = plan.operator::<u64, u64, _>(operator("map", 2), move |context| {
        let gate = (context.subtask.index == 1).then(|| gate.clone());
        Ok(FlatMap::new(
            move |number: u64, out: &mut Collector<u64>| {
                if let Some(gate) = &gate {
                    gate.pass();
                }
                if number.is_multiple_of(1000) {
                    out.emit(number);
                }
                Ok(())
            },
        ))
    });
    let sink = plan.sink(operator("sink", 1), Collected::<u64>::default());
    plan.connect::<u64>(
        (numbers, map),
        Partitioning::Broadcast,
        EdgeKind::Records,
        |_| Box::new(Broadcast),
    );
    plan.connect::<u64>(
        (map, sink),
        Partitioning::Rebalance,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    plan
}

// DESIGN 3: credit comes back from other processes, and only as it is worked off there.
#[test]
fn a_receiver_in_another_process_slows_its_sender_down() {
    let gate = Gate::default();
    let shape = Shape {
        processes: 2,
        threads: 1,
    };
    let parts = Parts::start(shape, || gated(&gate), None);
    let sent = || parts.records("numbers[0]").1;
    let taken = || parts.records("map[1]").0;
    // Windows are large by now.
    wait_until(|| taken() > 1_000_000);

    gate.close();
    wait_until(|| gate.waiting() == 1);
    for checkpoint in 1..=20 {
        parts.trigger(checkpoint);
        parts.acknowledgement(checkpoint, "numbers[0]");
        let on_their_way = sent() - taken();
        assert!((1..=CHANNEL_MAX).contains(&on_their_way), "{on_their_way}");
    }
    // The sender sleeps; who is stuck can be told.
    wait_until(|| parts.attempt(0).busy_workers().is_empty());
    let silence = || {
        let busy = parts.attempt(1).busy_workers();
        let [stuck] = busy.as_slice() else {
            panic!("{busy:?}")
        };
        let name = parts.graph.display(stuck.subtask).to_string();
        assert_eq!((name.as_str(), stuck.worker), ("map[1]", 1));
        assert_eq!(stuck.stage, Stage::Working);
        stuck.silent
    };
    let before = silence();
    wait_until(|| silence() > before + Duration::from_millis(20));

    gate.open();
    let before = taken();
    wait_until(|| taken() > before + 1_000_000);
    parts.trigger(21);
    parts.acknowledgements(21);
    parts.stop();
}
