//! The marker that splits each channel into "before" and "after" a checkpoint.

use serde::{Deserialize, Serialize};

use crate::ids::CheckpointId;
use crate::time::UnixMillis;

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SnapshotKind {
    /// Periodic, owned by the system, subsumed by newer ones.
    Checkpoint,
    /// Taken because every source has ended; the job is over once it completes. Exempt from the
    /// limits on periodic checkpoints.
    Final,
    /// Owned by the user, never subsumed, never deleted by the system.
    Savepoint,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckpointBarrier {
    /// The checkpoint it belongs to.
    pub checkpoint: CheckpointId,
    /// What is being taken.
    pub kind: SnapshotKind,
    /// Wall-clock time of the trigger, for statistics only.
    pub created: UnixMillis,
}
