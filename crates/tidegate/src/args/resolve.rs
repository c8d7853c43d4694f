//! From what was given to what a job runs with: defaults, and what doesn't fit together.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_coordinator::{CheckpointSettings, ElasticSettings, JobSettings, SettingsError};
use tidegate_runtime::StatePlacement;
use tidegate_server::{CheckpointLocation, JobOptions, RestoreOptions};
use tidegate_storage::parse_checkpoint_dir;
use tidegate_types::{AlignmentMode, SnapshotFormat, SnapshotLocation};
use url::Url;

use super::problem::{Given, InvalidSettings, Origin, Problem};
use super::table::{CONFIG, Setting};
use super::text::{ByteSize, CheckpointInterval, CheckpointStorage, TolerableFailures};
use super::{Args, Kind};

/// Time between checkpoints if there is somewhere to keep them.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(10);
/// How long a record waits for its batch to fill.
pub(crate) const BUFFER_TIMEOUT_DEFAULT: Duration = Duration::from_millis(5);

impl Args {
    /// What a job without a name yet runs with.
    ///
    /// # Errors
    /// Everything that is out of its range, no place, or doesn't fit together.
    pub(crate) fn job_options(&self) -> Result<JobOptions, InvalidSettings> {
        let mut problems = self.conflicts();
        let mut place = |name, text: &Option<String>| {
            let url = text.as_deref().map(|text| self.place(name, text));
            url.transpose().unwrap_or_else(|problem| {
                problems.push(problem);
                None
            })
        };
        let directory = place("checkpoint-dir", &self.checkpoint_dir);
        let savepoint_dir = place("savepoint-dir", &self.savepoint_dir).map(location);
        let restore_from = place("restore-from", &self.restore_from).map(location);
        let placement = self.placement().unwrap_or_else(|problem| {
            problems.push(problem);
            StatePlacement::default()
        });
        let settings = self.job_settings(savepoint_dir);
        problems.extend(settings.problems().into_iter().map(|e| self.range(e)));
        InvalidSettings::check(problems)?;
        Ok(JobOptions {
            name: String::new(),
            location: directory.map_or(CheckpointLocation::Memory, CheckpointLocation::Directory),
            settings,
            mode: self.mode.unwrap_or(AlignmentMode::ExactlyOnce),
            placement,
            buffer_timeout: self.buffer_timeout.unwrap_or(BUFFER_TIMEOUT_DEFAULT),
            restore: restore_from.map(|from| RestoreOptions {
                from,
                mode: self.restore_mode.unwrap_or_default(),
            }),
            dry_run: self.dry_run.unwrap_or_default(),
            serialize: false,
            injected: None,
        })
    }

    /// Subtasks of operators that don't say otherwise.
    pub(crate) fn parallelism(&self) -> u32 {
        self.parallelism.unwrap_or(NonZeroU32::MIN).get()
    }

    /// Which keyed state goes into files.
    fn placement(&self) -> Result<StatePlacement, Problem> {
        if self.checkpoint_storage == Some(CheckpointStorage::JobManager) {
            return Ok(StatePlacement::Inline {
                bytes_max: StatePlacement::JOB_MANAGER_BYTES_MAX,
            });
        }
        let limit = ByteSize(StatePlacement::INLINE_BYTES_LIMIT);
        match self.state_inline_threshold {
            None => Ok(StatePlacement::default()),
            Some(threshold) if threshold <= limit => Ok(StatePlacement::Files {
                inline_bytes_max: threshold.0,
            }),
            Some(_) => Err(Problem::Value {
                given: self.given("state-inline-threshold"),
                allowed: format!("at most `{limit}`").into(),
            }),
        }
    }

