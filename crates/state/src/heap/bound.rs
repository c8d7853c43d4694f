//! A bound state as the backend sees it: whatever its kind and types.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use tidegate_types::{KeyGroup, KeyGroupRange};

use super::content::Content;
use super::link::{SnapshotLink, SnapshotTicket};
use super::restore::entries_at_most;
use super::restored::{RawChunk, RawLayer};
use super::shards::{LoadRefusal, Shards};
use super::snapshot::SnapshotProgress;
use super::windows::Cut;
use crate::error::LoadError;
use crate::format::{Entries, Tombstones};
use crate::key::StateKey;

/// What a kind of state keeps: the entries, and what else its accesses need.
pub(super) trait Table<K, C, N>: 'static {
    /// The entries.
    fn shards(&self) -> &Shards<K, C, N>;
    /// The entries, to be changed.
    fn shards_mut(&mut self) -> &mut Shards<K, C, N>;
    /// A restore has changed the entries.
    fn restored(&mut self) {}
}

/// What the backend does with each of its bound states. Never called per record.
pub(super) trait BoundState {
    /// The table, an `Rc<RefCell<_>>`.
    fn table(&self) -> &dyn Any;
    fn len(&self) -> usize;
    fn pending(&self) -> usize;
    /// Returns the key groups that the snapshot gets as a whole.
    fn begin_snapshot(&self, link: SnapshotLink, state: u32, cut: Cut) -> Vec<KeyGroup>;
    fn advance(&self, budget: &mut usize, throttle: bool) -> SnapshotProgress;
    fn cancel(&self, ticket: SnapshotTicket);
    /// Makes room for so many entries of a file, if each becomes one of the table.
    fn expect_entries(&self, group: KeyGroup, entries: usize);
    /// Adds the entries of one chunk.
    fn load(&self, group: KeyGroup, chunk: &RawChunk) -> Result<(), LoadError>;
    /// Applies what a piece of changes says of a key group.
    fn change(&self, group: KeyGroup, layer: &RawLayer) -> Result<(), LoadError>;
    /// Removes all that was loaded of some key groups.
    fn clear(&self, groups: KeyGroupRange);
    /// Whether to [`prefetch`](Self::prefetch) pays.
    fn outgrows_cache(&self) -> bool;
    /// Asks for the memory where these keys' entries are, if that pays: once for many keys.
    fn prefetch(&self, key_hashes: &[u64]);
}

/// Shares a table with the handles.
pub(super) struct Bound<T, K, C, N> {
    table: Rc<RefCell<T>>,
    entries: PhantomData<fn(K, C, N)>,
}

impl<T: Table<K, C, N>, K, C, N> Bound<T, K, C, N> {
    pub(super) fn new(table: &Rc<RefCell<T>>) -> Self {
        Bound {
            table: Rc::clone(table),
            entries: PhantomData,
        }
    }
}

impl<T, K, C, N> BoundState for Bound<T, K, C, N>
where
    T: Table<K, C, N>,
    K: StateKey,
    C: Content,
    N: StateKey,
{
    fn table(&self) -> &dyn Any {
        &self.table
    }

    fn len(&self) -> usize {
        self.table.borrow().shards().len
    }

    fn pending(&self) -> usize {
        self.table.borrow().shards().pending.len()
    }

    fn begin_snapshot(&self, link: SnapshotLink, state: u32, cut: Cut) -> Vec<KeyGroup> {
        let mut table = self.table.borrow_mut();
        table.shards_mut().begin_snapshot(link, state, cut)
    }

    fn advance(&self, budget: &mut usize, throttle: bool) -> SnapshotProgress {
        let mut table = self.table.borrow_mut();
        table.shards_mut().advance(budget, throttle)
    }

    fn cancel(&self, ticket: SnapshotTicket) {
        self.table.borrow_mut().shards_mut().cancel(ticket);
    }

    fn expect_entries(&self, group: KeyGroup, entries: usize) {
        // A map is one entry per map key: how many maps there are is not known.
        if C::IS_ONE_ENTRY {
            let mut table = self.table.borrow_mut();
            let shards = table.shards_mut();
            shards.begin_load();
            shards.reserve(group, entries);
        }
    }

    fn load(&self, group: KeyGroup, chunk: &RawChunk) -> Result<(), LoadError> {
        let mut table = self.table.borrow_mut();
        table.restored();
        let shards = table.shards_mut();
        shards.begin_load();
        load_chunk(shards, group, chunk)
    }

    fn change(&self, group: KeyGroup, layer: &RawLayer) -> Result<(), LoadError> {
        let mut table = self.table.borrow_mut();
        table.restored();
        let shards = table.shards_mut();
        shards.begin_load();
        for chunk in &layer.tombstones {
            for read in Tombstones::new(&chunk.payload, chunk.entries) {
                let (entry, key) = read?;
                let key = C::decode_key(key).map_err(|cause| LoadError::Key { entry, cause })?;
                let unloaded = shards.unload(group, &key);
                unloaded.map_err(|refusal| refusal.of_entry(entry))?;
            }
        }
        // Entries replace all that was under their keys: so each key is free to come once.
        for chunk in &layer.entries {
            for read in Entries::new(&chunk.payload, chunk.entries) {
                let (entry, key, value) = read?;
                let (key, _) = C::decode(entry, key, value)?;
                let unloaded = shards.unload(group, &key);
                unloaded.map_err(|refusal| refusal.of_entry(entry))?;
            }
        }
        let mut entries = layer.entries.iter();
        entries.try_for_each(|chunk| load_chunk(shards, group, chunk))
    }

    fn clear(&self, groups: KeyGroupRange) {
        let mut table = self.table.borrow_mut();
        table.restored();
        let shards = table.shards_mut();
        shards.begin_load();
        groups.iter().for_each(|group| shards.clear(group));
    }

    fn outgrows_cache(&self) -> bool {
        self.table.borrow().shards().outgrows_cache()
    }

    fn prefetch(&self, key_hashes: &[u64]) {
        let table = self.table.borrow();
        let shards = table.shards();
        if shards.outgrows_cache() {
            for hash in key_hashes {
                shards.prefetch(*hash);
            }
        }
    }
}

fn load_chunk<K: StateKey, C: Content, N: StateKey>(
    shards: &mut Shards<K, C, N>,
    group: KeyGroup,
    chunk: &RawChunk,
) -> Result<(), LoadError> {
    let RawChunk { entries, payload } = chunk;
    // Where room was made before, there is enough.
    shards.reserve(group, entries_at_most(*entries, payload.len() as u64));
    for read in Entries::new(payload, *entries) {
        let (entry, key, value) = read?;
        let (key, part) = C::decode(entry, key, value)?;
        let loaded = shards.load(group, key, part);
        loaded.map_err(|refusal| refusal.of_entry(entry))?;
    }
    Ok(())
}

impl LoadRefusal {
    fn of_entry(self, entry: u32) -> LoadError {
        match self {
            LoadRefusal::Belongs(belongs) => LoadError::KeyGroup { entry, belongs },
            LoadRefusal::Duplicate => LoadError::Duplicate { entry },
        }
    }
}
