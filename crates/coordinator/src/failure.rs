//! Why checkpoints abort, attempts fail and jobs end, in words for people.

use std::fmt;
use std::time::Duration;

use tidegate_types::message::DeclineReason;
use tidegate_types::{AttemptNumber, CheckpointId, OperatorUid};

use crate::restore::RestoreError;

/// The subtasks that had not acknowledged yet, named by uid: `count[1]`, at most
/// [`NAMED_MAX`](Self::NAMED_MAX) of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The first of them, in graph order.
    pub named: Vec<String>,
    /// How many there are in all.
    pub count: usize,
}

impl Waiting {
    /// How many subtasks are named at most.
    pub const NAMED_MAX: usize = 5;
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.named.join("`, `"))?;
        match self.count.saturating_sub(self.named.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Why a checkpoint did not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbortReason {
    /// Not every subtask acknowledged in time.
    #[error("it timed out waiting for {waiting}")]
    Expired {
        /// Who was late.
        waiting: Waiting,
    },
    /// A subtask could not take part.
    #[error("`{subtask}` declined: {reason}")]
    Declined {
        /// The subtask by uid and index.
        subtask: String,
        /// Its reason.
        reason: DeclineReason,
    },
    /// A subtask refers to a file that isn't new, and isn't its own in the checkpoint that this one
    /// rests on.
    #[error("`{subtask}` refers to `{file}`, {}", not_in(*base))]
    UnknownFile {
        /// The subtask by uid and index.
        subtask: String,
        /// The file.
        file: String,
        /// What the checkpoint rests on, if on anything.
        base: Option<CheckpointId>,
    },
    /// A newer checkpoint completed first.
    #[error("`{by}` completed first")]
    Subsumed {
        /// The newer checkpoint.
        by: CheckpointId,
    },
    /// Somebody asked for that.
    #[error("it was aborted on request")]
    Requested,
    /// The folder of a savepoint could not be made.
    #[error("making its folder failed: {cause}")]
    NotPrepared {
        /// Cause, for people.
        cause: String,
    },
    /// The attempt that was taking it failed, was cancelled or is over.
    #[error("its attempt ended")]
    AttemptEnded,
    /// Its metadata was not written.
    #[error("publishing its metadata failed: {cause}")]
    PublishFailed {
        /// Cause, for people.
        cause: String,
    },
    /// Its pointer was not stored.
    #[error("storing its pointer failed: {cause}")]
    StoreFailed {
        /// Cause, for people.
        cause: String,
    },
    /// Nobody knows whether it is durable. Its files are left alone.
    #[error("whether it is durable is unknown: {cause}")]
    OutcomeUnknown {
        /// Cause, for people.
        cause: String,
    },
}

impl AbortReason {
    /// Whether the abort counts against the number of tolerable failures: only what points at a
    /// fault does (Flink's `CheckpointFailureManager`).
    pub fn counts(&self) -> bool {
        match self {
            Self::Expired { .. }
            | Self::UnknownFile { .. }
            | Self::NotPrepared { .. }
            | Self::PublishFailed { .. }
            | Self::StoreFailed { .. } => true,
            Self::Declined { reason, .. } => decline_counts(reason),
            // An unknown outcome fails the attempt by itself.
            Self::Subsumed { .. }
            | Self::Requested
            | Self::AttemptEnded
            | Self::OutcomeUnknown { .. } => false,
        }
    }
}

fn not_in(base: Option<CheckpointId>) -> String {
    match base {
        Some(base) => format!("which is neither new nor part of its state in `{base}`"),
        None => "which is not new, though the checkpoint rests on no other".to_owned(),
    }
}

/// Whether a decline points at a fault, rather than at a checkpoint that came at a bad moment.
pub(crate) fn decline_counts(reason: &DeclineReason) -> bool {
    match reason {
        DeclineReason::SnapshotFailed { .. } | DeclineReason::WriteFailed { .. } => true,
        DeclineReason::NotReady
        | DeclineReason::Superseded { .. }
        | DeclineReason::SubsumedByBarrier { .. }
        | DeclineReason::CancelledUpstream => false,
    }
}

/// Why a requested snapshot is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TriggerRefusal {
    /// Not every subtask runs.
    #[error("not every subtask of the job is running")]
    NotRunning,
    /// The job is over.
    #[error("the job has ended")]
    Ended,
    /// The same is under way or waiting already: a job is stopped once.
    #[error("the job is being stopped with a savepoint already")]
    AlreadyQueued,
    /// Snapshots are triggered one after the other.
    #[error("`{savepoint}` is being triggered")]
    TriggerInProgress {
        /// The savepoint whose folder is being made.
        savepoint: CheckpointId,
    },
    /// The queue is full.
    #[error("`{queued}` requests are waiting already, the most that may")]
    TooManyRequests {
        /// How many wait.
        queued: usize,
    },
    /// As many checkpoints as may be are under way.
    #[error("`{pending}` checkpoints are under way, the most that may")]
    TooManyConcurrent {
        /// How many there are.
        pending: usize,
    },
    /// More checkpoints are being deleted than may be under way at once.
    #[error("`{deleting}` checkpoints are being deleted, and storage doesn't keep up")]
    TooManyDeleting {
        /// How many there are.
        deleting: usize,
    },
    /// The last completion is too recent.
    #[error("the minimum pause after the last checkpoint has {left:?} to go")]
    MinPause {
        /// Time until it is over.
        left: Duration,
    },
    /// Periodic checkpoints are off.
    #[error("periodic checkpoints are off")]
    PeriodicOff,
    /// It waited too long for its turn.
    #[error("it waited longer than the checkpoint timeout to be triggered")]
    Expired,
    /// Nobody said where the savepoint is to go.
    #[error(
        "there is no folder for the savepoint; name one in the request, or set --savepoint-dir"
    )]
    NoSavepointDirectory,
    /// The format isn't one for checkpoints.
    #[error("a checkpoint can't be taken in the canonical format; take a savepoint")]
    Format,
    /// No checkpoint or savepoint with this id is under way.
    #[error("`{checkpoint}` is not under way")]
    NotPending {
        /// What was to be aborted.
        checkpoint: CheckpointId,
    },
    /// No id could be reserved.
    #[error("no checkpoint id could be reserved: {cause}")]
    NoId {
        /// Cause, for people.
        cause: String,
    },
}

