//! The keyed state of a subtask: how it is restored, and what its snapshots contain.

use std::collections::VecDeque;
use std::io::Cursor;

use tidegate_state::{
    ChainRestore, HeapKeyedBackend, SnapshotProgress, SnapshotTicket, StateKey, TrackedSnapshot,
};
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

/// Snapshots that may be cancelled, at most; older ones have long been decided.
const PENDING_MAX: usize = 256;

/// The states, and what their snapshots may rest on.
pub(crate) struct KeyedState<K> {
    pub(crate) backend: HeapKeyedBackend<K>,
    chains: PieceChains,
    /// Snapshots for which state may still have to be copied, oldest first.
    pending: VecDeque<(CheckpointId, SnapshotTicket)>,
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
            pending: VecDeque::new(),
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
        self.note_pending(barrier.checkpoint, keyed.frozen.ticket());
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

    fn note_pending(&mut self, checkpoint: CheckpointId, ticket: SnapshotTicket) {
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((checkpoint, ticket));
    }

    /// Copies nothing more for the snapshot of a checkpoint that nobody wants any longer, however
    /// long its writer is stuck.
    pub(crate) fn on_aborted(&mut self, checkpoint: CheckpointId) {
        let backend = &mut self.backend;
        self.pending.retain(|(taken, ticket)| {
            let is_aborted = *taken == checkpoint;
            if is_aborted {
                backend.cancel_snapshot(*ticket);
            }
            !is_aborted
        });
    }

    /// Copies some of what pending snapshots still share with the live state.
    pub(crate) fn advance_snapshots(&mut self) -> SnapshotProgress {
        let progress = self.backend.advance_snapshots(PAGES_PER_STEP);
        if progress.is_done() {
            self.pending.clear();
        }
        progress
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

#[cfg(test)]
mod tests {
    use tidegate_state::ValueStateDescriptor;
    use tidegate_types::{MaxParallelism, SnapshotKind, UnixMillis};

    use super::*;

    fn keyed() -> KeyedState<u64> {
        let max = MaxParallelism::derive(1);
        let mut backend = HeapKeyedBackend::new(max, max.range(0, 1).unwrap());
        let descriptor = ValueStateDescriptor::<u64>::new("count");
        let counts = backend.value_state(&descriptor).unwrap();
        for key in 0..100_u64 {
            counts
                .borrow_mut()
                .entry_or_insert_with(key.key_hash(), &key, || 1);
        }
        KeyedState {
            backend,
            chains: PieceChains::default(),
            pending: VecDeque::new(),
            may_rest: true,
        }
    }

    fn freeze(keyed: &mut KeyedState<u64>, checkpoint: u64) -> Snapshot {
        keyed.freeze(&CheckpointBarrier {
            checkpoint: CheckpointId(checkpoint),
            kind: SnapshotKind::Checkpoint,
            format: SnapshotFormat::Full,
            base: None,
            location: None,
            created: UnixMillis(0),
        })
    }

    // SC-02: a writer that is stuck holds on to what it was given.
    #[test]
    fn nothing_is_copied_for_an_aborted_snapshot() {
        let mut keyed = keyed();
        let stuck = [freeze(&mut keyed, 1), freeze(&mut keyed, 2)];
        keyed.on_aborted(CheckpointId(1));
        assert!(keyed.backend.has_pending_snapshots(), "2 is wanted");
        keyed.on_aborted(CheckpointId(3));
        assert!(keyed.backend.has_pending_snapshots(), "3 was never taken");
        keyed.on_aborted(CheckpointId(2));
        assert!(!keyed.backend.has_pending_snapshots());
        drop(stuck);
    }

    #[test]
    fn snapshots_that_are_complete_are_not_remembered() {
        let mut keyed = keyed();
        let complete = freeze(&mut keyed, 1);
        while keyed.advance_snapshots() != SnapshotProgress::Done {}
        assert_eq!(keyed.pending, []);
        drop(complete);
        let pending: Vec<_> = (2..1_000).map(|id| freeze(&mut keyed, id)).collect();
        assert_eq!(keyed.pending.len(), PENDING_MAX);
        drop(pending);
    }
}
