//! The connection between the tables, which copy pages out, and the frozen side, which writes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use tidegate_types::KeyGroup;

use super::buffers::BufferPool;
use super::chunks::ChunkBuffers;

/// Identifies one snapshot of one backend, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotTicket(pub(super) u64);

/// Packs that may wait for a writer before background copying pauses. Copies forced by writes to
/// the state are not held back by it.
const QUEUED_PACKS_MAX: usize = 64;

/// Entries of one state, whatever their types.
pub(super) trait FrozenPack: Send + Sync {
    /// Encodes them into chunks; the error names the key group of the entry that failed.
    fn encode(
        &self,
        state: u32,
        chunks: &mut ChunkBuffers,
    ) -> Result<(), (KeyGroup, postcard::Error)>;
}

/// What tables tell the frozen side.
pub(super) enum FrozenPart {
    /// Some entries of a state.
    Pack {
        state: u32,
        pack: Arc<dyn FrozenPack>,
    },
    /// The state is complete.
    StateDone,
}

#[derive(Default)]
struct Shared {
    abandoned: AtomicBool,
    queued: AtomicUsize,
}

/// A table's end. Each table that a snapshot covers has a clone.
#[derive(Clone)]
pub(super) struct SnapshotLink {
    pub(super) ticket: SnapshotTicket,
    parts: Sender<FrozenPart>,
    shared: Arc<Shared>,
    /// For what is encoded.
    pub(super) pool: Arc<BufferPool>,
}

impl SnapshotLink {
    pub(super) fn send(&self, part: FrozenPart) {
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        // An abandoned snapshot needs nothing any more.
        let _ = self.parts.send(part);
    }

    /// Whether nobody wants the snapshot any longer.
    pub(super) fn is_abandoned(&self) -> bool {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// Whether the writer has much to catch up with.
    pub(super) fn is_writer_behind(&self) -> bool {
        self.shared.queued.load(Ordering::Relaxed) >= QUEUED_PACKS_MAX
    }
}

/// The frozen side's end. Dropping it abandons the snapshot and frees what is queued.
pub(super) struct SnapshotReceiver {
    parts: Receiver<FrozenPart>,
    shared: Arc<Shared>,
    /// For what is encoded.
    pub(super) pool: Arc<BufferPool>,
}

impl SnapshotReceiver {
    /// Waits for the next part; `None` if every table's end is gone.
    pub(super) fn next(&self) -> Option<FrozenPart> {
        let part = self.parts.recv().ok()?;
        self.shared.queued.fetch_sub(1, Ordering::Relaxed);
        Some(part)
    }
}

impl Drop for SnapshotReceiver {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Relaxed);
    }
}

/// Both ends for one snapshot.
pub(super) fn snapshot_link(
    ticket: SnapshotTicket,
    pool: &Arc<BufferPool>,
) -> (SnapshotLink, SnapshotReceiver) {
    let (sender, receiver) = channel();
    let shared = Arc::new(Shared::default());
    let link = SnapshotLink {
        ticket,
        parts: sender,
        shared: Arc::clone(&shared),
        pool: Arc::clone(pool),
    };
    let parts = SnapshotReceiver {
        parts: receiver,
        shared,
        pool: Arc::clone(pool),
    };
    (link, parts)
}