/// A durable write or read, as a failure names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageStep {
    /// Reserving an attempt number.
    ReserveAttempt,
    /// Reserving checkpoint ids.
    ReserveIds,
    /// Publishing the metadata of a checkpoint.
    PublishMetadata(CheckpointId),
    /// Storing the pointer to a checkpoint.
    StorePointer(CheckpointId),
    /// Reading the completed-checkpoint store.
    RecoverCompleted,
    /// Marking the job as finished.
    MarkFinished,
}

impl fmt::Display for StorageStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReserveAttempt => f.write_str("reserving an attempt number"),
            Self::ReserveIds => f.write_str("reserving checkpoint ids"),
            Self::PublishMetadata(id) => write!(f, "publishing the metadata of `{id}`"),
            Self::StorePointer(id) => write!(f, "storing the pointer to `{id}`"),
            Self::RecoverCompleted => f.write_str("reading the completed-checkpoint store"),
            Self::MarkFinished => f.write_str("marking the job as finished"),
        }
    }
}

/// Why an attempt can't go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FailureReason {
    /// A subtask failed.
    #[error("subtask {index} of operator `{operator}` failed: {cause}")]
    Subtask {
        /// Its operator.
        operator: OperatorUid,
        /// Its index.
        index: u32,
        /// The cause with all its own causes.
        cause: String,
    },
    /// Something of the attempt failed that belongs to no subtask.
    #[error("{cause}")]
    Attempt {
        /// The cause with all its own causes.
        cause: String,
    },
    /// The attempt could not be launched.
    #[error("launching the attempt failed: {cause}")]
    Launch {
        /// The cause with all its own causes.
        cause: String,
    },
    /// All of the attempt stopped, and nobody said why.
    #[error("the attempt stopped without a report")]
    StoppedSilently,
    /// More checkpoints in a row failed than are tolerable.
    #[error(
        "more checkpoints failed in a row (`{failed}`) than are tolerable (`{tolerable}`); the \
         last failure: {last}"
    )]
    Checkpoints {
        /// How many failed since the last that completed.
        failed: u32,
        /// How many may fail.
        tolerable: u32,
        /// What happened to the last one.
        last: String,
    },
    /// Stopping with a savepoint came to nothing after sources had stopped: only a restart makes
    /// them go on.
    #[error("stopping with `{savepoint}` failed: {cause}")]
    StopFailed {
        /// The savepoint.
        savepoint: CheckpointId,
        /// Why.
        cause: AbortReason,
    },
    /// Storage failed where the job can't go on without it, or left a write in doubt.
    #[error("{step} failed: {cause}")]
    Storage {
        /// What was attempted.
        step: StorageStep,
        /// Cause, for people.
        cause: String,
    },
    /// The latest checkpoint doesn't fit the job.
    #[error("the job can't be restored: {cause}")]
    Restore {
        /// What doesn't fit.
        cause: RestoreError,
    },
}

