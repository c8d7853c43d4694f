//! The connection between the tables, which copy pages out, and the frozen side, which writes them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use tidegate_types::KeyGroup;

use crate::descriptor::StateValue;
use crate::format::encode_entry;
use crate::key::StateKey;

/// Identifies one snapshot of one backend, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotTicket(pub(super) u64);

/// Pages that may wait for a writer before background copying pauses. Copies forced by writes to
/// the state are not held back by it.
const QUEUED_PAGES_MAX: usize = 256;

/// Something that becomes the payload of a chunk.
pub(super) trait FrozenPage: Send + Sync {
    /// Appends the payload to `out`, using `scratch`, and returns the number of entries.
    fn encode(&self, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> postcard::Result<u32>;
}

/// Cloned entries of one page. The lock is never contended for long: it stands in for a `Sync`
/// bound on keys and values, since snapshots that are pending together share a page.
pub(super) struct EntryPage<K, V>(pub(super) Mutex<Vec<(K, V)>>);

impl<K: StateKey, V: StateValue> FrozenPage for EntryPage<K, V> {
    fn encode(&self, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> postcard::Result<u32> {
        // A poisoned lock only means that another snapshot's serialiser panicked.
        let entries = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        for entry in entries.iter() {
            encode_entry(entry, scratch, out)?;
        }
        Ok(u32::try_from(entries.len()).expect("a page has fewer than 2^32 buckets"))
    }
}

/// What tables tell the frozen side.
pub(super) enum FrozenPart {
    /// Some entries of a state.
    Page {
        state: u32,
        key_group: KeyGroup,
        page: Arc<dyn FrozenPage>,
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
        self.shared.queued.load(Ordering::Relaxed) >= QUEUED_PAGES_MAX
    }
}

/// The frozen side's end. Dropping it abandons the snapshot and frees what is queued.
pub(super) struct SnapshotReceiver {
    parts: Receiver<FrozenPart>,
    shared: Arc<Shared>,
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
pub(super) fn snapshot_link(ticket: SnapshotTicket) -> (SnapshotLink, SnapshotReceiver) {
    let (sender, receiver) = channel();
    let shared = Arc::new(Shared::default());
    (
        SnapshotLink {
            ticket,
            parts: sender,
            shared: Arc::clone(&shared),
        },
        SnapshotReceiver {
            parts: receiver,
            shared,
        },
    )
}
