//! Copied entries, and keys that are gone, on their way to the writers.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_types::KeyGroup;

use super::changes::Removed;
use super::chunks::ChunkBuffers;
use super::content::Content;
use super::entry_key::EntryKey;
use super::link::FrozenPack;
use crate::key::StateKey;

/// Entries copied out of a state, in runs of the same key group.
pub(super) struct Pack<K, C, N> {
    entries: Vec<(EntryKey<K, N>, C)>,
    /// Key group of each run, and where it ends in `entries`.
    runs: Vec<(KeyGroup, usize)>,
}

impl<K, C, N> Default for Pack<K, C, N> {
    fn default() -> Self {
        Pack {
            entries: Vec::new(),
            runs: Vec::new(),
        }
    }
}

impl<K: StateKey, C: Content, N: StateKey> Pack<K, C, N> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn reserve(&mut self, entries: usize) {
        self.entries.reserve(entries);
    }

    #[inline]
    pub(super) fn push(&mut self, entry: (EntryKey<K, N>, C)) {
        self.entries.push(entry);
    }

    /// Notes that the entries pushed since the last run are of this key group.
    pub(super) fn end_run(&mut self, key_group: KeyGroup) {
        let end = self.entries.len();
        match self.runs.last_mut() {
            Some((last, last_end)) if *last == key_group => *last_end = end,
            _ => self.runs.push((key_group, end)),
        }
    }

    pub(super) fn share(self) -> Arc<dyn FrozenPack> {
        Arc::new(SharedPack(Mutex::new(self)))
    }
}

/// A pack that snapshots share. The lock stands in for a `Sync` bound on keys and values; only
/// their writers ever take it.
struct SharedPack<K, C, N>(Mutex<Pack<K, C, N>>);

impl<K: StateKey, C: Content, N: StateKey> FrozenPack for SharedPack<K, C, N> {
    fn encode(
        &self,
        state: u32,
        chunks: &mut ChunkBuffers,
    ) -> Result<(), (KeyGroup, postcard::Error)> {
        // A poisoned lock only means that the serialiser panicked for another snapshot.
        let pack = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut start = 0;
        for &(key_group, end) in &pack.runs {
            let mut chunk = chunks.chunk(state, key_group);
            for (key, content) in &pack.entries[start..end] {
                content
                    .encode(key, &mut chunk)
                    .map_err(|cause| (key_group, cause))?;
            }
            start = end;
        }
        Ok(())
    }
}

/// Keys of one key group that are gone.
type RemovedKeys<K, N> = Vec<Removed<EntryKey<K, N>>>;

/// Keys that are gone, by key group.
pub(super) struct RemovedPack<K, C, N> {
    groups: Vec<(KeyGroup, RemovedKeys<K, N>)>,
    content: PhantomData<fn(C)>,
}

impl<K, C, N> Default for RemovedPack<K, C, N> {
    fn default() -> Self {
        RemovedPack {
            groups: Vec::new(),
            content: PhantomData,
        }
    }
}

impl<K, C, N> RemovedPack<K, C, N> {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn push(&mut self, key_group: KeyGroup, removed: RemovedKeys<K, N>) {
        if !removed.is_empty() {
            self.groups.push((key_group, removed));
        }
    }
}

impl<K: StateKey, C: Content, N: StateKey> FrozenPack for RemovedPack<K, C, N> {
    fn encode(
        &self,
        state: u32,
        chunks: &mut ChunkBuffers,
    ) -> Result<(), (KeyGroup, postcard::Error)> {
        for (key_group, segments) in &self.groups {
            let mut chunk = chunks.chunk(state, *key_group);
            for removed in segments {
                let removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
                for key in &*removed {
                    chunk.forget(|out| C::encode_key(key, out));
                }
            }
        }
        Ok(())
    }
}
