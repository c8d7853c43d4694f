//! The entries of one state: a flat hash table per key group, and how they are looked up.
//!
//! [`snapshot`](super::snapshot) holds what copies pages out. The rule between the two: while a
//! snapshot is pending, whoever changes a page first calls `ensure_copied` for it, and whoever
//! makes a table grow first calls `copy_shard`. Then the change is noted, if changes are kept track
//! of ([`changes`](super::changes)).

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tidegate_types::{KeyGroup, KeyGroupRange, MaxParallelism};

use super::changes::ShardChanges;
use super::content::Content;
use super::entry_key::{EntryKey, Lookup, has_namespace, table_hash};
use super::prefetch::{OUTGROWS_CACHE_BYTES, prefetch};
use super::snapshot::{Cursor, PendingSnapshot};
use crate::key::{BorrowedKey, StateKey};

/// The table of one key group.
pub(super) struct Shard<K, C, N> {
    pub(super) entries: HashTable<(EntryKey<K, N>, C)>,
    /// Per page the sequence number of the newest snapshot that has it. Kept up only while a
    /// snapshot is pending.
    pub(super) copied: Vec<u32>,
    /// What has changed, if that is kept track of.
    pub(super) changes: Option<ShardChanges<EntryKey<K, N>>>,
}

/// Where the entry of a key has been found, without a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikelyPlace {
    shard: u32,
    bucket: u32,
}

impl LikelyPlace {
    /// No table has such a place.
    pub const NOWHERE: LikelyPlace = LikelyPlace {
        shard: u32::MAX,
        bucket: u32::MAX,
    };
}

/// All tables of one state.
pub(super) struct Shards<K, C, N = ()> {
    pub(super) key_groups: KeyGroupRange,
    max_parallelism: MaxParallelism,
    /// By key group, from the first of the range.
    pub(super) shards: Vec<Shard<K, C, N>>,
    pub(super) len: usize,
    /// Whether changes are kept track of. If not, and nothing is pending, every access is a plain
    /// table access behind one predictable branch.
    pub(super) tracked: bool,
    /// Snapshots that still lack pages, oldest first. Empty most of the time.
    pub(super) pending: Vec<PendingSnapshot<K, C, N>>,
    /// Sequence number of the newest pending snapshot.
    pub(super) sequence: u32,
    pub(super) cursor: Cursor,
}

#[inline]
fn stored_hash<K: StateKey, C, N: StateKey>(entry: &(EntryKey<K, N>, C)) -> u64 {
    entry.0.table_hash()
}

