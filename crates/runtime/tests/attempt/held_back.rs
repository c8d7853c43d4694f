//! What a stuck checkpoint is waiting for, asked while workers are stuck in user code.

use tidegate_runtime::{
    ByKeyGroup, ByValue, Collector, Count, EdgeKind, HeldBackBy, JobPlan, Rebalance,
};
use tidegate_types::CheckpointId;
use tidegate_types::graph::Partitioning;

use crate::pipelines::{keyed_count, mapped, wait_until};
use crate::support::{Collected, Driven, Gate, Numbers, Options, operator};

/// a (one reader), b (two readers) → count (one) → sink (one). Only `b[1]` is on worker 1.
pub(crate) fn two_sources(a: Numbers, b: Numbers) -> JobPlan {
    let mut plan = JobPlan::new();
    let sources = [
        plan.source(operator("a", 1), a),
        plan.source(operator("b", 2), b),
    ];
    let by_key = ByValue::new(|number: &u64| number % 100);
    let selector = by_key.clone();
    let count = plan.operator(operator("count", 1), move |context| {
        Count::<u64, _>::open(selector.clone(), context)
    });
    let sink = plan.sink(operator("sink", 1), Collected::<(u64, u64)>::default());
    for source in sources {
        let by_key = by_key.clone();
        plan.connect::<u64>(
            (source, count),
            Partitioning::KeyGroups,
            EdgeKind::Records,
            move |context| {
                let (max, parallelism) = (context.max_parallelism, context.parallelism);
                Box::new(ByKeyGroup::new(by_key.clone(), max, parallelism))
            },
        );
    }
    plan.connect::<(u64, u64)>(
        (count, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    plan
}

/// What `held_back` says, in names.
fn held_back(driven: &Driven, checkpoint: u64) -> Vec<String> {
    let graph = driven.plan.graph();
    let names = |subtasks: &[tidegate_types::SubtaskId]| {
        let name = |subtask| graph.display(subtask).to_string();
        let names: Vec<String> = subtasks.iter().copied().map(name).collect();
        names.join(" ")
    };
    let line = |held: tidegate_runtime::HeldBack| {
        let subtask = graph.display(held.subtask);
        match held.by {
            HeldBackBy::Senders(senders) => format!("{subtask} waits for {}", names(&senders)),
            HeldBackBy::Backlog(senders) => format!("{subtask} works from {}", names(&senders)),
            by => format!("{subtask} {by:?}"),
        }
    };
    let held_back = driven.metrics.held_back(CheckpointId(checkpoint));
    held_back.into_iter().map(line).collect()
}

fn wait_for_held_back(driven: &Driven, expected: &[&str]) {
    wait_until(|| held_back(driven, 7) == expected);
}

#[test]
fn a_reader_stuck_in_poll_is_the_one_that_is_named() {
    let gate = Gate::default();
    let b = Numbers {
        reader_gate: gate.clone(),
        ..Numbers::endless()
    };
    let plan = two_sources(Numbers::endless(), b);
    let mut driven = Driven::start(plan, Options::default());
    gate.close();
    wait_until(|| gate.waiting() == 1);
    driven.trigger(7);
    wait_for_held_back(
        &driven,
        &[
            "b[1] works from b-splits[0]",
            "count[0] waits for b[1]",
            "sink[0] waits for count[0]",
        ],
    );
    let channels: Vec<_> = driven
        .metrics
        .channels(driven.subtask("count[0]"))
        .collect();
    let expected = [("a[0]", 7), ("b[0]", 7), ("b[1]", 0)];
    assert_eq!(
        channels,
        expected.map(|(name, id)| (driven.subtask(name), CheckpointId(id)))
    );
    gate.open();
    driven.acknowledgements(7);
    wait_for_held_back(&driven, &[]);
    driven.stop();
}

#[test]
fn an_operator_stuck_amid_its_records_is_the_one_that_is_named() {
    let gate = Gate::default();
    let in_map = gate.clone();
    let map = move |number, out: &mut Collector<u64>| {
        in_map.pass();
        out.emit(number);
        Ok(())
    };
    let (plan, _collected) = mapped(Numbers::endless(), [2, 1, 1], map);
    let mut driven = Driven::start(plan, Options::default());
    gate.close();
    wait_until(|| gate.waiting() == 1);
    driven.trigger(7);
    // Worker 0 is stuck, and everything on it; the enumerator has not even got the trigger.
    wait_for_held_back(
        &driven,
        &[
            "numbers-splits[0] Trigger",
            "numbers[0] waits for numbers-splits[0]",
            "numbers[1] waits for numbers-splits[0]",
            "map[0] waits for numbers[0] numbers[1]",
            "sink[0] waits for map[0]",
        ],
    );
    gate.open();
    driven.acknowledgements(7);
    driven.stop();
}

#[test]
fn a_snapshot_that_is_being_written_is_told_apart() {
    let (plan, _collected) = keyed_count(Numbers::endless(), 10, 1);
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| driven.metrics.records_in(driven.subtask("count[0]")) > 0);
    driven.files.gate.close();
    driven.trigger(7);
    wait_for_held_back(&driven, &["count[0] Writing"]);
    driven.files.gate.open();
    driven.acknowledgements(7);
    wait_for_held_back(&driven, &[]);
    driven.stop();
}
