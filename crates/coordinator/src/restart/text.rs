//! The text form of restart strategies: what users write is what errors and logs show.
//!
//! Invariant: what [`Display`](std::fmt::Display) writes, [`FromStr`] reads back as the same
//! strategy. Parameters that are as by default are left out at the end.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use humantime::format_duration;

use super::{MULTIPLIER_DEFAULT, RESET_AFTER_DEFAULT, RestartStrategy};

/// The text is no restart strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {}", RestartStrategy::FORMS)]
pub struct ParseRestartError {
    text: String,
}

impl RestartStrategy {
    /// The text forms there are, for people.
    pub const FORMS: &str = "`none`, `fixed-delay:ATTEMPTS,DELAY`, \
         `exponential-delay:INITIAL,MAX[,MULTIPLIER[,RESET]]` or \
         `failure-rate:FAILURES,INTERVAL,DELAY`";
}

impl fmt::Display for RestartStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::FixedDelay { attempts, delay } => {
                write!(f, "fixed-delay:{attempts},{}", format_duration(*delay))
            }
            Self::ExponentialDelay {
                initial,
                max,
                multiplier,
                reset_after,
            } => {
                let (initial, max) = (format_duration(*initial), format_duration(*max));
                write!(f, "exponential-delay:{initial},{max}")?;
                if *reset_after != RESET_AFTER_DEFAULT {
                    write!(f, ",{multiplier},{}", format_duration(*reset_after))
                } else if *multiplier != MULTIPLIER_DEFAULT {
                    write!(f, ",{multiplier}")
                } else {
                    Ok(())
                }
            }
            Self::FailureRate {
                max_per_interval,
                interval,
                delay,
            } => {
                let (interval, delay) = (format_duration(*interval), format_duration(*delay));
                write!(f, "failure-rate:{max_per_interval},{interval},{delay}")
            }
        }
    }
}

impl FromStr for RestartStrategy {
    type Err = ParseRestartError;

    /// Takes one of [`FORMS`](Self::FORMS), with white space around parameters if you like. Does
    /// not [`validate`](RestartStrategy::validate) them.
    fn from_str(text: &str) -> Result<Self, ParseRestartError> {
        parse(text).ok_or_else(|| ParseRestartError {
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<RestartStrategy> {
    let (kind, parameters) = match text.split_once(':') {
        Some((kind, parameters)) => (kind, parameters.split(',').map(str::trim).collect()),
        None => (text, Vec::new()),
    };
    match (kind, parameters.as_slice()) {
        ("none", []) => Some(RestartStrategy::None),
        ("fixed-delay", [attempts, delay]) => Some(RestartStrategy::FixedDelay {
            attempts: attempts.parse().ok()?,
            delay: time(delay)?,
        }),
        ("exponential-delay", [initial, max, more @ ..]) => {
            let (multiplier, reset_after) = match more {
                [] => (MULTIPLIER_DEFAULT, RESET_AFTER_DEFAULT),
                [multiplier] => (multiplier.parse().ok()?, RESET_AFTER_DEFAULT),
                [multiplier, reset] => (multiplier.parse().ok()?, time(reset)?),
                _ => return None,
            };
            Some(RestartStrategy::ExponentialDelay {
                initial: time(initial)?,
                max: time(max)?,
                multiplier,
                reset_after,
            })
        }
        ("failure-rate", [failures, interval, delay]) => Some(RestartStrategy::FailureRate {
            max_per_interval: failures.parse().ok()?,
            interval: time(interval)?,
            delay: time(delay)?,
        }),
        _ => None,
    }
}

fn time(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0..10_000u64).prop_map(Duration::from_millis),
            (any::<u64>(), 0..1_000_000_000u32).prop_map(|(s, n)| Duration::new(s, n)),
        ]
    }

    fn strategy() -> impl Strategy<Value = RestartStrategy> {
        let multiplier = prop_oneof![Just(MULTIPLIER_DEFAULT), 1.0..1e300];
        let reset = prop_oneof![Just(RESET_AFTER_DEFAULT), duration()];
        prop_oneof![
            Just(RestartStrategy::None),
            (any::<u32>(), duration())
                .prop_map(|(attempts, delay)| RestartStrategy::FixedDelay { attempts, delay }),
            (duration(), duration(), multiplier, reset).prop_map(
                |(initial, max, multiplier, reset_after)| RestartStrategy::ExponentialDelay {
                    initial,
                    max,
                    multiplier,
                    reset_after,
                }
            ),
            (any::<u32>(), duration(), duration()).prop_map(|(count, interval, delay)| {
                RestartStrategy::FailureRate {
                    max_per_interval: count,
                    interval,
                    delay,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_written(strategy in strategy()) {
            prop_assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
    }

    #[test]
    fn the_forms_are_those_of_the_guide() {
        let shown = |text: &str| text.parse::<RestartStrategy>().unwrap().to_string();
        assert_eq!(
            RestartStrategy::default().to_string(),
            "exponential-delay:100ms,1m"
        );
        assert_eq!(
            shown("exponential-delay: 1s, 90s, 1.5"),
            "exponential-delay:1s,1m 30s,1.5"
        );
        for same in [
            "none",
            "fixed-delay:3,1s",
            "exponential-delay:1s,1m,2,5m",
            "failure-rate:3,5m,1s",
        ] {
            assert_eq!(shown(same), same);
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_forms_there_are() {
        for wrong in [
            "",
            "sometimes",
            "none:",
            "none:1",
            "fixed-delay",
            "fixed-delay:3",
            "fixed-delay:3,1s,",
            "fixed-delay:,3,1s",
            "fixed-delay:x,1s",
            "fixed-delay:3,1",
            "fixed-delay:4294967296,1s",
            "exponential-delay:1s,99999999999999999999y",
            "exponential-delay:1s,1m,2,5m,6",
            "failure-rate:3,1s",
        ] {
            let error = wrong.parse::<RestartStrategy>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is not `none`, ")));
            assert!(error.contains("`fixed-delay:ATTEMPTS,DELAY`"), "{error}");
        }
    }
}
