//! The index at the end of a keyed state file.

use std::fmt;

use tidegate_types::{CheckpointId, KeyGroup, KeyGroupRange, MaxParallelism};

use super::piece::{ChunkRole, PieceKind, ReplacedTables};
use super::{CHUNK_HEADER_BYTES, FileError, HEADER_BYTES};
use crate::descriptor::{StateKind, StateValue};
use crate::schema::value_schema;

/// Name and type of one state. Displays its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMeta {
    /// Name, unique within the operator.
    pub name: String,
    /// How it organises what it holds per key.
    pub kind: StateKind,
    /// Version of the value's type.
    pub version: u32,
    /// Encoding of its namespaces; empty if it has none.
    pub namespace_schema: String,
    /// Encoding of its map keys; empty if it isn't a map state.
    pub map_key_schema: String,
    /// Shape of the value's type.
    pub value_schema: String,
}

impl StateMeta {
    /// A state whose values are serialised as `V`, with neither namespaces nor map keys.
    pub(crate) fn new<V: StateValue>(name: &str, kind: StateKind, version: u32) -> Self {
        StateMeta {
            name: name.to_owned(),
            kind,
            version,
            namespace_schema: String::new(),
            map_key_schema: String::new(),
            value_schema: value_schema::<V>(),
        }
    }
}

impl fmt::Display for StateMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateMeta {
            kind,
            version,
            namespace_schema,
            map_key_schema,
            value_schema,
            ..
        } = self;
        write!(f, "`{kind}` version `{version}` of `{value_schema}`")?;
        if !map_key_schema.is_empty() {
            write!(f, " by `{map_key_schema}`")?;
        }
        if !namespace_schema.is_empty() {
            write!(f, " within `{namespace_schema}`")?;
        }
        Ok(())
    }
}

/// Where one chunk is, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkIndex {
    /// Index into [`FileIndex::states`].
    pub state: u32,
    /// The key group that all its keys belong to.
    pub key_group: KeyGroup,
    /// What its entries mean.
    pub role: ChunkRole,
    /// Number of entries.
    pub entries: u32,
    /// Where the chunk begins in the file, in bytes.
    pub offset: u64,
    /// Length of its payload in bytes.
    pub payload_bytes: u64,
}

