//! What a channel can deliver only if its sender, or something in between, is broken.
//!
//! Barriers of one channel arrive in order of their ids, each once, all channels agree on what a
//! checkpoint is for, and nothing follows a close. Late barriers of a checkpoint that is already
//! decided are not corruption; they are ignored.

use tidegate_types::{CheckpointId, SnapshotKind};

use super::ChannelIndex;

/// A channel delivered what no correct sender sends. State can no longer be trusted: the attempt
/// must fail and restart from the last completed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamCorrupt {
    /// The same barrier twice on one channel.
    #[error("`{channel}` delivered the barrier of `{checkpoint}` twice")]
    Repeated {
        /// Where.
        channel: ChannelIndex,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Barriers of one channel out of order.
    #[error("`{channel}` delivered the barrier of `{checkpoint}` after that of `{previous}`")]
    Backwards {
        /// Where.
        channel: ChannelIndex,
        /// The late barrier's checkpoint.
        checkpoint: CheckpointId,
        /// The newest checkpoint whose barrier the channel had delivered before.
        previous: CheckpointId,
    },
    /// A barrier on a channel that had been closed.
    #[error("`{channel}` delivered the barrier of `{checkpoint}` after it was closed")]
    AfterClose {
        /// Where.
        channel: ChannelIndex,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Two channels disagree about what a checkpoint is for.
    #[error(
        "`{channel}` delivered the barrier of `{checkpoint}` as `{kind:?}`, another channel as \
         `{first_kind:?}`"
    )]
    KindMismatch {
        /// Where the second barrier arrived.
        channel: ChannelIndex,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What the second barrier says.
        kind: SnapshotKind,
        /// What the first barrier said.
        first_kind: SnapshotKind,
    },
}
