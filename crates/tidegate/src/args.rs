//! What users of a job can set: flags, or environment variables of the same names.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use tidegate_coordinator::{CheckpointSettings, JobSettings, RestartStrategy};
use tidegate_server::CheckpointLocation;
use tidegate_storage::parse_checkpoint_dir;
use tidegate_types::AlignmentMode;

use crate::error::Error;

/// How barriers are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// State is exact; a channel that is ahead waits during a checkpoint.
    ExactlyOnce,
    /// Nothing waits; after a restart some records may be counted twice.
    AtLeastOnce,
}

/// The options that every job has. Flatten them into the job's own:
///
/// ```
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     tidegate: tidegate::Args,
/// }
/// ```
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Tidegate")]
pub struct Args {
    /// Number of subtasks of operators that don't say otherwise, and of worker threads.
    #[arg(long, env = "TIDEGATE_PARALLELISM", default_value = "1")]
    pub parallelism: NonZeroU32,

    /// Where checkpoints are kept: a path or a file:// URL. Without it, nothing outlives the
    /// process.
    #[arg(long, env = "TIDEGATE_CHECKPOINT_DIR", value_name = "URL")]
    pub checkpoint_dir: Option<String>,

    /// Time between checkpoints, as 100ms or 10s. Default 10s if there is a checkpoint directory.
    #[arg(long, env = "TIDEGATE_CHECKPOINT_INTERVAL", value_name = "TIME",
          value_parser = humantime::parse_duration)]
    pub checkpoint_interval: Option<Duration>,

    /// Take no periodic checkpoints, only the final one.
    #[arg(
        long,
        env = "TIDEGATE_NO_PERIODIC_CHECKPOINTS",
        conflicts_with = "checkpoint_interval"
    )]
    pub no_periodic_checkpoints: bool,

    /// A checkpoint that takes longer is aborted.
    #[arg(long, env = "TIDEGATE_CHECKPOINT_TIMEOUT", value_name = "TIME", default_value = "10m",
          value_parser = humantime::parse_duration)]
    pub checkpoint_timeout: Duration,

    /// Least time from the completion of a checkpoint to the start of the next.
    #[arg(long, env = "TIDEGATE_MIN_PAUSE", value_name = "TIME", default_value = "0s",
          value_parser = humantime::parse_duration)]
    pub min_pause: Duration,

    /// How many checkpoints may be under way at once.
    #[arg(long, env = "TIDEGATE_MAX_CONCURRENT_CHECKPOINTS", default_value = "1")]
    pub max_concurrent_checkpoints: u32,

    /// How many checkpoints in a row may fail before the job restarts, or `unlimited`.
    #[arg(long, env = "TIDEGATE_TOLERABLE_FAILED_CHECKPOINTS", default_value = "10",
          value_parser = parse_tolerable)]
    pub tolerable_failed_checkpoints: Tolerable,

    /// How many completed checkpoints are kept.
    #[arg(long, env = "TIDEGATE_RETAINED_CHECKPOINTS", default_value = "1")]
    pub retained_checkpoints: u32,

    /// How barriers are aligned.
    #[arg(
        long,
        env = "TIDEGATE_MODE",
        value_enum,
        default_value = "exactly-once"
    )]
    pub mode: Mode,

    /// What happens after a failure: `none`, `fixed-delay:ATTEMPTS,DELAY`,
    /// `exponential-delay:INITIAL,MAX`, or `failure-rate:FAILURES,INTERVAL,DELAY`.
    #[arg(long, env = "TIDEGATE_RESTART", value_name = "STRATEGY",
          default_value = "exponential-delay:100ms,1m", value_parser = parse_restart)]
    pub restart: RestartStrategy,

    /// A record waits no longer than this for its batch to fill.
    #[arg(long, env = "TIDEGATE_BUFFER_TIMEOUT", value_name = "TIME", default_value = "5ms",
          value_parser = humantime::parse_duration)]
    pub buffer_timeout: Duration,

    /// Restore although the checkpoint holds state of operators that the job no longer has, and
    /// drop that state.
    #[arg(long, env = "TIDEGATE_ALLOW_NON_RESTORED_STATE")]
    pub allow_non_restored_state: bool,

    /// Print neither progress nor summary.
    #[arg(long, env = "TIDEGATE_QUIET")]
    pub quiet: bool,
}

/// A number of failures, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerable(pub Option<u32>);

/// Default time between checkpoints when there is somewhere to keep them.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(10);

impl Args {
    pub(crate) fn job_settings(&self) -> Result<JobSettings, Error> {
        let interval = match (self.checkpoint_interval, &self.checkpoint_dir) {
            (Some(_), None) => return Err(Error::IntervalWithoutDir),
            _ if self.no_periodic_checkpoints => None,
            (Some(interval), Some(_)) => Some(interval),
            (None, Some(_)) => Some(INTERVAL_DEFAULT),
            (None, None) => None,
        };
        Ok(JobSettings {
            checkpoints: CheckpointSettings {
                interval,
                timeout: self.checkpoint_timeout,
                min_pause: self.min_pause,
                max_concurrent: self.max_concurrent_checkpoints,
                tolerable_failures: self.tolerable_failed_checkpoints.0,
                retained: self.retained_checkpoints,
                ..CheckpointSettings::default()
            },
            restart: self.restart.clone(),
            allow_non_restored_state: self.allow_non_restored_state,
        })
    }

