//! Process functions driven by hand: state, timers, two inputs; snapshots, restores, rescaling.

use std::time::Duration;

use tidegate::prelude::*;
use tidegate::testing::{
    OperatorHarness, OperatorSnapshot, OperatorUnderTest, keyed_co_process, keyed_process,
};

/// What the reminder is told.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize, Record)]
enum Order {
    At(i64),
    Cancel(i64),
    AtOnClock(u64),
}

/// Reminds of each key's orders when their time has come, and numbers the reminders of a key.
struct Reminder {
    reminded: ValueState<u64, u32>,
}

/// Key, time, whether by the clock, and the number of the reminder.
type Reminded = (u64, i64, bool, u32);

impl KeyedProcessFunction for Reminder {
    type Key = u64;
    type In = (u64, Order);
    type Out = Reminded;

    fn process(
        &mut self,
        (_, order): (u64, Order),
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<Reminded>,
    ) -> Result<(), BoxError> {
        let timers = ctx.timer_service();
        match order {
            Order::At(time) => timers.register_event_time_timer(EventTime(time))?,
            Order::Cancel(time) => timers.delete_event_time_timer(EventTime(time))?,
            Order::AtOnClock(time) => timers.register_processing_time_timer(UnixMillis(time))?,
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<Reminded>,
    ) -> Result<(), BoxError> {
        let number = self.reminded.get(ctx)?.unwrap_or(0) + 1;
        self.reminded.set(ctx, number)?;
        let by_clock = timer.domain == TimeDomain::ProcessingTime;
        out.emit((*ctx.key(), timer.time, by_clock, number));
        Ok(())
    }
}

type ReminderUnderTest = OperatorUnderTest<(u64, Order), Reminded>;
type ReminderHarness = OperatorHarness<(u64, Order), Reminded>;

fn reminder() -> ReminderUnderTest {
    keyed_process(
        |order: &(u64, Order)| order.0,
        |states| {
            let reminded = states.value("reminded")?;
            Ok(Reminder { reminded })
        },
    )
}

fn tell(harness: &mut ReminderHarness, orders: &[(u64, Order)]) {
    for order in orders {
        harness.process(*order).unwrap();
    }
}

#[test]
fn event_time_timers_fire_in_order_once_when_the_watermark_has_come() {
    let mut harness = reminder().open().unwrap();
    let orders = [(1, 30), (2, 10), (1, 20), (1, 20), (3, 11)];
    tell(&mut harness, &orders.map(|(key, at)| (key, Order::At(at))));
    tell(&mut harness, &[(3, Order::Cancel(11))]);
    harness.watermark(EventTime(9)).unwrap();
    assert_eq!(harness.take_output(), []);
    harness.watermark(EventTime(20)).unwrap();
    assert_eq!(
        harness.take_output(),
        [(2, 10, false, 1), (1, 20, false, 1)]
    );
    harness.watermark(EventTime(29)).unwrap();
    assert_eq!(harness.take_output(), []);
    harness.end_input().unwrap();
    assert_eq!(harness.take_output(), [(1, 30, false, 2)]);
}

// More than fire in one step.
#[test]
fn thousands_of_timers_that_are_due_at_once_all_fire_in_order() {
    let mut harness = reminder().open().unwrap();
    let times = || (0..3_000_i64).map(|index| index * 7919 % 3_000);
    for (key, time) in (0..).zip(times()) {
        tell(
            &mut harness,
            &[(key % 10, Order::At(time)), (key % 10, Order::AtOnClock(5))],
        );
    }
    harness.watermark(EventTime(2_999)).unwrap();
    let fired = harness.take_output();
    assert!(fired.iter().map(|(_, time, ..)| *time).eq(0..3_000));
    harness
        .advance_processing_time(Duration::from_millis(6))
        .unwrap();
    assert_eq!(harness.take_output().len(), 10, "one per key and time");
}

// BC-40: not one millisecond early. What happens in the timer's millisecond is before it.
#[test]
fn processing_time_timers_fire_when_their_millisecond_is_over() {
    let mut harness = reminder().open().unwrap();
    tell(
        &mut harness,
        &[(1, Order::AtOnClock(1000)), (2, Order::AtOnClock(999))],
    );
    let step = |harness: &mut ReminderHarness, millis| {
        harness
            .advance_processing_time(Duration::from_millis(millis))
            .unwrap();
        harness.take_output()
    };
    assert_eq!(step(&mut harness, 999), []);
    assert_eq!(step(&mut harness, 1), [(2, 999, true, 1)]);
    assert_eq!(harness.processing_time(), UnixMillis(1000));
    assert_eq!(step(&mut harness, 1), [(1, 1000, true, 1)]);
    assert_eq!(step(&mut harness, 10_000), []);
}

/// Opens all subtasks of the reminder.
fn restore_all(from: &OperatorSnapshot, parallelism: u32) -> Vec<ReminderHarness> {
    (0..parallelism)
        .map(|index| {
            reminder()
                .restore_subtask(from, index, parallelism)
                .unwrap()
        })
        .collect()
}

// BC-39: timers of both kinds fire exactly once each after a restore, whoever owns their key
// then; those that had fired don't, those that are overdue do.
#[test]
fn timers_survive_restores_at_any_parallelism_and_fire_once() {
    let keys = 0..40_u64;
    let mut harness = reminder().open().unwrap();
    for key in keys.clone() {
        let orders = [
            Order::At(10),
            Order::At(20 + key as i64),
            Order::AtOnClock(500),
        ];
        tell(&mut harness, &orders.map(|order| (key, order)));
    }
    harness.watermark(EventTime(10)).unwrap();
    assert_eq!(harness.take_output().len(), 40);
    let mut snapshot = harness.snapshot().unwrap();
    // What happens after the snapshot is not in it.
    harness.watermark(EventTime(1000)).unwrap();

    for parallelism in [3, 1, 5, 2] {
        let mut subtasks = restore_all(&snapshot, parallelism);
        let parts = subtasks
            .iter_mut()
            .map(|subtask| subtask.snapshot().unwrap());
        snapshot = OperatorSnapshot::of_subtasks(parts);
    }
    let mut fired = Vec::new();
    for subtask in &mut restore_all(&snapshot, 4) {
        subtask.watermark(EventTime(1000)).unwrap();
        subtask
            .advance_processing_time(Duration::from_secs(60))
            .unwrap();
        fired.extend(subtask.take_output());
    }
    fired.sort_unstable();
    let expected = keys.flat_map(|key| {
        let at = 20 + key as i64;
        [(key, at, false, 2), (key, 500, true, 3)]
    });
    let expected: Vec<_> = expected.collect();
    assert_eq!(fired, expected);
}

/// Pairs what comes on the left with what comes on the right, one to one, in order of arrival.
struct Pairs {
    waiting: ValueState<String, Vec<(bool, u32)>>,
}

impl Pairs {
    fn meet(
        &mut self,
        is_left: bool,
        number: u32,
        ctx: &KeyedContext<'_, String>,
    ) -> Result<Option<u32>, BoxError> {
        let met = self.waiting.update_or(ctx, Vec::new(), |waiting| {
            if waiting.first().is_some_and(|(left, _)| *left != is_left) {
                return Some(waiting.remove(0).1);
            }
            waiting.push((is_left, number));
            None
        })?;
        Ok(met)
    }
}

impl KeyedCoProcessFunction for Pairs {
    type Key = String;
    type Left = (String, u32);
    type Right = (u32, String);
    type Out = (String, u32, u32);

