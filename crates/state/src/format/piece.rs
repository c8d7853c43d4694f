//! What makes a file a piece: whether it stands alone, and what its parts do to earlier pieces.

use tidegate_types::KeyGroupRange;

/// Whether a piece is whole by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceKind {
    /// All state of the subtask.
    Full,
    /// What has changed since an earlier checkpoint.
    Changes,
}

/// What the entries of a chunk mean. The number is part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ChunkRole {
    /// Keys and what they have. In a piece of changes, instead of what they had before.
    Entries = 0,
    /// Keys whose former content is forgotten. They may have come back: then they are in the
    /// entries, too.
    Tombstones = 1,
}

impl ChunkRole {
    /// The role with this number in a file.
    pub(super) fn from_code(code: u16) -> Option<ChunkRole> {
        let roles = [ChunkRole::Entries, ChunkRole::Tombstones];
        roles.into_iter().find(|role| *role as u16 == code)
    }
}

/// Tables of one state that a piece of changes holds as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedTables {
    /// Index into the list of states.
    pub state: u32,
    /// The key groups of the tables.
    pub key_groups: KeyGroupRange,
}

impl ReplacedTables {
    /// Whether all its tables come before all of `other`.
    pub(super) fn is_before(&self, other: &ReplacedTables) -> bool {
        let end = (self.state, self.key_groups.end);
        end < (other.state, other.key_groups.start)
    }
}
