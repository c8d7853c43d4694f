//! Reading keyed state files without the job: what is in them is shown by the schemas they carry.
//!
//! One file is one piece of a subtask's state; a piece of changes is shown as what it says, not
//! applied to what it changes.
//!
//! What a schema doesn't tell stays [opaque](Dynamic::Opaque), and so does everything whose schema
//! isn't one (the key type's `StateKey::schema` was written by hand): the bytes are shown.
//!
//! Invariants checked, beyond those of [`KeyedFileReader`]: each entry is what its schemas say, to
//! the last byte, and belongs to the key group that it is filed under.

use std::io::{Read, Seek};

use tidegate_types::{HASH_ID, KeyGroup, KeyGroupRange, hash_bytes};

use crate::error::LoadError;
use crate::format::{
    ChunkIndex, ChunkRole, Entries, FileError, FileIndex, KeyedFileReader, StateMeta, Tombstones,
};
use crate::schema::{
    DecodeError, Dynamic, Schema, decode_key, decode_key_elements, decode_value, first_key_extent,
};

/// The schemas of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSchemas {
    /// Of its namespaces, if it has any.
    pub namespace: Option<Schema>,
    /// Of its map keys, if it is a map.
    pub map_key: Option<Schema>,
    /// Of its values.
    pub value: Schema,
}

impl StateSchemas {
    fn of(meta: &StateMeta) -> Self {
        let if_any = |text: &str| (!text.is_empty()).then(|| parse_or_opaque(text));
        StateSchemas {
            namespace: if_any(&meta.namespace_schema),
            map_key: if_any(&meta.map_key_schema),
            value: parse_or_opaque(&meta.value_schema),
        }
    }
}

fn parse_or_opaque(text: &str) -> Schema {
    Schema::parse(text).unwrap_or_else(|_| Schema::opaque())
}

/// One entry of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct InspectedEntry {
    /// The state, as an index into [`FileIndex::states`].
    pub state: usize,
    /// The key group it is filed under.
    pub key_group: KeyGroup,
    /// The stream's key.
    pub key: Dynamic,
    /// The namespace, if the state has them.
    pub namespace: Option<Dynamic>,
    /// The map key, in an entry of a map.
    pub map_key: Option<Dynamic>,
    /// The value; `None` in a tombstone, which says that what was under the key is gone.
    pub value: Option<Dynamic>,
}

/// A keyed state file can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file is damaged, or no such file.
    #[error("read a keyed state file")]
    File(#[from] FileError),
    /// The entries of a chunk don't add up, though its checksum is right.
    #[error("read state `{state}`, key group `{key_group}`")]
    Entries {
        /// The state.
        state: String,
        /// The key group.
        key_group: KeyGroup,
        /// What is wrong.
        #[source]
        cause: LoadError,
    },
    /// An entry isn't what its schema says.
    #[error("decode the {part} of entry `{entry}` of state `{state}`, key group `{key_group}`")]
    Decode {
        /// The state.
        state: String,
        /// The key group.
        key_group: KeyGroup,
        /// Position in its chunk.
        entry: u32,
        /// Key or value.
        part: &'static str,
        /// What is wrong.
        #[source]
        cause: DecodeError,
    },
}

/// A keyed state file that is read by its own schemas.
///
/// ```
/// use std::io::Cursor;
/// use tidegate_state::inspect::KeyedFileInspector;
/// use tidegate_state::{At, HeapKeyedBackend, ValueStateDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let counts = backend.value_state(&ValueStateDescriptor::<u64>::new("count"))?;
/// counts.set(&At::key("apple"), 3)?;
/// let frozen = backend.freeze();
/// backend.finish_snapshots();
/// let mut file = Vec::new();
/// frozen.write_to(&mut file)?;
///
/// let mut input = Cursor::new(file);
/// let mut inspector = KeyedFileInspector::open(&mut input)?;
/// assert_eq!(inspector.index().states[0].name, "count");
/// let everything = inspector.index().key_groups;
/// inspector.for_each(everything, |entry| {
///     assert_eq!(entry.key.to_string(), "\"apple\"");
///     assert_eq!(entry.value.unwrap().to_string(), "3");
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyedFileInspector<'a, R> {
    reader: KeyedFileReader<'a, R>,
    key: Schema,
    states: Vec<StateSchemas>,
}

impl<'a, R: Read + Seek> KeyedFileInspector<'a, R> {
    /// Reads and verifies all but the chunks.
    ///
    /// # Errors
    /// [`FileError`], as from [`KeyedFileReader::open`].
    pub fn open(input: &'a mut R) -> Result<Self, FileError> {
        let reader = KeyedFileReader::open(input)?;
        let index = reader.index();
        Ok(KeyedFileInspector {
            key: parse_or_opaque(&index.key_schema),
            states: index.states.iter().map(StateSchemas::of).collect(),
            reader,
        })
    }

    /// What the file says about itself.
    pub fn index(&self) -> &FileIndex {
        self.reader.index()
    }

    /// The schema of the stream's keys.
    pub fn key_schema(&self) -> &Schema {
        &self.key
    }

