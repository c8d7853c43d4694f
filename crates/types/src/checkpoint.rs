//! What a checkpoint consists of: handles to durable files, small state inline, and which subtask
//! of which operator it came from.
//!
//! The byte format of `_metadata` lives in `storage`; these are the domain types.

use std::sync::Arc;

use crate::barrier::SnapshotKind;
use crate::ids::{AttemptNumber, CheckpointId, JobId, OperatorUid};
use crate::key_group::{KeyGroupRange, MaxParallelism};
use crate::location::SnapshotLocation;
use crate::time::UnixMillis;

/// Pointer to one durable, immutable file of a checkpoint.
///
/// Whoever holds the pending or [completed](CompletedCheckpoint) checkpoints that list it owns the
/// file; it is deleted exactly once, when the last of them has been dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle {
    /// Name relative to the job's namespace, `/`-separated; or, for a file that lies elsewhere
    /// (in a savepoint, or in another job's checkpoint), its whole URL. Unique for ever, since it
    /// carries the attempt and a random part.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of the whole file.
    pub crc32c: u32,
}

impl FileHandle {
    /// Whether the file lies outside of the job's namespace: its name is a whole URL.
    pub fn lies_elsewhere(&self) -> bool {
        self.name.contains("://")
    }

    /// Whether it was written for this checkpoint: it lies in its folder in the job's own
    /// namespace, or in the folder `location`.
    pub fn is_of(&self, checkpoint: CheckpointId, location: Option<&SnapshotLocation>) -> bool {
        let folder = match location {
            None => format!("{checkpoint}/"),
            Some(location) => location.child("").to_string(),
        };
        let name = self.name.strip_prefix(&folder);
        name.is_some_and(|name| !name.contains('/'))
    }
}

/// One part of a subtask's keyed state, in the format of the state backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyedPiece {
    /// A file, which later checkpoints may share.
    File(FileHandle),
    /// The bytes themselves: what is small travels in the acknowledgement and lives in
    /// `_metadata`. Cheap to clone.
    Inline(Arc<[u8]>),
}

impl KeyedPiece {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&FileHandle> {
        match self {
            Self::File(file) => Some(file),
            Self::Inline(_) => None,
        }
    }

    /// The file, if it is one, to name it anew.
    pub fn file_mut(&mut self) -> Option<&mut FileHandle> {
        match self {
            Self::File(file) => Some(file),
            Self::Inline(_) => None,
        }
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.bytes,
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Keyed state of one subtask: all its keyed states, by key group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedStateHandle {
    /// Where the bytes are, oldest first: a restore reads a full piece, then the changes to it, in
    /// this order. None if no key has state.
    pub pieces: Vec<KeyedPiece>,
    /// The key groups that the pieces cover together, and each of them.
    pub key_groups: KeyGroupRange,
}

impl KeyedStateHandle {
    /// State that is in one file as a whole.
    pub fn of_file(file: FileHandle, key_groups: KeyGroupRange) -> Self {
        KeyedStateHandle {
            pieces: vec![KeyedPiece::File(file)],
            key_groups,
        }
    }

    /// The files among the pieces, oldest first.
    pub fn files(&self) -> impl Iterator<Item = &FileHandle> {
        self.pieces.iter().filter_map(KeyedPiece::file)
    }

    /// The files among the pieces, to name them anew.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut FileHandle> {
        self.pieces.iter_mut().filter_map(KeyedPiece::file_mut)
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().map(KeyedPiece::bytes);
        pieces.fold(0, u64::saturating_add)
    }
}

/// How the elements of an operator list state are dealt out at restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Redistribution {
    /// Every element goes to exactly one subtask.
    Split,
    /// Every subtask gets all elements of all subtasks.
    Union,
    /// All subtasks hold the same list; every subtask gets one copy.
    Broadcast,
}

/// Operator (non-keyed) state of one subtask: a named list of opaque elements, kept inline in the
/// acknowledgement and in `_metadata`. Meant for what is small: offsets, splits, transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListState {
    /// Name, unique within the operator.
    pub name: String,
    /// How the list is dealt out at restore.
    pub redistribution: Redistribution,
    /// The serialised elements, in the order of the snapshot.
    pub elements: Vec<Vec<u8>>,
}

/// All state of one subtask in one checkpoint. The default is a stateless subtask.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SubtaskState {
    /// Keyed state, if the operator has any.
    pub keyed: Option<KeyedStateHandle>,
    /// Operator list states, in order of their names.
    pub lists: Vec<ListState>,
    /// Whether all input had ended and `finish()` had run before the snapshot. A restore must not
    /// finish a second time.
    pub finished: bool,
}

impl SubtaskState {
    /// The files this state refers to.
    pub fn files(&self) -> impl Iterator<Item = &FileHandle> {
        self.keyed.iter().flat_map(KeyedStateHandle::files)
    }

    /// Bytes of state: of all pieces, and of the elements of lists.
    pub fn bytes(&self) -> u64 {
        let keyed = self.keyed.as_ref().map_or(0, KeyedStateHandle::bytes);
        let elements = self.lists.iter().flat_map(|list| &list.elements);
        let lists: usize = elements.map(Vec::len).sum();
        keyed.saturating_add(lists as u64)
    }

