//! What the coordinator tells the subtasks of an attempt, and what they report back.
//!
//! Messages of one attempt travel in order on one stream per process; the loss of that stream ends
//! the attempt. Every message is idempotent by checkpoint id, and ids only grow. Whoever receives a
//! message of another attempt ignores it.

use std::ops::AddAssign;
use std::time::Duration;

use crate::barrier::CheckpointBarrier;
use crate::checkpoint::SubtaskState;
use crate::ids::{AttemptNumber, CheckpointId, SubtaskId};

/// From the coordinator to subtasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// To enumerators only: emit this barrier.
    Trigger(CheckpointBarrier),
    /// To every subtask: this checkpoint is durable, commit every transaction up to it.
    Completed {
        /// The completed checkpoint.
        checkpoint: CheckpointId,
    },
    /// To every subtask: this checkpoint will not complete. Releases alignments, stops
    /// asynchronous work; rolls no data back.
    Aborted {
        /// The aborted checkpoint.
        checkpoint: CheckpointId,
        /// The latest checkpoint that has completed in this job: whoever has missed the news of it
        /// can prune what it kept for it. `NONE` if there is none.
        latest_completed: CheckpointId,
    },
}

/// Why a subtask can't take part in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// The subtask isn't running yet or is being closed.
    NotReady,
    /// The source has already emitted a barrier with this or a larger id.
    Superseded {
        /// The largest id it has emitted.
        latest: CheckpointId,
    },
    /// A barrier of a newer checkpoint arrived while this one was being aligned.
    SubsumedByBarrier {
        /// The newer checkpoint.
        newer: CheckpointId,
    },
    /// A cancel marker arrived in-band.
    CancelledUpstream,
    /// The synchronous part of the snapshot failed.
    SnapshotFailed {
        /// Cause, for people.
        cause: String,
    },
    /// Writing the state failed (a full disk, say).
    WriteFailed {
        /// Cause, for people.
        cause: String,
    },
}

impl std::fmt::Display for DeclineReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotReady => f.write_str("the subtask was not running"),
            Self::Superseded { latest } => write!(f, "the source had already emitted `{latest}`"),
            Self::SubsumedByBarrier { newer } => write!(f, "the barrier of `{newer}` came first"),
            Self::CancelledUpstream => f.write_str("an upstream subtask could not take it"),
            Self::SnapshotFailed { cause } => write!(f, "taking the snapshot failed: {cause}"),
            Self::WriteFailed { cause } => write!(f, "writing the state failed: {cause}"),
        }
    }
}

/// How a subtask spent its part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SnapshotMetrics {
    /// From the trigger to the first barrier at the subtask, by wall clocks: how long the barrier
    /// was behind data upstream.
    pub start_delay: Duration,
    /// From the first barrier to the last, over the input channels.
    pub alignment: Duration,
    /// Bytes of records processed between the first barrier and the last.
    pub alignment_bytes: u64,
    /// How long the processing thread stood still for the snapshot.
    pub sync: Duration,
    /// How long writing took, beside the processing.
    pub write: Duration,
}

/// Where a failure began. One process that fails takes all others of its attempt along; of their
/// reports, this tells the one that says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureOrigin {
    /// Where it was reported: code of the job, its state, or the runtime.
    Here,
    /// In another process of the attempt, which has gone, can't be reached, or has ended before
    /// its time. Whoever knows why that one went should be believed instead.
    Peer {
        /// Index of that process in the attempt.
        process: u32,
    },
}

/// Why a subtask's attempt can't go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskFailure {
    /// The subtask, if it is known which one.
    pub subtask: Option<SubtaskId>,
    /// Where it began.
    pub origin: FailureOrigin,
    /// The cause with all its own causes, for people.
    pub cause: String,
}

impl SubtaskFailure {
    /// A failure that began where it is reported.
    pub fn here(subtask: Option<SubtaskId>, cause: impl Into<String>) -> Self {
        SubtaskFailure {
            subtask,
            origin: FailureOrigin::Here,
            cause: cause.into(),
        }
    }
}

/// From a subtask to the coordinator; travels as an [`AddressedReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The subtask has restored its state and runs.
    Running {
        /// The reporter.
        subtask: SubtaskId,
    },
    /// The subtask's part of a checkpoint is durable.
    Acknowledged {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The reporter.
        subtask: SubtaskId,
        /// Its state; the coordinator now owns the files in it.
        state: SubtaskState,
        /// How it spent its time.
        metrics: SnapshotMetrics,
    },
    /// The subtask can't take part.
    Declined {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The reporter.
        subtask: SubtaskId,
        /// Why not.
        reason: DeclineReason,
    },
    /// A reader has read the last record it will ever read.
    SourceEnded {
        /// The reporter.
        subtask: SubtaskId,
    },
    /// A committing sink has published every transaction up to this checkpoint.
    Committed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The reporter.
        subtask: SubtaskId,
    },
    /// All subtasks of a process run, and were restored from this.
    Restored(RestoredFiles),
    /// The attempt can't go on.
    Failed(SubtaskFailure),
}

/// State files that subtasks were restored from, each as often as one has opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredFiles {
    /// How many.
    pub files: u64,
    /// Their bytes, also if not all of a file was needed.
    pub bytes: u64,
    /// How many of the files were copies on a disk of the machine that needed them.
    pub local_files: u64,
    /// The bytes of those.
    pub local_bytes: u64,
}

impl AddAssign for RestoredFiles {
    fn add_assign(&mut self, other: RestoredFiles) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.local_files = self.local_files.saturating_add(other.local_files);
        self.local_bytes = self.local_bytes.saturating_add(other.local_bytes);
    }
}

/// A report and the attempt it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressedReport {
    /// Which run of the job sent it.
    pub attempt: AttemptNumber,
    /// What happened.
    pub report: Report,
}

/// Outcome of a durable write, as far as the writer can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is durable.
    Done,
    /// It certainly didn't happen and never will.
    NotDone {
        /// Cause, for people.
        cause: String,
    },
    /// It may or may not have happened, or may still happen; reading back didn't settle it.
    Unknown {
        /// Cause, for people.
        cause: String,
    },
}
