//! The marker that splits each channel into "before" and "after" a checkpoint.

use serde::{Deserialize, Serialize};

use crate::ids::CheckpointId;
use crate::location::SnapshotLocation;
use crate::time::UnixMillis;

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SnapshotKind {
    /// Periodic, owned by the system, subsumed by newer ones.
    Checkpoint,
    /// Taken because every source has ended; the job is over once it completes. Exempt from the
    /// limits on periodic checkpoints.
    Final,
    /// Owned by the user, never subsumed, never deleted by the system. Neither announced nor
    /// committed: the job goes on as if it had not been taken.
    Savepoint,
    /// A savepoint with which the job stops: sources emit nothing after its barrier. It is
    /// announced and committed, since nothing comes after it that could be.
    StopWithSavepoint {
        /// Whether the job ends for good: event time and data come to their ends before the
        /// barrier, so that windows fire and `finish()` runs. Otherwise the savepoint is one to
        /// go on from.
        drain: bool,
    },
}

impl SnapshotKind {
    /// Whether it is the user's, with or without a stop.
    pub fn is_savepoint(self) -> bool {
        matches!(self, Self::Savepoint | Self::StopWithSavepoint { .. })
    }

    /// Whether sources emit nothing after its barrier.
    pub fn stops(self) -> bool {
        matches!(self, Self::StopWithSavepoint { .. })
    }

    /// Whether data comes to its end before the barrier.
    pub fn drains(self) -> bool {
        matches!(self, Self::StopWithSavepoint { drain: true })
    }

    /// Whether subtasks are told when it completes, and commit up to it.
    pub fn commits(self) -> bool {
        self != Self::Savepoint
    }
}

/// What the state files of a snapshot may be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SnapshotFormat {
    /// The same for every state backend, self-contained: what savepoints are made of.
    Canonical,
    /// The backend's own, self-contained.
    Full,
    /// The backend's own; may refer to files of earlier completed checkpoints.
    Incremental,
}

/// How a subtask with several input channels treats data behind a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AlignmentMode {
    /// Channels that delivered the barrier wait for the others: state is exact.
    ExactlyOnce,
    /// Nothing waits; after a restore records may be counted more than once, never less.
    AtLeastOnce,
}

/// In-band marker of one checkpoint. Sources emit it, operators forward it once it has arrived on
/// every input channel; every subtask snapshots exactly what came before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckpointBarrier {
    /// The checkpoint it belongs to.
    pub checkpoint: CheckpointId,
    /// What is being taken.
    pub kind: SnapshotKind,
    /// What its files may be like.
    pub format: SnapshotFormat,
    /// The completed checkpoint that an incremental snapshot may rest on: a subtask may refer to
    /// pieces of its own part of it, and to no other old ones. Their files stay until this
    /// checkpoint is concluded. `None` if the snapshot must be whole by itself, whatever the
    /// format.
    pub base: Option<CheckpointId>,
    /// Where its files go; `None` is the job's own namespace.
    pub location: Option<SnapshotLocation>,
    /// Wall-clock time of the trigger, for statistics only.
    pub created: UnixMillis,
}
