//! How much gets into channels whose receivers don't keep up.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_types::{CheckpointBarrier, SnapshotFormat, SnapshotKind, UnixMillis};

use super::by_hand::{ByHand, Which, fixed_window};
use super::*;

mod runs;

/// What a record weighs.
const RECORD: usize = 100;

fn record(weight: usize) -> String {
    "r".repeat(weight - size_of::<String>())
}

fn barrier(checkpoint: u64) -> CheckpointBarrier {
    CheckpointBarrier {
        checkpoint: CheckpointId(checkpoint),
        kind: SnapshotKind::Checkpoint,
        format: SnapshotFormat::Full,
        base: None,
        location: None,
        created: UnixMillis(0),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Watermark,
    Idleness,
    Barrier,
    Cancel,
}

const MARKS: [Mark; 4] = [Mark::Watermark, Mark::Idleness, Mark::Barrier, Mark::Cancel];

impl Mark {
    /// The `count`th marker.
    fn send(self, out: &mut Collector<String>, count: u64) {
        match self {
            Mark::Watermark => out.emit_watermark(EventTime(count as i64)),
            Mark::Idleness => match out.is_idle() {
                true => out.emit_active(),
                false => out.emit_idle(),
            },
            Mark::Barrier => out.send_barrier(barrier(count)),
            Mark::Cancel => out.send_cancel(CheckpointId(count)),
        }
    }
}

/// Emits records with a marker behind each, as long as there is room; returns how many.
fn emit_marked(hand: &mut ByHand<'_>, mark: Mark, which: Which) -> u64 {
    for count in 0..1000 {
        if hand.out.is_full() {
            hand.deliver();
            return count;
        }
        match which {
            Which::Main => hand.out.emit(record(RECORD)),
            Which::Side => hand.side.emit(record(RECORD)),
        }
        mark.send(&mut hand.out, count + 1);
    }
    panic!("{mark:?} on {which:?} opens channels without credit");
}

// DESIGN 3: a marker takes the records before it along, with or without credit. What went
// without counts: the operator stops at a window and a batch.
#[test]
fn markers_do_not_open_a_channel_without_credit() {
    for which in [Which::Main, Which::Side] {
        for mark in MARKS {
            timely::execute_directly(move |worker| {
                let settings = fixed_window(10_000, 2_500);
                let mut hand = ByHand::new(worker, &settings, Box::new(Forward), 1);
                assert_eq!(emit_marked(&mut hand, mark, which), 125);
                assert_eq!(hand.receivers(which)[0].in_flight, 12_500);
                hand.drain();
                assert!(!hand.out.is_full(), "{mark:?} on {which:?}");
                assert_eq!(hand.receivers(which)[0].processed.len(), 125);
            });
        }
    }
}

// A receiver that wants single records gets no more than it has credit for.
#[test]
fn markers_do_not_open_a_channel_to_a_slow_receiver() {
    for mark in MARKS {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(1_000, 250);
            let mut hand = ByHand::new(worker, &settings, Box::new(Forward), 1);
            assert_eq!(emit_marked(&mut hand, mark, Which::Main), 10);
        });
    }
}

// With markers in between, too, whoever keeps up gets what others have no room for, and the
// operator stops when nobody has any.
#[test]
fn rebalancing_goes_on_with_those_that_keep_up() {
    for mark in MARKS {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(10_000, 2_500);
            let mut hand = ByHand::new(worker, &settings, Box::new(Rebalance::default()), 2);
            for count in 1..=1000 {
                assert!(!hand.out.is_full(), "the second keeps up");
                hand.out.emit(record(RECORD));
                mark.send(&mut hand.out, count);
                hand.deliver();
                while hand.work(Which::Main, 1) {}
                hand.deliver();
            }
            let [slow, quick] = hand.receivers(Which::Main) else {
                panic!("two of them");
            };
            assert!(slow.in_flight <= 12_500, "{}", slow.in_flight);
            assert!(quick.processed.len() >= 875);
        });
    }
}

// The handle of a side output is there at any time; what comes too late would be corrupt where it
// arrives.
#[test]
fn a_side_output_takes_nothing_behind_its_last_data() {
    let stop = SnapshotKind::StopWithSavepoint { drain: false };
    let last: [fn(&mut Collector<String>, SnapshotKind); 2] = [
        |out, _| out.send_end_of_data(),
        |out, kind| out.send_barrier(CheckpointBarrier { kind, ..barrier(2) }),
    ];
    for send_last in last {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(10_000, 2_500);
            let mut hand = ByHand::new(worker, &settings, Box::new(Forward), 1);
            hand.side.emit(record(RECORD));
            hand.out.send_barrier(barrier(1));
            hand.out.send_cancel(CheckpointId(2));
            hand.side.emit(record(RECORD + 1));
            send_last(&mut hand.out, stop);
            hand.side.emit(record(RECORD + 2));
            hand.out.send_barrier(barrier(3));
            hand.side.emit(record(RECORD + 3));
            assert_eq!(hand.out.emitted(), 2);
            hand.drain();
            let processed = &hand.receivers(Which::Side)[0].processed;
            assert_eq!(processed, &[record(RECORD), record(RECORD + 1)]);
        });
    }
}

