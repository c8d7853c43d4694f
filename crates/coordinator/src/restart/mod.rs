//! Whether and when the next attempt starts after a failure.
//!
//! The strategies are Flink's. There is no jitter: one job restarts as a whole, and this crate has
//! no source of randomness.

mod text;

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_types::Millis;

use crate::action::RestartDecision;
use crate::settings::{SettingsError, at_least_a_millisecond, at_least_one};

pub use text::ParseRestartError;

/// Factor from one exponential delay to the next, unless set.
const MULTIPLIER_DEFAULT: f64 = 2.0;
/// When an exponential delay starts over, unless set.
const RESET_AFTER_DEFAULT: Duration = Duration::from_secs(600);

/// What happens after an attempt has failed. Has a text form, see [`FORMS`](Self::FORMS).
#[derive(Clone, Debug, PartialEq)]
pub enum RestartStrategy {
    /// The first failure ends the job.
    None,
    /// A bounded number of restarts over the life of the coordinator, each after the same delay.
    FixedDelay {
        /// How many restarts there may be.
        attempts: u32,
        /// Time from a failure to the next attempt.
        delay: Duration,
    },
    /// Restarts for ever, with growing delays while failures follow each other closely.
    ExponentialDelay {
        /// The first delay.
        initial: Duration,
        /// The longest delay; at least `initial`.
        max: Duration,
        /// Factor from one delay to the next; at least 1.
        multiplier: f64,
        /// A failure this long after the last restart counts as a first one again.
        reset_after: Duration,
    },
    /// Restarts as long as failures are rare.
    FailureRate {
        /// How many failures may lie within `interval`; one more ends the job. At least 1.
        max_per_interval: u32,
        /// The window that failures are counted in.
        interval: Duration,
        /// Time from a failure to the next attempt.
        delay: Duration,
    },
}

impl Default for RestartStrategy {
    /// Exponential delay from 100 ms to 1 minute, doubling, reset after 10 minutes without failure.
    fn default() -> Self {
        RestartStrategy::ExponentialDelay {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(60),
            multiplier: MULTIPLIER_DEFAULT,
            reset_after: RESET_AFTER_DEFAULT,
        }
    }
}

impl RestartStrategy {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first parameter out of its range, with what was given and the bound.
    pub fn validate(&self) -> Result<(), SettingsError> {
        match self {
            Self::None | Self::FixedDelay { .. } => Ok(()),
            Self::ExponentialDelay {
                initial,
                max,
                multiplier,
                ..
            } => {
                at_least_a_millisecond("restart: initial delay", *initial)?;
                if initial > max {
                    return Err(SettingsError::DelayAboveMax {
                        initial: *initial,
                        max: *max,
                    });
                }
                if !multiplier.is_finite() || *multiplier < 1.0 {
                    return Err(SettingsError::Multiplier { given: *multiplier });
                }
                Ok(())
            }
            Self::FailureRate {
                max_per_interval,
                interval,
                ..
            } => {
                at_least_one("restart: failures per interval", *max_per_interval)?;
                at_least_a_millisecond("restart: interval", *interval)
            }
        }
    }
}

/// A restart strategy and what it remembers of earlier failures.
#[derive(Clone, Debug)]
pub(crate) struct Restarts {
    strategy: RestartStrategy,
    restarts: u64,
    /// When the last restart was due.
    last_restart: Option<Millis>,
    /// The delay of the last restart, exponential only.
    last_delay: Duration,
    /// Failures within the interval, failure rate only; at most `max_per_interval + 1`.
    recent: VecDeque<Millis>,
}

