//! The heap backend, with full snapshots.

use std::io::Cursor;

use tidegate_state::{FrozenKeyedState, HeapKeyedBackend, StateDescriptor, StateError, StateKey};
use tidegate_types::{KeyGroupRange, MaxParallelism};

use crate::under_test::{BackendUnderTest, Pieces};

#[path = "kinds.rs"]
mod kinds;
#[path = "model.rs"]
mod model;
#[path = "namespaces.rs"]
mod namespaces;
#[path = "timers.rs"]
mod timers;

/// The backend under test.
struct Backend<K>(HeapKeyedBackend<K>);

impl<K: StateKey> BackendUnderTest<K> for Backend<K> {
    type Pending = FrozenKeyedState;

    fn make(max: MaxParallelism, key_groups: KeyGroupRange) -> Self {
        Backend(HeapKeyedBackend::new(max, key_groups))
    }

    fn bind_within<N: StateKey, D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, N>, StateError> {
        self.0.bind_within::<N, D>(descriptor)
    }

    fn entries(&self) -> usize {
        self.0.entries()
    }

    fn begin_snapshot(&mut self) -> FrozenKeyedState {
        self.0.freeze()
    }

    fn advance(&mut self, budget: usize) {
        self.0.advance_snapshots(budget);
    }

    fn cancel(&mut self, pending: FrozenKeyedState) {
        let complete = !self.0.has_pending_snapshots();
        self.0.cancel_snapshot(pending.ticket());
        match pending.write_to(&mut Vec::new()) {
            Err(StateError::SnapshotCancelled { .. }) => assert!(!complete),
            // It may have been complete though another is not.
            written => drop(written.unwrap()),
        }
    }

    fn complete(&mut self, pending: FrozenKeyedState) -> Pieces {
        self.0.finish_snapshots();
        let mut file = Vec::new();
        pending.write_to(&mut file).unwrap();
        vec![file]
    }

    fn restore(&mut self, pieces: &Pieces) -> Result<(), StateError> {
        let [file] = pieces.as_slice() else {
            panic!("a full snapshot is one file");
        };
        self.0.restore_file("file", &mut Cursor::new(file))
    }
}