impl<K: StateKey, C: Content, N: StateKey> Shards<K, C, N> {
    pub(super) fn new(key_groups: KeyGroupRange, max_parallelism: MaxParallelism) -> Self {
        let shard = |_| Shard {
            entries: HashTable::new(),
            copied: Vec::new(),
            changes: None,
        };
        Shards {
            key_groups,
            max_parallelism,
            shards: key_groups.iter().map(shard).collect(),
            len: 0,
            tracked: false,
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
    pub(super) fn get<Q: BorrowedKey<K> + ?Sized>(&self, at: Lookup<'_, Q, N>) -> Option<&C> {
        let shard = &self.shards[self.shard_index(at.hash)];
        let entry = shard
            .entries
            .find(at.table_hash(), |entry| at.is(&entry.0))?;
        Some(&entry.1)
    }

    /// Whether the entries are so many that it pays to [`prefetch`](Self::prefetch) those that are
    /// needed next. Never where there are namespaces, since a key alone doesn't tell the entry.
    #[inline]
    pub(super) fn outgrows_cache(&self) -> bool {
        let bytes = self.len * size_of::<(EntryKey<K, N>, C)>();
        bytes >= OUTGROWS_CACHE_BYTES && !has_namespace::<N>()
    }

    /// Asks for the memory where the entry of a key is most likely: the first whose byte of the
    /// hash fits, which is another one in one of a hundred cases. Finds nothing for keys of other
    /// subtasks.
    #[inline]
    pub(super) fn prefetch(&self, key_hash: u64) -> LikelyPlace {
        let group = self.max_parallelism.key_group(key_hash);
        let index = usize::from(group.0.wrapping_sub(self.key_groups.start));
        let Some(shard) = self.shards.get(index) else {
            return LikelyPlace::NOWHERE;
        };
        // It is not looked at, only where it is.
        let bucket = shard
            .entries
            .find_bucket_index(table_hash(key_hash, &()), |entry| {
                prefetch(entry);
                true
            });
        LikelyPlace {
            shard: index as u32,
            bucket: bucket.map_or(u32::MAX, |bucket| bucket as u32),
        }
    }

    #[inline]
    pub(super) fn get_mut<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        at: Lookup<'_, Q, N>,
    ) -> Option<&mut C> {
        let index = self.shard_index(at.hash);
        if !self.pending.is_empty() {
            return self.copied_content(index, &at);
        }
        let shard = &mut self.shards[index];
        let entry = shard
            .entries
            .find_entry(at.table_hash(), |entry| at.is(&entry.0));
        let entry = entry.ok()?;
        if self.tracked {
            note_change(&mut shard.changes, entry.bucket_index(), Self::PAGE_BUCKETS);
        }
        Some(&mut entry.into_mut().1)
    }

    /// As [`entry_or_insert_with`](Self::entry_or_insert_with), with a look at where the entry is
    /// most likely: nothing is searched for then. A place that is wrong, or was right before tables
    /// have grown, costs time and nothing else.
    #[inline(always)]
    pub(super) fn entry_at_or_insert_with<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        place: LikelyPlace,
        at: Lookup<'_, Q, N>,
        make: impl FnOnce() -> C,
    ) -> &mut C {
        let (shard, bucket) = (place.shard as usize, place.bucket as usize);
        let is_there = |shard: &Shard<K, C, N>| match shard.entries.get_bucket(bucket) {
            Some(entry) => at.is(&entry.0),
            None => false,
        };
        if !self.pending.is_empty() || !self.shards.get(shard).is_some_and(is_there) {
            return self.entry_or_insert_with(at, make);
        }
        let shard = &mut self.shards[shard];
        if self.tracked {
            note_change(&mut shard.changes, bucket, Self::PAGE_BUCKETS);
        }
        let entry = shard.entries.get_bucket_mut(bucket);
        &mut entry.expect("it has just been looked at").1
    }

