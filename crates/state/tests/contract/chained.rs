//! The heap backend, with snapshots of what has changed since the latest one that is complete.

use std::collections::BTreeMap;
use std::io::Cursor;

use tidegate_state::{
    FrozenKeyedState, HeapKeyedBackend, StateDescriptor, StateError, StateKey, TrackedSnapshot,
};
use tidegate_types::{CheckpointId, KeyGroupRange, MaxParallelism};

use crate::under_test::{BackendUnderTest, Pieces};

#[path = "kinds.rs"]
mod kinds;
#[path = "model.rs"]
mod model;
#[path = "namespaces.rs"]
mod namespaces;
#[path = "timers.rs"]
mod timers;

/// The backend under test, and the pieces of its complete snapshots.
struct Backend<K> {
    heap: HeapKeyedBackend<K>,
    last: u64,
    complete: BTreeMap<CheckpointId, Pieces>,
}

/// A snapshot that may rest on another.
struct Pending {
    frozen: FrozenKeyedState,
    checkpoint: CheckpointId,
    base: Option<CheckpointId>,
}

impl<K: StateKey> BackendUnderTest<K> for Backend<K> {
    type Pending = Pending;

    fn make(max: MaxParallelism, key_groups: KeyGroupRange) -> Self {
        Backend {
            heap: HeapKeyedBackend::new(max, key_groups),
            last: 0,
            complete: BTreeMap::new(),
        }
    }

    fn bind_within<N: StateKey, D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, N>, StateError> {
        self.heap.bind_within::<N, D>(descriptor)
    }

    fn entries(&self) -> usize {
        self.heap.entries()
    }

    fn begin_snapshot(&mut self) -> Pending {
        self.last += 1;
        let checkpoint = CheckpointId(self.last);
        let base = self.complete.keys().next_back().copied();
        let frozen = self.heap.freeze_tracked(&TrackedSnapshot {
            checkpoint,
            base,
            whole: false,
        });
        Pending {
            frozen,
            checkpoint,
            base,
        }
    }

    fn advance(&mut self, budget: usize) {
        self.heap.advance_snapshots(budget);
    }

    fn cancel(&mut self, pending: Pending) {
        self.heap.cancel_snapshot(pending.frozen.ticket());
        match pending.frozen.write_to(&mut Vec::new()) {
            Ok(_) | Err(StateError::SnapshotCancelled { .. }) => {}
            Err(other) => panic!("unexpected: {other}"),
        }
    }

    fn complete(&mut self, pending: Pending) -> Pieces {
        self.heap.finish_snapshots();
        let mut pieces = match pending.base {
            Some(base) => self.complete[&base].clone(),
            None => Pieces::new(),
        };
        let mut piece = Vec::new();
        pending.frozen.write_to(&mut piece).unwrap();
        pieces.push(piece);
        self.complete.insert(pending.checkpoint, pieces.clone());
        pieces
    }

    fn restore(&mut self, pieces: &Pieces) -> Result<(), StateError> {
        let mut chain = self.heap.restore_chain();
        for piece in pieces {
            chain.add_piece("piece", &mut Cursor::new(piece))?;
        }
        Ok(())
    }
}
