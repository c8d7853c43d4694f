//! Reading the pieces of a checkpoint back into a backend.
//!
//! Each subtask of the job before has left a chain: a full piece, and changes to it. Chains share
//! no key group, and are restored one after the other, each in its own order. Of every piece only
//! the chunks of the backend's own key groups are read.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use tidegate_types::{CheckpointId, HASH_ID, KeyGroup, KeyGroupRange};

use super::backend::{HeapKeyedBackend, Slot, check_restored};
use super::restored::{RawChunk, RawLayer, RestoredState};
use crate::error::{LoadError, StateError};
use crate::format::{
    ChunkIndex, ChunkRole, FileError, FileIndex, KeyedFileReader, PieceKind, StateMeta,
};
use crate::key::{StateKey, schema_of};

/// Restores the pieces of one chain, oldest first. See [`HeapKeyedBackend::restore_chain`].
pub struct ChainRestore<'a, K> {
    backend: &'a mut HeapKeyedBackend<K>,
    last: Option<Restored>,
}

/// The piece that was restored last.
#[derive(Clone, Copy)]
struct Restored {
    checkpoint: CheckpointId,
    key_groups: KeyGroupRange,
}

impl<K: StateKey> HeapKeyedBackend<K> {
    /// Begins to restore a chain of pieces: one full, then the changes to it, in the order in which
    /// a checkpoint lists them. Call it for every chain whose key groups overlap with the
    /// backend's. States that are not bound yet are kept as bytes until they are, and go into
    /// snapshots meanwhile. The first snapshot after a restore is always full.
    ///
    /// ```
    /// # use std::io::Cursor;
    /// # use tidegate_state::{At, HeapKeyedBackend, TrackedSnapshot, ValueStateDescriptor};
    /// # use tidegate_types::{CheckpointId, MaxParallelism};
    /// # let max = MaxParallelism::derive(1);
    /// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
    /// let counts = backend.bind(&ValueStateDescriptor::<u64>::new("count"))?;
    /// let mut pieces = Vec::new();
    /// for (word, id) in [("to", 1), ("be", 2), ("to", 3)] {
    ///     counts.update_or(&At::key(word), 0, |count| *count += 1)?;
    ///     let base = (id > 1).then(|| CheckpointId(id - 1));
    ///     let checkpoint = CheckpointId(id);
    ///     let snapshot = TrackedSnapshot { checkpoint, base, whole: false };
    ///     let frozen = backend.freeze_tracked(&snapshot);
    ///     backend.finish_snapshots();
    ///     let mut piece = Vec::new();
    ///     frozen.write_to(&mut piece)?;
    ///     pieces.push(piece);
    /// }
    ///
    /// let mut restored = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
    /// let mut chain = restored.restore_chain();
    /// for piece in pieces {
    ///     chain.add_piece("a piece", &mut Cursor::new(piece))?;
    /// }
    /// let counts = restored.bind(&ValueStateDescriptor::<u64>::new("count"))?;
    /// assert_eq!(counts.get(&At::key("to"))?, Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore_chain(&mut self) -> ChainRestore<'_, K> {
        ChainRestore {
            backend: self,
            last: None,
        }
    }

    /// Restores a chain that is one full piece.
    ///
    /// # Errors
    /// As [`ChainRestore::add_piece`].
    pub fn restore_file<R: Read + Seek>(
        &mut self,
        file: &str,
        input: &mut R,
    ) -> Result<(), StateError> {
        self.restore_chain().add_piece(file, input)
    }

    fn check_fits(&self, index: &FileIndex) -> Result<(), FileError> {
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
                let restored = RestoredState::new(meta.clone());
                self.states.push(Slot::Restored(restored));
            }
        }
        Ok(positions)
    }
}

