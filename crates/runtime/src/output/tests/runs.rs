//! Runs of records on their way into batches: where each record goes, and what a batch weighs.

use std::cell::Cell;
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_types::MaxParallelism;

use super::super::by_hand::{ByHand, Which, fixed_window};
use super::super::*;
use crate::credit::Grant;

/// A record made of a number.
trait Numbered: Record + Debug {
    fn of(number: u64) -> Self;
    fn number(&self) -> u64;
    fn weight(&self) -> u64;
}

/// Owns nothing.
impl Numbered for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }

    fn weight(&self) -> u64 {
        8
    }
}

/// Owns something, more or less of it.
impl Numbered for (u64, String) {
    fn of(number: u64) -> Self {
        (number, "r".repeat(number as usize % 50))
    }

    fn number(&self) -> u64 {
        self.0
    }

    fn weight(&self) -> u64 {
        32 + self.0 % 50
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Forward,
    Rebalance,
    Broadcast,
    ByKeyGroup,
}

impl Way {
    fn route<T: Numbered>(self, count: u32) -> Box<dyn Route<T>> {
        match self {
            Way::Forward => Box::new(Forward),
            Way::Rebalance => Box::new(Rebalance::default()),
            Way::Broadcast => Box::new(Broadcast),
            Way::ByKeyGroup => by_number(count),
        }
    }
}

fn by_number<T: Numbered>(count: u32) -> Box<dyn Route<T>> {
    let key = ByValue::new(T::number);
    Box::new(ByKeyGroup::new(key, MaxParallelism::derive(count), count))
}

/// Where [`by_number`] leads.
fn owner(number: u64, count: u32) -> usize {
    let max_parallelism = MaxParallelism::derive(count);
    let group = max_parallelism.key_group(tidegate_state::StateKey::key_hash(&number));
    max_parallelism.owner(group, count) as usize
}

fn work_off<T: Record>(hand: &mut ByHand<'_, T>, targets: impl IntoIterator<Item = usize>) {
    hand.deliver();
    for target in targets {
        while hand.work(Which::Main, target) {}
    }
    hand.deliver();
}

const BATCH: u64 = 20_000;

/// Returns the weights of all batches.
fn batches<T: Numbered>(way: Way, count: u32) -> Vec<u64> {
    let (sender, received) = std::sync::mpsc::channel();
    timely::execute_directly(move |worker| {
        let settings = fixed_window(4 * BATCH as u32, BATCH as u32);
        let mut hand = ByHand::new(worker, &settings, way.route(count), count);
        for number in 0..40_000 {
            hand.out.emit(T::of(number));
            if hand.out.is_full() {
                work_off(&mut hand, 0..count as usize);
            }
        }
        work_off(&mut hand, 0..count as usize);
        for receiver in hand.receivers(Which::Main) {
            let mut processed = receiver.processed.iter();
            for (bytes, records) in &receiver.batches {
                let records = processed.by_ref().take(*records);
                assert_eq!(records.map(T::weight).sum::<u64>(), *bytes);
                sender.send(*bytes).unwrap();
            }
        }
    });
    received.iter().collect()
}

/// Routed by [`Numbered::number`] as text. Returns records and hashes, as they arrive at each of
/// three targets.
fn by_text() -> Vec<(Vec<u64>, Vec<u64>)> {
    let (sender, received) = std::sync::mpsc::channel();
    timely::execute_directly(move |worker| {
        let settings = fixed_window(4 * BATCH as u32, BATCH as u32);
        let text = ByValue::new(|number: &u64| number.to_string());
        let route = Box::new(ByKeyGroup::new(text, MaxParallelism::derive(3), 3));
        let mut hand = ByHand::<u64>::new(worker, &settings, route, 3);
        for number in 0..10_000 {
            hand.out.emit(number);
        }
        hand.out.flush();
        work_off(&mut hand, 0..3);
        for receiver in hand.receivers(Which::Main) {
            let arrived = (receiver.processed.clone(), receiver.key_hashes.clone());
            sender.send(arrived).unwrap();
        }
    });
    received.iter().collect()
}

#[test]
fn hashes_of_keys_that_own_memory_go_with_the_records() {
    let arrived = by_text();
    assert_eq!(arrived.len(), 3);
    assert_eq!(arrived.iter().map(|(n, _)| n.len()).sum::<usize>(), 10_000);
    for (numbers, hashes) in arrived {
        let hash = |number: &u64| tidegate_state::StateKey::key_hash(&number.to_string());
        assert_eq!(hashes, numbers.iter().map(hash).collect::<Vec<_>>());
    }
}

// DESIGN 3: a batch is as large as the credit advises, and larger by a staged run at most,
// however records find their way and whatever they own.
#[test]
fn batches_are_as_large_as_advised() {
    fn check<T: Numbered>(weight_max: u64) {
        let ways = [
            (Way::Forward, 1),
            (Way::Rebalance, 3),
            (Way::Broadcast, 3),
            (Way::ByKeyGroup, 1),
            (Way::ByKeyGroup, 3),
        ];
        for (way, count) in ways {
            let batches = batches::<T>(way, count);
            assert!(batches.len() >= 10);
            let most = BATCH + STAGED_BYTES_MAX as u64 + weight_max;
            for bytes in batches {
                assert!((BATCH..most).contains(&bytes), "{bytes} by {way:?}");
            }
        }
    }
    check::<u64>(8);
    check::<(u64, String)>(82);
}

// One target has credit and one has none: what is for the first leaves, what is for the second
// waits, and all of it arrives where it belongs, in order.
#[test]
fn a_run_is_split_over_targets_with_different_credit() {
    fn check<T: Numbered>() {
        timely::execute_directly(|worker| {
            let settings = fixed_window(10_000, 2_500);
            let mut hand = ByHand::new(worker, &settings, by_number::<T>(2), 2);
            let mut numbers = 0..;
            for _ in 0..5 {
                while !hand.out.is_full() {
                    hand.out.emit(T::of(numbers.next().unwrap()));
                    work_off(&mut hand, [0]);
                }
                let [quick, slow] = hand.receivers(Which::Main) else {
                    panic!("two of them");
                };
                assert_eq!(quick.in_flight, 0);
                assert!((10_000..15_082).contains(&slow.in_flight));
                work_off(&mut hand, [0]);
                assert!(hand.out.is_full(), "the slow one has no credit");
                work_off(&mut hand, [1]);
                assert!(!hand.out.is_full());
            }
            hand.drain();
            for (target, receiver) in hand.receivers(Which::Main).iter().enumerate() {
                let processed = receiver.processed.iter().map(T::number);
                let expected = (0..numbers.start).filter(|number| owner(*number, 2) == target);
                assert!(processed.eq(expected));
            }
        });
    }
    check::<u64>();
    check::<(u64, String)>();
}

// No more is asked for than there is room for, and what was asked for is emitted.
#[test]
fn records_are_emitted_while_there_is_room() {
    fn check<T: Numbered>(in_flight_max: u64) {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(10_000, 2_500);
            let mut hand = ByHand::new(worker, &settings, by_number::<T>(2), 2);
            let asked = Cell::new(0);
            let mut records = (0..1_000_000).inspect(|_| asked.set(asked.get() + 1));
            assert_eq!(
                hand.out
                    .emit_while_room(records.by_ref().take(7).map(T::of)),
                7
            );
            assert_eq!(
                hand.out.emit_while_room(records.by_ref().map(T::of)),
                asked.get() - 7
            );
            assert!(hand.out.is_full());
            assert_eq!(hand.out.emit_while_room(records.by_ref().map(T::of)), 0);
            assert_eq!(hand.out.emitted(), asked.get());
            hand.deliver();
            for receiver in hand.receivers(Which::Main) {
                assert!(receiver.in_flight <= in_flight_max);
            }
            hand.drain();
            let processed = hand.receivers(Which::Main).iter();
            let processed: usize = processed.map(|to| to.processed.len()).sum();
            assert_eq!(processed as u64, asked.get());
        });
    }
    check::<u64>(15_008);
    check::<(u64, String)>(15_082);
}

