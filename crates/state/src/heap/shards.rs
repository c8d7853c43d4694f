//! The entries of one state: a flat hash table per key group, and how they are looked up.
//!
//! [`snapshot`](super::snapshot) holds what copies pages out. The rule between the two: while a
//! snapshot is pending, whoever changes a page first calls `ensure_copied` for it, and whoever
//! makes a table grow first calls `copy_shard`.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tidegate_types::{KeyGroup, KeyGroupRange, MaxParallelism};

use super::snapshot::{Cursor, PendingSnapshot};
use crate::descriptor::StateValue;
use crate::key::{BorrowedKey, StateKey};

/// The table of one key group.
pub(super) struct Shard<K, V> {
    pub(super) entries: HashTable<(K, V)>,
    /// Per page the sequence number of the newest snapshot that has it. Kept up only while a
    /// snapshot is pending.
    pub(super) copied: Vec<u32>,
}

/// All tables of one state.
pub(super) struct Shards<K, V> {
    pub(super) key_groups: KeyGroupRange,
    max_parallelism: MaxParallelism,
    /// By key group, from the first of the range.
    pub(super) shards: Vec<Shard<K, V>>,
    pub(super) len: usize,
    /// Snapshots that still lack pages, oldest first. Empty most of the time: then every access is
    /// a plain table access behind one predictable branch.
    pub(super) pending: Vec<PendingSnapshot<K, V>>,
    /// Sequence number of the newest pending snapshot.
    pub(super) sequence: u32,
    pub(super) cursor: Cursor,
}

/// Spreads a key's hash over a table. The table takes its position from the low bits and its tags
/// from the top seven, which are the same for all keys of a key group; so the low half is folded
/// onto the top, which leaves the low bits as they are.
#[inline]
pub(super) fn remix(hash: u64) -> u64 {
    hash ^ (hash << 32)
}

#[inline]
fn stored_hash<K: StateKey, V>(entry: &(K, V)) -> u64 {
    remix(entry.0.key_hash())
}

impl<K: StateKey, V: StateValue> Shards<K, V> {
    pub(super) fn new(key_groups: KeyGroupRange, max_parallelism: MaxParallelism) -> Self {
        let shard = |_| Shard {
            entries: HashTable::new(),
            copied: Vec::new(),
        };
        Shards {
            key_groups,
            max_parallelism,
            shards: key_groups.iter().map(shard).collect(),
            len: 0,
            pending: Vec::new(),
            sequence: 0,
            cursor: Cursor::default(),
        }
    }

    /// Position of the shard for a key with this hash.
    ///
    /// # Panics
    /// If the key belongs to another subtask: writing it here would lose it at the next restore.
    #[inline]
    fn shard_index(&self, hash: u64) -> usize {
        let group = self.max_parallelism.key_group(hash);
        let index = usize::from(group.0.wrapping_sub(self.key_groups.start));
        if index >= self.shards.len() {
            foreign_key_group(group, self.key_groups);
        }
        index
    }

    #[inline]
    pub(super) fn get<Q: BorrowedKey<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<&V> {
        let shard = &self.shards[self.shard_index(hash)];
        let entry = shard
            .entries
            .find(remix(hash), |entry| key.is_key(&entry.0))?;
        Some(&entry.1)
    }

