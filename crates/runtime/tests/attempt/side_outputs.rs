//! Side outputs between real workers.

use tidegate_runtime::Batch;
use tidegate_runtime::{
    BoxError, ByKeyGroup, ByValue, Collector, EdgeKind, Flow, JobPlan, Logic, Output, Rebalance,
    Route, SideCollector,
};
use tidegate_state::Record;
use tidegate_types::graph::Partitioning;
use tidegate_types::message::Report;
use tidegate_types::{CheckpointId, SnapshotKind};

use crate::pipelines::wait_for_all_ends;
use crate::support::{Collected, Driven, Numbers, Options, operator};

const NUMBERS: u64 = 50_000;

/// Even numbers go on; odd ones are spelled, by the side; every number goes to outputs that nobody
/// has asked for.
struct Sort {
    odd: SideCollector<String>,
    unconnected: SideCollector<u64>,
    undeclared: SideCollector<Vec<u8>>,
}

impl Logic<u64, u64> for Sort {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        while !out.is_full() {
            let Some(number) = input.next() else { break };
            self.unconnected.emit(number);
            self.undeclared.emit(vec![0; 1000]);
            match number % 2 {
                0 => out.emit(number),
                _ => self.odd.emit(number.to_string()),
            }
        }
        Ok(Flow::Continue)
    }
}

fn evenly<T: Record>() -> Box<dyn Route<T>> {
    Box::new(Rebalance::default())
}

fn plan(even: &Collected<u64>, odd: &Collected<String>) -> JobPlan {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 2), Numbers::up_to(NUMBERS));
    let sort = plan.operator::<u64, u64, _>(operator("sort", 2), |context| {
        Ok(Sort {
            odd: context.side_output("odd")?,
            unconnected: context.side_output("unconnected")?,
            undeclared: context.side_output("undeclared")?,
        })
    });
    let even = plan.sink(operator("even", 1), even.clone());
    let odd = plan.sink(operator("odd", 3), odd.clone());
    plan.side_output::<u64>(sort, "unconnected").unwrap();
    let spelled = plan.side_output::<String>(sort, "odd").unwrap();
    let records = EdgeKind::Records;
    plan.connect::<u64>((numbers, sort), Partitioning::Rebalance, records, |_| {
        evenly()
    });
    plan.connect::<String>(
        (spelled, odd),
        Partitioning::KeyGroups,
        records,
        |context| {
            let key = ByValue::new(|number: &String| number.len() as u64);
            Box::new(ByKeyGroup::new(
                key,
                context.max_parallelism,
                context.parallelism,
            ))
        },
    );
    plan.connect::<u64>((sort, even), Partitioning::Rebalance, records, |_| evenly());
    plan
}

#[test]
fn every_record_takes_the_output_it_was_given_to() {
    for serialize in [false, true] {
        let (even, odd) = (Collected::default(), Collected::default());
        let options = Options {
            serialize,
            ..Options::default()
        };
        let mut driven = Driven::start(plan(&even, &odd), options);
        wait_for_all_ends(&driven, 2);
        driven.trigger(1);
        driven.acknowledgements(1);
        let emitted = ["sort[0]", "sort[1]"].map(|name| {
            let subtask = driven.subtask(name);
            (
                driven.metrics.records_in(subtask),
                driven.metrics.records_out(subtask),
            )
        });
        driven.stop();
        let mut even = std::mem::take(&mut *even.0.lock().unwrap());
        even.sort_unstable();
        assert!(even.into_iter().eq((0..NUMBERS).step_by(2)));
        let odd = odd.0.lock().unwrap();
        let mut odd: Vec<u64> = odd.iter().map(|number| number.parse().unwrap()).collect();
        odd.sort_unstable();
        assert!(odd.into_iter().eq((1..NUMBERS).step_by(2)));
        for (records_in, records_out) in emitted {
            assert_eq!(records_out, 2 * records_in, "declared outputs count");
        }
    }
}

