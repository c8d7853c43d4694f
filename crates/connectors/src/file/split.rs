//! A part of a file, and how far it has been read.

use serde::{Deserialize, Serialize};
use tidegate_state::Record;

/// Lines of one file whose first byte lies in a range; a split of a
/// [`FileSource`](super::FileSource).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSplit {
    /// The file, as it was named or found.
    pub path: String,
    /// Bytes of the file that are known: lines end there at the latest.
    pub bytes: u64,
    /// Whether the file may have become longer than `bytes`; otherwise that is an error.
    pub may_grow: bool,
    /// The first byte at which a line of this split may start.
    pub start: u64,
    /// The first byte behind those; at most `bytes`.
    pub end: u64,
    /// Where the next line starts. `None` until that is known: `start` may lie within a line that
    /// belongs to the split before it.
    pub next: Option<u64>,
    /// Which reading of the file this is, from 0.
    pub repetition: u64,
}

impl Record for FileSplit {
    fn heap_bytes(&self) -> usize {
        self.path.len()
    }
}