/// Everything a keyed state file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIndex {
    /// The checkpoint it was made for, if later pieces may rest on it; otherwise
    /// [`CheckpointId::NONE`].
    pub checkpoint: CheckpointId,
    /// The checkpoint whose state it changes; [`CheckpointId::NONE`] if it is whole by itself.
    pub base: CheckpointId,
    /// Number of key groups of the operator.
    pub max_parallelism: MaxParallelism,
    /// The key groups of the subtask that wrote the file.
    pub key_groups: KeyGroupRange,
    /// Which hash the key groups were made with.
    pub hash_id: String,
    /// Encoding of the keys.
    pub key_schema: String,
    /// The states, in the order of their index. A piece of changes lists all there are, also those
    /// that have not changed.
    pub states: Vec<StateMeta>,
    /// Tables of which a piece of changes holds all there is: earlier pieces don't matter for them.
    /// Ascending, apart from each other; none in a full piece, which replaces everything.
    pub replaced: Vec<ReplacedTables>,
    /// The chunks, in the order in which they lie in the file.
    pub chunks: Vec<ChunkIndex>,
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("names and schemas are shorter than 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl FileIndex {
    /// Whether it is whole by itself.
    pub fn kind(&self) -> PieceKind {
        match self.base {
            CheckpointId::NONE => PieceKind::Full,
            _ => PieceKind::Changes,
        }
    }

    /// The bytes of the footer.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.chunks.len() * CHUNK_ENTRY_BYTES);
        out.extend_from_slice(&self.checkpoint.0.to_le_bytes());
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.max_parallelism.get().to_le_bytes());
        out.extend_from_slice(&u32::from(self.key_groups.start).to_le_bytes());
        out.extend_from_slice(&u32::from(self.key_groups.end).to_le_bytes());
        push_text(&self.hash_id, &mut out);
        push_text(&self.key_schema, &mut out);
        let states = u32::try_from(self.states.len()).expect("fewer than 2^32 states");
        out.extend_from_slice(&states.to_le_bytes());
        for state in &self.states {
            push_text(&state.name, &mut out);
            out.push(state.kind as u8);
            out.extend_from_slice(&state.version.to_le_bytes());
            push_text(&state.namespace_schema, &mut out);
            push_text(&state.map_key_schema, &mut out);
            push_text(&state.value_schema, &mut out);
        }
        let replaced = u32::try_from(self.replaced.len()).expect("fewer than 2^32 ranges");
        out.extend_from_slice(&replaced.to_le_bytes());
        for tables in &self.replaced {
            out.extend_from_slice(&tables.state.to_le_bytes());
            out.extend_from_slice(&tables.key_groups.start.to_le_bytes());
            out.extend_from_slice(&tables.key_groups.end.to_le_bytes());
        }
        out.extend_from_slice(&(self.chunks.len() as u64).to_le_bytes());
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.state.to_le_bytes());
            out.extend_from_slice(&chunk.key_group.0.to_le_bytes());
            out.extend_from_slice(&(chunk.role as u16).to_le_bytes());
            out.extend_from_slice(&chunk.entries.to_le_bytes());
            out.extend_from_slice(&chunk.offset.to_le_bytes());
            out.extend_from_slice(&chunk.payload_bytes.to_le_bytes());
        }
        out
    }

    /// Reads a footer whose checksum is right and that begins at `footer_offset`.
    pub(super) fn decode(bytes: &[u8], footer_offset: u64) -> Result<FileIndex, FileError> {
        let mut cursor = Cursor { rest: bytes };
        let checkpoint = CheckpointId(cursor.u64()?);
        let base = CheckpointId(cursor.u64()?);
        let max_parallelism = MaxParallelism::new(cursor.u32()?)
            .map_err(|_| malformed("max parallelism is out of range"))?;
        let key_groups = cursor.key_groups(max_parallelism)?;
        let hash_id = cursor.text()?;
        let key_schema = cursor.text()?;
        let states = (0..cursor.u32()?)
            .map(|_| cursor.state())
            .collect::<Result<Vec<_>, _>>()?;
        let replaced = (0..cursor.u32()?)
            .map(|_| cursor.replaced(key_groups))
            .collect::<Result<Vec<_>, _>>()?;
        let chunks = (0..cursor.u64()?)
            .map(|_| cursor.chunk())
            .collect::<Result<Vec<_>, _>>()?;
        if !cursor.rest.is_empty() {
            return Err(malformed("bytes are left over"));
        }
        let index = FileIndex {
            checkpoint,
            base,
            max_parallelism,
            key_groups,
            hash_id,
            key_schema,
            states,
            replaced,
            chunks,
        };
        index.check_piece()?;
        index.check_chunks(footer_offset)?;
        Ok(index)
    }

    /// Checks that it changes an earlier checkpoint, or has nothing to remove.
    fn check_piece(&self) -> Result<(), FileError> {
        match self.kind() {
            PieceKind::Full => {
                let tombstones = |chunk: &ChunkIndex| chunk.role == ChunkRole::Tombstones;
                if !self.replaced.is_empty() || self.chunks.iter().any(tombstones) {
                    return Err(malformed("a full piece says what it removes"));
                }
            }
            PieceKind::Changes if self.checkpoint <= self.base => {
                return Err(malformed(
                    "it changes a checkpoint that isn't an earlier one",
                ));
            }
            PieceKind::Changes => {}
        }
        let listed = |tables: &ReplacedTables| (tables.state as usize) < self.states.len();
        if !self.replaced.iter().all(listed) {
            return Err(malformed("it replaces a state that isn't listed"));
        }
        let ascends = |pair: &[ReplacedTables]| pair[0].is_before(&pair[1]);
        if !self.replaced.windows(2).all(ascends) {
            return Err(malformed("what it replaces is out of order"));
        }
        Ok(())
    }

    /// Checks that the chunks tile the file and refer to what exists.
    fn check_chunks(&self, footer_offset: u64) -> Result<(), FileError> {
        let mut next = HEADER_BYTES;
        for chunk in &self.chunks {
            if chunk.state as usize >= self.states.len() {
                return Err(malformed("a chunk refers to a state that isn't listed"));
            }
            if !self.key_groups.contains(chunk.key_group) {
                return Err(malformed("a chunk's key group is out of range"));
            }
            if chunk.offset != next {
                return Err(malformed("chunks have gaps or overlap"));
            }
            next = chunk
                .offset
                .checked_add(CHUNK_HEADER_BYTES)
                .and_then(|payload| payload.checked_add(chunk.payload_bytes))
                .filter(|end| *end <= footer_offset)
                .ok_or_else(|| malformed("a chunk is larger than the file"))?;
        }
        if next != footer_offset {
            return Err(malformed("chunks don't fill the file"));
        }
        Ok(())
    }
}