// A batch has left, however it did: full, since its source had no more at hand, or in front of a
// marker. The next goes to the next.
#[test]
fn rebalancing_takes_turns_whatever_sends_the_batches() {
    let marks = || MARKS.map(Some).into_iter().chain([None]);
    for (mark, targets) in marks().flat_map(|mark| [2, 3, 4].map(|targets| (mark, targets))) {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(10_000, 2_500);
            let rebalance = Box::new(Rebalance::default());
            let mut hand = ByHand::new(worker, &settings, rebalance, targets as u32);
            for count in 1..=24 * targets {
                hand.out.emit(record(RECORD));
                // With nothing behind the record, neither a flush nor a mark is a turn.
                hand.out.flush();
                if let Some(mark) = mark {
                    mark.send(&mut hand.out, count as u64);
                }
                hand.deliver();
                (0..targets).for_each(|target| while hand.work(Which::Main, target) {});
                hand.deliver();
            }
            let receivers = hand.receivers(Which::Main).iter();
            let processed: Vec<_> = receivers.map(|to| to.processed.len()).collect();
            assert_eq!(processed, vec![24; targets], "{mark:?}");
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Emit { which: Which, weight: usize },
    Mark(Mark),
    Flush,
    Deliver,
    Work { which: Which, target: usize },
}

const WEIGHT_MAX: usize = 3_000;

fn any_step() -> impl Strategy<Value = Step> {
    let which = || prop_oneof![2 => Just(Which::Main), 1 => Just(Which::Side)];
    let weight = prop_oneof![4 => 24..300usize, 1 => 300..=WEIGHT_MAX];
    prop_oneof![
        12 => (which(), weight).prop_map(|(which, weight)| Step::Emit { which, weight }),
        3 => proptest::sample::select(&MARKS[..]).prop_map(Step::Mark),
        1 => Just(Step::Flush),
        2 => Just(Step::Deliver),
        2 => (which(), 0..3usize).prop_map(|(which, target)| Step::Work { which, target }),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Forward,
    Rebalance,
    Broadcast,
    ByKeyGroup,
}

impl Way {
    fn route(self, count: u32) -> Box<dyn Route<String>> {
        match self {
            Way::Forward => Box::new(Forward),
            Way::Rebalance => Box::new(Rebalance::default()),
            Way::Broadcast => Box::new(Broadcast),
            Way::ByKeyGroup => {
                let key = ByValue::new(|record: &String| record.len() as u64);
                let max_parallelism = tidegate_types::MaxParallelism::derive(count);
                Box::new(ByKeyGroup::new(key, max_parallelism, count))
            }
        }
    }
}

fn any_way() -> impl Strategy<Value = (Way, u32)> {
    prop_oneof![
        Just((Way::Forward, 1)),
        (1..4u32).prop_map(|count| (Way::Rebalance, count)),
        (1..4u32).prop_map(|count| (Way::Broadcast, count)),
        (1..4u32).prop_map(|count| (Way::ByKeyGroup, count)),
    ]
}

/// An operator that emits when there is room and not otherwise. Markers go at any time, except for
/// those of event time, which operators send when there is room, too.
struct Operator<'a> {
    hand: ByHand<'a>,
    /// What may be in flight on a channel.
    in_flight_max: u64,
    copies: u64,
    marks: u64,
    emitted: u64,
}

impl Operator<'_> {
    fn perform(&mut self, step: Step) {
        let out = &mut self.hand.out;
        match step {
            Step::Emit { .. } | Step::Mark(Mark::Watermark | Mark::Idleness) if out.is_full() => {}
            Step::Emit { which, weight } => match which {
                Which::Main => {
                    out.emit(record(weight));
                    self.emitted += self.copies;
                }
                Which::Side => {
                    self.hand.side.emit(record(weight));
                    self.emitted += 1;
                }
            },
            Step::Mark(mark) => {
                self.marks += 1;
                mark.send(out, self.marks);
            }
            Step::Flush => out.flush(),
            Step::Deliver => self.hand.deliver(),
            Step::Work { which, target } => {
                let target = target % self.hand.receivers(which).len();
                self.hand.work(which, target);
            }
        }
    }

    fn check(&mut self) {
        self.hand.deliver();
        for which in [Which::Main, Which::Side] {
            for receiver in self.hand.receivers(which) {
                assert!(
                    receiver.in_flight <= self.in_flight_max,
                    "{} in flight on {which:?}",
                    receiver.in_flight
                );
            }
        }
    }

    /// Nothing is stuck or lost.
    fn end(mut self) {
        self.hand.drain();
        assert!(!self.hand.out.is_full());
        let mut processed = 0;
        for which in [Which::Main, Which::Side] {
            for receiver in self.hand.receivers(which) {
                processed += receiver.processed.len() as u64;
            }
        }
        assert_eq!(processed, self.emitted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // DESIGN 3: whatever is sent in whatever order, a channel holds at most a window and a
    // batch, of which the last record may be larger; and a staged run, as large as a batch at most,
    // which an operator without markers makes before it hears that it should stop.
    #[test]
    fn what_is_in_flight_is_bounded(
        window in 1..20_000u32,
        batch_max in 1..8_000u32,
        (way, count) in any_way(),
        steps in vec(any_step(), 0..400),
    ) {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(window, batch_max);
            let batch = (window / 4).clamp(1, batch_max);
            let mut operator = Operator {
                hand: ByHand::new(worker, &settings, way.route(count), count),
                in_flight_max: u64::from(window + 2 * batch) + WEIGHT_MAX as u64,
                copies: match way {
                    Way::Broadcast => u64::from(count),
                    _ => 1,
                },
                marks: 0,
                emitted: 0,
            };
            for step in steps {
                operator.perform(step);
                operator.check();
            }
            operator.end();
        });
    }
}
