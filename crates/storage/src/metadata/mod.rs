//! The `_metadata` file, format version 1: everything a restore needs to know of a checkpoint.
//!
//! All integers are little endian. `text` is a `u32` length and that many bytes of UTF-8.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `TIDEMETA` |
//! | 8 | 4 | format version, `u32` |
//! | 12 | 8 | length of the body, `u64` |
//! | 20 | 4 | CRC-32C of the body |
//! | 24 | 4 | CRC-32C of bytes 0 to 23 |
//! | 28 | – | body; nothing follows it |
//!
//! The header is the same in every version, so a damaged file is told from a newer one. The body:
//!
//! | what | encoding |
//! |---|---|
//! | checkpoint id, job id, attempt | `u64`, `u128`, `u64` |
//! | kind | `u8`: 0 checkpoint, 1 final, 2 savepoint, 3 stop with savepoint, 4 with drain |
//! | triggered at | `u64`, milliseconds since the Unix epoch |
//! | hash id | text |
//! | number of operators, then each operator | `u32` |
//!
//! An operator: uid (text), max parallelism (`u32`), number of subtasks (`u32`), then each subtask:
//!
//! | what | encoding |
//! |---|---|
//! | flags | `u8`: bit 0 keyed state follows, bit 1 finished; others are 0 |
//! | keyed state, if any: first and last key group | `u16`, `u16` |
//! | its number of pieces, then each piece, oldest first | `u32` |
//! | number of lists, then each list | `u32` |
//!
//! A piece: `u8` 0 and a file, as name (text), bytes (`u64`) and CRC-32C (`u32`); or `u8` 1 and the
//! piece itself, as `u32` length and bytes.
//!
//! A list: name (text), redistribution (`u8`: 0 split, 1 union, 2 broadcast), number of elements
//! (`u32`), then each element as `u32` length and bytes.
//!
//! Invariants: one value has one encoding; decoding allocates no more than a constant times the
//! bytes given, whatever the lengths in them claim; what can be encoded can be decoded ([`check`]
//! runs on both sides).

mod decode;
mod encode;

#[cfg(test)]
mod tests;

use tidegate_types::{CompletedCheckpoint, FileHandle, SnapshotKind};

use crate::location::split_url;
use crate::names::{is_plain_state_file, is_state_file_name};

pub(crate) use decode::decode;
pub(crate) use encode::encode;

const MAGIC: &[u8; 8] = b"TIDEMETA";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 28;

/// Largest metadata file that is written or read.
pub(crate) const METADATA_BYTES_MAX: u64 = 256 << 20;

const FLAG_KEYED: u8 = 1;
const FLAG_FINISHED: u8 = 2;

const PIECE_FILE: u8 = 0;
const PIECE_INLINE: u8 = 1;

/// What must hold of a checkpoint beyond its types.
fn check(checkpoint: &CompletedCheckpoint) -> Result<(), String> {
    for op in &checkpoint.operators {
        let (uid, max) = (&op.uid, op.max_parallelism);
        let parallelism = op.subtasks.len();
        if parallelism == 0 || parallelism > max.get() as usize {
            return Err(format!(
                "operator `{uid}` has {parallelism} subtasks and max parallelism {max}"
            ));
        }
        for keyed in op.subtasks.iter().filter_map(|s| s.keyed.as_ref()) {
            let range = keyed.key_groups;
            if range.start > range.end || u32::from(range.end) >= max.get() {
                return Err(format!(
                    "operator `{uid}` has key groups {}..={} of {max}",
                    range.start, range.end
                ));
            }
            let misnamed = |file: &&FileHandle| !may_name(checkpoint.kind, &file.name);
            if let Some(file) = keyed.files().find(misnamed) {
                return Err(format!("`{}` is no name of a state file", file.name));
            }
        }
    }
    Ok(())
}

/// Whether a file of a snapshot of this kind may be named like this. A savepoint's files lie beside
/// its metadata; a checkpoint's in folders of its namespace, or anywhere else.
fn may_name(kind: SnapshotKind, name: &str) -> bool {
    if kind.is_savepoint() {
        return is_plain_state_file(name);
    }
    is_state_file_name(name) || split_url(name).is_some()
}
