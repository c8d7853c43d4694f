//! What users can choose about checkpoints and restarts, with every default in one place.

use std::fmt;
use std::time::Duration;

use humantime::format_duration;
use tidegate_types::{SnapshotFormat, SnapshotLocation};

use crate::restart::RestartStrategy;
use crate::statistics::Statistics;

/// Two settings that don't fit together, or one out of its range. Settings are named as users
/// write them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A duration that must be at least a millisecond is shorter.
    #[error("{setting} `{}` is below the minimum of `1ms`", format_duration(*given))]
    TooShort {
        /// The setting's name, and which part of it after a colon.
        setting: &'static str,
        /// What was given.
        given: Duration,
    },
    /// A count that must be at least one is zero.
    #[error("{setting} `{given}` is below the minimum of `1`")]
    Zero {
        /// The setting's name, and which part of it after a colon.
        setting: &'static str,
        /// What was given.
        given: u32,
    },
    /// The first delay is longer than the longest.
    #[error(
        "restart: initial delay `{}` is above the longest delay `{}`",
        format_duration(*initial), format_duration(*max)
    )]
    DelayAboveMax {
        /// The first delay.
        initial: Duration,
        /// The longest delay.
        max: Duration,
    },
    /// The delay would shrink from restart to restart.
    #[error("restart: multiplier `{given}` is not a number of at least `1`")]
    Multiplier {
        /// What was given.
        given: f64,
    },
}

impl SettingsError {
    /// The name of the setting that is wrong, as users write it.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::TooShort { setting, .. } | Self::Zero { setting, .. } => {
                setting.split(':').next().unwrap_or(setting)
            }
            Self::DelayAboveMax { .. } | Self::Multiplier { .. } => "restart",
        }
    }
}

/// Which ends of a job its completed checkpoints outlive. They never outlive the end of a job that
/// has finished; they always outlive a process that dies. Savepoints outlive everything.
/// Displays as users write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retention {
    /// Kept when the job is cancelled or fails, to go on from later.
    #[default]
    RetainOnCancellation,
    /// Kept when the job fails, deleted when it is cancelled.
    DeleteOnCancellation,
    /// Deleted when the job is cancelled or fails.
    NoRetention,
}

impl Retention {
    /// Every one there is.
    pub const ALL: [Retention; 3] = [
        Retention::RetainOnCancellation,
        Retention::DeleteOnCancellation,
        Retention::NoRetention,
    ];
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RetainOnCancellation => "retain-on-cancellation",
            Self::DeleteOnCancellation => "delete-on-cancellation",
            Self::NoRetention => "no-retention",
        })
    }
}

/// When checkpoints are taken, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// Time from one trigger to the next; `None` takes none but the final one. Default `None`.
    /// Raised: less overhead, more to replay after a failure, later commits. At least 1 ms; raised
    /// to `min_pause` if shorter. Since 0.1.
    pub interval: Option<Duration>,
    /// How long a checkpoint may take before it is aborted. Default 10 minutes. Raised: slow
    /// checkpoints get through, stuck ones are noticed later. At least 1 ms. Since 0.1.
    pub timeout: Duration,
    /// Least time from a completion to the next periodic trigger; failed checkpoints don't count.
    /// Default 0. Raised: a floor of undisturbed processing time, fewer checkpoints when they are
    /// slow. Since 0.1.
    pub min_pause: Duration,
    /// How many checkpoints may be under way at once, the final one not counted. Default 1.
    /// Raised: a steady interval although checkpoints are slow, more load at once. At least 1.
    /// Since 0.1.
    pub max_concurrent: u32,
    /// How many checkpoints in a row may fail before the attempt fails; `None` for any number.
    /// Default 10. Raised: a job outlives longer trouble with its storage, but replays more when
    /// it then fails. Since 0.1.
    pub tolerable_failures: Option<u32>,
    /// How many completed checkpoints are kept. Default 1. Raised: more to fall back to, more
    /// storage. At least 1. Since 0.1.
    pub retained: u32,
    /// Whether completed checkpoints outlive a job that was cancelled or has failed. Default
    /// [`Retention::RetainOnCancellation`]. Since 0.1.
    pub retention: Retention,
    /// What the files of checkpoints may be like, unless a request says otherwise. Default
    /// [`SnapshotFormat::Full`]. Since 0.1.
    pub format: SnapshotFormat,
    /// The folder that savepoints are made in when the request names none. Default none.
    /// Since 0.1.
    pub savepoint_dir: Option<SnapshotLocation>,
    /// How many ended checkpoints the statistics remember with their details. Default 10.
    /// Raised: more to look back at, 52 bytes of memory each per subtask. Since 0.1.
    pub history: u32,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        CheckpointSettings {
            interval: None,
            timeout: Duration::from_secs(600),
            min_pause: Duration::ZERO,
            max_concurrent: 1,
            tolerable_failures: Some(10),
            retained: 1,
            retention: Retention::default(),
            format: SnapshotFormat::Full,
            savepoint_dir: None,
            history: Statistics::HISTORY_SIZE as u32,
        }
    }
}

