//! What the timings share: keys in an order that no prefetcher knows, and a clock that other load
//! on the machine doesn't disturb.
#![allow(dead_code)] // each benchmark uses a part

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_state::{HeapKeyedBackend, StateKey};
use tidegate_types::MaxParallelism;

/// Keys per batch, hashed beforehand as routing does.
pub(crate) const BATCH: usize = 4096;

/// Time that this thread has spent on a processor.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u32);
    Duration::new(seconds, nanos)
}

/// A backend of all key groups.
pub(crate) fn backend() -> HeapKeyedBackend<u64> {
    let max = MaxParallelism::derive(1);
    HeapKeyedBackend::new(
        max,
        max.range(0, 1).expect("one subtask owns all key groups"),
    )
}

/// Evenly spread keys below `keys`.
pub(crate) struct Keys {
    pub(crate) state: u64,
    pub(crate) keys: u64,
}

impl Keys {
    pub(crate) fn new(keys: u64) -> Self {
        Keys { state: 42, keys }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(crate) fn next(&mut self) -> u64 {
        ((u128::from(self.random()) * u128::from(self.keys)) >> 64) as u64
    }

    /// A batch of keys with their hashes.
    pub(crate) fn fill(&mut self, batch: &mut Vec<(u64, u64)>) {
        batch.clear();
        batch.extend((0..BATCH).map(|_| {
            let key = self.next();
            (key.key_hash(), key)
        }));
    }
}

/// Durations of many calls.
#[derive(Default)]
pub(crate) struct Pauses(Vec<Duration>);

impl Pauses {
    /// Calls `work` and notes how long it took.
    pub(crate) fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = cpu_time();
        let result = work();
        self.0.push(cpu_time() - start);
        result
    }

    pub(crate) fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// Count, median, 99th percentile and longest.
    pub(crate) fn summary(&mut self) -> String {
        self.0.sort_unstable();
        let Some(last) = self.0.last() else {
            return "none".to_owned();
        };
        let at = |percent: usize| self.0[(self.0.len() - 1) * percent / 100];
        let (count, median, p99) = (self.0.len(), at(50), at(99));
        format!("{count} calls, p50 {median:.1?}, p99 {p99:.1?}, max {last:.1?}")
    }
}

/// Sizes given as arguments, or these.
pub(crate) fn sizes(default: &[u64]) -> Vec<u64> {
    let given = std::env::args().skip(1);
    let given: Vec<u64> = given.filter_map(|text| text.parse().ok()).collect();
    match given.is_empty() {
        true => default.to_vec(),
        false => given,
    }
}
