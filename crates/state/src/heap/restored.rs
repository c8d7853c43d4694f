//! State that a checkpoint held and that nobody has bound yet.
//!
//! It stays as the bytes it was read as, and goes into every snapshot, until a descriptor of its
//! name is bound: a job version that doesn't use a state for a while doesn't lose it. Changes that
//! later pieces made to it are kept as layers above one another; a snapshot that needs the state as
//! a whole merges them, on the thread that writes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_types::{KeyGroup, KeyGroupRange};

use super::bound::BoundState;
use super::chunks::ChunkBuffers;
use super::link::{FrozenPack, FrozenPart, SnapshotLink};
use super::windows::{Cut, Extent};
use crate::descriptor::StateKind;
use crate::error::{LoadError, StateError};
use crate::format::{Entries, StateMeta, Tombstones, encode_entry};

/// Payload of one chunk, as read.
#[derive(Clone, Default)]
pub(super) struct RawChunk {
    pub(super) entries: u32,
    pub(super) payload: Vec<u8>,
}

/// What one piece says of one key group of a state.
#[derive(Clone, Default)]
pub(super) struct RawLayer {
    pub(super) tombstones: Vec<RawChunk>,
    pub(super) entries: Vec<RawChunk>,
}

/// One key group of a state. Shared with the snapshots that contain it.
#[derive(Clone)]
struct RawTable {
    key_group: KeyGroup,
    /// Whether the keys of entries go on behind that of a tombstone.
    is_map: bool,
    /// The oldest first; there is one.
    layers: Vec<RawLayer>,
}

/// A restored state that is not bound.
pub(super) struct RestoredState {
    pub(super) meta: StateMeta,
    tables: BTreeMap<KeyGroup, Arc<RawTable>>,
    /// Whether it was restored within the recent window; see [`windows`](super::windows).
    recent: bool,
    /// Whether it was restored within the older window.
    older: bool,
}

impl RestoredState {
    /// One of which nothing is known yet.
    pub(super) fn new(meta: StateMeta) -> Self {
        RestoredState {
            meta,
            tables: BTreeMap::new(),
            recent: true,
            older: false,
        }
    }

    fn table(&mut self, key_group: KeyGroup) -> &mut RawTable {
        self.recent = true;
        let is_map = self.meta.kind == StateKind::Map;
        let table = self.tables.entry(key_group).or_insert_with(|| {
            Arc::new(RawTable {
                key_group,
                is_map,
                layers: vec![RawLayer::default()],
            })
        });
        Arc::make_mut(table)
    }

    /// Keeps a chunk of a full piece. Its entries are walked, not decoded: their types are not
    /// known.
    pub(super) fn keep(&mut self, key_group: KeyGroup, chunk: &RawChunk) -> Result<(), LoadError> {
        for entry in Entries::new(&chunk.payload, chunk.entries) {
            entry?;
        }
        let layers = &mut self.table(key_group).layers;
        layers[0].entries.push(chunk.clone());
        Ok(())
    }

    /// Keeps what a piece of changes says.
    pub(super) fn change(&mut self, key_group: KeyGroup, layer: RawLayer) -> Result<(), LoadError> {
        for chunk in &layer.tombstones {
            for tombstone in Tombstones::new(&chunk.payload, chunk.entries) {
                tombstone?;
            }
        }
        for chunk in &layer.entries {
            for entry in Entries::new(&chunk.payload, chunk.entries) {
                entry?;
            }
        }
        self.table(key_group).layers.push(layer);
        Ok(())
    }

    /// Forgets some key groups.
    pub(super) fn clear(&mut self, key_groups: KeyGroupRange) {
        self.recent = true;
        self.tables.retain(|group, _| !key_groups.contains(*group));
    }

    /// Loads everything into a state that is being bound.
    pub(super) fn load_into(&self, state: &dyn BoundState) -> Result<(), StateError> {
        for (&key_group, table) in &self.tables {
            let (first, changes) = table.layers.split_first().expect("there is one");
            let full = first.entries.iter();
            full.map(|chunk| state.load(key_group, chunk))
                .chain(changes.iter().map(|layer| state.change(key_group, layer)))
                .collect::<Result<(), LoadError>>()
                .map_err(|cause| StateError::load(&self.meta.name, key_group, cause))?;
        }
        Ok(())
    }

    /// Hands a snapshot what it needs: everything, or nothing if that is what has changed. The
    /// bytes are shared, not copied. Returns whether it was everything.
    pub(super) fn snapshot(&mut self, link: &SnapshotLink, state: u32, cut: Cut) -> bool {
        let whole = match cut.extent {
            Extent::Everything => true,
            Extent::Recent => self.recent,
            Extent::Both => self.recent || self.older,
        };
        if cut.shifts {
            self.older = std::mem::take(&mut self.recent);
        }
        if whole {
            for table in self.tables.values() {
                let pack: Arc<dyn FrozenPack> = Arc::<RawTable>::clone(table);
                link.send(FrozenPart::Pack { state, pack });
            }
        }
        link.send(FrozenPart::StateDone);
        whole
    }

    /// Number of entries. Merges layers to count them.
    pub(super) fn len(&self) -> usize {
        self.tables.values().map(|table| table.len()).sum()
    }
}

impl RawTable {
    fn len(&self) -> usize {
        match &self.layers[..] {
            [only] => only
                .entries
                .iter()
                .map(|chunk| chunk.entries as usize)
                .sum(),
            _ => self.merged().len(),
        }
    }

    /// All entries, after all changes.
    fn merged(&self) -> BTreeMap<&[u8], &[u8]> {
        let mut merged = BTreeMap::new();
        for layer in &self.layers {
            for chunk in &layer.tombstones {
                // All was walked when it was kept.
                for (_, key) in Tombstones::new(&chunk.payload, chunk.entries).flatten() {
                    match self.is_map {
                        true => remove_prefixed(&mut merged, key),
                        false => _ = merged.remove(key),
                    }
                }
            }
            for chunk in &layer.entries {
                let entries = Entries::new(&chunk.payload, chunk.entries).flatten();
                merged.extend(entries.map(|(_, key, value)| (key, value)));
            }
        }
        merged
    }
}

/// Removes all keys that begin with `prefix`. The elements of a key delimit themselves, so these
/// are those of one map.
fn remove_prefixed<'a>(merged: &mut BTreeMap<&'a [u8], &'a [u8]>, prefix: &'a [u8]) {
    let from = merged.range(prefix..).map(|(key, _)| *key);
    let keys: Vec<&[u8]> = from.take_while(|key| key.starts_with(prefix)).collect();
    for key in keys {
        merged.remove(key);
    }
}

impl FrozenPack for RawTable {
    fn encode(
        &self,
        state: u32,
        chunks: &mut ChunkBuffers,
    ) -> Result<(), (KeyGroup, postcard::Error)> {
        let mut chunk = chunks.chunk(state, self.key_group);
        if let [only] = &self.layers[..] {
            for entries in &only.entries {
                chunk.append_raw(entries.entries, &entries.payload);
            }
            return Ok(());
        }
        for (key, value) in self.merged() {
            let value = |out: &mut Vec<u8>| {
                out.extend_from_slice(value);
                Ok(())
            };
            let key = |out: &mut Vec<u8>| out.extend_from_slice(key);
            chunk
                .append(|out| encode_entry(out, key, value))
                .map_err(|cause| (self.key_group, cause))?;
        }
        Ok(())
    }
}
