//! All keyed state of one subtask.

use std::cell::RefCell;
use std::io::{Read, Seek};
use std::marker::PhantomData;
use std::rc::Rc;

use tidegate_types::{CheckpointId, HASH_ID, KeyGroupRange, MaxParallelism};

use super::bound::{Bound, BoundState, Table};
use super::content::Content;
use super::entry_key::namespace_schema;
use super::frozen::FrozenKeyedState;
use super::link::{SnapshotTicket, snapshot_link};
use super::restored::RestoredState;
use super::shards::Shards;
use super::snapshot::SnapshotProgress;
use super::value::ValueState;
use crate::descriptor::{StateDescriptor, StateValue, ValueStateDescriptor};
use crate::error::{AlreadyBound, RestoredStateMismatch, StateError};
use crate::format::{ChunkIndex, FileError, FileIndex, KeyedFileReader, PieceKind, StateMeta};
use crate::key::{StateKey, schema_of};

/// Keyed state in memory: the states of one subtask, over its range of key groups.
///
/// Belongs to the worker thread. Restore first, bind the states, then process; the order of the
/// first two doesn't matter.
pub struct HeapKeyedBackend<K> {
    max_parallelism: MaxParallelism,
    key_groups: KeyGroupRange,
    /// In the order in which they appeared; a state's position is its index in snapshots.
    states: Vec<Slot>,
    next_ticket: u64,
    key: PhantomData<fn(K)>,
}

enum Slot {
    Bound(StateMeta, Box<dyn BoundState>),
    Restored(RestoredState),
}

impl Slot {
    fn meta(&self) -> &StateMeta {
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
                load_restored(restored, &state)?;
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

    /// Number of entries over all states, bound or not.
    pub fn entries(&self) -> usize {
        let entries = |slot: &Slot| match slot {
            Slot::Bound(_, state) => state.len(),
            Slot::Restored(restored) => restored.len(),
        };
        self.states.iter().map(entries).sum()
    }

    /// Cuts a snapshot at this instant: what changes later is not in it. Nothing is copied here;
    /// the time is proportional to the number of pages at most. Call
    /// [`advance_snapshots`](Self::advance_snapshots) between batches until it is done, or
    /// [`finish_snapshots`](Self::finish_snapshots). Several may be pending at once.
    ///
    /// # Panics
    /// If a state is borrowed.
    pub fn freeze(&mut self) -> FrozenKeyedState {
        let ticket = SnapshotTicket(self.next_ticket);
        self.next_ticket += 1;
        let (link, parts) = snapshot_link(ticket);
        for (state, slot) in (0..).zip(&self.states) {
            match slot {
                Slot::Bound(_, bound) => bound.begin_snapshot(link.clone(), state),
                Slot::Restored(restored) => restored.snapshot(&link, state),
            }
        }
        let index = FileIndex {
            checkpoint: CheckpointId::NONE,
            base: CheckpointId::NONE,
            max_parallelism: self.max_parallelism,
            key_groups: self.key_groups,
            hash_id: HASH_ID.to_owned(),
            key_schema: schema_of::<K>(),
            states: self.states.iter().map(|slot| slot.meta().clone()).collect(),
            replaced: Vec::new(),
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

    /// Adds what a keyed state file holds of the backend's key groups. Call it for every file whose
    /// range overlaps; only the chunks wanted are read, in file order. `file` is its name, for
    /// errors. States that are not bound yet are kept as bytes until they are, and go into
    /// snapshots meanwhile.
    ///
    /// # Errors
    /// [`StateError::Restore`] if the file is damaged, of an unknown version, or made with another
    /// key type, hash or max parallelism; [`StateError::RestoredStateMismatch`] if a state has
    /// another type; [`StateError::Load`] if entries don't decode or come twice. The backend may
    /// then hold a part of the file: drop it.
    pub fn restore_file<R: Read + Seek>(
        &mut self,
        file: &str,
        input: &mut R,
    ) -> Result<(), StateError> {
        self.check_not_pending()?;
        let damaged = |cause| StateError::Restore {
            file: file.into(),
            cause: Box::new(cause),
        };
        let mut reader = KeyedFileReader::open(input).map_err(damaged)?;
        self.check_fits(reader.index()).map_err(damaged)?;
        let positions = self.place_states(&reader.index().states)?;
        let mut payload = Vec::new();
        for chunk in reader.chunks_in(self.key_groups) {
            reader.read_chunk(&chunk, &mut payload).map_err(damaged)?;
            self.add_chunk(positions[chunk.state as usize], &chunk, &payload)?;
        }
        Ok(())
    }

    fn check_fits(&self, index: &FileIndex) -> Result<(), FileError> {
        if index.kind() == PieceKind::Changes {
            return Err(FileError::OutOfOrder {
                piece: format!("the changes of `{}` to `{}`", index.checkpoint, index.base),
                previous: "nothing".to_owned(),
            });
        }
        if index.hash_id != HASH_ID {
            return Err(FileError::Hash {
                saved: index.hash_id.clone(),
                used: HASH_ID,
            });
        }
        if index.max_parallelism != self.max_parallelism {
            return Err(FileError::MaxParallelism {
                saved: index.max_parallelism.get(),
                declared: self.max_parallelism.get(),
            });
        }
        let declared = schema_of::<K>();
        if index.key_schema != declared {
            return Err(FileError::KeySchema {
                saved: index.key_schema.clone(),
                declared,
            });
        }
        Ok(())
    }

    /// Where each state of a file goes. Types are compared before any data is read.
    fn place_states(&mut self, saved: &[StateMeta]) -> Result<Vec<usize>, StateError> {
        let mut positions = Vec::with_capacity(saved.len());
        for meta in saved {
            let known = self
                .states
                .iter()
                .position(|slot| slot.meta().name == meta.name);
            if let Some(position) = known {
                check_restored(meta, self.states[position].meta())?;
                positions.push(position);
            } else {
                positions.push(self.states.len());
                let restored = RestoredState {
                    meta: meta.clone(),
                    chunks: Vec::new(),
                };
                self.states.push(Slot::Restored(restored));
            }
        }
        Ok(positions)
    }

    fn add_chunk(
        &mut self,
        position: usize,
        chunk: &ChunkIndex,
        payload: &[u8],
    ) -> Result<(), StateError> {
        let &ChunkIndex {
            key_group, entries, ..
        } = chunk;
        let slot = &mut self.states[position];
        let loaded = match slot {
            Slot::Bound(_, state) => state.load(key_group, entries, payload),
            Slot::Restored(restored) => restored.keep(key_group, entries, payload),
        };
        loaded.map_err(|cause| StateError::load(&slot.meta().name, key_group, cause))
    }

    fn check_not_pending(&self) -> Result<(), StateError> {
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

fn check_restored(saved: &StateMeta, declared: &StateMeta) -> Result<(), StateError> {
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

fn load_restored(restored: &RestoredState, state: &dyn BoundState) -> Result<(), StateError> {
    for chunk in &restored.chunks {
        state
            .load(chunk.key_group, chunk.entries, &chunk.payload)
            .map_err(|cause| StateError::load(&restored.meta.name, chunk.key_group, cause))?;
    }
    Ok(())
}