impl<K: StateKey> ChainRestore<'_, K> {
    /// Adds the next piece. `file` is its name, for errors.
    ///
    /// # Errors
    /// [`StateError::Restore`] if the file is damaged, of an unknown version, made with another key
    /// type, hash or max parallelism, or doesn't follow the piece before it;
    /// [`StateError::RestoredStateMismatch`] if a state has another type; [`StateError::Load`] if
    /// entries don't decode or come twice. The backend may then hold a part of the file: drop it.
    pub fn add_piece<R: Read + Seek>(
        &mut self,
        file: &str,
        input: &mut R,
    ) -> Result<(), StateError> {
        self.backend.check_not_pending()?;
        let damaged = |cause| StateError::Restore {
            file: file.into(),
            cause: Box::new(cause),
        };
        let mut reader = KeyedFileReader::open(input).map_err(damaged)?;
        self.check_follows(reader.index()).map_err(damaged)?;
        self.backend.check_fits(reader.index()).map_err(damaged)?;
        let positions = self.backend.place_states(&reader.index().states)?;
        match reader.index().kind() {
            PieceKind::Full => self.load(&mut reader, &positions, damaged)?,
            PieceKind::Changes => {
                self.forget_replaced(reader.index(), &positions);
                self.change(&mut reader, &positions, damaged)?;
            }
        }
        self.last = Some(Restored {
            checkpoint: reader.index().checkpoint,
            key_groups: reader.index().key_groups,
        });
        Ok(())
    }

    /// Checks that a piece is the next one.
    fn check_follows(&self, index: &FileIndex) -> Result<(), FileError> {
        let follows = match (index.kind(), &self.last) {
            (PieceKind::Full, None) => true,
            (PieceKind::Changes, Some(last)) => index.base == last.checkpoint,
            (PieceKind::Full, Some(_)) | (PieceKind::Changes, None) => false,
        };
        if !follows {
            let (checkpoint, base) = (index.checkpoint, index.base);
            return Err(FileError::OutOfOrder {
                piece: match index.kind() {
                    PieceKind::Full => "a full piece".to_owned(),
                    PieceKind::Changes => format!("the changes of `{checkpoint}` to `{base}`"),
                },
                previous: match &self.last {
                    None => "nothing".to_owned(),
                    Some(last) => format!("the piece of `{}`", last.checkpoint),
                },
            });
        }
        match &self.last {
            Some(last) if last.key_groups != index.key_groups => Err(FileError::Malformed {
                part: "footer".to_owned(),
                problem: "its key groups are not those of the piece before it",
            }),
            _ => Ok(()),
        }
    }

    fn load<R: Read + Seek>(
        &mut self,
        reader: &mut KeyedFileReader<'_, R>,
        positions: &[usize],
        damaged: impl Fn(FileError) -> StateError,
    ) -> Result<(), StateError> {
        let chunks = reader.chunks_in(self.backend.key_groups);
        self.make_room(&chunks, positions);
        let mut raw = RawChunk::default();
        for chunk in chunks {
            reader
                .read_chunk(&chunk, &mut raw.payload)
                .map_err(&damaged)?;
            raw.entries = chunk.entries;
            let slot = &mut self.backend.states[positions[chunk.state as usize]];
            let loaded = match slot {
                Slot::Bound(_, state) => state.load(chunk.key_group, &raw),
                Slot::Restored(restored) => restored.keep(chunk.key_group, &raw),
            };
            loaded.map_err(|cause| load_error(slot, chunk.key_group, cause))?;
        }
        Ok(())
    }

    /// Makes room for all entries of a full piece at once, so that tables need not grow as they are
    /// filled. No more than the payloads can hold, whatever the counts say.
    fn make_room(&mut self, chunks: &[ChunkIndex], positions: &[usize]) {
        let mut tables = BTreeMap::<_, usize>::new();
        for chunk in chunks {
            let table = (chunk.state, chunk.key_group.0);
            let payload_bytes = match chunk.role {
                // Each takes a byte at least.
                ChunkRole::ShortEntries => chunk.payload_bytes.saturating_mul(2),
                ChunkRole::Entries | ChunkRole::Tombstones => chunk.payload_bytes,
            };
            *tables.entry(table).or_default() += entries_at_most(chunk.entries, payload_bytes);
        }
        for ((state, key_group), entries) in tables {
            if let Slot::Bound(_, state) = &self.backend.states[positions[state as usize]] {
                state.expect_entries(KeyGroup(key_group), entries);
            }
        }
    }

    /// Forgets what the piece holds as a whole, and states that it doesn't know.
    fn forget_replaced(&mut self, index: &FileIndex, positions: &[usize]) {
        let backend = &mut *self.backend;
        let own = index.key_groups.intersection(backend.key_groups);
        for (position, slot) in backend.states.iter_mut().enumerate() {
            if let Some(own) = own
                && !positions.contains(&position)
            {
                slot.clear(own);
            }
        }
        for replaced in &index.replaced {
            let slot = &mut backend.states[positions[replaced.state as usize]];
            if let Some(own) = replaced.key_groups.intersection(backend.key_groups) {
                slot.clear(own);
            }
        }
    }

    /// Applies changes, table by table, since in each the tombstones come first.
    fn change<R: Read + Seek>(
        &mut self,
        reader: &mut KeyedFileReader<'_, R>,
        positions: &[usize],
        damaged: impl Fn(FileError) -> StateError,
    ) -> Result<(), StateError> {
        let mut tables = BTreeMap::<_, Vec<ChunkIndex>>::new();
        for chunk in reader.chunks_in(self.backend.key_groups) {
            let table = (chunk.state, chunk.key_group.0);
            tables.entry(table).or_default().push(chunk);
        }
        for ((state, key_group), chunks) in tables {
            let mut layer = RawLayer::default();
            for chunk in chunks {
                let mut raw = RawChunk::default();
                reader
                    .read_chunk(&chunk, &mut raw.payload)
                    .map_err(&damaged)?;
                raw.entries = chunk.entries;
                match chunk.role {
                    ChunkRole::Tombstones => layer.tombstones.push(raw),
                    ChunkRole::Entries | ChunkRole::ShortEntries => layer.entries.push(raw),
                }
            }
            let key_group = KeyGroup(key_group);
            let slot = &mut self.backend.states[positions[state as usize]];
            let changed = match slot {
                Slot::Bound(_, state) => state.change(key_group, &layer),
                Slot::Restored(restored) => restored.change(key_group, layer),
            };
            changed.map_err(|cause| load_error(slot, key_group, cause))?;
        }
        Ok(())
    }
}

/// How many entries a chunk can hold at most, if it says that it holds `entries`: each takes two
/// bytes, for the lengths of key and value.
pub(super) fn entries_at_most(entries: u32, payload_bytes: u64) -> usize {
    let fit = usize::try_from(payload_bytes / 2).unwrap_or(usize::MAX);
    fit.min(entries as usize)
}

fn load_error(slot: &Slot, key_group: KeyGroup, cause: LoadError) -> StateError {
    StateError::load(&slot.meta().name, key_group, cause)
}
