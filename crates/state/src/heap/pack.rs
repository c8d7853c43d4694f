//! Entries of a snapshot, and keys that are gone, on their way to the writers.
//!
//! Entries that own memory are copied, and encoded by the writer. Plain ones are encoded at once
//! ([`Pack::ENCODES`]): that takes no longer than copying them, and saves the writer a pass over
//! memory.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_types::KeyGroup;

use super::buffers::{Buffer, BufferPool};
use super::changes::Removed;
use super::chunks::ChunkBuffers;
use super::content::Content;
use super::entry_key::EntryKey;
use super::link::FrozenPack;
use super::snapshot::{clamp, max};
use crate::key::StateKey;

/// Bytes of entries, copied or encoded, that are sent on together.
const PACK_BYTES: usize = 64 << 10;

/// Entries in a row of the same key group.
struct Run {
    key_group: KeyGroup,
    /// How many entries there are up to its end, from the beginning of the pack.
    entries_end: usize,
    /// Where it ends in the encoded bytes, if there are any.
    bytes_end: usize,
}

/// Entries of a state, in runs of the same key group.
pub(super) struct Pack<K, C, N> {
    copied: Vec<(EntryKey<K, N>, C)>,
    /// What is encoded, and then room for more.
    encoded: Buffer,
    /// Bytes of `encoded` that count.
    encoded_bytes: usize,
    /// Bytes of a key, if encoded entries are in short form.
    short_width: Option<u8>,
    /// Number of entries, copied or encoded.
    entries: usize,
    runs: Vec<Run>,
    /// The first entry that couldn't be encoded, for the writer to report.
    failed: Option<(KeyGroup, postcard::Error)>,
}

impl<K, C, N> Default for Pack<K, C, N> {
    fn default() -> Self {
        Pack {
            copied: Vec::new(),
            encoded: Buffer::default(),
            encoded_bytes: 0,
            short_width: None,
            entries: 0,
            runs: Vec::new(),
            failed: None,
        }
    }
}

impl<K: StateKey, C: Content, N: StateKey> Pack<K, C, N> {
    /// Whether entries are encoded as they are added. Not if they own memory: how long it takes to
    /// encode them can't be seen, and the worker waits for it.
    const ENCODES: bool = C::IS_ONE_ENTRY && !std::mem::needs_drop::<(EntryKey<K, N>, C)>();

    /// Entries of a full pack. Those that own heap memory may be large, so there are fewer.
    const ENTRIES_MAX: usize = {
        let entries = PACK_BYTES / max(size_of::<(EntryKey<K, N>, C)>(), 1);
        let most = match std::mem::needs_drop::<(EntryKey<K, N>, C)>() {
            true => 512,
            false => 4096,
        };
        clamp(entries, 16, most)
    };

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0 && self.failed.is_none()
    }

    /// Whether it is worth sending.
    pub(super) fn is_full(&self) -> bool {
        match Self::ENCODES {
            true => self.encoded_bytes >= PACK_BYTES,
            false => self.entries >= Self::ENTRIES_MAX,
        }
    }

    /// Makes room in an empty pack, if the table has `entries` entries, and `more` may be added to
    /// a pack that is not full.
    pub(super) fn begin(&mut self, entries: usize, more: usize, pool: &Arc<BufferPool>) {
        if !Self::ENCODES {
            self.copied.reserve(entries.min(Self::ENTRIES_MAX) + more);
            return;
        }
        let entry_bytes = 2 * size_of::<(EntryKey<K, N>, C)>();
        let bytes = entries.saturating_mul(entry_bytes).min(PACK_BYTES);
        self.encoded = pool.take(bytes + more * entry_bytes);
    }

    /// Adds entries of a key group.
    #[inline]
    pub(super) fn extend<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a (EntryKey<K, N>, C)>,
        key_group: KeyGroup,
    ) {
        if !Self::ENCODES {
            let before = self.copied.len();
            self.copied.extend(entries.cloned());
            self.entries += self.copied.len() - before;
            return;
        }
        // In variables of its own, which the compiler keeps in registers.
        let (mut end, mut count) = (self.encoded_bytes, 0);
        for (key, content) in entries {
            count += 1;
            // Always or never, for the keys of one type.
            let encoded = match key.fixed_encoding() {
                Some(key) => {
                    self.short_width = Some(key.width() as u8);
                    content.encode_short_entry(key, &mut self.encoded, &mut end)
                }
                None => {
                    let encoded = content.encode_entry(key, &mut self.encoded);
                    end = self.encoded.len();
                    encoded
                }
            };
            if let Err(cause) = encoded {
                // Nothing of the pack is written then, so what there is of the entry may stay.
                self.failed.get_or_insert((key_group, cause));
            }
        }
        self.encoded_bytes = end;
        self.entries += count;
    }

    /// Notes that the entries pushed since the last run are of this key group.
    pub(super) fn end_run(&mut self, key_group: KeyGroup) {
        let (entries_end, bytes_end) = (self.entries, self.encoded_bytes);
        match self.runs.last_mut() {
            Some(last) if last.key_group == key_group => {
                (last.entries_end, last.bytes_end) = (entries_end, bytes_end);
            }
            _ => self.runs.push(Run {
                key_group,
                entries_end,
                bytes_end,
            }),
        }
    }

    pub(super) fn share(self) -> Arc<dyn FrozenPack> {
        Arc::new(SharedPack(Mutex::new(self)))
    }

    /// Hands the entries to the chunks of their key groups.
    fn encode_into(
        &self,
        state: u32,
        chunks: &mut ChunkBuffers,
    ) -> Result<(), (KeyGroup, postcard::Error)> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let (mut entries, mut bytes) = (0, 0);
        for run in &self.runs {
            let mut chunk = chunks.chunk(state, run.key_group);
            if Self::ENCODES {
                let count = u32::try_from(run.entries_end - entries);
                let count = count.expect("a pack is sent long before 2^32 entries");
                let payload = &self.encoded[bytes..run.bytes_end];
                match self.short_width {
                    Some(width) => chunk.append_short(width, count, payload),
                    None => chunk.append_raw(count, payload),
                }
            } else {
                for (key, content) in &self.copied[entries..run.entries_end] {
                    content
                        .encode(key, &mut chunk)
                        .map_err(|cause| (run.key_group, cause))?;
                }
            }
            (entries, bytes) = (run.entries_end, run.bytes_end);
        }
        Ok(())
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
        pack.encode_into(state, chunks)
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
