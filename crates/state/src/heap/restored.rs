//! State that a checkpoint held and that nobody has bound yet.
//!
//! It stays as the bytes it was read as, and goes into every snapshot, until a descriptor of its
//! name is bound: a job version that doesn't use a state for a while doesn't lose it.

use std::sync::Arc;

use tidegate_types::KeyGroup;

use super::link::{FrozenPage, FrozenPart, SnapshotLink};
use crate::format::StateMeta;

/// Payload of one chunk, as read. Shared with the snapshots that contain it.
pub(super) struct RawChunk {
    pub(super) key_group: KeyGroup,
    pub(super) entries: u32,
    pub(super) payload: Vec<u8>,
}

impl FrozenPage for RawChunk {
    fn encode(&self, _scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> postcard::Result<u32> {
        out.extend_from_slice(&self.payload);
        Ok(self.entries)
    }
}

/// A restored state that is not bound.
pub(super) struct RestoredState {
    pub(super) meta: StateMeta,
    pub(super) chunks: Vec<Arc<RawChunk>>,
}

impl RestoredState {
    /// Hands the whole state to a snapshot. The bytes are shared, not copied.
    pub(super) fn snapshot(&self, link: &SnapshotLink, state: u32) {
        for chunk in &self.chunks {
            let page: Arc<dyn FrozenPage> = Arc::<RawChunk>::clone(chunk);
            link.send(FrozenPart::Page {
                state,
                key_group: chunk.key_group,
                page,
            });
        }
        link.send(FrozenPart::StateDone);
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.entries as usize).sum()
    }
}