    /// Those of its [bytes](Self::bytes) that were written for this checkpoint, which lies in
    /// `location` if that isn't the job's own namespace: the files that are
    /// [of it](FileHandle::is_of), and everything inline. What is inline is written into each
    /// `_metadata` anew, also a piece that an earlier checkpoint holds, too.
    pub fn new_bytes(&self, checkpoint: CheckpointId, location: Option<&SnapshotLocation>) -> u64 {
        let old = self
            .files()
            .filter(|file| !file.is_of(checkpoint, location))
            .map(|file| file.bytes)
            .fold(0, u64::saturating_add);
        self.bytes().saturating_sub(old)
    }
}

/// What a checkpoint holds of one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCheckpoint {
    /// The operator's stable name.
    pub uid: OperatorUid,
    /// Number of key groups; a restore must use the same.
    pub max_parallelism: MaxParallelism,
    /// State per subtask, by subtask index; the length is the operator's parallelism then.
    pub subtasks: Vec<SubtaskState>,
}

/// Who may delete a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The system, once the job no longer needs it.
    Job,
    /// Only the user: savepoints, and whatever a job was restored from without claiming it.
    User,
}

/// A checkpoint whose every part is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedCheckpoint {
    /// Its number.
    pub id: CheckpointId,
    /// The job it belongs to.
    pub job: JobId,
    /// The attempt that took it.
    pub attempt: AttemptNumber,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// The folder it lies in; `None` is the job's own namespace.
    pub location: Option<SnapshotLocation>,
    /// Who may delete it.
    pub owner: Owner,
    /// Wall-clock time of the trigger.
    pub triggered_at: UnixMillis,
    /// Which key hash its key groups were made with; see [`HASH_ID`](crate::HASH_ID).
    pub hash_id: String,
    /// State per operator, in order of the job graph.
    pub operators: Vec<OperatorCheckpoint>,
}

impl CompletedCheckpoint {
    /// All files the checkpoint refers to, apart from its metadata. Other checkpoints may refer to
    /// some of them, too.
    pub fn files(&self) -> impl Iterator<Item = &FileHandle> {
        self.operators
            .iter()
            .flat_map(|op| &op.subtasks)
            .flat_map(SubtaskState::files)
    }

    /// Whether the file was written for this checkpoint, rather than for one that it rests on.
    pub fn owns(&self, file: &FileHandle) -> bool {
        file.is_of(self.id, self.location.as_ref())
    }

    /// Bytes of state, whether they were written for this checkpoint or for an earlier one; each is
    /// counted once.
    pub fn state_bytes(&self) -> u64 {
        self.operators
            .iter()
            .flat_map(|op| &op.subtasks)
            .map(SubtaskState::bytes)
            .sum()
    }

    /// Those of its [bytes](Self::state_bytes) that were
    /// [written for it](SubtaskState::new_bytes); with what it rests on, they make up the rest.
    pub fn new_bytes(&self) -> u64 {
        self.operators
            .iter()
            .flat_map(|op| &op.subtasks)
            .map(|state| state.new_bytes(self.id, self.location.as_ref()))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIS: CheckpointId = CheckpointId(7);

    fn file(name: &str, bytes: u64) -> KeyedPiece {
        KeyedPiece::File(FileHandle {
            name: name.to_owned(),
            bytes,
            crc32c: 0,
        })
    }

    fn inline(bytes: usize) -> KeyedPiece {
        KeyedPiece::Inline(vec![0; bytes].into())
    }

    fn state(pieces: Vec<KeyedPiece>, list: usize) -> SubtaskState {
        SubtaskState {
            keyed: Some(KeyedStateHandle {
                pieces,
                key_groups: MaxParallelism::derive(1).range(0, 1).unwrap(),
            }),
            lists: vec![ListState {
                name: "l".to_owned(),
                redistribution: Redistribution::Split,
                elements: vec![vec![0; list]],
            }],
            finished: false,
        }
    }

    // Files count for the checkpoint that they were written for; what is inline counts for each.
    #[test]
    fn new_are_files_of_the_checkpoint_and_what_is_inline() {
        let chain = vec![
            file("chk-6/full", 1000),
            inline(10),
            file("chk-7/change", 200),
            file("chk-77/other", 4000),
        ];
        let state = state(chain, 3);
        assert_eq!((state.bytes(), state.new_bytes(THIS, None)), (5213, 213));
        assert_eq!(state.new_bytes(CheckpointId(6), None), 1013);
    }

    #[test]
    fn all_of_a_savepoint_is_new() {
        let location = SnapshotLocation::new("file:///savepoints/s-7");
        let state = state(vec![file("file:///savepoints/s-7/a.state", 50)], 3);
        assert_eq!(state.new_bytes(THIS, Some(&location)), 53);
        assert_eq!(state.new_bytes(THIS, None), 3);
    }

    // Handles come from other processes.
    #[test]
    fn sizes_that_cannot_be_do_not_wrap() {
        let (old, more) = (file("chk-6/full", u64::MAX), file("chk-6/more", u64::MAX));
        let state = state(vec![old, more], 3);
        assert_eq!(state.bytes(), u64::MAX);
        assert_eq!(state.new_bytes(THIS, None), 0);
    }
}
