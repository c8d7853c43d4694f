//! What the driver tells a job: time, reports of subtasks, and outcomes of earlier actions.
//!
//! Stale and duplicate events are normal and ignored; no event, in any order, makes a job panic.

use tidegate_types::message::{AddressedReport, WriteOutcome};
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, Millis, UnixMillis,
};

use crate::request::{Request, RequestId};

/// Both readings of the clock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Decides everything. A reading below an earlier one counts as the earlier one.
    pub monotonic: Millis,
    /// Stamped on checkpoints for people to read. May jump; nothing depends on it.
    pub wall: UnixMillis,
}

/// What is durable about a job, besides its completed checkpoints, when its coordinator starts.
/// The default stands for a new namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableFacts {
    /// The largest checkpoint id ever reserved, or found in the namespace in whatever form. Ids
    /// start above it.
    pub checkpoint_max: CheckpointId,
    /// The largest attempt number ever reserved or found in the namespace. Attempts start above.
    pub attempt_max: AttemptNumber,
    /// The parallelism that somebody asked for, if one is recorded.
    pub asked: Option<AskedParallelism>,
}

impl Default for DurableFacts {
    fn default() -> Self {
        DurableFacts {
            checkpoint_max: CheckpointId::NONE,
            attempt_max: AttemptNumber(0),
            asked: None,
        }
    }
}

/// Everything a job goes on from. The default stands for a new namespace.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Recovery {
    /// What the completed-checkpoint store lists, in any order.
    pub completed: Vec<CompletedCheckpoint>,
    /// What to restore as long as nothing has completed in the namespace: a savepoint, or a
    /// checkpoint of another job, that stays the user's (Flink's no-claim). One that was claimed
    /// is listed in the store instead.
    pub origin: Option<CompletedCheckpoint>,
    /// What else is durable.
    pub facts: DurableFacts,
}

/// One piece of news for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// The driver is ready to run the first attempt. Later ones are ignored.
    Start,
    /// Nothing but time has passed.
    Tick,
    /// A subtask has something to say.
    Report(AddressedReport),
    /// Outcome of [`ReserveAttempt`](crate::JobAction::ReserveAttempt).
    AttemptReserved {
        /// The number that was reserved; above every earlier one. Without meaning unless the
        /// outcome is [`WriteOutcome::Done`].
        attempt: AttemptNumber,
        /// Whether it is durable.
        outcome: WriteOutcome,
    },
    /// [`StartAttempt`](crate::JobAction::StartAttempt) failed before or while launching. Parts of
    /// the attempt may run: a [`StopAttempt`](crate::JobAction::StopAttempt) follows all the same.
    AttemptLaunchFailed {
        /// The attempt.
        attempt: AttemptNumber,
        /// Cause with all its own causes, for people.
        cause: String,
    },
    /// Every thread and process of the attempt has been joined or fenced; it can write nothing
    /// more. Also sent when that happens without a [`StopAttempt`](crate::JobAction::StopAttempt).
    AttemptStopped {
        /// The attempt.
        attempt: AttemptNumber,
    },
    /// Outcome of [`ReserveIds`](crate::JobAction::ReserveIds).
    IdsReserved {
        /// The bound that was asked for.
        up_to: CheckpointId,
        /// Whether it is durable.
        outcome: WriteOutcome,
    },
    /// Outcome of [`PublishMetadata`](crate::JobAction::PublishMetadata).
    MetadataPublished {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Whether its metadata is durable, read back and verified.
        outcome: WriteOutcome,
    },
    /// Outcome of [`StorePointer`](crate::JobAction::StorePointer).
    PointerStored {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Whether the completed-checkpoint store lists it.
        outcome: WriteOutcome,
    },
    /// Outcome of [`RecoverCompleted`](crate::JobAction::RecoverCompleted).
    Recovered {
        /// What the completed-checkpoint store lists, ascending by id, or why it can't be read
        /// (cause with all its own causes, for people).
        completed: Result<Vec<CompletedCheckpoint>, String>,
    },
    /// Outcome of [`MarkFinished`](crate::JobAction::MarkFinished).
    MarkedFinished {
        /// Whether the marker is durable.
        outcome: WriteOutcome,
    },
    /// Outcome of [`RecordEnd`](crate::JobAction::RecordEnd).
    EndRecorded {
        /// Whether it is durable.
        outcome: WriteOutcome,
    },
    /// Outcome of [`RecordParallelism`](crate::JobAction::RecordParallelism).
    ParallelismRecorded {
        /// Whether it is durable.
        outcome: WriteOutcome,
    },
    /// Outcome of [`PrepareSavepoint`](crate::JobAction::PrepareSavepoint).
    SavepointPrepared {
        /// The savepoint.
        checkpoint: CheckpointId,
        /// Whether its folder is there and can be written to.
        outcome: WriteOutcome,
    },
    /// A [`DropCompleted`](crate::JobAction::DropCompleted) or
    /// [`DiscardFiles`](crate::JobAction::DiscardFiles) has ended, whatever it achieved: exactly
    /// one of these for each.
    Deleted {
        /// The checkpoint whose files were to be deleted.
        checkpoint: CheckpointId,
    },
    /// Somebody asks for something. Answered exactly once, by
    /// [`Answer`](crate::JobAction::Answer), before the job ends.
    Requested {
        /// Never used before.
        request: RequestId,
        /// What is wanted.
        what: Request,
    },
    /// Somebody asks to stop the job and keep its retained checkpoints.
    CancelRequested,
    /// The process is to end: the job stops here, and goes on wherever it is started next.
    SuspendRequested,
    /// There is room for so many workers, whether they are in use or not. Never said where room
    /// isn't limited.
    Slots {
        /// The most workers that an attempt can have.
        slots: u32,
    },
}
