//! Byte format of a keyed state file, version 2.
//!
//! One file is one *piece* of the keyed state of one subtask: a full piece holds all of it at one
//! checkpoint, a piece of changes says what became of the state of an earlier one, its base. A full
//! piece and what changes it, oldest first, are the state of a checkpoint. A file is written front
//! to back while the stream goes on, so its index comes last; a reader starts at the end, and seeks
//! to the chunks of the key groups it wants. All integers are little endian; *varint* is unsigned
//! LEB128 in its shortest form; a *text* is its length in bytes as `u32`, then UTF-8.
//!
//! File: header, chunks, footer, trailer, without gaps.
//!
//! | Header | | |
//! |---|---|---|
//! | 0 | 8 | magic `TDGKEYED` |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | CRC-32C of bytes 0 to 11 |
//!
//! | Chunk | | |
//! |---|---|---|
//! | 0 | 4 | state: index into the footer's list of states |
//! | 4 | 2 | key group |
//! | 6 | 2 | role: 0 = entries, 1 = tombstones, 2 = short entries |
//! | 8 | 4 | number of entries |
//! | 12 | 8 | length of the payload in bytes |
//! | 20 | 4 | CRC-32C of bytes 0 to 19 and the payload |
//! | 24 | … | payload: per entry varint key length, key, varint value length, value |
//! | | | per tombstone varint key length, key |
//! | | | short entries: see [`short`] |
//!
//! A state and key group may have any number of chunks, in any order; an entry is in one of them.
//! The key of an entry is a [canonical encoding](crate::StateKey): of the stream's key as a whole
//! if the state has neither namespaces nor map keys; otherwise of the elements stream key,
//! namespace (if any) and map key (if any), one after the other. Values are postcard. What a value
//! is, and how many entries a key has, is a matter of the [kind of state](crate::StateKind).
//!
//! | Footer | |
//! |---|---|
//! | 8 | checkpoint it was made for; 0 if nothing may rest on it |
//! | 8 | base: checkpoint whose state it changes; 0 in a full piece |
//! | 4, 4, 4 | max parallelism; first and last key group |
//! | text | id of the key hash |
//! | text | schema of the key type |
//! | 4 | number of states; then per state: |
//! | text, 1, 4 | name, kind, value version |
//! | text, text, text | schemas of namespace, map key (each empty if there is none), and value |
//! | 4 | number of replaced ranges, ascending; 0 in a full piece; then per range: |
//! | 4, 2, 2 | state, first and last key group |
//! | 8 | number of chunks; then per chunk: |
//! | 4, 2, 2, 4 | state, key group, role, entries |
//! | 8, 8 | offset of the chunk in the file, payload length |
//!
//! | Trailer | | |
//! |---|---|---|
//! | 0 | 8 | length of the footer |
//! | 8 | 4 | CRC-32C of the footer |
//! | 12 | 4 | CRC-32C of bytes 0 to 11 |
//! | 16 | 8 | magic `TDGKDONE` |
//!
//! How a piece of changes is applied, for each state and key group: if it is replaced, all that
//! earlier pieces have of it is forgotten; else what is under the keys of its tombstones, and under
//! those of its entries. Then its entries are added. A state that the piece doesn't list is
//! forgotten as a whole. *Under a key* is whatever the stream's key has in a namespace, with all
//! map keys: a map that has changed is in the tombstones and, if anything is left, as a whole in
//! the entries. A tombstone holds the beginning of an entry's key, up to and without the map key.
//!
//! Invariants that a reader checks: a piece of changes follows the piece of its base, a full piece
//! follows nothing; within a piece no key comes twice; chunks lie between header and footer in the
//! order of the index, without gaps; no length exceeds the file; states and key groups are in
//! range. So no altered or missing byte goes unnoticed: every byte is covered by a checksum or
//! compared with a constant.
//!
//! Value versions belong to the user's types; the version in the header to this format. Version 1
//! has no short entries, and is the same otherwise.

mod entry;
mod footer;
mod piece;
mod read;
mod short;
mod write;

use std::io;

pub(crate) use entry::{
    Entries, Tombstones, decode_value, encode_entry, encode_tombstone, encode_value,
};
pub use footer::{ChunkIndex, FileIndex, StateMeta};
pub use piece::{ChunkRole, PieceKind, ReplacedTables};
pub use read::KeyedFileReader;
pub(crate) use short::encode_short_entry;
pub(crate) use write::KeyedFileWriter;

/// The version this module writes. It reads this one and all before.
pub const FORMAT_VERSION: u32 = 2;

/// The first version that has short entries.
const SHORT_ENTRIES_VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"TDGKEYED";
const MAGIC_END: &[u8; 8] = b"TDGKDONE";
const HEADER_BYTES: u64 = 16;
const CHUNK_HEADER_BYTES: u64 = 24;
const TRAILER_BYTES: u64 = 24;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedFileSummary {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Entries over all states.
    pub entries: u64,
    /// Removed keys over all states.
    pub tombstones: u64,
    /// Chunks.
    pub chunks: u64,
}

/// A keyed state file is damaged or doesn't fit.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Reading failed.
    #[error("read {part}")]
    Read {
        /// Which part.
        part: String,
        /// What the reader says.
        #[source]
        cause: io::Error,
    },
    /// The file is too short to be one.
    #[error("file of `{bytes}` bytes is truncated")]
    Truncated {
        /// Its length.
        bytes: u64,
    },
    /// The file doesn't begin as a keyed state file does.
    #[error("not a keyed state file: it begins with the wrong magic number")]
    Magic,
    /// The file was written by another version of the format.
    #[error(
        "format version `{version}` is unknown; this build reads versions up to `{FORMAT_VERSION}`"
    )]
    Version {
        /// The version in the file.
        version: u32,
    },
    /// The file doesn't end as it should: it is truncated, or was never completed.
    #[error("file of `{bytes}` bytes is truncated or incomplete: its end mark is missing")]
    Incomplete {
        /// Its length.
        bytes: u64,
    },
    /// A part was altered.
    #[error("checksum of {part} is `{actual:08x}` instead of `{expected:08x}`")]
    Checksum {
        /// Which part.
        part: String,
        /// The checksum in the file.
        expected: u32,
        /// The checksum of the bytes that are there.
        actual: u32,
    },
    /// A part contradicts itself or another, though its checksum is right.
    #[error("{part} is malformed: {problem}")]
    Malformed {
        /// Which part.
        part: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A piece of changes that doesn't follow its base, or a full piece that isn't the first.
    #[error("{piece} can't follow {previous}")]
    OutOfOrder {
        /// What the file is.
        piece: String,
        /// What was read before it.
        previous: String,
    },
    /// The keys are of another type.
    #[error("keys were saved as `{saved}`, but the job's key type is `{declared}`")]
    KeySchema {
        /// Schema in the file.
        saved: String,
        /// Schema of the backend.
        declared: String,
    },
    /// Key groups were made with another hash.
    #[error("key groups were made with hash `{saved}`, but this build uses `{used}`")]
    Hash {
        /// Hash id in the file.
        saved: String,
        /// Hash id of this build.
        used: &'static str,
    },
    /// Another number of key groups.
    #[error("state has max parallelism `{saved}`, but the operator has `{declared}`")]
    MaxParallelism {
        /// Number in the file.
        saved: u32,
        /// Number of the backend.
        declared: u32,
    },
}

/// Compares checksums.
fn check_crc(part: impl Fn() -> String, expected: u32, actual: u32) -> Result<(), FileError> {
    if expected == actual {
        return Ok(());
    }
    Err(FileError::Checksum {
        part: part(),
        expected,
        actual,
    })
}