/// Why a job failed for good.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFailure {
    /// The attempt that failed, if one was under way.
    pub attempt: Option<AttemptNumber>,
    /// Why it failed.
    pub reason: FailureReason,
    /// How many restarts came before.
    pub restarts: u64,
    /// The restart strategy, in words.
    pub strategy: String,
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(attempt) = self.attempt {
            write!(f, "{attempt}: ")?;
        }
        let restarts = self.restarts;
        write!(
            f,
            "{}; after {restarts} restart{} ",
            self.reason,
            plural(restarts)
        )?;
        write!(f, "the restart strategy ({}) gives up", self.strategy)
    }
}

impl std::error::Error for JobFailure {}

/// The ending of a noun that is counted.
pub(crate) fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Why a job is run larger or smaller than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RescaleReason {
    /// Somebody asked for it.
    Requested,
    /// The number of slots has changed.
    Slots,
    /// Somebody asked for it before this coordinator was there.
    Recorded,
    /// No attempt ran at another parallelism.
    DidNotRun,
}

impl fmt::Display for RescaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "on request",
            Self::Slots => "for the slots that there are",
            Self::Recorded => "as it was rescaled before",
            Self::DidNotRun => "since no attempt ran",
        })
    }
}

/// Why a job was not rescaled. It runs on as it was, unless it has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RescaleRefusal {
    /// Nothing can run in no subtasks.
    #[error("a parallelism is at least `1`")]
    Zero,
    /// Not every subtask runs.
    #[error("not every subtask of the job is running")]
    NotRunning,
    /// The job is over.
    #[error("the job has ended")]
    Ended,
    /// The job is being stopped.
    #[error("the job is being stopped with a savepoint")]
    Stopping,
    /// One after the other.
    #[error("the job is being rescaled already")]
    AlreadyRescaling,
    /// The job would stand still until there are more.
    #[error("that needs `{needed}` slots, and there are `{slots}`; start more TaskManagers first")]
    TooFewSlots {
        /// How many workers there would be.
        needed: u32,
        /// How many find room.
        slots: u32,
    },
    /// The job, or its state, can't have this parallelism.
    #[error("the job can't have this parallelism: {cause}")]
    Unfit {
        /// Why, with all its own causes, for people.
        cause: String,
    },
    /// The job goes back to where it was.
    #[error("the attempt failed before all its subtasks ran; the job goes back")]
    DidNotRun,
    /// There is no checkpoint to go on from.
    #[error("there was no checkpoint to go on from: {cause}")]
    NoCheckpoint {
        /// Why, for people.
        cause: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause() -> String {
        "disk full".to_owned()
    }

    fn declined(reason: DeclineReason) -> AbortReason {
        let subtask = "map[0]".to_owned();
        AbortReason::Declined { subtask, reason }
    }

    // FM-05: each reason that a checkpoint can end for, once.
    #[test]
    fn what_points_at_a_fault_counts_and_nothing_else() {
        let waiting = Waiting {
            named: vec!["map[0]".to_owned()],
            count: 1,
        };
        let (latest, newer, by) = (CheckpointId(9), CheckpointId(9), CheckpointId(9));
        let count = [
            AbortReason::Expired { waiting },
            AbortReason::NotPrepared { cause: cause() },
            AbortReason::PublishFailed { cause: cause() },
            AbortReason::StoreFailed { cause: cause() },
            declined(DeclineReason::SnapshotFailed { cause: cause() }),
            declined(DeclineReason::WriteFailed { cause: cause() }),
        ];
        let do_not = [
            AbortReason::Subsumed { by },
            AbortReason::Requested,
            AbortReason::AttemptEnded,
            AbortReason::OutcomeUnknown { cause: cause() },
            declined(DeclineReason::NotReady),
            declined(DeclineReason::Superseded { latest }),
            declined(DeclineReason::SubsumedByBarrier { newer }),
            declined(DeclineReason::CancelledUpstream),
        ];
        for reason in count {
            assert!(reason.counts(), "{reason}");
        }
        for reason in do_not {
            assert!(!reason.counts(), "{reason}");
        }
    }

    #[test]
    fn whoever_is_not_named_is_counted() {
        let waiting = |named: &[&str], count| Waiting {
            named: named.iter().map(|&name| name.to_owned()).collect(),
            count,
        };
        assert_eq!(waiting(&["a[0]"], 1).to_string(), "`a[0]`");
        let more = waiting(&["a[0]", "a[1]"], 7).to_string();
        assert_eq!(more, "`a[0]`, `a[1]` and 5 more");
    }
}
