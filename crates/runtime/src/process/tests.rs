//! Timers at and behind the end of the input.

use tidegate_state::ValueState;
use tidegate_types::{CheckpointId, EventTime, MaxParallelism, SubtaskRestore, UnixMillis};

use super::*;
use crate::error::BoxError;
use crate::harness::{HarnessSetup, OperatorHarness};
use crate::output::{ByValue, Collector};

/// Sets a timer of each kind for every record.
struct Late {
    seen: ValueState<u64, u64>,
}

impl KeyedProcessFunction for Late {
    type Key = u64;
    type In = u64;
    type Out = (u64, i64);

    fn process(
        &mut self,
        record: u64,
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<(u64, i64)>,
    ) -> Result<(), BoxError> {
        self.seen.set(ctx, record)?;
        let timers = ctx.timer_service();
        timers.register_processing_time_timer(UnixMillis(1_000))?;
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, i64)>,
    ) -> Result<(), BoxError> {
        out.emit((*ctx.key(), timer.time));
        if timer.domain == TimeDomain::ProcessingTime {
            // Event time has passed it already.
            let before = EventTime(timer.time + 1);
            ctx.timer_service().register_event_time_timer(before)?;
        }
        Ok(())
    }
}

fn open(restore: SubtaskRestore) -> OperatorHarness<u64, (u64, i64)> {
    let setup = HarnessSetup {
        uid: "late".to_owned(),
        index: 0,
        parallelism: 1,
        max_parallelism: MaxParallelism::derive(1),
        restored: (!restore.keyed.is_empty()).then_some(CheckpointId(1)),
        restore,
        processing_time: UnixMillis(0),
    };
    let harness = OperatorHarness::open(setup, |context| {
        let function = Keyed::open(context, |states| {
            let seen = states.value("seen")?;
            Ok(Single::new(
                ByValue::new(|record: &u64| *record),
                Late { seen },
            ))
        })?;
        Ok(Box::new(function))
    });
    harness.unwrap()
}

fn empty() -> SubtaskRestore {
    SubtaskRestore {
        key_groups: MaxParallelism::derive(1).range(0, 1).unwrap(),
        keyed: Vec::new(),
        lists: Vec::new(),
        finished: false,
    }
}

fn wait_a_minute(harness: &mut OperatorHarness<u64, (u64, i64)>) {
    let minute = std::time::Duration::from_secs(60);
    harness.advance_processing_time(minute).unwrap();
}

// A timer that had not come when the input ended never fires, and so it is after a restore.
#[test]
fn who_had_finished_fires_no_timers_any_more() {
    let mut harness = open(empty());
    harness.process(7).unwrap();
    harness.end_input().unwrap();
    assert_eq!(harness.take_output(), []);
    let (_, state) = harness.snapshot().unwrap();
    for (finished, expected) in [(true, vec![]), (false, vec![(7, 1_000), (7, 1_001)])] {
        let mut restored = open(SubtaskRestore {
            keyed: state.keyed.clone().into_iter().collect(),
            finished,
            ..empty()
        });
        wait_a_minute(&mut restored);
        restored.end_input().unwrap();
        assert_eq!(restored.take_output(), expected, "finished {finished}");
    }
}

// A timer of the one kind sets one of the other, for a time that event time has passed.
#[test]
fn at_the_end_timers_that_timers_have_set_fire_too() {
    let mut harness = open(empty());
    harness.process(7).unwrap();
    harness.watermark(EventTime(5_000)).unwrap();
    wait_a_minute(&mut harness);
    assert_eq!(harness.take_output(), [(7, 1_000)], "at the next watermark");
    harness.end_input().unwrap();
    assert_eq!(harness.take_output(), [(7, 1_001)]);
}
