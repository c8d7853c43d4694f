//! Bytes per second, smoothed.
//!
//! A first-order low-pass filter with time constant τ, in its implicit form
//! `rate' = (rate·τ + bytes) / (τ + elapsed)`: stable and never negative for samples of any length,
//! and computable in integers. It rounds down, so a rate without traffic reaches 0.

use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A smoothed rate in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Rate(u64);

impl Rate {
    /// The plain rate of one sample.
    ///
    /// # Panics
    /// If no time has elapsed.
    pub(super) fn of(bytes: u64, elapsed: Duration) -> Self {
        Self::saturating(u128::from(bytes) * NANOS_PER_SECOND / elapsed.as_nanos())
    }

    /// This rate after another sample, smoothed over `constant`. A sample that is longer than that
    /// stands for itself: the filter would forget too slowly.
    pub(super) fn smoothed(self, bytes: u64, elapsed: Duration, constant: Duration) -> Self {
        if elapsed >= constant {
            return Self::of(bytes, elapsed);
        }
        let (elapsed, constant) = (elapsed.as_nanos(), constant.as_nanos());
        let weighted = u128::from(self.0) * constant + u128::from(bytes) * NANOS_PER_SECOND;
        Self::saturating(weighted / (constant + elapsed))
    }

    /// Bytes at this rate within `time`.
    pub(super) fn bytes_within(self, time: Duration) -> u64 {
        Self::saturating(u128::from(self.0) * time.as_nanos() / NANOS_PER_SECOND).0
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    fn saturating(rate: u128) -> Self {
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Duration = Duration::from_millis(10);
    const CONSTANT: Duration = Duration::from_millis(100);

    #[test]
    fn a_sample_by_itself() {
        assert_eq!(Rate::of(200, SAMPLE), Rate(20_000));
        assert_eq!(Rate(20_000).bytes_within(CONSTANT), 2_000);
        assert_eq!(Rate::of(u64::MAX, Duration::from_nanos(1)), Rate(u64::MAX));
    }

    #[test]
    fn approaches_a_steady_rate_from_both_sides() {
        for start in [Rate(0), Rate(1_000_000)] {
            let smoothed = (0..100).fold(start, |rate, _| rate.smoothed(200, SAMPLE, CONSTANT));
            assert!(
                (19_900..20_200).contains(&smoothed.0),
                "{smoothed:?} from {start:?}"
            );
        }
    }

    #[test]
    fn long_samples_stand_for_themselves() {
        let after = Rate(1_000_000).smoothed(10_000, Duration::from_secs(10), CONSTANT);
        assert_eq!(after, Rate(1_000));
    }

    #[test]
    fn decays_to_zero_without_traffic() {
        let rate = (0..200).fold(Rate(20_000), |rate, _| rate.smoothed(0, SAMPLE, CONSTANT));
        assert!(rate.is_zero());
    }
}
