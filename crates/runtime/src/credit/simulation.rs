//! Senders and one receiver on a virtual clock, with the real credit structs at both ends and
//! delayed but ordered messages between them.
//!
//! Every step checks, per channel, that no credit is lost or invented and that what is in flight
//! stays within the largest window so far plus one batch.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{CreditSettings, Grant, ReceiveCredit, SendCredit};
use crate::alignment::ChannelIndex;

/// One channel with its sender and what is under way on it.
struct Link {
    credit: SendCredit,
    /// Sizes of the records still to be sent; the last one repeats for ever if `endless`.
    source: VecDeque<u64>,
    endless: bool,
    batches: VecDeque<(Duration, Vec<u64>)>,
    grants: VecDeque<(Duration, Grant)>,
    queue: VecDeque<u64>,
    sent: u64,
    processed: u64,
    window_largest: u32,
    batch_largest: u64,
}

impl Link {
    fn in_flight(&self) -> u64 {
        self.sent - self.processed
    }

    fn next_record(&mut self) -> Option<u64> {
        if self.endless && self.source.len() == 1 {
            return self.source.front().copied();
        }
        self.source.pop_front()
    }

    fn send_while_open(&mut self, arrives: Duration) {
        while self.credit.is_open() {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while bytes < self.credit.batch_bytes() as u64 {
                let Some(record) = self.next_record() else {
                    break;
                };
                batch.push(record);
                bytes += record;
            }
            if batch.is_empty() {
                return;
            }
            self.credit.spend(bytes);
            self.sent += bytes;
            self.batch_largest = self.batch_largest.max(bytes);
            self.batches.push_back((arrives, batch));
        }
    }
}

pub(super) struct Simulation {
    pub(super) now: Duration,
    pub(super) receiver: ReceiveCredit,
    links: Vec<Link>,
    /// One-way delay of data and of grants.
    pub(super) delay: Duration,
    /// Bytes the receiver may process in time not used yet.
    budget: u64,
    /// The channel to be read next.
    turn: usize,
    pub(super) grant_count: usize,
}

impl Simulation {
    pub(super) fn new(settings: &CreditSettings, sources: Vec<Vec<u64>>, endless: bool) -> Self {
        let link = |source: Vec<u64>| Link {
            credit: SendCredit::new(settings),
            source: source.into(),
            endless,
            batches: VecDeque::new(),
            grants: VecDeque::new(),
            queue: VecDeque::new(),
            sent: 0,
            processed: 0,
            window_largest: settings.window_initial,
            batch_largest: 0,
        };
        Self {
            now: Duration::ZERO,
            receiver: ReceiveCredit::new(settings.clone(), sources.len() as u32, Duration::ZERO),
            links: sources.into_iter().map(link).collect(),
            delay: Duration::from_micros(100),
            budget: 0,
            turn: 0,
            grant_count: 0,
        }
    }

    /// Lets every sender of endless records of `bytes` begin.
    pub(super) fn endless(settings: &CreditSettings, channels: usize, bytes: u64) -> Self {
        Self::new(settings, vec![vec![bytes]; channels], true)
    }

    /// Moves on by `step`, in which the receiver can process `capacity` bytes.
    pub(super) fn step(&mut self, step: Duration, capacity: u64) {
        self.now += step;
        let now = self.now;
        for link in &mut self.links {
            while let Some((_, grant)) = link.grants.pop_front_if(|(at, _)| *at <= now) {
                link.credit.receive(grant);
            }
            link.send_while_open(now + self.delay);
            while let Some((_, batch)) = link.batches.pop_front_if(|(at, _)| *at <= now) {
                link.queue.extend(batch);
            }
        }
        let backlogged = self.process(capacity);
        self.receiver.adapt(now, backlogged);
        self.return_credit();
        self.check();
    }

    /// Processes record by record, round robin; returns whether input was left all the time.
    fn process(&mut self, capacity: u64) -> bool {
        self.budget += capacity;
        let mut empty_count = 0;
        while empty_count < self.links.len() {
            let link = &mut self.links[self.turn];
            match link.queue.front().copied() {
                None => empty_count += 1,
                // The turn stays here until there has been time for the record.
                Some(record) if record > self.budget => return true,
                Some(record) => {
                    empty_count = 0;
                    link.queue.pop_front();
                    link.processed += record;
                    self.budget -= record;
                    let channel = ChannelIndex(self.turn as u32);
                    self.receiver.on_processed(channel, record);
                }
            }
            self.turn = (self.turn + 1) % self.links.len();
        }
        self.budget = 0; // Time without input is lost.
        false
    }

