//! The operator alone, with a clock that stands still.

use tidegate_types::UnixMillis;

use super::*;
use crate::clock::ManualClock;
use crate::output::Forward;
use crate::output::by_hand::{ByHand, Which, fixed_window};

const MILLI: Duration = Duration::from_millis(1);

/// Records are their own times.
struct Driven<G> {
    logic: AssignWatermarks<i64, G>,
    out: Collector<i64>,
    clock: ManualClock,
}

impl<G: WatermarkGenerator<i64>> Driven<G> {
    fn new(strategy: WatermarkStrategy<i64, G>) -> Self {
        let clock = ManualClock::at(UnixMillis(1_000_000));
        Driven {
            logic: AssignWatermarks::new(strategy, Clock::Manual(clock.clone())),
            out: Collector::collecting(1000),
            clock,
        }
    }

    fn process(&mut self, times: impl IntoIterator<Item = i64>) {
        let times: Vec<i64> = times.into_iter().collect();
        let mut input = Batch::from(times.clone());
        self.logic.process(&mut input, &mut self.out).unwrap();
        assert_eq!(input.len(), 0);
        assert_eq!(self.out.take_collected(), times, "records pass unchanged");
    }

    fn poll(&mut self) -> Activity {
        self.logic.poll(false, &mut self.out).unwrap()
    }

    fn advance(&mut self, millis: u32) {
        self.clock.advance(millis * MILLI);
    }

    fn watermark(&self) -> i64 {
        self.out.watermark().0
    }
}

fn at(millis: u32) -> Activity {
    Activity::At(Ticks(millis * MILLI))
}

const NONE: i64 = i64::MIN;

#[test]
fn watermarks_follow_the_greatest_time_at_intervals() {
    let strategy = WatermarkStrategy::bounded_out_of_orderness(10 * MILLI, |time| EventTime(*time));
    let mut driven = Driven::new(strategy);
    assert_eq!(driven.poll(), Activity::Idle, "nothing to wait for");
    driven.advance(50);
    driven.process([100, 130, 120]);
    assert_eq!((driven.poll(), driven.watermark()), (at(250), NONE));
    driven.advance(199);
    driven.process([110]);
    assert_eq!((driven.poll(), driven.watermark()), (at(250), NONE));
    driven.advance(1);
    assert_eq!((driven.poll(), driven.watermark()), (Activity::Idle, 119));
    driven.advance(1000);
    assert_eq!(driven.poll(), Activity::Idle, "nothing new, no timer");
    driven.process([100]);
    driven.advance(200);
    driven.poll();
    assert_eq!(driven.watermark(), 119, "it never goes back");
}

// With much to do, nobody asks an operator what else it has to do.
#[test]
fn watermarks_come_also_without_a_pause() {
    let strategy = WatermarkStrategy::monotonous(|time| EventTime(*time)).every(5 * MILLI);
    let mut driven = Driven::new(strategy);
    let mut watermarks = Vec::new();
    for time in 0..20 {
        driven.process([time]);
        watermarks.push(driven.watermark());
        driven.advance(1);
    }
    watermarks.dedup();
    assert_eq!(watermarks, [NONE, 4, 10, 16]);
}

#[test]
fn what_is_left_in_the_input_is_no_part_of_a_watermark() {
    let strategy = WatermarkStrategy::monotonous(|time| EventTime(*time)).every(Duration::ZERO);
    let mut driven = Driven::new(strategy);
    driven.out = Collector::collecting(1);
    let mut input = Batch::from((0..2000).collect::<Vec<i64>>());
    driven.logic.process(&mut input, &mut driven.out).unwrap();
    let passed = driven.out.take_collected();
    assert!(passed.len() < 2000, "the collector was full");
    assert_eq!(driven.watermark(), passed.last().unwrap() - 1);
}

#[test]
fn silence_makes_it_idle_and_a_record_active() {
    let strategy = WatermarkStrategy::monotonous(|time| EventTime(*time)).idle_after(300 * MILLI);
    let mut driven = Driven::new(strategy);
    assert_eq!(driven.poll(), at(300), "also if there never was a record");
    driven.advance(250);
    driven.process([7]);
    assert_eq!(driven.poll(), at(450));
    driven.advance(299);
    assert_eq!((driven.poll(), driven.watermark()), (at(550), 6));
    assert!(!driven.out.is_idle());
    driven.advance(1);
    assert_eq!(driven.poll(), Activity::Idle);
    assert!(driven.out.is_idle());
    driven.advance(5000);
    assert_eq!(driven.poll(), Activity::Idle);
    driven.process([8]);
    assert!(!driven.out.is_idle());
    assert_eq!(driven.watermark(), 6, "not before its time");
}

