//! The end of all data.

use std::time::Duration;

use tidegate_runtime::Batch;
use tidegate_runtime::{BoxError, Collector, EdgeKind, Flow, JobPlan, Logic, Rebalance, Ticks};
use tidegate_types::graph::Partitioning;

use crate::pipelines::wait_for_all_ends;
use crate::support::{Collected, Driven, Numbers, Options, operator};

/// Adds up slowly what it gets, and emits the sum at the end.
struct SlowSum(u64);

impl Logic<u64, u64> for SlowSum {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
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
