//! What users can choose about checkpoints and restarts, with every default in one place.

use std::time::Duration;

use tidegate_types::{SnapshotFormat, SnapshotLocation};

use crate::restart::RestartStrategy;

/// Two settings that don't fit together, or one out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A duration that must be at least a millisecond is shorter.
    #[error("{setting} `{given:?}` is below the minimum of `1ms`")]
    TooShort {
        /// The setting's name.
        setting: &'static str,
        /// What was given.
        given: Duration,
    },
    /// A count that must be at least one is zero.
    #[error("{setting} `{given}` is below the minimum of `1`")]
    Zero {
        /// The setting's name.
        setting: &'static str,
        /// What was given.
        given: u32,
    },
    /// The first delay is longer than the longest.
    #[error("initial restart delay `{initial:?}` is above the maximum restart delay `{max:?}`")]
    DelayAboveMax {
        /// The first delay.
        initial: Duration,
        /// The longest delay.
        max: Duration,
    },
    /// The delay would shrink from restart to restart.
    #[error("restart delay multiplier `{given}` is not a number of at least `1`")]
    Multiplier {
        /// What was given.
        given: f64,
    },
}

/// Which ends of a job its completed checkpoints outlive. They never outlive the end of a job that
/// has finished; they always outlive a process that dies. Savepoints outlive everything.
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
        }
    }
}

impl CheckpointSettings {
    /// Checks every field.
    ///
    /// # Errors
    /// The first setting that is out of its range, with what was given and the bound.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if let Some(interval) = self.interval {
            at_least_a_millisecond("checkpoint interval", interval)?;
        }
        at_least_a_millisecond("checkpoint timeout", self.timeout)?;
        at_least_one("max concurrent checkpoints", self.max_concurrent)?;
        at_least_one("retained checkpoints", self.retained)
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
}

impl JobSettings {
    /// Checks every field.
    ///
    /// # Errors
    /// The first [`SettingsError`] found.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.checkpoints.validate()?;
        self.restart.validate()
    }
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
            "checkpoint interval `0ns` is below the minimum of `1ms`"
        );
        assert_eq!(
            text(|s| s.timeout = Duration::from_micros(999)),
            "checkpoint timeout `999µs` is below the minimum of `1ms`"
        );
        assert_eq!(
            text(|s| s.max_concurrent = 0),
            "max concurrent checkpoints `0` is below the minimum of `1`"
        );
        assert_eq!(
            text(|s| s.retained = 0),
            "retained checkpoints `0` is below the minimum of `1`"
        );
    }
}
