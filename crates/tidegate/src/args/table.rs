//! Every setting there is, once: its name, what it means, and how it is read and shown.
//!
//! Flags, variables, keys of the file, `--help`, errors and `docs/configuration.md` are all made
//! from [`SETTINGS`], those of a job, and [`CLUSTER`], those of the parts of a cluster. Defaults
//! stand here as text and in the structs that the text is compared with by a test.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_coordinator::{RestartStrategy, Retention};
use tidegate_server::OnSigterm;
use tidegate_types::{AlignmentMode, RestoreMode};

use super::Args;
use super::cluster::CLUSTER;
use super::text::{
    Allowed, ByteSize, CheckpointInterval, CheckpointStorage, TextForm, TolerableFailures,
};

/// What stands in a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string.
    Text,
    /// An integer.
    Count,
    /// An integer, or a string.
    CountOrWord,
    /// A boolean; as a flag it needs no value.
    Switch,
}

/// Whom a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A job, wherever it runs.
    Job,
    /// The JobManager, of a local cluster too.
    JobManager,
    /// A TaskManager, unless a local cluster has started it.
    TaskManager,
    /// A cluster of processes on one machine.
    LocalCluster,
    /// Whoever asks something of a job on a cluster.
    Request,
}

/// One setting.
pub(crate) struct Setting {
    /// Name of the flag (behind `--`) and of the key.
    pub(crate) name: &'static str,
    /// What stands for the value in `--help`.
    pub(crate) value: &'static str,
    /// What it is in a file.
    pub(crate) kind: Kind,
    /// The default as text, or words for there being none, in brackets.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) meaning: &'static str,
    /// When to choose another value.
    pub(crate) advice: &'static str,
    /// Whom it is for.
    pub(crate) of: &'static [Part],
    /// Its place in [`Args`].
    pub(crate) field: Field,
}

/// Access to one field of [`Args`] by text.
pub(crate) struct Field {
    /// Sets it, or says what is allowed.
    pub(crate) set: fn(&mut Args, &str) -> Result<(), Allowed>,
    /// What it is set to.
    pub(crate) get: fn(&Args) -> Option<String>,
    /// What it may be set to.
    pub(crate) allowed: fn() -> Allowed,
}

/// A field of its own type.
macro_rules! field {
    ($($field:ident).+: $value:ty) => {
        Field {
            set: |args, text| {
                args.$($field).+ = Some(<$value as TextForm>::parse(text)?);
                Ok(())
            },
            get: |args| args.$($field).+.as_ref().map(TextForm::text),
            allowed: <$value as TextForm>::allowed,
        }
    };
}

/// A field whose text may be anything but empty, for now; what it should be follows.
macro_rules! text {
    ($($field:ident).+, $allowed:expr) => {
        Field {
            set: |args, text| {
                if text.is_empty() {
                    return Err($allowed.into());
                }
                args.$($field).+ = Some(text.to_owned());
                Ok(())
            },
            get: |args| args.$($field).+.clone(),
            allowed: || $allowed.into(),
        }
    };
}

pub(super) use {field, text};

impl Setting {
    /// Every setting there is, those of the job first.
    pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().chain(CLUSTER)
    }

    /// Whether it is for one of these.
    pub(crate) fn is_of(&self, parts: &[Part]) -> bool {
        self.of.iter().any(|part| parts.contains(part))
    }

    /// The setting of this name.
    pub(crate) fn find(name: &str) -> Option<&'static Setting> {
        Self::all().find(|setting| setting.name == name)
    }

    /// The environment variable of the same name.
    pub(crate) fn variable(&self) -> String {
        Self::variable_of(self.name)
    }

    /// The environment variable of the setting of this name.
    pub(crate) fn variable_of(name: &str) -> String {
        format!("TIDEGATE_{}", name.replace('-', "_").to_uppercase())
    }

    /// The setting whose name is so much like this one that it was probably meant.
    pub(crate) fn nearest(name: &str) -> Option<&'static str> {
        let name = name.to_lowercase().replace('_', "-");
        let names = Self::all().map(|setting| setting.name).chain([CONFIG]);
        names
            .map(|known| (distance(known, &name), known))
            .filter(|(distance, known)| *distance <= known.len() / 4)
            .min()
            .map(|(_, known)| known)
    }
}

/// How many letters must be inserted, removed or replaced to get from one to the other
/// (Levenshtein's distance).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// Names the file. Not among [`SETTINGS`], because it can't stand in the file.
pub(crate) const CONFIG: &str = "config";

/// A path or URL; what it stands for is found out when it is used.
const PLACE: &str = "a path or a `file://` URL";

