//! The keyed state of a subtask: how it is restored, and what its snapshots contain.

use std::io::Cursor;

use tidegate_state::{ChainRestore, HeapKeyedBackend, SnapshotProgress, StateKey, TrackedSnapshot};
use tidegate_types::{
    CheckpointBarrier, CheckpointId, KeyedPiece, KeyedStateHandle, SnapshotFormat,
};

use crate::chains::{KeyedSnapshot, PieceChains};
use crate::error::BoxError;
use crate::logic::{Snapshot, SubtaskContext};
use crate::piece::StatePlacement;

/// Pages of state (about 1 KiB each) that are copied for a pending snapshot between two looks
/// at the input: some tens of microseconds.
const PAGES_PER_STEP: usize = 128;

/// The states, and what their snapshots may rest on.
pub(crate) struct KeyedState<K> {
    pub(crate) backend: HeapKeyedBackend<K>,
    chains: PieceChains,
    /// Whether snapshots may consist of changes only. Where all pieces travel in every
    /// acknowledgement, that would save nothing.
    may_rest: bool,
}

impl<K: StateKey> KeyedState<K> {
    /// The state that a keyed subtask starts from.
    ///
    /// # Errors
    /// If it can't be read, or is of something else.
    pub(crate) fn open(context: &SubtaskContext) -> Result<Self, BoxError> {
        let mut backend = HeapKeyedBackend::new(context.max_parallelism, context.key_groups());
        for handle in &context.restore.keyed {
            let mut chain = backend.restore_chain();
            for piece in &handle.pieces {
                restore_piece(&mut chain, piece, handle, context)?;
            }
        }
        Ok(KeyedState {
            backend,
            chains: PieceChains::default(),
            may_rest: matches!(context.placement, StatePlacement::Files { .. }),
        })
    }

    /// Cuts a snapshot for the checkpoint of `barrier`: whole by itself, or what has changed since
    /// the barrier's base.
    pub(crate) fn freeze(&mut self, barrier: &CheckpointBarrier) -> Snapshot {
        let incremental = barrier.format == SnapshotFormat::Incremental && self.may_rest;
        // Once changes are kept track of, later snapshots may rest on a full one, too.
        let tracked = incremental || self.backend.tracks_changes();
        let keyed = if barrier.kind.is_savepoint() || !tracked {
            KeyedSnapshot::apart(self.backend.freeze())
        } else {
            self.freeze_tracked(barrier, incremental)
        };
        Snapshot {
            keyed: keyed.frozen.has_states().then_some(keyed),
            ..Snapshot::default()
        }
    }

    fn freeze_tracked(&mut self, barrier: &CheckpointBarrier, incremental: bool) -> KeyedSnapshot {
        let below = barrier.base.and_then(|base| self.chains.below(base));
        let frozen = self.backend.freeze_tracked(&TrackedSnapshot {
            checkpoint: barrier.checkpoint,
            base: barrier.base,
            whole: !incremental || below.is_none(),
        });
        let below = match frozen.base() {
            Some(_) => below.expect("without pieces of the base the snapshot is whole"),
            None => Vec::new(),
        };
        KeyedSnapshot {
            frozen,
            below,
            pieces: self.chains.insert(barrier.checkpoint),
        }
    }

    /// Copies some of what pending snapshots still share with the live state.
    pub(crate) fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.backend.advance_snapshots(PAGES_PER_STEP)
    }
}

/// Adds what a piece holds of the backend's key groups. Pieces of one handle come in order.
fn restore_piece<K: StateKey>(
    chain: &mut ChainRestore<'_, K>,
    piece: &KeyedPiece,
    of: &KeyedStateHandle,
    context: &SubtaskContext,
) -> Result<(), BoxError> {
    match piece {
        KeyedPiece::File(file) => {
            let mut input = context.files.open(file)?;
            chain.add_piece(&file.name, &mut input)?;
        }
        KeyedPiece::Inline(bytes) => {
            let checkpoint = context.restored.unwrap_or(CheckpointId::NONE);
            let name = format!("_metadata of {checkpoint}, key groups {}", of.key_groups);
            chain.add_piece(&name, &mut Cursor::new(bytes))?;
        }
    }
    Ok(())
}