// What is staged already can be more than what a receiver wants from now on.
#[test]
fn a_run_may_be_longer_than_wanted_all_at_once() {
    timely::execute_directly(|worker| {
        let settings = fixed_window(10_000, 2_500);
        let mut hand = ByHand::new(worker, &settings, Box::new(Forward), 1);
        assert_eq!(hand.out.emit_while_room(0..100u64), 100);
        let (bytes, batch_bytes) = (0, 8);
        hand.grant(0, Grant { bytes, batch_bytes });
        assert_eq!(hand.receivers(Which::Main)[0].batches, []);
        assert_eq!(hand.out.emit_while_room(100..103), 3);
        hand.deliver();
        let receiver = &hand.receivers(Which::Main)[0];
        let batches = &receiver.batches;
        assert_eq!(batches, &[(800, 100), (8, 1), (8, 1), (8, 1)]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    // KG-03: every record goes to the owner of its key group, and records of a key stay in order.
    #[test]
    fn records_arrive_where_their_key_is(
        count in 1..9u32,
        numbers in vec(0..1_000u64, 0..3_000),
        flush_every in 1..2_000usize,
    ) {
        timely::execute_directly(move |worker| {
            let settings = fixed_window(1 << 20, 2_500);
            let mut hand = ByHand::new(worker, &settings, by_number::<(u64, String)>(count), count);
            for (at, number) in numbers.iter().enumerate() {
                hand.out.emit(Numbered::of(*number));
                if at % flush_every == 0 {
                    hand.out.flush();
                }
            }
            hand.drain();
            for (target, receiver) in hand.receivers(Which::Main).iter().enumerate() {
                let processed = receiver.processed.iter().map(Numbered::number);
                let own = |number: &u64| owner(*number, count) == target;
                assert!(processed.eq(numbers.iter().copied().filter(own)));
            }
        });
    }
}
