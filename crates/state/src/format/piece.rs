//! What makes a file a piece: whether it stands alone, and what its parts do to earlier pieces.

use tidegate_types::{KeyGroup, KeyGroupRange};

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
    /// As [`Entries`](Self::Entries), but shorter: keys are of fixed width. Since version 2.
    ShortEntries = 2,
}

impl ChunkRole {
    /// The role with this number in a file.
    pub(super) fn from_code(code: u16) -> Option<ChunkRole> {
        let roles = [
            ChunkRole::Entries,
            ChunkRole::Tombstones,
            ChunkRole::ShortEntries,
        ];
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
    /// The tables of these key groups, which are in order, in as few ranges as possible.
    pub(crate) fn of_state(
        state: u32,
        groups: &[KeyGroup],
    ) -> impl Iterator<Item = ReplacedTables> {
        let ranges = groups.chunk_by(|group, next| group.0.checked_add(1) == Some(next.0));
        ranges.map(move |range| ReplacedTables {
            state,
            key_groups: KeyGroupRange {
                start: range[0].0,
                end: range[range.len() - 1].0,
            },
        })
    }

    /// Whether all its tables come before all of `other`.
    pub(super) fn is_before(&self, other: &ReplacedTables) -> bool {
        let end = (self.state, self.key_groups.end);
        end < (other.state, other.key_groups.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_groups_in_a_row_are_one_range() {
        let ranges = |groups: &[u16]| -> Vec<_> {
            let groups: Vec<_> = groups.iter().copied().map(KeyGroup).collect();
            let tables = ReplacedTables::of_state(7, &groups);
            tables.map(|tables| tables.key_groups.to_string()).collect()
        };
        assert_eq!(ranges(&[]), [""; 0]);
        assert_eq!(ranges(&[3]), ["3..=3"]);
        assert_eq!(ranges(&[0, 1, 2, 4, 7, 8]), ["0..=2", "4..=4", "7..=8"]);
    }
}