// A long alignment may keep records from it; that is no silence.
#[test]
fn it_is_not_idle_while_records_wait() {
    let strategy = WatermarkStrategy::monotonous(|time| EventTime(*time)).idle_after(100 * MILLI);
    let mut driven = Driven::new(strategy);
    driven.process([7]);
    driven.advance(500);
    driven.logic.on_records_waiting();
    assert_eq!(driven.poll(), at(600));
    assert!(!driven.out.is_idle());
    driven.advance(100);
    driven.poll();
    assert!(driven.out.is_idle(), "nothing waits any more");
}

// A watermark of its own would come too late: nobody listens to an idle stream.
#[test]
fn the_last_watermark_goes_before_the_idleness() {
    let strategy = WatermarkStrategy::monotonous(|time| EventTime(*time)).idle_after(100 * MILLI);
    let mut driven = Driven::new(strategy);
    driven.process([7]);
    driven.advance(100);
    driven.poll();
    assert_eq!((driven.watermark(), driven.out.is_idle()), (6, true));
    driven.advance(100);
    driven.poll();
    assert!(driven.out.is_idle(), "what was due is settled");
}

#[test]
fn the_last_watermark_goes_before_the_end() {
    let mut driven = Driven::new(WatermarkStrategy::monotonous(|time| EventTime(*time)));
    driven.process([7]);
    let mut on_watermark = |watermark| {
        let progress = driven
            .logic
            .on_watermark(EventTime(watermark), &mut driven.out);
        assert_eq!(progress.unwrap(), WatermarkProgress::Done);
        driven.out.watermark().0
    };
    assert_eq!(on_watermark(99), NONE, "others' watermarks end here");
    assert_eq!(on_watermark(i64::MAX), 6);
    let ended = driven.logic.poll(true, &mut driven.out).unwrap();
    assert_eq!(ended, Activity::Ended);
}

/// Every negative record is a sign; a second goes by in each interval.
#[derive(Clone)]
struct Signs(i64);

impl WatermarkGenerator<i64> for Signs {
    fn on_record(&mut self, record: &i64) -> Option<EventTime> {
        (*record < 0).then_some(EventTime(-*record))
    }

    fn on_periodic(&mut self) -> Option<EventTime> {
        self.0 += 1000;
        Some(EventTime(self.0))
    }

    fn advances_by_itself(&self) -> bool {
        true
    }
}

#[test]
fn a_generator_may_have_rules_of_its_own() {
    let mut driven = Driven::new(WatermarkStrategy::generator(Signs(0)).every(100 * MILLI));
    driven.process([1, -5, 3]);
    assert_eq!((driven.watermark(), driven.poll()), (5, at(100)));
    driven.advance(100);
    assert_eq!((driven.poll(), driven.watermark()), (at(200), 1000));
    driven.advance(100);
    assert_eq!((driven.poll(), driven.watermark()), (at(300), 2000));
    driven.process([-1999, -2001]);
    assert_eq!(driven.watermark(), 2001);
}

/// Every record is a sign that time has advanced.
#[derive(Clone, Default)]
struct EveryRecord(i64);

impl WatermarkGenerator<String> for EveryRecord {
    fn on_record(&mut self, _record: &String) -> Option<EventTime> {
        self.0 += 1;
        Some(EventTime(self.0))
    }

    fn on_periodic(&mut self) -> Option<EventTime> {
        None
    }
}

// DESIGN 3: watermarks go without credit, and take the records before them along; even so the
// operator doesn't run ahead of a receiver that takes nothing.
#[test]
fn a_watermark_behind_every_record_leaves_flow_control_on() {
    timely::execute_directly(|worker| {
        let mut hand = ByHand::new(worker, &fixed_window(10_000, 2_500), Box::new(Forward), 1);
        let strategy = WatermarkStrategy::generator(EveryRecord::default());
        let clock = Clock::Manual(ManualClock::at(UnixMillis(0)));
        let mut logic = AssignWatermarks::new(strategy, clock);
        let record = "r".repeat(100 - size_of::<String>());
        let mut input = Batch::from(vec![record; 1000]);
        for taken in [125, 250] {
            logic.process(&mut input, &mut hand.out).unwrap();
            assert!(hand.out.is_full());
            assert_eq!(input.len(), 1000 - taken);
            assert_eq!(hand.out.watermark(), EventTime(taken as i64));
            hand.deliver();
            assert_eq!(hand.receivers(Which::Main)[0].in_flight, 12_500);
            hand.drain();
        }
    });
}