    pub(crate) fn location(&self) -> Result<CheckpointLocation, Error> {
        match &self.checkpoint_dir {
            None => Ok(CheckpointLocation::Memory),
            Some(text) => parse_checkpoint_dir(text)
                .map(CheckpointLocation::Directory)
                .map_err(Error::CheckpointDir),
        }
    }

    pub(crate) fn alignment_mode(&self) -> AlignmentMode {
        match self.mode {
            Mode::ExactlyOnce => AlignmentMode::ExactlyOnce,
            Mode::AtLeastOnce => AlignmentMode::AtLeastOnce,
        }
    }
}

fn parse_tolerable(text: &str) -> Result<Tolerable, std::num::ParseIntError> {
    match text {
        "unlimited" => Ok(Tolerable(None)),
        number => number.parse().map(|count| Tolerable(Some(count))),
    }
}

/// The text is no restart strategy.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{text}` is no restart strategy; there are `none`, `fixed-delay:ATTEMPTS,DELAY`, \
     `exponential-delay:INITIAL,MAX` and `failure-rate:FAILURES,INTERVAL,DELAY`"
)]
pub struct ParseRestartError {
    text: String,
}

fn parse_restart(text: &str) -> Result<RestartStrategy, ParseRestartError> {
    let (kind, parameters) = text.split_once(':').unwrap_or((text, ""));
    let parameters: Vec<&str> = parameters
        .split(',')
        .filter(|part| !part.is_empty())
        .collect();
    let strategy = match (kind, parameters.as_slice()) {
        ("none", []) => Some(RestartStrategy::None),
        ("fixed-delay", [attempts, delay]) => fixed_delay(attempts, delay),
        ("exponential-delay", [initial, max]) => exponential_delay(initial, max),
        ("failure-rate", [failures, interval, delay]) => failure_rate(failures, interval, delay),
        _ => None,
    };
    strategy.ok_or_else(|| ParseRestartError {
        text: text.to_owned(),
    })
}

fn number<N: FromStr>(text: &str) -> Option<N> {
    text.trim().parse().ok()
}

fn time(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

fn fixed_delay(attempts: &str, delay: &str) -> Option<RestartStrategy> {
    Some(RestartStrategy::FixedDelay {
        attempts: number(attempts)?,
        delay: time(delay)?,
    })
}

fn exponential_delay(initial: &str, max: &str) -> Option<RestartStrategy> {
    let RestartStrategy::ExponentialDelay {
        multiplier,
        reset_after,
        ..
    } = RestartStrategy::default()
    else {
        return None;
    };
    Some(RestartStrategy::ExponentialDelay {
        initial: time(initial)?,
        max: time(max)?,
        multiplier,
        reset_after,
    })
}

fn failure_rate(failures: &str, interval: &str, delay: &str) -> Option<RestartStrategy> {
    Some(RestartStrategy::FailureRate {
        max_per_interval: number(failures)?,
        interval: time(interval)?,
        delay: time(delay)?,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Job {
        #[command(flatten)]
        tidegate: Args,
    }

    fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
        Job::try_parse_from(std::iter::once(&"job").chain(flags)).map(|job| job.tidegate)
    }

    #[test]
    fn defaults_need_nothing() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.job_settings().unwrap().checkpoints.interval, None);
        assert_eq!(args.location().unwrap(), CheckpointLocation::Memory);
    }

    #[test]
    fn an_interval_needs_a_directory() {
        let error = parse(&["--checkpoint-interval", "1s"])
            .unwrap()
            .job_settings()
            .unwrap_err();
        assert!(error.to_string().contains("--checkpoint-dir"), "{error}");
    }

    #[test]
    fn a_directory_brings_an_interval_unless_it_is_turned_off() {
        let args = parse(&["--checkpoint-dir", "/tmp/x"]).unwrap();
        assert_eq!(
            args.job_settings().unwrap().checkpoints.interval,
            Some(INTERVAL_DEFAULT)
        );
        let args = parse(&["--checkpoint-dir", "/tmp/x", "--no-periodic-checkpoints"]).unwrap();
        assert_eq!(args.job_settings().unwrap().checkpoints.interval, None);
    }

    #[test]
    fn restart_strategies_have_a_text_form() {
        let strategy = |text| parse(&["--restart", text]).map(|args| args.restart);
        assert_eq!(strategy("none").unwrap(), RestartStrategy::None);
        let fixed = RestartStrategy::FixedDelay {
            attempts: 3,
            delay: Duration::from_secs(1),
        };
        assert_eq!(strategy("fixed-delay:3,1s").unwrap(), fixed);
        assert!(strategy("failure-rate:3,5m,1s").is_ok());
        assert!(strategy("exponential-delay:1s,1m").is_ok());
        for wrong in ["sometimes", "fixed-delay:3", "none:1", "fixed-delay:x,1s"] {
            let error = strategy(wrong).unwrap_err().to_string();
            assert!(
                error.contains(wrong) && error.contains("fixed-delay:ATTEMPTS"),
                "{error}"
            );
        }
    }

    #[test]
    fn unknown_flags_schemes_and_times_are_named() {
        assert!(
            parse(&["--no-such-flag"])
                .unwrap_err()
                .to_string()
                .contains("--no-such-flag")
        );
        let time = parse(&["--min-pause", "soon"]).unwrap_err().to_string();
        assert!(time.contains("soon"), "{time}");
        let args = parse(&["--checkpoint-dir", "s3://bucket/x"]).unwrap();
        let error = format!("{:?}", args.location().unwrap_err());
        assert!(error.contains("s3"), "{error}");
    }
}
