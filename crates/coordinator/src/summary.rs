//! Minimum, maximum and quantiles of a stream of numbers in a fixed amount of memory.
//!
//! A histogram with 16 linear steps per power of two (the idea of HdrHistogram): quantiles are at
//! most 1/16 above the true value; count, sum, minimum and maximum are exact.

use std::fmt;
use std::sync::Arc;

/// How many linear steps a power of two is divided into, as a power of two.
const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Distribution of the numbers recorded so far. A clone shares the histogram until either changes.
#[derive(Clone, PartialEq, Eq)]
pub struct Summary {
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
    /// Allocated with the first number.
    buckets: Arc<[u64]>,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
            buckets: Arc::default(),
        }
    }
}

impl fmt::Debug for Summary {
    /// Shows what it says about the numbers, not how it keeps them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Summary")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("p50", &self.p50())
            .field("p99", &self.p99())
            .field("max", &self.max())
            .finish()
    }
}

impl Summary {
    /// Adds a number.
    pub fn record(&mut self, value: u64) {
        if self.buckets.is_empty() {
            self.buckets = Arc::new([0; BUCKETS]);
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        Arc::make_mut(&mut self.buckets)[bucket(value)] += 1;
    }

    /// How many numbers were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The smallest, if there is any.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest, if there is any.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The arithmetic mean, rounded down, if there is any number.
    pub fn average(&self) -> Option<u64> {
        let average = self.sum.checked_div(u128::from(self.count))?;
        Some(u64::try_from(average).expect("no average is above the largest number"))
    }

    /// The middle one: half of all numbers are not above it.
    pub fn p50(&self) -> Option<u64> {
        self.quantile(500)
    }

    /// 90 of 100 numbers are not above it.
    pub fn p90(&self) -> Option<u64> {
        self.quantile(900)
    }

    /// 95 of 100 numbers are not above it.
    pub fn p95(&self) -> Option<u64> {
        self.quantile(950)
    }

    /// 99 of 100 numbers are not above it.
    pub fn p99(&self) -> Option<u64> {
        self.quantile(990)
    }

    /// 999 of 1000 numbers are not above it.
    pub fn p999(&self) -> Option<u64> {
        self.quantile(999)
    }

    fn quantile(&self, per_mille: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000);
        let mut seen = 0u128;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Some(upper_bound(index).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - STEP_BITS;
    let step = (value >> shift) as usize - STEPS;
    (shift as usize + 1) * STEPS + step
}

/// The largest value that falls into a bucket.
fn upper_bound(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let shift = (index / STEPS - 1) as u32;
    let lower = ((STEPS + index % STEPS) as u64) << shift;
    lower + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_summary_has_no_values() {
        let summary = Summary::default();
        assert_eq!(
            (summary.min(), summary.p50(), summary.max()),
            (None, None, None)
        );
        assert_eq!(summary.average(), None);
    }

    #[test]
    fn a_clone_keeps_what_it_says() {
        let mut summary = Summary::default();
        summary.record(1);
        let before = summary.clone();
        summary.record(1000);
        assert_eq!((before.count(), before.p99()), (1, Some(1)));
        assert_eq!(summary.count(), 2);
        assert!(before != summary);
    }

    #[test]
    fn small_numbers_are_exact() {
        let mut summary = Summary::default();
        (1..=10).for_each(|value| summary.record(value));
        assert_eq!((summary.min(), summary.max()), (Some(1), Some(10)));
        assert_eq!((summary.p50(), summary.p99()), (Some(5), Some(10)));
        assert_eq!((summary.p90(), summary.p95()), (Some(9), Some(10)));
        assert_eq!(summary.p999(), Some(10));
        assert_eq!((summary.count(), summary.sum()), (10, 55));
        assert_eq!(summary.average(), Some(5));
    }

    proptest! {
        #[test]
        fn quantiles_are_close_and_within_bounds(
            mut values in prop::collection::vec(any::<u64>(), 1..200),
        ) {
            let mut summary = Summary::default();
            values.iter().for_each(|value| summary.record(*value));
            values.sort_unstable();
            for per_mille in [500, 900, 990, 999] {
                let exact = values[(values.len() * per_mille).div_ceil(1000) - 1];
                let found = summary.quantile(per_mille as u64).unwrap();
                prop_assert!(found >= exact);
                prop_assert!(found - exact <= exact / 16 + 1);
                prop_assert!(found <= summary.max().unwrap());
            }
        }

        #[test]
        fn a_value_lies_in_its_bucket(value: u64) {
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            prop_assert!(value <= upper_bound(index));
            prop_assert!(index == 0 || value > upper_bound(index - 1));
        }
    }
}