/// Bytes per chunk in the footer.
const CHUNK_ENTRY_BYTES: usize = 28;

fn malformed(problem: &'static str) -> FileError {
    FileError::Malformed {
        part: "footer".to_owned(),
        problem,
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], FileError> {
        let (head, tail) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| malformed("it ends too early"))?;
        self.rest = tail;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, FileError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(
            bytes.try_into().expect("took four bytes"),
        ))
    }

    fn u64(&mut self) -> Result<u64, FileError> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(
            bytes.try_into().expect("took eight bytes"),
        ))
    }

    fn text(&mut self) -> Result<String, FileError> {
        let length = self.u32()?;
        let bytes = self.take(length as usize)?;
        str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| malformed("a text is not valid UTF-8"))
    }

    fn u16(&mut self) -> Result<u16, FileError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes(
            bytes.try_into().expect("took two bytes"),
        ))
    }

    fn key_group(&mut self) -> Result<KeyGroup, FileError> {
        u16::try_from(self.u32()?)
            .map(KeyGroup)
            .map_err(|_| malformed("a key group is out of range"))
    }

    fn key_groups(&mut self, max: MaxParallelism) -> Result<KeyGroupRange, FileError> {
        let (start, end) = (self.key_group()?.0, self.key_group()?.0);
        if start > end || u32::from(end) >= max.get() {
            return Err(malformed("the key group range is impossible"));
        }
        Ok(KeyGroupRange { start, end })
    }

    fn state(&mut self) -> Result<StateMeta, FileError> {
        let name = self.text()?;
        let kind = StateKind::from_code(self.take(1)?[0])
            .ok_or_else(|| malformed("a state is of an unknown kind"))?;
        Ok(StateMeta {
            name,
            kind,
            version: self.u32()?,
            namespace_schema: self.text()?,
            map_key_schema: self.text()?,
            value_schema: self.text()?,
        })
    }

    fn replaced(&mut self, own: KeyGroupRange) -> Result<ReplacedTables, FileError> {
        let state = self.u32()?;
        let (start, end) = (self.u16()?, self.u16()?);
        let key_groups = KeyGroupRange { start, end };
        if start > end || own.intersection(key_groups) != Some(key_groups) {
            return Err(malformed("a replaced key group range is impossible"));
        }
        Ok(ReplacedTables { state, key_groups })
    }

    fn chunk(&mut self) -> Result<ChunkIndex, FileError> {
        Ok(ChunkIndex {
            state: self.u32()?,
            key_group: KeyGroup(self.u16()?),
            role: ChunkRole::from_code(self.u16()?)
                .ok_or_else(|| malformed("a chunk has an unknown role"))?,
            entries: self.u32()?,
            offset: self.u64()?,
            payload_bytes: self.u64()?,
        })
    }
}