impl CheckpointSettings {
    /// Checks every field.
    ///
    /// # Errors
    /// The first setting that is out of its range, with what was given and the bound.
    pub fn validate(&self) -> Result<(), SettingsError> {
        first(self.problems())
    }

    /// Everything that [`validate`](Self::validate) objects to.
    pub fn problems(&self) -> Vec<SettingsError> {
        let interval = self.interval.map_or(Ok(()), |interval| {
            at_least_a_millisecond("checkpoint-interval", interval)
        });
        let checks = [
            interval,
            at_least_a_millisecond("checkpoint-timeout", self.timeout),
            at_least_one("max-concurrent-checkpoints", self.max_concurrent),
            at_least_one("retained-checkpoints", self.retained),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }
}

/// Everything about a job that users can choose and the coordinator acts on.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct JobSettings {
    /// When checkpoints are taken.
    pub checkpoints: CheckpointSettings,
    /// What happens after a failure.
    pub restart: RestartStrategy,
    /// Whether a checkpoint may be restored though it holds state of operators that the job no
    /// longer has; that state is dropped. Default false. Since 0.1.
    pub allow_non_restored_state: bool,
    /// Whether it may run smaller than it is meant to.
    pub elastic: ElasticSettings,
}

/// What a job does when there aren't the slots that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticSettings {
    /// The smallest parallelism that the job may run at when slots are missing; it is raised again
    /// when they are back. Default `None`: the job waits until all slots are there. At least 1.
    /// Since 0.1.
    pub parallelism_min: Option<u32>,
    /// For how long the number of slots must have been the same before the job is fitted to it.
    /// Default 10 s. Raised: fewer restarts while TaskManagers come and go, a longer wait when one
    /// doesn't come back. Since 0.1.
    pub stabilization_timeout: Duration,
}

impl Default for ElasticSettings {
    fn default() -> Self {
        ElasticSettings {
            parallelism_min: None,
            stabilization_timeout: Duration::from_secs(10),
        }
    }
}

impl JobSettings {
    /// Checks every field.
    ///
    /// # Errors
    /// The first [`SettingsError`] found.
    pub fn validate(&self) -> Result<(), SettingsError> {
        first(self.problems())
    }

    /// Everything that [`validate`](Self::validate) objects to.
    pub fn problems(&self) -> Vec<SettingsError> {
        let mut problems = self.checkpoints.problems();
        problems.extend(self.restart.validate().err());
        let min = self.elastic.parallelism_min;
        let min = min.map_or(Ok(()), |min| at_least_one("parallelism-min", min));
        problems.extend(min.err());
        problems
    }
}

fn first(problems: Vec<SettingsError>) -> Result<(), SettingsError> {
    problems.into_iter().next().map_or(Ok(()), Err)
}

pub(crate) fn at_least_a_millisecond(
    setting: &'static str,
    given: Duration,
) -> Result<(), SettingsError> {
    if given < Duration::from_millis(1) {
        return Err(SettingsError::TooShort { setting, given });
    }
    Ok(())
}

pub(crate) fn at_least_one(setting: &'static str, given: u32) -> Result<(), SettingsError> {
    if given == 0 {
        return Err(SettingsError::Zero { setting, given });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(JobSettings::default().validate(), Ok(()));
        let shortest = CheckpointSettings {
            interval: Some(Duration::from_millis(1)),
            timeout: Duration::from_millis(1),
            ..CheckpointSettings::default()
        };
        assert_eq!(shortest.validate(), Ok(()));
    }

    // ST-01, B2, B3, B5
    #[test]
    fn values_out_of_range_are_named_with_their_bound() {
        let text = |change: fn(&mut CheckpointSettings)| {
            let mut settings = CheckpointSettings::default();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        assert_eq!(
            text(|s| s.interval = Some(Duration::ZERO)),
            "checkpoint-interval `0s` is below the minimum of `1ms`"
        );
        assert_eq!(
            text(|s| s.timeout = Duration::from_micros(999)),
            "checkpoint-timeout `999us` is below the minimum of `1ms`"
        );
        assert_eq!(
            text(|s| s.max_concurrent = 0),
            "max-concurrent-checkpoints `0` is below the minimum of `1`"
        );
        assert_eq!(
            text(|s| s.retained = 0),
            "retained-checkpoints `0` is below the minimum of `1`"
        );
    }

    #[test]
    fn all_that_is_wrong_is_told_by_name() {
        let settings = JobSettings {
            checkpoints: CheckpointSettings {
                timeout: Duration::ZERO,
                retained: 0,
                ..CheckpointSettings::default()
            },
            restart: RestartStrategy::FailureRate {
                max_per_interval: 0,
                interval: Duration::from_secs(1),
                delay: Duration::ZERO,
            },
            ..JobSettings::default()
        };
        let problems = settings.problems();
        let names: Vec<&str> = problems.iter().map(SettingsError::setting).collect();
        assert_eq!(
            names,
            ["checkpoint-timeout", "retained-checkpoints", "restart"]
        );
        assert_eq!(settings.validate().as_ref(), Err(&problems[0]));
    }
}
