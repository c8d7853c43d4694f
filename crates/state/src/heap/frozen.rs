//! A snapshot on its way to a file.

use std::io::Write;
use std::sync::Arc;

use tidegate_types::CheckpointId;

use super::chunks::ChunkBuffers;
use super::link::{FrozenPart, SnapshotReceiver, SnapshotTicket};
use crate::error::StateError;
use crate::format::{FileIndex, KeyedFileSummary, KeyedFileWriter, PieceKind};

/// The keyed state of a subtask at one instant; goes to the thread that writes it.
///
/// Its pages arrive while the worker goes on; they are owned by whichever side holds them and freed
/// once written. Dropping it abandons the snapshot: the worker stops copying for it.
pub struct FrozenKeyedState {
    pub(super) ticket: SnapshotTicket,
    pub(super) index: FileIndex,
    pub(super) parts: SnapshotReceiver,
}

impl std::fmt::Debug for FrozenKeyedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrozenKeyedState")
            .field("ticket", &self.ticket)
            .field("checkpoint", &self.index.checkpoint)
            .field("base", &self.index.base)
            .field("key_groups", &self.index.key_groups)
            .field("states", &self.index.states)
            .finish_non_exhaustive()
    }
}

impl FrozenKeyedState {
    /// For [`HeapKeyedBackend::cancel_snapshot`](super::HeapKeyedBackend::cancel_snapshot).
    pub fn ticket(&self) -> SnapshotTicket {
        self.ticket
    }

    /// Whether it is whole by itself, or changes the state of [`base`](Self::base).
    pub fn kind(&self) -> PieceKind {
        self.index.kind()
    }

    /// The checkpoint that it changes: a restore needs its pieces first.
    pub fn base(&self) -> Option<CheckpointId> {
        Some(self.index.base).filter(|base| *base != CheckpointId::NONE)
    }

    /// Whether the backend had any state, bound or restored. Without, no file is needed.
    pub fn has_states(&self) -> bool {
        !self.index.states.is_empty()
    }

    /// Writes the file, waiting for pages that the worker has not copied yet. Blocks until the
    /// worker has copied all (see
    /// [`advance_snapshots`](super::HeapKeyedBackend::advance_snapshots)), so it belongs on another
    /// thread. Writes are large and many small; `out` should buffer. It is neither flushed nor
    /// synced here.
    ///
    /// # Errors
    /// [`StateError::Write`] or [`StateError::Serialise`]; [`StateError::SnapshotCancelled`] if the
    /// backend was dropped or cancelled the snapshot. What was written then is to be deleted.
    pub fn write_to(self, out: &mut dyn Write) -> Result<KeyedFileSummary, StateError> {
        let FrozenKeyedState { index, parts, .. } = self;
        let states = index.states.clone();
        let key_groups = index.key_groups;
        let write = |cause| StateError::Write { cause };
        let mut chunks = ChunkBuffers::new(index.kind(), Arc::clone(&parts.pool));
        let mut file = KeyedFileWriter::start(out, index).map_err(write)?;
        let mut states_done = 0;
        while states_done < states.len() {
            match parts.next() {
                Some(FrozenPart::Pack { state, pack }) => {
                    pack.encode(state, &mut chunks)
                        .map_err(|(key_group, cause)| {
                            let name = states[state as usize].name.as_str().into();
                            StateError::Serialise {
                                name,
                                key_group,
                                cause,
                            }
                        })?;
                    chunks.write_full(&mut file).map_err(write)?;
                }
                Some(FrozenPart::StateDone) => states_done += 1,
                None => return Err(StateError::SnapshotCancelled { key_groups }),
            }
        }
        chunks.write_all(&mut file).map_err(write)?;
        file.finish().map_err(write)
    }
}