#[test]
fn a_side_output_has_one_type() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::up_to(10));
    let once = plan.side_output::<u64>(numbers, "late").unwrap();
    assert_eq!(plan.side_output::<u64>(numbers, "late").unwrap(), once);
    let error = plan.side_output::<u32>(numbers, "late").unwrap_err();
    assert_eq!(
        error.to_string(),
        "side output `late` carries `u64`, not `u32`"
    );

    let (even, odd) = (Collected::default(), Collected::default());
    let mut plan = self::plan(&even, &odd);
    let sort = plan.graph().operator_ids().nth(2).unwrap();
    plan.side_output::<u8>(sort, "undeclared").unwrap();
    let driven = Driven::launch(plan, Options::default(), Default::default(), None);
    driven.wait_for("complaint", |report| match report {
        Report::Failed(failure) => {
            let text = format!("{failure:?}");
            assert!(
                text.contains("carries `u8`, not `alloc::vec::Vec<u8>`"),
                "{text}"
            );
            true
        }
        _ => false,
    });
}

// A mistaken tag, and a side output of another operator.
#[test]
fn what_nobody_emits_to_cannot_be_taken() {
    let operators = [
        (
            2,
            "operator `sort` emits to no side output `lost`; it has `odd`, `unconnected`, \
             `undeclared`",
        ),
        (
            1,
            "operator `numbers` emits to no side output `lost`; it has none",
        ),
    ];
    for (operator, complaint) in operators {
        let (even, odd) = (Collected::default(), Collected::default());
        let mut plan = plan(&even, &odd);
        let operator = plan.graph().operator_ids().nth(operator).unwrap();
        plan.side_output::<u64>(operator, "lost").unwrap();
        let driven = Driven::launch(plan, Options::default(), Default::default(), None);
        driven.wait_for("complaint", |report| match report {
            Report::Failed(failure) => {
                assert_eq!(failure.cause, complaint);
                true
            }
            _ => false,
        });
    }
}

/// Passes numbers on, and says by the side which checkpoints it hears of.
struct Audit(SideCollector<u64>);

impl Logic<u64, u64> for Audit {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        while !out.is_full() {
            let Some(number) = input.next() else { break };
            out.emit(number);
        }
        Ok(Flow::Continue)
    }

    fn on_completed(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.0.emit(checkpoint.0);
        Ok(())
    }
}

fn audited(numbers: Numbers, audit: &Collected<u64>) -> Driven {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 2), numbers);
    let audited = plan.operator::<u64, u64, _>(operator("audited", 2), |context| {
        Ok(Audit(context.side_output("audit")?))
    });
    let side = plan.side_output::<u64>(audited, "audit").unwrap();
    let main = plan.sink(operator("main", 1), Collected::<u64>::default());
    let audit = plan.sink(operator("audit", 1), audit.clone());
    let edges: [(Output, _); 3] = [
        (numbers.into(), audited),
        (audited.into(), main),
        (side.into(), audit),
    ];
    for edge in edges {
        let records = EdgeKind::Records;
        plan.connect::<u64>(edge, Partitioning::Rebalance, records, |_| evenly());
    }
    Driven::start(plan, Options::default())
}

// Notices go on when data has come to its end: what an operator emits then has nowhere to go, and
// does no harm.
#[test]
fn what_is_emitted_behind_the_last_data_is_dropped() {
    let audit = Collected::default();
    let mut ended = audited(Numbers::up_to(1000), &audit);
    wait_for_all_ends(&ended, 2);
    ended.trigger(1);
    ended.acknowledgements(1);
    ended.complete(1);
    ended.trigger(2);
    ended.acknowledgements(2);
    ended.stop();

    let mut stopped = audited(Numbers::endless(), &audit);
    stopped.trigger_savepoint(1, SnapshotKind::StopWithSavepoint { drain: false });
    stopped.acknowledgements(1);
    stopped.complete(1);
    stopped.trigger(2);
    stopped.acknowledgements(2);
    stopped.stop();
    assert_eq!(*audit.0.lock().unwrap(), []);
}