    fn process_left(
        &mut self,
        (key, number): (String, u32),
        ctx: &mut KeyedContext<'_, String>,
        out: &mut Collector<(String, u32, u32)>,
    ) -> Result<(), BoxError> {
        if let Some(other) = self.meet(true, number, ctx)? {
            out.emit((key, number, other));
        }
        Ok(())
    }

    fn process_right(
        &mut self,
        (number, key): (u32, String),
        ctx: &mut KeyedContext<'_, String>,
        out: &mut Collector<(String, u32, u32)>,
    ) -> Result<(), BoxError> {
        if let Some(other) = self.meet(false, number, ctx)? {
            out.emit((key, other, number));
        }
        Ok(())
    }
}

// L11: a switch of the key isolates values.
#[test]
fn two_inputs_share_the_state_of_a_key() {
    let pairs = keyed_co_process(
        |left: &(String, u32)| left.0.clone(),
        |right: &(u32, String)| right.1.clone(),
        |states| {
            let waiting = states.value("waiting")?;
            Ok(Pairs { waiting })
        },
    );
    let mut harness = pairs.open().unwrap();
    harness.process_left(("a".to_owned(), 1)).unwrap();
    harness.process_right((2, "b".to_owned())).unwrap();
    harness.process_right((3, "a".to_owned())).unwrap();
    assert_eq!(harness.take_output(), [("a".to_owned(), 1, 3)]);
    let snapshot = harness.snapshot().unwrap();
    harness.process_left(("b".to_owned(), 4)).unwrap();
    assert_eq!(harness.take_output(), [("b".to_owned(), 4, 2)]);

    let mut restored = pairs.restore(&snapshot).unwrap();
    restored.process_left(("b".to_owned(), 5)).unwrap();
    restored.process_left(("b".to_owned(), 6)).unwrap();
    assert_eq!(restored.take_output(), [("b".to_owned(), 5, 2)]);
}

// KS-12: another type is found out before anything is read.
#[test]
fn a_state_of_another_type_is_refused_by_name() {
    let snapshot = {
        let mut harness = reminder().open().unwrap();
        tell(&mut harness, &[(1, Order::At(1))]);
        harness.watermark(EventTime(1)).unwrap();
        harness.snapshot().unwrap()
    };
    let other = keyed_process(
        |order: &(u64, Order)| order.0,
        |states| {
            let _: ValueState<u64, String> = states.value("reminded")?;
            let reminded = states.value("other")?;
            Ok(Reminder { reminded })
        },
    );
    let refused = other.restore(&snapshot).err().unwrap().to_string();
    assert!(refused.contains("`reminded`"), "{refused}");
}