    /// The schemas of the states, in the order of [`FileIndex::states`].
    pub fn state_schemas(&self) -> &[StateSchemas] {
        &self.states
    }

    /// Shows all entries in these key groups to `visit`, in the order in which they lie in the
    /// file. Needs memory for one chunk at a time.
    ///
    /// # Errors
    /// [`InspectError`], at the first chunk that is damaged or entry that can't be decoded; what
    /// came before has been shown.
    pub fn for_each(
        &mut self,
        key_groups: KeyGroupRange,
        mut visit: impl FnMut(InspectedEntry),
    ) -> Result<(), InspectError> {
        let mut payload = Vec::new();
        for chunk in self.reader.chunks_in(key_groups) {
            self.reader.read_chunk(&chunk, &mut payload)?;
            let chunk = Chunk {
                index: chunk,
                file: self.reader.index(),
                key: &self.key,
                schemas: &self.states[chunk.state as usize],
            };
            match chunk.index.role {
                ChunkRole::Entries | ChunkRole::ShortEntries => {
                    chunk.entries(&payload, &mut visit)?
                }
                ChunkRole::Tombstones => chunk.tombstones(&payload, &mut visit)?,
            }
        }
        Ok(())
    }
}

/// A chunk and what is needed to understand its payload.
struct Chunk<'a> {
    index: ChunkIndex,
    file: &'a FileIndex,
    key: &'a Schema,
    schemas: &'a StateSchemas,
}

impl Chunk<'_> {
    fn entries(
        &self,
        payload: &[u8],
        visit: &mut impl FnMut(InspectedEntry),
    ) -> Result<(), InspectError> {
        for read in Entries::new(payload, self.index.entries) {
            let (at, key, value) = read.map_err(|cause| self.malformed(cause))?;
            let mut entry = self.keyed(at, key, self.schemas.map_key.as_ref())?;
            let value = decode_value(&self.schemas.value, value);
            entry.value = Some(value.map_err(|cause| self.undecodable(at, "value", cause))?);
            visit(entry);
        }
        Ok(())
    }

    fn tombstones(
        &self,
        payload: &[u8],
        visit: &mut impl FnMut(InspectedEntry),
    ) -> Result<(), InspectError> {
        for read in Tombstones::new(payload, self.index.entries) {
            let (at, key) = read.map_err(|cause| self.malformed(cause))?;
            visit(self.keyed(at, key, None)?);
        }
        Ok(())
    }

    /// An entry with what its key says.
    fn keyed(
        &self,
        entry: u32,
        bytes: &[u8],
        map_key: Option<&Schema>,
    ) -> Result<InspectedEntry, InspectError> {
        self.check_key_group(entry, bytes)?;
        let undecodable = |cause| self.undecodable(entry, "key", cause);
        let mut found = InspectedEntry {
            state: self.index.state as usize,
            key_group: self.index.key_group,
            key: Dynamic::Unit,
            namespace: None,
            map_key: None,
            value: None,
        };
        if !self.has_elements() {
            found.key = decode_key(self.key, bytes).map_err(undecodable)?;
            return Ok(found);
        }
        let namespace = self.schemas.namespace.as_ref();
        let schemas: Vec<_> = [Some(self.key), namespace, map_key]
            .into_iter()
            .flatten()
            .collect();
        let elements = decode_key_elements(&schemas, bytes).map_err(undecodable)?;
        let mut elements = elements.into_iter();
        found.key = elements.next().unwrap_or(Dynamic::Unit);
        found.namespace = namespace.and_then(|_| elements.next());
        found.map_key = map_key.and_then(|_| elements.next());
        Ok(found)
    }

    /// Whether keys in the file consist of more than the stream's key.
    fn has_elements(&self) -> bool {
        self.schemas.namespace.is_some() || self.schemas.map_key.is_some()
    }

    /// Compares the key group with that of the key, if this build knows the hash and the schema
    /// says where the stream's key ends.
    fn check_key_group(&self, entry: u32, bytes: &[u8]) -> Result<(), InspectError> {
        let key = match self.has_elements() {
            false => Some(bytes),
            true => first_key_extent(self.key, bytes)
                .and_then(|(end, delimiter)| bytes.get(delimiter..end)),
        };
        let Some(key) = key.filter(|_| self.file.hash_id == HASH_ID) else {
            return Ok(());
        };
        let belongs = self.file.max_parallelism.key_group(hash_bytes(key));
        if belongs == self.index.key_group {
            return Ok(());
        }
        Err(self.malformed(LoadError::KeyGroup { entry, belongs }))
    }

    fn malformed(&self, cause: LoadError) -> InspectError {
        InspectError::Entries {
            state: self.state_name(),
            key_group: self.index.key_group,
            cause,
        }
    }

    fn undecodable(&self, entry: u32, part: &'static str, cause: DecodeError) -> InspectError {
        InspectError::Decode {
            state: self.state_name(),
            key_group: self.index.key_group,
            entry,
            part,
            cause,
        }
    }

    fn state_name(&self) -> String {
        self.file.states[self.index.state as usize].name.clone()
    }
}
