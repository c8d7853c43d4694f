//! What a job tells its driver to do.
//!
//! Actions of one step must be *issued* in the order in which they are given; writes may complete
//! in any order and report back as a [`JobEvent`](crate::JobEvent). Whatever reports back must do
//! so in bounded time, exactly once: a write that takes too long has the outcome
//! [`Unknown`](tidegate_types::message::WriteOutcome::Unknown).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_types::message::Notice;
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, OrderedEnd,
    Owner, RestorePlan, Scale, SnapshotKind, SnapshotLocation,
};

use crate::failure::{AbortReason, FailureReason, JobFailure, RescaleReason, RescaleRefusal};
use crate::request::{Answer, RequestId, Rescaled};

/// Which subtasks of an attempt get a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeTarget {
    /// Every subtask of every enumerator.
    Enumerators,
    /// Every subtask of every operator.
    All,
}

/// How a job came to its end.
#[derive(Clone, Debug, PartialEq)]
pub enum JobEnd {
    /// Every source ended, everything is committed, and the job is marked as finished.
    Finished,
    /// Stopped with a savepoint, everything up to it is committed.
    Stopped {
        /// The savepoint.
        savepoint: CheckpointId,
        /// Its folder.
        location: SnapshotLocation,
        /// Whether all data came to its end first; then the job is marked as finished.
        drained: bool,
    },
    /// Stopped on request.
    Cancelled,
    /// Stopped because its process is to end. All its checkpoints are kept: whoever opens the
    /// namespace next goes on (Flink's `SUSPENDED`).
    Suspended,
    /// The restart strategy gave up, or a restart could not help.
    Failed(Box<JobFailure>),
}

/// What the restart strategy made of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// The next attempt starts this long after the failure, or as soon as this one has stopped.
    RestartAfter(Duration),
    /// The job ends.
    GiveUp,
}

impl fmt::Display for RestartDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestartAfter(delay) => write!(f, "restarting after {delay:?}"),
            Self::GiveUp => f.write_str("giving up"),
        }
    }
}

/// News for logs and progress lines. Nothing has to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub enum JobNote {
    /// A checkpoint is durable and has been announced.
    CheckpointCompleted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it was taken for.
        kind: SnapshotKind,
        /// Bytes of state, files and inline, each counted once.
        bytes: u64,
        /// Those of them that were written for this checkpoint.
        new_bytes: u64,
        /// From trigger to stored pointer.
        duration: Duration,
    },
    /// A checkpoint will not complete.
    CheckpointAborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it was meant for.
        kind: SnapshotKind,
        /// Why.
        reason: AbortReason,
    },
    /// No checkpoint could be triggered, since no id could be reserved. Tried again later.
    TriggerFailed {
        /// Cause, for people.
        cause: String,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The attempt, if one was under way.
        attempt: Option<AttemptNumber>,
        /// Why.
        reason: FailureReason,
        /// What happens next.
        decision: RestartDecision,
    },
    /// The next attempt is larger or smaller than the last one.
    Rescaling {
        /// The largest parallelism of the last one.
        from: u32,
        /// The largest parallelism of the next one.
        to: u32,
        /// Why.
        reason: RescaleReason,
    },
    /// Every subtask runs at the new parallelism.
    Rescaled(Rescaled),
    /// The job stays as large as it is.
    NotRescaled {
        /// Why.
        cause: RescaleRefusal,
    },
    /// The job is started with another parallelism than when this was asked for, so it no longer
    /// holds.
    ParallelismForgotten(AskedParallelism),
    /// Whoever waits for the lead may go on with the job although somebody has ended it.
    EndNotRecorded {
        /// Cause, for people.
        cause: String,
    },
    /// Whoever goes on with the job may not know which parallelism somebody asked for.
    ParallelismNotRecorded {
        /// Cause, for people.
        cause: String,
    },
}

