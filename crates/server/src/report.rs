//! How a job ended well, and what it did.

use std::fmt;
use std::time::Duration;

use tidegate_coordinator::{RestoreOutlook, Statistics};
use tidegate_types::{CheckpointId, OrderedEnd, SnapshotLocation};

/// How a job came to its end without failing. Displays as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It had finished before; nothing was done.
    AlreadyFinished,
    /// Somebody has ended it, while this process waited to go on with it, or just before the
    /// process died that this one follows. Nothing was done; started once more, the job goes on.
    AlreadyEnded(OrderedEnd),
    /// It was a dry run: the job could go on, from this if there is something to go on from.
    DryRun(Option<RestoreOutlook>),
    /// Every source ended and everything is committed. The job is done for good.
    Finished,
    /// It was stopped with a savepoint, and everything up to it is committed. The next run goes on
    /// from there.
    Stopped {
        /// The savepoint.
        savepoint: CheckpointId,
        /// Its folder.
        location: SnapshotLocation,
    },
    /// It was stopped with a savepoint after all data had come to its end, and everything is
    /// committed. The job is done for good.
    Drained {
        /// The savepoint.
        savepoint: CheckpointId,
        /// Its folder.
        location: SnapshotLocation,
    },
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyFinished => f.write_str("the job is finished; there is nothing to do"),
            Self::AlreadyEnded(end) => write!(
                f,
                "the job was {end} before this process could go on with it; start it once more to \
                 go on"
            ),
            Self::DryRun(None) => f.write_str("there is nothing to restore: the job starts empty"),
            Self::DryRun(Some(outlook)) => f.write_str(outlook.to_string().trim_end()),
            Self::Finished => f.write_str("finished"),
            Self::Stopped { location, .. } => write!(f, "stopped with savepoint {location}"),
            Self::Drained { location, .. } => {
                write!(f, "drained and stopped with savepoint {location}")
            }
        }
    }
}

/// What a job has done in this process.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// How it ended.
    pub outcome: JobOutcome,
    /// The checkpoint that the first attempt went on from.
    pub restored: Option<CheckpointId>,
    /// Records that the sources emitted, replayed ones included.
    pub records: u64,
    /// From the start of the first attempt to the end.
    pub elapsed: Duration,
    /// Checkpoints and restarts.
    pub statistics: Statistics,
}

impl JobReport {
    pub(crate) fn without_a_run(outcome: JobOutcome) -> Self {
        JobReport {
            outcome,
            restored: None,
            records: 0,
            elapsed: Duration::ZERO,
            statistics: Statistics::default(),
        }
    }
}