    #[inline]
    pub(super) fn get_mut<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        hash: u64,
        key: &Q,
    ) -> Option<&mut V> {
        let index = self.shard_index(hash);
        if self.pending.is_empty() {
            let entries = &mut self.shards[index].entries;
            let entry = entries.find_mut(remix(hash), |entry| key.is_key(&entry.0))?;
            return Some(&mut entry.1);
        }
        let bucket = self.find_bucket(index, hash, key)?;
        self.ensure_copied(index, bucket, None);
        self.value_mut(index, bucket)
    }

    #[inline]
    pub(super) fn entry_or_insert_with<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        hash: u64,
        key: &Q,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let index = self.shard_index(hash);
        let bucket = match self.find_bucket(index, hash, key) {
            Some(bucket) if self.pending.is_empty() => bucket,
            Some(bucket) => {
                self.ensure_copied(index, bucket, None);
                bucket
            }
            None => self.insert(index, hash, (key.to_key(), make())),
        };
        self.value_mut(index, bucket)
            .expect("the bucket was just found or filled")
    }

    /// Inserts a key that isn't there and returns its bucket. Pending snapshots get its page
    /// without it.
    fn insert(&mut self, index: usize, hash: u64, entry: (K, V)) -> usize {
        let pending = !self.pending.is_empty();
        let entries = &self.shards[index].entries;
        if pending && entries.len() == entries.capacity() {
            // Ordering: growing moves entries between pages, so all pages go out first.
            self.copy_shard(index);
            let shard = &mut self.shards[index];
            shard.entries.reserve(1, stored_hash);
            self.mark_shard_copied(index);
        }
        let entries = &mut self.shards[index].entries;
        let bucket = entries
            .insert_unique(remix(hash), entry, stored_hash)
            .bucket_index();
        self.len += 1;
        if pending {
            self.ensure_copied(index, bucket, Some(bucket));
        }
        bucket
    }

    #[inline]
    pub(super) fn remove<Q: BorrowedKey<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<V> {
        let index = self.shard_index(hash);
        let bucket = self.find_bucket(index, hash, key)?;
        if !self.pending.is_empty() {
            self.ensure_copied(index, bucket, None);
        }
        let entry = self.shards[index].entries.get_bucket_entry(bucket).ok()?;
        self.len -= 1;
        Some(entry.remove().0.1)
    }

    /// Inserts a restored entry of key group `group`.
    pub(super) fn load(&mut self, group: KeyGroup, key: K, value: V) -> Result<(), LoadRefusal> {
        assert!(
            self.pending.is_empty(),
            "nothing is loaded while a snapshot is pending"
        );
        let hash = key.key_hash();
        let belongs = self.max_parallelism.key_group(hash);
        if belongs != group {
            return Err(LoadRefusal::Belongs(belongs));
        }
        let index = self.shard_index(hash);
        let entries = &mut self.shards[index].entries;
        match entries.entry(remix(hash), |entry| entry.0 == key, stored_hash) {
            Entry::Occupied(_) => Err(LoadRefusal::Duplicate),
            Entry::Vacant(entry) => {
                entry.insert((key, value));
                self.len += 1;
                Ok(())
            }
        }
    }

    /// Makes room for `additional` entries in the table of `group`.
    pub(super) fn reserve(&mut self, group: KeyGroup, additional: usize) {
        assert!(
            self.pending.is_empty(),
            "nothing is loaded while a snapshot is pending"
        );
        let index = usize::from(group.0 - self.key_groups.start);
        self.shards[index].entries.reserve(additional, stored_hash);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards
            .iter()
            .flat_map(|shard| shard.entries.iter())
            .map(|(key, value)| (key, value))
    }

    #[inline]
    fn find_bucket<Q: BorrowedKey<K> + ?Sized>(
        &self,
        index: usize,
        hash: u64,
        key: &Q,
    ) -> Option<usize> {
        let entries = &self.shards[index].entries;
        entries.find_bucket_index(remix(hash), |entry| key.is_key(&entry.0))
    }

    #[inline]
    fn value_mut(&mut self, index: usize, bucket: usize) -> Option<&mut V> {
        let entry = self.shards[index].entries.get_bucket_mut(bucket)?;
        Some(&mut entry.1)
    }
}

/// Why a restored entry can't be taken.
pub(super) enum LoadRefusal {
    /// It belongs to another key group.
    Belongs(KeyGroup),
    /// Its key is there already.
    Duplicate,
}

#[cold]
#[inline(never)]
fn foreign_key_group(group: KeyGroup, own: KeyGroupRange) -> ! {
    panic!("key group `{group}` accessed by the subtask that owns `{own}`")
}