    fn return_credit(&mut self) {
        let arrives = self.now + self.delay;
        let (links, count) = (&mut self.links, &mut self.grant_count);
        self.receiver.take_grants(|channel, grant| {
            assert!(grant.batch_bytes > 0);
            links[channel.as_usize()].grants.push_back((arrives, grant));
            *count += 1;
        });
    }

    fn check(&mut self) {
        for (index, link) in self.links.iter_mut().enumerate() {
            let channel = ChannelIndex(index as u32);
            let granted: u64 = link.grants.iter().map(|(_, grant)| grant.bytes).sum();
            let accounted = link.credit.available() + (granted + link.in_flight()) as i64;
            assert_eq!(accounted, self.receiver.circulating(channel), "{channel}");
            link.window_largest = link.window_largest.max(self.receiver.window(channel));
            let bound = u64::from(link.window_largest) + link.batch_largest;
            assert!(
                link.in_flight() <= bound,
                "{channel} has too much in flight"
            );
        }
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.links.iter().map(Link::in_flight).sum()
    }

    pub(super) fn windows(&self) -> u64 {
        let channels = 0..self.links.len() as u32;
        channels
            .map(|index| u64::from(self.receiver.window(ChannelIndex(index))))
            .sum()
    }

    pub(super) fn batch_bytes(&self) -> usize {
        self.links[0].credit.batch_bytes()
    }

    pub(super) fn processed(&self) -> u64 {
        self.links.iter().map(|link| link.processed).sum()
    }

    /// Runs for `time` in steps of a tenth of a millisecond at a steady rate.
    pub(super) fn run_at(&mut self, bytes_per_second: u64, time: Duration) {
        let end = self.now + time;
        let mut owed = 0;
        while self.now < end {
            owed += bytes_per_second;
            self.step(Duration::from_micros(100), owed / 10_000);
            owed %= 10_000;
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.links
            .iter()
            .all(|link| link.source.is_empty() && link.in_flight() == 0)
    }
}

fn any_settings() -> impl Strategy<Value = CreditSettings> {
    (
        1..5_000u32,
        0..20_000u32,
        0..200_000u32,
        1..70_000u32,
        1..300u64,
    )
        .prop_map(
            |(window_min, initial, max, batch_max, drain_millis)| CreditSettings {
                window_min,
                window_initial: window_min + initial,
                window_max: window_min + initial + max,
                batch_max,
                drain_target: Duration::from_millis(drain_millis),
                adapt_period: Duration::from_millis(1 + drain_millis % 20),
            },
        )
}

/// Record sizes from a byte to far more than any window.
fn any_record() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 1..200u64, 4 => 200..20_000u64, 1 => 20_000..2_000_000u64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // Conservation and bounds are checked by every step; here: everything passes in the end.
    #[test]
    fn all_data_passes_whatever_the_sizes_and_delays(
        settings in any_settings(),
        sources in vec(vec(any_record(), 0..200), 1..5),
        steps in vec((1..30_000u64, 0..50_000u64, 0..20_000u64), 1..50),
    ) {
        let total: u64 = sources.iter().flatten().sum();
        let count = sources.iter().flatten().count() as u64;
        let mut simulation = Simulation::new(&settings, sources, false);
        let capacity: u64 = steps.iter().map(|(_, capacity, _)| capacity).sum();
        // Enough for the bytes, plus, for each record by itself, a round trip of credit.
        let rounds = (total / capacity.max(1) + 1) * 2 + 4 * count + 20;
        'rounds: for _ in 0..rounds {
            // A round processes at least one byte, so that it moves at all.
            simulation.step(Duration::from_millis(1), 100_000);
            for (step, capacity, delay) in &steps {
                simulation.delay = simulation.delay.max(Duration::from_micros(*delay));
                simulation.step(Duration::from_micros(*step), *capacity);
                if simulation.is_done() {
                    break 'rounds;
                }
            }
        }
        prop_assert!(simulation.is_done(), "{} of {total} bytes", simulation.processed());
    }

    #[test]
    fn in_flight_settles_at_what_drains_within_the_target(
        bytes_per_second in 20_000..4_000_000u64,
        channels in 1..5usize,
        record_share in 40..400u64,
    ) {
        let settings = CreditSettings::default();
        let target = bytes_per_second / 10;
        let record = (target / channels as u64 / record_share).max(1);
        let mut simulation = Simulation::endless(&settings, channels, record);
        // What the initial windows let in must drain first.
        simulation.run_at(bytes_per_second, Duration::from_secs(3));
        for _ in 0..20 {
            simulation.run_at(bytes_per_second, Duration::from_millis(13));
            let in_flight = simulation.in_flight();
            let range = target / 2..=target * 3 / 2;
            prop_assert!(range.contains(&in_flight), "{in_flight}, target {target}");
        }
    }
}
