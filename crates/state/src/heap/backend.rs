//! All keyed state of one subtask.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_types::{CheckpointId, HASH_ID, KeyGroup, KeyGroupRange, MaxParallelism};

use super::bound::{Bound, BoundState, Table};
use super::buffers::BufferPool;
use super::content::Content;
use super::entry_key::namespace_schema;
use super::frozen::FrozenKeyedState;
use super::link::{SnapshotLink, SnapshotTicket, snapshot_link};
use super::restored::RestoredState;
use super::shards::Shards;
use super::snapshot::SnapshotProgress;
use super::value::ValueState;
use super::windows::{ChangeWindows, Cut, Extent, TrackedSnapshot};
use crate::descriptor::{StateDescriptor, StateValue, ValueStateDescriptor};
use crate::error::{AlreadyBound, RestoredStateMismatch, StateError};
use crate::format::{FileIndex, ReplacedTables, StateMeta};
use crate::key::{StateKey, schema_of};

/// Keyed state in memory: the states of one subtask, over its range of key groups.
///
/// Belongs to the worker thread. Restore first, bind the states, then process; the order of the
/// first two doesn't matter.
pub struct HeapKeyedBackend<K> {
    pub(super) max_parallelism: MaxParallelism,
    pub(super) key_groups: KeyGroupRange,
    /// In the order in which they appeared; a state's position is its index in snapshots.
    pub(super) states: Vec<Slot>,
    next_ticket: u64,
    windows: ChangeWindows,
    /// For what snapshots encode.
    buffers: Arc<BufferPool>,
    key: PhantomData<fn(K)>,
}

/// A state, bound or not.
pub(super) enum Slot {
    Bound(StateMeta, Box<dyn BoundState>),
    Restored(RestoredState),
}

impl Slot {
    pub(super) fn meta(&self) -> &StateMeta {
        match self {
            Slot::Bound(meta, _) => meta,
            Slot::Restored(restored) => &restored.meta,
        }
    }

    fn bound(&self) -> Option<&dyn BoundState> {
        match self {
            Slot::Bound(_, state) => Some(&**state),
            Slot::Restored(_) => None,
        }
    }

    /// Begins a snapshot and returns the key groups, among `own`, that it gets as a whole.
    fn begin_snapshot(
        &mut self,
        link: &SnapshotLink,
        state: u32,
        cut: Cut,
        own: KeyGroupRange,
    ) -> Vec<KeyGroup> {
        match self {
            Slot::Bound(_, bound) => bound.begin_snapshot(link.clone(), state, cut),
            Slot::Restored(restored) => match restored.snapshot(link, state, cut) {
                true => own.iter().collect(),
                false => Vec::new(),
            },
        }
    }

    /// Removes what was restored of some key groups.
    pub(super) fn clear(&mut self, key_groups: KeyGroupRange) {
        match self {
            Slot::Bound(_, bound) => bound.clear(key_groups),
            Slot::Restored(restored) => restored.clear(key_groups),
        }
    }
}

impl<K: StateKey> HeapKeyedBackend<K> {
    /// An empty backend for `key_groups` out of `max_parallelism`.
    ///
    /// # Panics
    /// If the range is empty or exceeds the number of key groups.
    pub fn new(max_parallelism: MaxParallelism, key_groups: KeyGroupRange) -> Self {
        assert!(
            key_groups.start <= key_groups.end,
            "key groups `{key_groups}` are a range"
        );
        assert!(
            u32::from(key_groups.end) < max_parallelism.get(),
            "key groups `{key_groups}` lie below max parallelism `{max_parallelism}`"
        );
        HeapKeyedBackend {
            max_parallelism,
            key_groups,
            states: Vec::new(),
            next_ticket: 0,
            windows: ChangeWindows::default(),
            buffers: Arc::default(),
            key: PhantomData,
        }
    }

    /// The key groups it holds.
    pub fn key_groups(&self) -> KeyGroupRange {
        self.key_groups
    }

    /// Binds a state, with what was restored of it. Binding the same again gives a handle of the
    /// same state (with the default or function of the first).
    ///
    /// # Errors
    /// [`StateError::AlreadyBound`] if the name is bound with another type,
    /// [`StateError::RestoredStateMismatch`] if the checkpoint holds it with another type,
    /// [`StateError::Load`] if restored entries don't decode, [`StateError::SnapshotPending`] if
    /// there are restored entries while a snapshot is being copied.
    pub fn bind<D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, ()>, StateError> {
        descriptor.bind_heap(self)
    }