/// One thing to do. The driver owns nothing and decides nothing: each action says all.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAction {
    /// Durably reserve an attempt number above all earlier ones, then report
    /// [`AttemptReserved`](crate::JobEvent::AttemptReserved).
    ReserveAttempt,
    /// Start all subtasks of an attempt. Its reports come back as
    /// [`Report`](crate::JobEvent::Report).
    StartAttempt {
        /// Its number.
        attempt: AttemptNumber,
        /// The checkpoint that the plan is made of; `None` starts empty.
        restore: Option<CheckpointId>,
        /// How large it is.
        scale: Scale,
        /// What each subtask starts from.
        plan: Box<RestorePlan>,
    },
    /// Stop all subtasks of an attempt, join or fence them, then report
    /// [`AttemptStopped`](crate::JobEvent::AttemptStopped). Idempotent.
    StopAttempt {
        /// Its number.
        attempt: AttemptNumber,
    },
    /// Send a notice, after all earlier ones of the same attempt.
    Notify {
        /// The attempt it is meant for.
        attempt: AttemptNumber,
        /// What to say.
        notice: Notice,
        /// To whom.
        to: NoticeTarget,
    },
    /// Durably raise the id counter to `up_to` (never lower it), then report
    /// [`IdsReserved`](crate::JobEvent::IdsReserved).
    ReserveIds {
        /// The largest id that may then be used.
        up_to: CheckpointId,
    },
    /// Write the checkpoint's metadata (put if absent, read back, verified), then report
    /// [`MetadataPublished`](crate::JobEvent::MetadataPublished).
    ///
    /// The checkpoint is shared, not copied: with 100 000 subtasks a copy takes tens of
    /// milliseconds, in which no acknowledgement is taken.
    PublishMetadata(Arc<CompletedCheckpoint>),
    /// Add the checkpoint to the completed-checkpoint store, then report
    /// [`PointerStored`](crate::JobEvent::PointerStored).
    StorePointer {
        /// The checkpoint, whose metadata is durable.
        checkpoint: CheckpointId,
        /// The folder it lies in; `None` is the job's own namespace.
        location: Option<SnapshotLocation>,
        /// Who may delete it.
        owner: Owner,
    },
    /// The checkpoint is no longer retained: remove its pointer from the store, then, unless the
    /// user owns it, its metadata and those of its files that aren't spared. Then report
    /// [`Deleted`](crate::JobEvent::Deleted); what can't be deleted is left for a sweep. If an
    /// older checkpoint is still listed, since its pointer couldn't be removed, files that were
    /// written for neither this nor a newer one are left to a sweep, too. Idempotent: a checkpoint
    /// whose files were needed for a while is dropped once more, with fewer of them spared.
    DropCompleted {
        /// The checkpoint.
        checkpoint: Box<CompletedCheckpoint>,
        /// Files that something else refers to.
        spared: Vec<FileHandle>,
    },
    /// The job is over and none of its completed checkpoints outlives it: durably note that nothing
    /// up to the last of these is ever restored, and only then drop them all, ascending, as
    /// [`DropCompleted`](Self::DropCompleted) does; a file goes with the last that refers to it. If
    /// the note can't be made, drop none: an older one would be taken for the latest. No report:
    /// [`End`](Self::End) follows.
    DiscardHistory(Vec<CompletedCheckpoint>),
    /// Delete files that belong to no checkpoint any more, then report
    /// [`Deleted`](crate::JobEvent::Deleted). Idempotent.
    DiscardFiles {
        /// The checkpoint they were written for.
        checkpoint: CheckpointId,
        /// The folder of a savepoint, to be removed once it is empty; `None` is the job's own
        /// namespace.
        location: Option<SnapshotLocation>,
        /// The files.
        files: Vec<FileHandle>,
        /// Whether to delete the checkpoint's metadata (first), whole or partial.
        metadata: bool,
    },
    /// Make the folder of a savepoint, which must not exist, then report
    /// [`SavepointPrepared`](crate::JobEvent::SavepointPrepared). If nothing is written to it in
    /// the end, [`DiscardFiles`](Self::DiscardFiles) follows.
    PrepareSavepoint {
        /// The savepoint.
        checkpoint: CheckpointId,
        /// Its folder.
        location: SnapshotLocation,
    },
    /// Read the completed-checkpoint store anew, since the outcome of a write to it is unknown,
    /// then report [`Recovered`](crate::JobEvent::Recovered). Reading settles the doubt: what isn't
    /// listed now must never be listed later. A store whose writes can outlive their call has to
    /// repeat or fence them first, or two attempts publish the same records.
    RecoverCompleted,
    /// Durably mark the job as finished with this as its last checkpoint, then report
    /// [`MarkedFinished`](crate::JobEvent::MarkedFinished). Idempotent.
    MarkFinished {
        /// The last completed checkpoint.
        checkpoint: CheckpointId,
    },
    /// Durably record the parallelism that somebody asked for, instead of what was recorded before;
    /// `None` removes the record. Then report
    /// [`ParallelismRecorded`](crate::JobEvent::ParallelismRecorded). Idempotent.
    RecordParallelism {
        /// What was asked for, and what it replaces.
        asked: Option<AskedParallelism>,
    },
    /// Durably record that somebody has ended the job, so that nobody goes on with it who wasn't
    /// told to, and remove the parallelism that was asked for. Then report
    /// [`EndRecorded`](crate::JobEvent::EndRecorded). Idempotent.
    RecordEnd {
        /// How it was ended.
        end: OrderedEnd,
    },
    /// The answer to a [`Requested`](crate::JobEvent::Requested).
    Answer {
        /// Which.
        request: RequestId,
        /// What became of it.
        answer: Box<Answer>,
    },
    /// For logs and progress lines.
    Note(JobNote),
    /// The job is over: complete what has been issued, then leave the loop. Always the last.
    End(JobEnd),
}
