//! A backend as the contract sees it.

use tidegate_state::{StateDescriptor, StateError, StateKey};
use tidegate_types::{KeyGroupRange, MaxParallelism};

/// What a snapshot consists of: files, oldest first.
pub(crate) type Pieces = Vec<Vec<u8>>;

/// A backend and how it takes snapshots.
pub(crate) trait BackendUnderTest<K: StateKey>: Sized {
    /// A snapshot that is not complete yet.
    type Pending;

    /// An empty backend.
    fn make(max: MaxParallelism, key_groups: KeyGroupRange) -> Self;

    /// Binds a state with namespaces.
    fn bind_within<N: StateKey, D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, N>, StateError>;

    /// Binds a state without namespaces.
    fn bind<D: StateDescriptor>(&mut self, descriptor: &D) -> Result<D::Handle<K, ()>, StateError> {
        self.bind_within::<(), D>(descriptor)
    }

    /// Entries over all states.
    fn entries(&self) -> usize;

    /// Cuts a snapshot at this instant.
    fn begin_snapshot(&mut self) -> Self::Pending;

    /// Does some of the work for pending snapshots.
    fn advance(&mut self, budget: usize);

    /// Gives a snapshot up. Whoever writes it must fail, unless all it needs was there before.
    fn cancel(&mut self, pending: Self::Pending);

    /// Does all work for pending snapshots, and writes this one.
    fn complete(&mut self, pending: Self::Pending) -> Pieces;

    /// Adds what a snapshot has of the backend's key groups.
    fn restore(&mut self, pieces: &Pieces) -> Result<(), StateError>;

    /// A snapshot of this instant.
    fn save(&mut self) -> Pieces {
        let pending = self.begin_snapshot();
        self.complete(pending)
    }
}
