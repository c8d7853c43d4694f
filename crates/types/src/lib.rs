//! The words that every part of Tidegate shares: ids, the job graph, key groups, barriers, the
//! messages between coordinator and subtasks, and what a checkpoint consists of.
//!
//! Nothing here performs IO, reads a clock or starts a thread. `coordinator` and `runtime` never
//! depend on each other; they meet as the messages defined in [`message`].

mod barrier;
mod error_chain;
mod ids;
mod key_group;
mod key_hash;
mod location;
mod ordered_end;
mod restore;
mod scaling;
mod time;

pub mod checkpoint;
pub mod graph;
pub mod message;

pub use barrier::{AlignmentMode, CheckpointBarrier, SnapshotFormat, SnapshotKind};
pub use checkpoint::{
    CompletedCheckpoint, FileHandle, KeyedPiece, KeyedStateHandle, ListState, OperatorCheckpoint,
    Owner, Redistribution, SubtaskState,
};
pub use error_chain::ErrorChain;
pub use ids::{
    AttemptNumber, CheckpointId, JobId, LeaderEpoch, OperatorId, OperatorUid, ParseJobIdError,
    SubtaskId,
};
pub use key_group::{KeyGroup, KeyGroupError, KeyGroupRange, MaxParallelism};
pub use key_hash::{HASH_ID, hash_bytes, hash_each};
pub use location::SnapshotLocation;
pub use ordered_end::OrderedEnd;
pub use restore::{RestoreMode, RestorePart, RestorePlan, SubtaskRestore};
pub use scaling::{AskedParallelism, Scale, Scaling};
pub use time::{EventTime, Millis, UnixMillis};
