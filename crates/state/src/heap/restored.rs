//! State that a checkpoint held and that nobody has bound yet.
//!
//! It stays as the bytes it was read as, and goes into every snapshot, until a descriptor of its
//! name is bound: a job version that doesn't use a state for a while doesn't lose it.

use std::sync::Arc;

use tidegate_types::KeyGroup;

use super::chunks::ChunkBuffers;
use super::link::{FrozenPack, FrozenPart, SnapshotLink};
use crate::error::LoadError;
use crate::format::{Entries, StateMeta};

/// Payload of one chunk, as read. Shared with the snapshots that contain it.
pub(super) struct RawChunk {
    pub(super) key_group: KeyGroup,
    pub(super) entries: u32,
    pub(super) payload: Vec<u8>,
}

impl FrozenPack for RawChunk {
    fn encode(
        &self,
        state: u32,
        chunks: &mut ChunkBuffers,
    ) -> Result<(), (KeyGroup, postcard::Error)> {
        let mut chunk = chunks.chunk(state, self.key_group);
        chunk.append_raw(self.entries, &self.payload);
        Ok(())
    }
}

/// A restored state that is not bound.
pub(super) struct RestoredState {
    pub(super) meta: StateMeta,
    pub(super) chunks: Vec<Arc<RawChunk>>,
}

impl RestoredState {
    /// Keeps a chunk. Its entries are walked, not decoded: their types are not known.
    pub(super) fn keep(
        &mut self,
        key_group: KeyGroup,
        entries: u32,
        payload: &[u8],
    ) -> Result<(), LoadError> {
        for entry in Entries::new(payload, entries) {
            entry?;
        }
        let payload = payload.to_vec();
        self.chunks.push(Arc::new(RawChunk {
            key_group,
            entries,
            payload,
        }));
        Ok(())
    }

    /// Hands the whole state to a snapshot. The bytes are shared, not copied.
    pub(super) fn snapshot(&self, link: &SnapshotLink, state: u32) {
        for chunk in &self.chunks {
            let pack: Arc<dyn FrozenPack> = Arc::<RawChunk>::clone(chunk);
            link.send(FrozenPart::Pack { state, pack });
        }
        link.send(FrozenPart::StateDone);
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.entries as usize).sum()
    }
}