    /// Binds a state that has namespaces of type `N`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_within<N: StateKey, D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, N>, StateError> {
        descriptor.bind_heap(self)
    }

    /// Finds or makes the table of a state. `make` puts it around its entries.
    pub(super) fn bind_table<T, C, N>(
        &mut self,
        declared: StateMeta,
        make: impl FnOnce(Shards<K, C, N>) -> T,
    ) -> Result<Rc<RefCell<T>>, StateError>
    where
        T: Table<K, C, N>,
        C: Content,
        N: StateKey,
    {
        let declared = StateMeta {
            namespace_schema: namespace_schema::<N>(),
            ..declared
        };
        let shards = || Shards::new(self.key_groups, self.max_parallelism);
        let position = self
            .states
            .iter()
            .position(|slot| slot.meta().name == declared.name);
        let Some(position) = position else {
            let table = Rc::new(RefCell::new(make(shards())));
            let state = Bound::new(&table);
            self.states.push(Slot::Bound(declared, Box::new(state)));
            return Ok(table);
        };
        match &self.states[position] {
            Slot::Bound(meta, state) => {
                let same = state.table().downcast_ref::<Rc<RefCell<T>>>();
                match same.filter(|_| *meta == declared) {
                    Some(table) => Ok(Rc::clone(table)),
                    None => Err(already_bound(meta, &declared)),
                }
            }
            Slot::Restored(restored) => {
                check_restored(&restored.meta, &declared)?;
                self.check_not_pending()?;
                let table = Rc::new(RefCell::new(make(shards())));
                let state = Bound::new(&table);
                restored.load_into(&state)?;
                self.states[position] = Slot::Bound(declared, Box::new(state));
                Ok(table)
            }
        }
    }

    /// Binds a value state without namespaces: [`bind`](Self::bind) for those who want only that.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn value_state<V: StateValue>(
        &mut self,
        descriptor: &ValueStateDescriptor<V>,
    ) -> Result<ValueState<K, V>, StateError> {
        self.bind(descriptor)
    }

    /// Whether some state is so large that accesses wait for memory, and less so after a
    /// [`prefetch`](Self::prefetch). One dynamic call per state: asked per batch, not per record.
    pub fn outgrows_cache(&self) -> bool {
        let mut states = self.states.iter().filter_map(Slot::bound);
        states.any(|state| state.outgrows_cache())
    }

    /// Asks for the memory where the large states have these keys' entries, given by the keys'
    /// hashes: for those that are accessed next, some tens at a time. Changes nothing. States with
    /// namespaces are left out, timers among them, since the key alone doesn't tell the entry.
    ///
    /// # Panics
    /// If a state is borrowed for writing.
    pub fn prefetch(&self, key_hashes: &[u64]) {
        for state in self.states.iter().filter_map(Slot::bound) {
            state.prefetch(key_hashes);
        }
    }

    /// Number of entries over all states, bound or not.
    pub fn entries(&self) -> usize {
        let entries = |slot: &Slot| match slot {
            Slot::Bound(_, state) => state.len(),
            Slot::Restored(restored) => restored.len(),
        };
        self.states.iter().map(entries).sum()
    }

    /// Cuts a snapshot at this instant: what changes later is not in it. It is whole by itself, and
    /// no later one rests on it: a savepoint, or a checkpoint of a job without incremental ones.
    /// Nothing is copied here; the time is proportional to the number of pages at most. Call
    /// [`advance_snapshots`](Self::advance_snapshots) between batches until it is done, or
    /// [`finish_snapshots`](Self::finish_snapshots). Several may be pending at once.
    ///
    /// # Panics
    /// If a state is borrowed.
    pub fn freeze(&mut self) -> FrozenKeyedState {
        self.cut(Cut::APART, CheckpointId::NONE, CheckpointId::NONE)
    }

    /// Cuts a snapshot as [`freeze`](Self::freeze) does, on which later ones may rest. It contains
    /// what has changed since its base (and possibly some that hasn't), or everything if there is
    /// no base that this backend remembers; [`FrozenKeyedState::kind`] tells. From the first one on
    /// changes are kept track of, which costs a little at every change of state.
    ///
    /// Snapshots that are given up, dropped or never complete do no harm, and those of `freeze`
    /// leave no traces: what counts is which base a snapshot names.
    ///
    /// # Panics
    /// If a state is borrowed; if ids don't grow from one call to the next.
    pub fn freeze_tracked(&mut self, snapshot: &TrackedSnapshot) -> FrozenKeyedState {
        let cut = self.windows.cut(snapshot);
        let base = match cut.extent {
            Extent::Everything => None,
            Extent::Recent | Extent::Both => snapshot.base,
        };
        let base = base.unwrap_or(CheckpointId::NONE);
        self.cut(cut, snapshot.checkpoint, base)
    }

    /// Whether changes are kept track of.
    pub fn tracks_changes(&self) -> bool {
        self.windows.is_open()
    }

    fn cut(&mut self, cut: Cut, checkpoint: CheckpointId, base: CheckpointId) -> FrozenKeyedState {
        let ticket = SnapshotTicket(self.next_ticket);
        self.next_ticket += 1;
        let (link, parts) = snapshot_link(ticket, &self.buffers);
        let mut replaced = Vec::new();
        for (state, slot) in (0..).zip(&mut self.states) {
            let groups = slot.begin_snapshot(&link, state, cut, self.key_groups);
            if cut.extent != Extent::Everything {
                replaced.extend(ReplacedTables::of_state(state, &groups));
            }
        }
        let index = FileIndex {
            checkpoint,
            base,
            max_parallelism: self.max_parallelism,
            key_groups: self.key_groups,
            hash_id: HASH_ID.to_owned(),
            key_schema: schema_of::<K>(),
            states: self.states.iter().map(|slot| slot.meta().clone()).collect(),
            replaced,
            chunks: Vec::new(),
        };
        FrozenKeyedState {
            ticket,
            index,
            parts,
        }
    }

    /// Copies up to `budget` pages (about 1 KiB and half a microsecond each) for pending snapshots.
    /// Returns at once when there are none.
    ///
    /// # Panics
    /// If a state is borrowed.
    pub fn advance_snapshots(&mut self, budget: usize) -> SnapshotProgress {
        self.advance(budget, true)
    }

    /// Copies all that pending snapshots lack, however much that is and however far the writers
    /// are.
    ///
    /// # Panics
    /// If a state is borrowed.
    pub fn finish_snapshots(&mut self) {
        let progress = self.advance(usize::MAX, false);
        assert!(progress.is_done(), "an unlimited budget copies all");
    }

    fn advance(&mut self, mut budget: usize, throttle: bool) -> SnapshotProgress {
        let mut behind = false;
        for state in self.states.iter().filter_map(Slot::bound) {
            match state.advance(&mut budget, throttle) {
                SnapshotProgress::Done => {}
                SnapshotProgress::More => return SnapshotProgress::More,
                SnapshotProgress::WritersBehind => behind = true,
            }
        }
        match behind {
            true => SnapshotProgress::WritersBehind,
            false => SnapshotProgress::Done,
        }
    }

    /// Gives up a snapshot, on an abort of its checkpoint: its writer fails with
    /// [`StateError::SnapshotCancelled`] unless all was copied before. No-op if it is complete.
    pub fn cancel_snapshot(&mut self, ticket: SnapshotTicket) {
        for state in self.states.iter().filter_map(Slot::bound) {
            state.cancel(ticket);
        }
    }

    /// Whether a snapshot still lacks pages.
    pub fn has_pending_snapshots(&self) -> bool {
        self.states
            .iter()
            .filter_map(Slot::bound)
            .any(|state| state.pending() > 0)
    }

    pub(super) fn check_not_pending(&self) -> Result<(), StateError> {
        let pending = self
            .states
            .iter()
            .filter_map(Slot::bound)
            .map(|state| state.pending());
        match pending.max().unwrap_or(0) {
            0 => Ok(()),
            pending => Err(StateError::SnapshotPending { pending }),
        }
    }
}

#[cold]
fn already_bound(bound: &StateMeta, requested: &StateMeta) -> StateError {
    StateError::AlreadyBound(Box::new(AlreadyBound {
        name: requested.name.clone(),
        bound: bound.to_string(),
        requested: requested.to_string(),
    }))
}

pub(super) fn check_restored(saved: &StateMeta, declared: &StateMeta) -> Result<(), StateError> {
    if saved == declared {
        return Ok(());
    }
    Err(StateError::RestoredStateMismatch(Box::new(
        RestoredStateMismatch {
            name: saved.name.clone(),
            saved: saved.to_string(),
            declared: declared.to_string(),
        },
    )))
}