    fn job_settings(&self, savepoint_dir: Option<SnapshotLocation>) -> JobSettings {
        let default = CheckpointSettings::default();
        let tolerable_failures = match self.tolerable_failed_checkpoints {
            None => default.tolerable_failures,
            Some(TolerableFailures::Unlimited) => None,
            Some(TolerableFailures::UpTo(count)) => Some(count),
        };
        let interval = match self.checkpoint_interval {
            Some(CheckpointInterval::Off) => None,
            Some(CheckpointInterval::Every(interval)) => Some(interval),
            None => self.checkpoint_dir.as_ref().map(|_| INTERVAL_DEFAULT),
        };
        JobSettings {
            checkpoints: CheckpointSettings {
                interval,
                timeout: self.checkpoint_timeout.unwrap_or(default.timeout),
                min_pause: self.min_pause.unwrap_or(default.min_pause),
                max_concurrent: self
                    .max_concurrent_checkpoints
                    .unwrap_or(default.max_concurrent),
                tolerable_failures,
                retained: self.retained_checkpoints.unwrap_or(default.retained),
                retention: self.checkpoint_retention.unwrap_or(default.retention),
                history: self.checkpoint_history.unwrap_or(default.history),
                savepoint_dir,
                format: match self.incremental_checkpoints {
                    Some(true) => SnapshotFormat::Incremental,
                    Some(false) | None => default.format,
                },
            },
            restart: self.restart.clone().unwrap_or_default(),
            allow_non_restored_state: self.allow_non_restored_state.unwrap_or_default(),
            elastic: ElasticSettings {
                parallelism_min: self.parallelism_min.map(NonZeroU32::get),
                stabilization_timeout: self
                    .stabilization_timeout
                    .unwrap_or(ElasticSettings::default().stabilization_timeout),
            },
        }
    }

    /// Settings that make no sense without others.
    fn conflicts(&self) -> Vec<Problem> {
        let (directory, dry) = (self.checkpoint_dir.is_some(), self.dry_run == Some(true));
        let periodic = matches!(self.checkpoint_interval, Some(CheckpointInterval::Every(_)));
        let restores = self.restore_from.is_some();
        let wrong = [
            (
                periodic && !directory,
                "checkpoint-interval",
                "--checkpoint-dir",
                "checkpoints without it would not outlive the process",
            ),
            (
                self.state_inline_threshold.is_some()
                    && self.checkpoint_storage == Some(CheckpointStorage::JobManager),
                "state-inline-threshold",
                "--checkpoint-storage filesystem",
                "with `jobmanager` all keyed state is inline",
            ),
            (
                self.incremental_checkpoints == Some(true)
                    && self.checkpoint_storage == Some(CheckpointStorage::JobManager),
                "incremental-checkpoints",
                "--checkpoint-storage filesystem",
                "with `jobmanager` there are no files to share",
            ),
            (
                self.restore_mode.is_some() && !restores,
                "restore-mode",
                "--restore-from",
                "it says what becomes of the snapshot that is restored",
            ),
            (
                restores && !directory && !dry,
                "restore-from",
                "--checkpoint-dir",
                "after a restart of the process the job could only begin with that snapshot again",
            ),
            (
                dry && !directory && !restores,
                "dry-run",
                "--restore-from or --checkpoint-dir",
                "there is nothing that could be restored",
            ),
        ];
        let wrong = wrong.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        wrong
            .map(|(_, name, needs, why)| Problem::Needs {
                given: self.given(name),
                needs,
                why,
            })
            .collect()
    }

    fn place(&self, name: &'static str, text: &str) -> Result<Url, Problem> {
        parse_checkpoint_dir(text).map_err(|cause| Problem::Location {
            given: self.given(name),
            cause: Box::new(cause),
        })
    }

    fn range(&self, cause: SettingsError) -> Problem {
        let origin = self.origins.get(cause.setting()).cloned();
        Problem::Range { cause, origin }
    }

    /// What a setting is set to and where, for messages.
    pub(super) fn given(&self, name: &'static str) -> Given {
        let setting = Setting::find(name);
        let text = setting.and_then(|setting| (setting.field.get)(self));
        let text = text.unwrap_or_default();
        let origin = self.origins.get(name).cloned().unwrap_or(Origin::Flag);
        let in_file = matches!(origin, Origin::File { .. });
        let quoted = in_file && setting.is_some_and(|setting| setting.kind == Kind::Text);
        Given {
            name,
            text: if quoted { format!("{text:?}") } else { text },
            origin,
        }
    }
}

fn location(url: Url) -> SnapshotLocation {
    SnapshotLocation::new(url.as_str())
}

/// Variables that look like misspelt settings, each with the setting that was probably meant.
///
/// Others that begin like ours are left alone: a cluster manager may make some up (Kubernetes does
/// for a service called `tidegate`), so that refusing them would do harm.
pub(crate) fn misspelt_variables(
    names: impl Iterator<Item = String>,
) -> Vec<(String, &'static str)> {
    let is_known = |name: &str| {
        let known = |setting: &Setting| setting.variable() == name;
        Setting::all().any(known) || name == Setting::variable_of(CONFIG)
    };
    names
        .filter(|name| !is_known(name))
        .filter_map(|name| {
            let nearest = Setting::nearest(name.strip_prefix("TIDEGATE_")?)?;
            Some((name, nearest))
        })
        .collect()
}
