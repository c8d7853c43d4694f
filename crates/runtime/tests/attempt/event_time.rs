//! Watermarks between real workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_runtime::Batch;
use tidegate_runtime::watermark::AssignWatermarks;
use tidegate_runtime::{
    BoxError, Collector, EdgeKind, Flow, JobPlan, Logic, Rebalance, WatermarkProgress,
    WatermarkStrategy,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::{EventTime, SnapshotKind};

use crate::pipelines::wait_for_all_ends;
use crate::support::{Driven, Numbers, Options, operator};

/// What one subtask has heard.
#[derive(Clone, Default)]
struct Heard {
    records: Vec<u64>,
    late: Vec<u64>,
    watermarks: Vec<EventTime>,
}

type Shared = Arc<Mutex<Vec<Heard>>>;

struct Listener {
    index: usize,
    heard: Shared,
}

impl Logic<u64, ()> for Listener {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        _out: &mut Collector<()>,
    ) -> Result<Flow, BoxError> {
        let heard = &mut self.heard.lock().unwrap()[self.index];
        let watermark = heard.watermarks.last().copied();
        for record in input {
            if watermark.is_some_and(|watermark| EventTime(record as i64) <= watermark) {
                heard.late.push(record);
            }
            heard.records.push(record);
        }
        Ok(Flow::Continue)
    }

    fn on_watermark(
        &mut self,
        watermark: EventTime,
        _out: &mut Collector<()>,
    ) -> Result<WatermarkProgress, BoxError> {
        self.heard.lock().unwrap()[self.index]
            .watermarks
            .push(watermark);
        Ok(WatermarkProgress::Done)
    }
}

/// Two readers → two that assign watermarks → three listeners. Numbers are their own times.
fn plan(numbers: Numbers, heard: &Shared) -> JobPlan {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 2), numbers);
    let assign = plan.operator::<u64, u64, _>(operator("watermarks", 2), |context| {
        let strategy = WatermarkStrategy::monotonous(|number: &u64| EventTime(*number as i64))
            .every(Duration::ZERO);
        Ok(AssignWatermarks::new(strategy, context.clock.clone()))
    });
    *heard.lock().unwrap() = vec![Heard::default(); 3];
    let heard = Arc::clone(heard);
    let listen = plan.operator::<u64, (), _>(operator("listen", 3), move |context| {
        Ok(Listener {
            index: context.subtask.index as usize,
            heard: Arc::clone(&heard),
        })
    });
    for (edge, partitioning) in [
        ((numbers, assign), Partitioning::Forward),
        ((assign, listen), Partitioning::Rebalance),
    ] {
        plan.connect::<u64>(edge, partitioning, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    plan
}

#[test]
fn records_are_on_time_at_every_receiver() {
    for serialize in [false, true] {
        let heard = Shared::default();
        let options = Options {
            serialize,
            ..Options::default()
        };
        let mut driven = Driven::start(plan(Numbers::up_to(30_000), &heard), options);
        wait_for_all_ends(&driven, 2);
        driven.trigger(1);
        driven.acknowledgements(1);
        driven.stop();
        let heard = heard.lock().unwrap();
        for listener in heard.iter() {
            assert_eq!(listener.late, [], "serialize: {serialize}");
            assert!(listener.watermarks.is_sorted_by(|one, next| one < next));
            assert_eq!(listener.watermarks.last(), Some(&EventTime::MAX));
            assert!(listener.watermarks.len() > 1, "not only at the end");
        }
        let mut records: Vec<u64> = heard.iter().flat_map(|it| it.records.clone()).collect();
        records.sort_unstable();
        assert!(records.into_iter().eq(0..30_000));
    }
}

// BC-21, SP-07, SP-08: event time ends with a drain, and doesn't with any other stop.
#[test]
fn only_a_stop_with_drain_ends_event_time() {
    for drain in [false, true] {
        let heard = Shared::default();
        let mut driven = Driven::start(plan(Numbers::endless(), &heard), Options::default());
        driven.trigger(1);
        driven.acknowledgements(1);
        driven.trigger_savepoint(2, SnapshotKind::StopWithSavepoint { drain });
        driven.acknowledgements(2);
        driven.stop();
        for listener in heard.lock().unwrap().iter() {
            let ends = listener.watermarks.iter();
            let ends = ends.filter(|watermark| **watermark == EventTime::MAX);
            assert_eq!(ends.count(), usize::from(drain));
            assert_eq!(listener.late, []);
        }
    }
}