/// All settings of a job, in the order of `--help` and of the documentation.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "parallelism",
        value: "N",
        kind: Kind::Count,
        default: "1",
        meaning: "subtasks of operators that don't say otherwise, and worker threads",
        advice: "raise it up to the number of cores; state moves along at the next start",
        of: &[Part::Job],
        field: field!(parallelism: NonZeroU32),
    },
    Setting {
        name: "parallelism-min",
        value: "N",
        kind: Kind::Count,
        default: "(none)",
        meaning: "on a cluster, the smallest parallelism that the job may run at when slots are \
                  missing; it gets its own back when they are there again; without it the job \
                  waits for all",
        advice: "set it if late results are worse than few machines",
        of: &[Part::Job],
        field: field!(parallelism_min: NonZeroU32),
    },
    Setting {
        name: "stabilization-timeout",
        value: "TIME",
        kind: Kind::Text,
        default: "10s",
        meaning: "with `parallelism-min`, for how long the number of slots must have been the same \
                  before the job is fitted to it",
        advice: "lower it to run smaller sooner; raise it if TaskManagers take longer to come back",
        of: &[Part::Job],
        field: field!(stabilization_timeout: Duration),
    },
    Setting {
        name: "checkpoint-dir",
        value: "URL",
        kind: Kind::Text,
        default: "(none)",
        meaning: "where checkpoints are kept: a path or a `file://` URL; without it nothing \
                  outlives the process, and transactional sinks are refused",
        advice: "set it for every job whose results matter",
        of: &[Part::Job],
        field: text!(checkpoint_dir, PLACE),
    },
    Setting {
        name: "checkpoint-storage",
        value: "STORAGE",
        kind: Kind::Text,
        default: "filesystem",
        meaning: "where the keyed state of checkpoints and savepoints goes: into files \
                  (`filesystem`), or with everything else into `_metadata` (`jobmanager`), which \
                  takes up to 5 MiB per subtask and declines what is larger",
        advice: "choose `jobmanager` for jobs with little state and many checkpoints",
        of: &[Part::Job],
        field: field!(checkpoint_storage: CheckpointStorage),
    },
    Setting {
        name: "state-inline-threshold",
        value: "SIZE",
        kind: Kind::Text,
        default: "20KiB",
        meaning: "keyed state of at most this size goes into `_metadata` and not into a file of \
                  its own, at most `1MiB`; with `0B` every subtask with state has a file",
        advice: "raise it if many subtasks hold little state; lower it if `_metadata` grows large",
        of: &[Part::Job],
        field: field!(state_inline_threshold: ByteSize),
    },
    Setting {
        name: "incremental-checkpoints",
        value: "BOOL",
        kind: Kind::Switch,
        default: "false",
        meaning: "a checkpoint writes what has changed since the latest completed one, and shares \
                  the files of that; now and then it writes everything, so that a restore stays \
                  bounded",
        advice: "set it if state is large and little of it changes from one checkpoint to the next",
        of: &[Part::Job],
        field: field!(incremental_checkpoints: bool),
    },
    Setting {
        name: "checkpoint-interval",
        value: "TIME|off",
        kind: Kind::Text,
        default: "10s",
        meaning: "time from one checkpoint to the next, at least `1ms`, raised to `min-pause` if \
                  shorter; `off` leaves the final checkpoint and those asked for, and so does a \
                  job without `checkpoint-dir`",
        advice: "lower it to replay less after a failure and publish sooner; raise it for less \
                 overhead and larger output files",
        of: &[Part::Job],
        field: field!(checkpoint_interval: CheckpointInterval),
    },
    Setting {
        name: "checkpoint-timeout",
        value: "TIME",
        kind: Kind::Text,
        default: "10m",
        meaning: "a checkpoint that takes longer is aborted and counts as failed; at least `1ms`",
        advice: "raise it if large state or slow storage needs the time; lower it to notice stuck \
                 checkpoints sooner",
        of: &[Part::Job],
        field: field!(checkpoint_timeout: Duration),
    },
    Setting {
        name: "min-pause",
        value: "TIME",
        kind: Kind::Text,
        default: "0s",
        meaning: "least time from the completion of a checkpoint to the next periodic one; \
                  savepoints don't wait for it",
        advice: "raise it if checkpoints are slow and follow each other without rest",
        of: &[Part::Job],
        field: field!(min_pause: Duration),
    },
    Setting {
        name: "max-concurrent-checkpoints",
        value: "N",
        kind: Kind::Count,
        default: "1",
        meaning: "how many checkpoints may be under way at once, at least 1; savepoints and the \
                  final checkpoint don't count",
        advice: "raise it to keep a short interval although each checkpoint takes longer",
        of: &[Part::Job],
        field: field!(max_concurrent_checkpoints: u32),
    },
    Setting {
        name: "tolerable-failed-checkpoints",
        value: "N|unlimited",
        kind: Kind::CountOrWord,
        default: "10",
        meaning: "how many checkpoints may fail in a row; one more restarts the job",
        advice: "raise it to outlive longer trouble with storage; lower it to hear of it sooner",
        of: &[Part::Job],
        field: field!(tolerable_failed_checkpoints: TolerableFailures),
    },
    Setting {
        name: "retained-checkpoints",
        value: "N",
        kind: Kind::Count,
        default: "1",
        meaning: "how many completed checkpoints are kept, at least 1",
        advice: "raise it to have more to go back to; each takes storage",
        of: &[Part::Job],
        field: field!(retained_checkpoints: u32),
    },
    Setting {
        name: "checkpoint-retention",
        value: "RETENTION",
        kind: Kind::Text,
        default: "retain-on-cancellation",
        meaning: "whether checkpoints outlive the job when it is cancelled or fails: \
                  `retain-on-cancellation` (both), `delete-on-cancellation` (only a failure) or \
                  `no-retention` (neither)",
        advice: "choose another if a job that was cancelled is never to go on",
        of: &[Part::Job],
        field: field!(checkpoint_retention: Retention),
    },
    Setting {
        name: "checkpoint-history",
        value: "N",
        kind: Kind::Count,
        default: "10",
        meaning: "how many checkpoints that completed or failed the statistics remember in detail",
        advice: "raise it to look further back; each takes 52 bytes of memory per subtask",
        of: &[Part::Job],
        field: field!(checkpoint_history: u32),
    },
    Setting {
        name: "savepoint-dir",
        value: "URL",
        kind: Kind::Text,
        default: "(none)",
        meaning: "the folder that savepoints are made in when the request names none",
        advice: "set it if savepoints are taken by hand",
        of: &[Part::Job],
        field: text!(savepoint_dir, PLACE),
    },
    Setting {
        name: "restore-from",
        value: "URL",
        kind: Kind::Text,
        default: "(none)",
        meaning: "the folder of a savepoint or checkpoint that the job starts from, as long as it \
                  has no completed checkpoint of its own",
        advice: "set it to start a new version, a copy or a renamed job from old state",
        of: &[Part::Job],
        field: text!(restore_from, PLACE),
    },
    Setting {
        name: "restore-mode",
        value: "MODE",
        kind: Kind::Text,
        default: "no-claim",
        meaning: "whose that snapshot is then: it stays yours and is never changed (`no-claim`), \
                  or it becomes the job's, which deletes it when newer ones replace it (`claim`)",
        advice: "choose `claim` for checkpoints that nothing else needs",
        of: &[Part::Job],
        field: field!(restore_mode: RestoreMode),
    },
    Setting {
        name: "allow-non-restored-state",
        value: "BOOL",
        kind: Kind::Switch,
        default: "false",
        meaning: "restore although the checkpoint holds state of operators that the job no longer \
                  has, and drop that state",
        advice: "set it once, after removing or renaming operators on purpose",
        of: &[Part::Job],
        field: field!(allow_non_restored_state: bool),
    },
    Setting {
        name: "dry-run",
        value: "BOOL",
        kind: Kind::Switch,
        default: "false",
        meaning: "only tell whether the job can be restored, and from what; nothing runs and \
                  nothing is written",
        advice: "set it before starting a changed job on old state",
        of: &[Part::Job],
        field: field!(dry_run: bool),
    },
    Setting {
        name: "mode",
        value: "MODE",
        kind: Kind::Text,
        default: "exactly-once",
        meaning: "how barriers are aligned: `exactly-once` (a channel that is ahead waits) or \
                  `at-least-once` (nothing waits; after a restart records may be counted twice)",
        advice: "choose `at-least-once` if latency during checkpoints matters more than exact \
                 state",
        of: &[Part::Job],
        field: field!(mode: AlignmentMode),
    },
    Setting {
        name: "restart",
        value: "STRATEGY",
        kind: Kind::Text,
        default: "exponential-delay:100ms,1m",
        meaning: "what happens after a failure: `none`, `fixed-delay:ATTEMPTS,DELAY`, \
                  `exponential-delay:INITIAL,MAX[,MULTIPLIER[,RESET]]` or \
                  `failure-rate:FAILURES,INTERVAL,DELAY`",
        advice: "choose one that gives up if somebody else restarts the program",
        of: &[Part::Job],
        field: field!(restart: RestartStrategy),
    },
    Setting {
        name: "on-sigterm",
        value: "WAY",
        kind: Kind::Text,
        default: "suspend",
        meaning: "what SIGTERM and Ctrl-C do to the job: it is suspended, which keeps everything \
                  for the next start (`suspend`), or stopped with a savepoint (`stop`)",
        advice: "choose `stop`, with `savepoint-dir`, if the next start is another version",
        of: &[Part::Job],
        field: field!(on_sigterm: OnSigterm),
    },
    Setting {
        name: "buffer-timeout",
        value: "TIME",
        kind: Kind::Text,
        default: "5ms",
        meaning: "a record waits no longer than this for its batch to fill",
        advice: "raise it for throughput of slow sources; lower it for latency",
        of: &[Part::Job],
        field: field!(buffer_timeout: Duration),
    },
    Setting {
        name: "quiet",
        value: "BOOL",
        kind: Kind::Switch,
        default: "false",
        meaning: "print neither progress nor summary",
        advice: "set it where nobody reads standard error",
        of: &[Part::Job],
        field: field!(quiet: bool),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_probably_meant_is_found() {
        assert_eq!(
            Setting::nearest("checkpoint_intervall"),
            Some("checkpoint-interval")
        );
        assert_eq!(Setting::nearest("Min-Pause"), Some("min-pause"));
        assert_eq!(Setting::nearest("mod"), Some("mode"));
        assert_eq!(Setting::nearest("colour"), None);
        assert_eq!(Setting::nearest(""), None);
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
