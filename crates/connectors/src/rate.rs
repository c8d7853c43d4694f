//! Limits how many records pass per second: a token bucket.
//!
//! Tokens accrue with time, up to what a tenth of a second brings, and each record takes one. So a
//! pause is not followed by a burst that is longer than that, and the long-run rate is exact. The
//! bucket is a plain struct: the time is given to it.

use std::time::Duration;

use tidegate_runtime::Ticks;

/// What accrues while nothing passes is cut off at this much time's worth.
const BURST: Duration = Duration::from_millis(100);
/// At high rates, waiting for a single token would mean waking up for each record; it waits for
/// this much time's worth.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// The rate is no rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("rate `{per_second}` per second is not a finite number above 0")]
pub struct RateError {
    /// What was given.
    pub per_second: f64,
}

/// Checks that a number of records per second can be kept to.
///
/// # Errors
/// If it isn't finite and positive.
pub(crate) fn check(per_second: f64) -> Result<(), RateError> {
    if per_second.is_finite() && per_second > 0.0 {
        Ok(())
    } else {
        Err(RateError { per_second })
    }
}

/// A token bucket.
#[derive(Clone, Debug)]
pub struct RateLimit {
    per_second: f64,
    tokens: f64,
    tokens_max: f64,
    updated: Option<Ticks>,
}

impl RateLimit {
    /// Lets `per_second` records pass per second on average. One may pass at once.
    ///
    /// # Panics
    /// If `per_second` is not finite and above 0.
    pub fn new(per_second: f64) -> Self {
        assert!(
            check(per_second).is_ok(),
            "a rate is checked before it is used"
        );
        let tokens_max = (per_second * BURST.as_secs_f64()).max(1.0);
        RateLimit {
            per_second,
            tokens: 1.0,
            tokens_max,
            updated: None,
        }
    }

    /// How many records may pass at this moment. `now` must not go back.
    pub fn available(&mut self, now: Ticks) -> u64 {
        if let Some(updated) = self.updated {
            let accrued = now.since(updated).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + accrued).min(self.tokens_max);
        }
        self.updated = Some(now);
        self.tokens as u64
    }

    /// Takes the tokens of records that have passed: at most what was
    /// [`available`](Self::available).
    pub fn spend(&mut self, records: u64) {
        debug_assert!(
            records as f64 <= self.tokens,
            "more passed than was available"
        );
        self.tokens -= records as f64;
    }

    /// When it is worthwhile to look again; `now` is when it was last looked at.
    pub fn next(&self, now: Ticks) -> Ticks {
        let wanted = (self.per_second * PAUSE_MIN.as_secs_f64()).max(1.0);
        let seconds = (wanted - self.tokens).max(0.0) / self.per_second;
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // Rounding must not end just short of a whole token.
        now.after(pause.saturating_add(Duration::from_micros(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Ticks {
        Ticks(Duration::from_micros(micros))
    }

    /// Runs a consumer that takes everything whenever it is woken; returns what passed until `end`.
    fn consume(limit: &mut RateLimit, end: Ticks) -> (u64, u64) {
        let (mut now, mut passed, mut wakes) = (at(0), 0, 0);
        while now <= end {
            let available = limit.available(now);
            limit.spend(available);
            passed += available;
            wakes += 1;
            let next = limit.next(now);
            assert!(next > now, "a limit that lets nobody sleep");
            now = next;
        }
        (passed, wakes)
    }

    #[test]
    fn the_long_run_rate_is_exact() {
        for per_second in [0.5, 3.0, 1_000.0, 1e6] {
            let (passed, wakes) = consume(&mut RateLimit::new(per_second), at(20_000_000));
            let expected = 20.0 * per_second;
            let slack = 1.0 + per_second * 0.003;
            assert!(
                (passed as f64 - expected).abs() <= slack,
                "{passed} for {expected}"
            );
            assert!(
                wakes <= 10_002,
                "woken {wakes} times in 20 s at {per_second}"
            );
        }
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut limit = RateLimit::new(1_000.0);
        assert_eq!(limit.available(at(0)), 1);
        limit.spend(1);
        assert_eq!(limit.available(at(60_000_000)), 100);
        limit.spend(40);
        assert_eq!(limit.available(at(60_000_000)), 60);
    }

    #[test]
    fn a_very_low_rate_waits_without_overflow() {
        let mut limit = RateLimit::new(f64::MIN_POSITIVE);
        limit.spend(limit.clone().available(at(0)));
        assert_eq!(limit.available(at(1)), 0);
        assert!(limit.next(at(1)) > at(u64::MAX));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(check(per_second).is_err());
        }
        assert_eq!(check(0.1), Ok(()));
    }
}
