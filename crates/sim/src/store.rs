//! What survives a process: state files, metadata, pointers, counters, the mark of the end.
//!
//! The store itself is simple and never lies; whether a call reaches it, and whether the caller
//! learns that, is drawn by whoever calls (see [`crate::process`]).

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, KeyedStateHandle,
};

/// Per key how many records there were, and the sum of their shares.
pub(crate) type Counts = BTreeMap<u32, (u64, u64)>;

#[derive(Debug, Default)]
pub(crate) struct StateFile {
    /// Whether it has been closed and synced.
    pub(crate) complete: bool,
    pub(crate) counts: Counts,
}

/// Something that can be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Pointer(CheckpointId),
    Metadata(CheckpointId),
    File(String),
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) files: BTreeMap<String, StateFile>,
    pub(crate) metadata: BTreeMap<CheckpointId, CompletedCheckpoint>,
    pub(crate) pointers: BTreeSet<CheckpointId>,
    pub(crate) ids_reserved: u64,
    pub(crate) attempts_reserved: u64,
    pub(crate) finished: Option<CheckpointId>,
    serial: u64,
}

impl Store {
    /// Begins a file under a name that no other file ever has.
    pub(crate) fn create(&mut self, checkpoint: CheckpointId, attempt: AttemptNumber) -> String {
        self.serial += 1;
        let name = format!("{checkpoint}/{attempt}-{}", self.serial);
        self.files.insert(name.clone(), StateFile::default());
        name
    }

    /// Completes a file.
    pub(crate) fn finish(&mut self, name: &str, counts: Counts) -> Option<FileHandle> {
        let file = self.files.get_mut(name)?;
        let handle = FileHandle {
            name: name.to_owned(),
            bytes: bytes(&counts),
            crc32c: sum(&counts),
        };
        *file = StateFile {
            complete: true,
            counts,
        };
        Some(handle)
    }

    /// The content of a file, if it is there, complete and unaltered.
    pub(crate) fn read(&self, handle: &FileHandle) -> Option<&Counts> {
        let file = self.files.get(&handle.name)?;
        let counts = &file.counts;
        let intact = bytes(counts) == handle.bytes && sum(counts) == handle.crc32c;
        (file.complete && intact).then_some(counts)
    }

    /// What the pointers lead to, ascending by id.
    ///
    /// # Errors
    /// Names a pointer that leads nowhere.
    pub(crate) fn recover(&self) -> Result<Vec<CompletedCheckpoint>, String> {
        let read = |id| {
            self.metadata
                .get(id)
                .cloned()
                .ok_or(format!("`{id}` has no metadata"))
        };
        self.pointers.iter().map(read).collect()
    }

    /// The newest id that may have been used: reserved, or found in whatever form.
    pub(crate) fn ids_used(&self) -> CheckpointId {
        let folders = self.files.keys().filter_map(|name| {
            let (folder, _) = name.split_once('/')?;
            folder.strip_prefix("chk-")?.parse().ok().map(CheckpointId)
        });
        let metadata = self.metadata.keys().copied();
        let found = folders.chain(metadata).chain(self.pointers.iter().copied());
        found.fold(CheckpointId(self.ids_reserved), CheckpointId::max)
    }

    /// The files that pointers lead to.
    pub(crate) fn live_files(&self) -> BTreeSet<&str> {
        let live = self.pointers.iter().filter_map(|id| self.metadata.get(id));
        live.flat_map(CompletedCheckpoint::files)
            .map(|file| file.name.as_str())
            .collect()
    }

    /// What no pointer leads to.
    pub(crate) fn orphans(&self) -> Vec<Target> {
        let kept = self.live_files();
        let metadata = self
            .metadata
            .keys()
            .filter(|id| !self.pointers.contains(id));
        let files = self
            .files
            .keys()
            .filter(|name| !kept.contains(name.as_str()));
        let metadata = metadata.map(|id| Target::Metadata(*id));
        metadata.chain(files.cloned().map(Target::File)).collect()
    }

    /// Deletes; what isn't there is fine.
    pub(crate) fn delete(&mut self, target: &Target) {
        match target {
            Target::Pointer(id) => {
                self.pointers.remove(id);
            }
            Target::Metadata(id) => {
                self.metadata.remove(id);
            }
            Target::File(name) => {
                self.files.remove(name);
            }
        }
    }
}

/// The keyed files of a checkpoint.
pub(crate) fn keyed(checkpoint: &CompletedCheckpoint) -> impl Iterator<Item = &KeyedStateHandle> {
    let subtasks = checkpoint
        .operators
        .iter()
        .flat_map(|operator| &operator.subtasks);
    subtasks.filter_map(|subtask| subtask.keyed.as_ref())
}

fn bytes(counts: &Counts) -> u64 {
    24 * counts.len() as u64
}

fn sum(counts: &Counts) -> u32 {
    let mix = |sum: u32, (key, (count, share)): (&u32, &(u64, u64))| {
        sum.rotate_left(5)
            .wrapping_add(*key)
            .wrapping_mul(31)
            .wrapping_add(*count as u32)
            .wrapping_mul(31)
            .wrapping_add(*share as u32)
    };
    counts.iter().fold(1, mix)
}
