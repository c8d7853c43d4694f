//! What people and programs ask of a running job, and what they are told.

use std::fmt;
use std::time::Duration;

use tidegate_types::{CheckpointId, SnapshotFormat, SnapshotKind, SnapshotLocation};

use crate::failure::{AbortReason, RescaleRefusal, TriggerRefusal};
use crate::statistics::CompletedSummary;

/// Tells a request from all others of a job. Chosen by whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request-{}", self.0)
    }
}

/// Something to be done now. Nobody chooses the id of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Take a checkpoint: exempt from interval and minimum pause, not from the limit on concurrent
    /// checkpoints.
    Checkpoint {
        /// What its files may be like; `None` is what the settings say.
        format: Option<SnapshotFormat>,
    },
    /// Take a savepoint: exempt from every limit.
    Savepoint {
        /// The folder to make it in; `None` is the one in the settings.
        directory: Option<SnapshotLocation>,
    },
    /// Take a savepoint and stop with it.
    StopWithSavepoint {
        /// The folder to make it in; `None` is the one in the settings.
        directory: Option<SnapshotLocation>,
        /// Whether data comes to its end first; see
        /// [`SnapshotKind::StopWithSavepoint`].
        drain: bool,
    },
    /// Abort a checkpoint or savepoint that is under way.
    Abort {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// Take a checkpoint and go on from it with another parallelism, as if the job had been
    /// started with that.
    Rescale {
        /// Number of subtasks of every operator whose parallelism nobody chose.
        parallelism: u32,
    },
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The snapshot is durable. Of a stop: everything is committed and the job ends with it.
    Completed(CompletedSummary),
    /// Nothing was begun.
    Refused(TriggerRefusal),
    /// The snapshot was begun and came to nothing.
    Failed {
        /// Its id.
        checkpoint: CheckpointId,
        /// What it was meant for.
        kind: SnapshotKind,
        /// Why.
        reason: AbortReason,
    },
    /// The savepoint of a stop is durable and complete, but the attempt failed before everything
    /// up to it was committed. Whenever the job goes on, by a restart or by another process, it
    /// goes on from the savepoint and commits the rest.
    NotStopped {
        /// The savepoint.
        savepoint: CompletedSummary,
        /// What failed, for people.
        cause: String,
    },
    /// The checkpoint was aborted.
    Aborted {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// Every subtask runs at the new parallelism.
    Rescaled(Rescaled),
    /// The job runs on as it was.
    NotRescaled(RescaleRefusal),
}

/// A rescale that has come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rescaled {
    /// The largest parallelism before.
    pub from: u32,
    /// The largest parallelism now.
    pub to: u32,
    /// The checkpoint in between; `None` if there was nothing to be done.
    pub checkpoint: Option<CheckpointId>,
    /// From the stop of the last attempt to the moment at which every subtask of the next ran.
    pub downtime: Duration,
    /// Whether that is recorded: then whoever goes on with the job, as it was started, runs it so
    /// large.
    pub recorded: bool,
}