    // Into the loop of whoever goes through a batch: as a call it would take twice as long. What
    // happens rarely is called.
    #[inline(always)]
    pub(super) fn entry_or_insert_with<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        at: Lookup<'_, Q, N>,
        make: impl FnOnce() -> C,
    ) -> &mut C {
        let index = self.shard_index(at.hash);
        if !self.pending.is_empty() {
            return self.copied_entry(index, at, make);
        }
        let table_hash = at.table_hash();
        let shard = &mut self.shards[index];
        match shard
            .entries
            .find_entry(table_hash, |entry| at.is(&entry.0))
        {
            Ok(entry) => {
                // One flag, and not what each table knows of its changes: that would be one more
                // line of the cache per access.
                if self.tracked {
                    note_change(&mut shard.changes, entry.bucket_index(), Self::PAGE_BUCKETS);
                }
                &mut entry.into_mut().1
            }
            Err(absent) => {
                let table = absent.into_table();
                let inserted = Self::insert(table, &mut shard.changes, at, make);
                self.len += 1;
                inserted
            }
        }
    }

    /// Inserts a key that isn't there, while no snapshot is pending.
    #[inline(never)]
    fn insert<'a, Q: BorrowedKey<K> + ?Sized>(
        entries: &'a mut HashTable<(EntryKey<K, N>, C)>,
        changes: &mut Option<ShardChanges<EntryKey<K, N>>>,
        at: Lookup<'_, Q, N>,
        make: impl FnOnce() -> C,
    ) -> &'a mut C {
        let entry = (at.to_entry_key(), make());
        if let Some(changes) = changes
            && entries.len() == entries.capacity()
        {
            entries.reserve(1, stored_hash);
            changes.on_rehash(Self::pages(entries));
        }
        let entry = entries.insert_unique(at.table_hash(), entry, stored_hash);
        note_change(changes, entry.bucket_index(), Self::PAGE_BUCKETS);
        &mut entry.into_mut().1
    }

    /// What is there, to be changed while a snapshot is pending, which gets it as it is.
    fn copied_content<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        index: usize,
        at: &Lookup<'_, Q, N>,
    ) -> Option<&mut C> {
        let bucket = self.find_bucket(index, at)?;
        self.ensure_copied(index, bucket, None);
        let shard = &mut self.shards[index];
        note_change(&mut shard.changes, bucket, Self::PAGE_BUCKETS);
        Some(&mut shard.entries.get_bucket_mut(bucket)?.1)
    }

    /// What is there or is put there, while a snapshot is pending, which gets the page without it.
    #[inline(never)]
    fn copied_entry<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        index: usize,
        at: Lookup<'_, Q, N>,
        make: impl FnOnce() -> C,
    ) -> &mut C {
        let bucket = match self.find_bucket(index, &at) {
            Some(bucket) => {
                self.ensure_copied(index, bucket, None);
                bucket
            }
            None => {
                let entry = (at.to_entry_key(), make());
                let entries = &self.shards[index].entries;
                if entries.len() == entries.capacity() {
                    self.grow(index);
                }
                let entries = &mut self.shards[index].entries;
                let inserted = entries.insert_unique(at.table_hash(), entry, stored_hash);
                let bucket = inserted.bucket_index();
                self.len += 1;
                self.ensure_copied(index, bucket, Some(bucket));
                bucket
            }
        };
        let shard = &mut self.shards[index];
        note_change(&mut shard.changes, bucket, Self::PAGE_BUCKETS);
        let entry = shard.entries.get_bucket_mut(bucket);
        &mut entry.expect("the bucket was just found or filled").1
    }

    /// Makes room for one more entry, which moves all others, while a snapshot is pending.
    #[cold]
    fn grow(&mut self, index: usize) {
        // Ordering: entries move between pages, so all pages go out first.
        self.copy_shard(index);
        let shard = &mut self.shards[index];
        shard.entries.reserve(1, stored_hash);
        if let Some(changes) = &mut shard.changes {
            changes.on_rehash(Self::pages(&shard.entries));
        }
        self.mark_shard_copied(index);
    }

    /// Whether a change of an entry concerns anybody but the entry.
    fn is_watched(&self) -> bool {
        self.tracked | !self.pending.is_empty()
    }

    #[inline]
    pub(super) fn remove<Q: BorrowedKey<K> + ?Sized>(&mut self, at: Lookup<'_, Q, N>) -> Option<C> {
        let index = self.shard_index(at.hash);
        let bucket = self.find_bucket(index, &at)?;
        if !self.pending.is_empty() {
            self.ensure_copied(index, bucket, None);
        }
        let shard = &mut self.shards[index];
        let entry = shard.entries.get_bucket_entry(bucket).ok()?;
        let ((key, content), _) = entry.remove();
        self.len -= 1;
        if let Some(changes) = &mut shard.changes {
            changes.on_remove(key, shard.entries.len());
        }
        Some(content)
    }

    /// Prepares for restored entries. What is restored into a table is new to all checkpoints, so
    /// whatever was kept track of means nothing.
    pub(super) fn begin_load(&mut self) {
        assert!(
            self.pending.is_empty(),
            "nothing is loaded while a snapshot is pending"
        );
        if std::mem::take(&mut self.tracked) {
            self.shards
                .iter_mut()
                .for_each(|shard| shard.changes = None);
        }
    }

    /// Moves what is in the namespaces `sources` of a key into the entry at `target`, where `merge`
    /// combines it with what is there.
    pub(super) fn merge<'a, Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        target: Lookup<'_, Q, N>,
        sources: impl IntoIterator<Item = &'a N>,
        merge: impl Fn(&mut C, C),
    ) {
        for source in sources {
            if source == target.namespace {
                continue;
            }
            let Some(content) = self.remove(target.within(source)) else {
                continue;
            };
            let mut content = Some(content);
            let merged = self.entry_or_insert_with(target, || {
                content.take().expect("a content is inserted once")
            });
            if let Some(content) = content {
                merge(merged, content);
            }
        }
    }

    /// Adds what a restored entry of key group `group` holds.
    #[inline]
    pub(super) fn load(
        &mut self,
        group: KeyGroup,
        key: EntryKey<K, N>,
        part: C::Part,
    ) -> Result<(), LoadRefusal> {
        let at = key.lookup();
        let index = self.shard_for_load(group, at.hash)?;
        let entries = &mut self.shards[index].entries;
        match entries.entry(at.table_hash(), |entry| entry.0 == key, stored_hash) {
            Entry::Occupied(mut entry) => match entry.get_mut().1.add_part(part) {
                true => Ok(()),
                false => Err(LoadRefusal::Duplicate),
            },
            Entry::Vacant(entry) => {
                entry.insert((key, C::from_part(part)));
                self.len += 1;
                Ok(())
            }
        }
    }

    /// Removes what was restored under a key of key group `group`, if anything.
    pub(super) fn unload(
        &mut self,
        group: KeyGroup,
        key: &EntryKey<K, N>,
    ) -> Result<(), LoadRefusal> {
        let at = key.lookup();
        let index = self.shard_for_load(group, at.hash)?;
        let entries = &mut self.shards[index].entries;
        if let Ok(entry) = entries.find_entry(at.table_hash(), |entry| entry.0 == *key) {
            entry.remove();
            self.len -= 1;
        }
        Ok(())
    }

    fn shard_for_load(&self, group: KeyGroup, hash: u64) -> Result<usize, LoadRefusal> {
        assert!(!self.is_watched(), "restoring has begun");
        let belongs = self.max_parallelism.key_group(hash);
        if belongs != group {
            return Err(LoadRefusal::Belongs(belongs));
        }
        Ok(self.shard_index(hash))
    }

    /// Removes all that was restored of `group`.
    pub(super) fn clear(&mut self, group: KeyGroup) {
        assert!(!self.is_watched(), "restoring has begun");
        let index = usize::from(group.0 - self.key_groups.start);
        let entries = &mut self.shards[index].entries;
        self.len -= entries.len();
        entries.clear();
    }

    /// Makes room for `additional` entries in the table of `group`.
    pub(super) fn reserve(&mut self, group: KeyGroup, additional: usize) {
        assert!(!self.is_watched(), "restoring has begun");
        let index = usize::from(group.0 - self.key_groups.start);
        self.shards[index].entries.reserve(additional, stored_hash);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&EntryKey<K, N>, &C)> {
        self.shards
            .iter()
            .flat_map(|shard| shard.entries.iter())
            .map(|(key, content)| (key, content))
    }

    #[inline]
    fn find_bucket<Q: BorrowedKey<K> + ?Sized>(
        &self,
        index: usize,
        at: &Lookup<'_, Q, N>,
    ) -> Option<usize> {
        let entries = &self.shards[index].entries;
        entries.find_bucket_index(at.table_hash(), |entry| at.is(&entry.0))
    }
}

/// Why a restored entry can't be taken.
pub(super) enum LoadRefusal {
    /// It belongs to another key group.
    Belongs(KeyGroup),
    /// Its key is there already.
    Duplicate,
}

/// Notes that a bucket is about to be written, or just was, if changes are kept track of.
#[inline]
fn note_change<T>(changes: &mut Option<ShardChanges<T>>, bucket: usize, page_buckets: usize) {
    if let Some(changes) = changes {
        changes.on_write(bucket / page_buckets, bucket % page_buckets);
    }
}

#[cold]
#[inline(never)]
fn foreign_key_group(group: KeyGroup, own: KeyGroupRange) -> ! {
    panic!("key group `{group}` accessed by the subtask that owns `{own}`")
}