impl Restarts {
    pub(crate) fn new(strategy: RestartStrategy) -> Self {
        Restarts {
            strategy,
            restarts: 0,
            last_restart: None,
            last_delay: Duration::ZERO,
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn strategy(&self) -> &RestartStrategy {
        &self.strategy
    }

    /// How many restarts were allowed so far.
    pub(crate) fn count(&self) -> u64 {
        self.restarts
    }

    /// Decides about a failure at `now` and remembers it.
    pub(crate) fn on_failure(&mut self, now: Millis) -> RestartDecision {
        let Some(delay) = self.delay(now) else {
            return RestartDecision::GiveUp;
        };
        self.restarts += 1;
        self.last_restart = Some(now.after(delay));
        self.last_delay = delay;
        RestartDecision::RestartAfter(delay)
    }

    fn delay(&mut self, now: Millis) -> Option<Duration> {
        match self.strategy {
            RestartStrategy::None => None,
            RestartStrategy::FixedDelay { attempts, delay } => {
                (self.restarts < u64::from(attempts)).then_some(delay)
            }
            RestartStrategy::ExponentialDelay {
                initial,
                max,
                multiplier,
                reset_after,
            } => match self.last_restart {
                Some(last) if now < last.after(reset_after) => {
                    Some(grown(self.last_delay, multiplier, max))
                }
                _ => Some(initial),
            },
            RestartStrategy::FailureRate {
                max_per_interval,
                interval,
                delay,
            } => {
                self.recent.push_back(now);
                self.recent.retain(|at| now.since(*at) < interval);
                (self.recent.len() <= max_per_interval as usize).then_some(delay)
            }
        }
    }
}

/// `delay` times `multiplier`, at most `max`, never overflowing.
fn grown(delay: Duration, multiplier: f64, max: Duration) -> Duration {
    let seconds = (delay.as_secs_f64() * multiplier).min(max.as_secs_f64());
    Duration::try_from_secs_f64(seconds).unwrap_or(max).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Delays in milliseconds for failures at these times; `None` where the strategy gives up.
    fn delays(strategy: RestartStrategy, failures: &[u64]) -> Vec<Option<u64>> {
        assert_eq!(strategy.validate(), Ok(()));
        let mut restarts = Restarts::new(strategy);
        failures
            .iter()
            .map(|at| match restarts.on_failure(Millis(*at)) {
                RestartDecision::RestartAfter(delay) => Some(delay.as_millis() as u64),
                RestartDecision::GiveUp => None,
            })
            .collect()
    }

    #[test]
    fn none_gives_up_at_once() {
        assert_eq!(delays(RestartStrategy::None, &[0]), [None]);
    }

    #[test]
    fn a_delay_that_never_grows_is_valid() {
        let strategy = RestartStrategy::ExponentialDelay {
            initial: ms(50),
            max: ms(50),
            multiplier: 1.0,
            reset_after: ms(1000),
        };
        assert_eq!(delays(strategy, &[0, 50, 100]), [Some(50); 3]);
    }

    #[test]
    fn fixed_delay_allows_so_many_restarts() {
        let strategy = RestartStrategy::FixedDelay {
            attempts: 2,
            delay: ms(50),
        };
        assert_eq!(delays(strategy, &[0, 10, 9999]), [Some(50), Some(50), None]);
    }

    #[test]
    fn exponential_delay_doubles_is_capped_and_resets() {
        let strategy = RestartStrategy::ExponentialDelay {
            initial: ms(100),
            max: ms(300),
            multiplier: 2.0,
            reset_after: ms(1000),
        };
        // Due at 100, 300, 700; the last failure comes exactly `reset_after` behind 700 + 300.
        let failures = [0, 100, 400, 701, 2001];
        let expected = [Some(100), Some(200), Some(300), Some(300), Some(100)];
        assert_eq!(delays(strategy, &failures), expected);
    }

    #[test]
    fn failure_rate_counts_within_the_interval() {
        let strategy = RestartStrategy::FailureRate {
            max_per_interval: 2,
            interval: ms(1000),
            delay: ms(10),
        };
        let failures = [0, 500, 1000, 1499];
        let expected = [Some(10), Some(10), Some(10), None];
        assert_eq!(delays(strategy, &failures), expected);
    }

    #[test]
    fn a_huge_delay_does_not_overflow() {
        let strategy = RestartStrategy::ExponentialDelay {
            initial: Duration::MAX,
            max: Duration::MAX,
            multiplier: f64::MAX,
            reset_after: Duration::MAX,
        };
        let mut restarts = Restarts::new(strategy);
        for _ in 0..3 {
            let decision = restarts.on_failure(Millis(5));
            assert_eq!(decision, RestartDecision::RestartAfter(Duration::MAX));
        }
    }

    #[test]
    fn parameters_are_checked_and_both_values_named() {
        let exponential = |initial, max, multiplier| RestartStrategy::ExponentialDelay {
            initial,
            max,
            multiplier,
            reset_after: ms(1),
        };
        let text = |strategy: RestartStrategy| strategy.validate().unwrap_err().to_string();
        assert_eq!(
            text(exponential(ms(5), ms(4), 2.0)),
            "restart: initial delay `5ms` is above the longest delay `4ms`"
        );
        assert_eq!(
            text(exponential(ms(5), ms(9), 0.5)),
            "restart: multiplier `0.5` is not a number of at least `1`"
        );
        assert!(exponential(ms(5), ms(9), f64::NAN).validate().is_err());
        let rate = RestartStrategy::FailureRate {
            max_per_interval: 0,
            interval: ms(1),
            delay: ms(1),
        };
        assert_eq!(
            text(rate),
            "restart: failures per interval `0` is below the minimum of `1`"
        );
    }
}
