//! Checkpoints in the memory of this process: they survive failures of the job's code, not of the
//! process. For tests, and for jobs that were given no checkpoint directory.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_runtime::{BoxError, StateFileRead, StateFileWrite, StateFiles};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, SnapshotLocation,
};

/// A job's namespace in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStore {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Debug, Default)]
struct Contents {
    files: BTreeMap<String, Arc<[u8]>>,
    files_created: u64,
    published: BTreeMap<CheckpointId, CompletedCheckpoint>,
    completed: BTreeMap<CheckpointId, CompletedCheckpoint>,
    attempts: u64,
}

impl MemoryStore {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reserve_attempt(&self) -> AttemptNumber {
        let mut contents = self.contents();
        contents.attempts += 1;
        AttemptNumber(contents.attempts)
    }

    pub(crate) fn publish(&self, checkpoint: CompletedCheckpoint) {
        self.contents().published.insert(checkpoint.id, checkpoint);
    }

    /// Returns whether the checkpoint had been published.
    pub(crate) fn store_pointer(&self, checkpoint: CheckpointId) -> bool {
        let mut contents = self.contents();
        let published = contents.published.remove(&checkpoint);
        published
            .map(|published| contents.completed.insert(checkpoint, published))
            .is_some()
    }

    pub(crate) fn recover(&self) -> Vec<CompletedCheckpoint> {
        self.contents().completed.values().cloned().collect()
    }

    pub(crate) fn drop_completed(&self, checkpoint: &CompletedCheckpoint) {
        let mut contents = self.contents();
        contents.completed.remove(&checkpoint.id);
        for file in checkpoint.files() {
            contents.files.remove(&file.name);
        }
    }

    pub(crate) fn discard(&self, checkpoint: CheckpointId, files: &[FileHandle], metadata: bool) {
        let mut contents = self.contents();
        for file in files {
            contents.files.remove(&file.name);
        }
        if metadata {
            contents.published.remove(&checkpoint);
        }
    }
}

/// State files of one attempt in memory.
pub(crate) struct MemoryFiles {
    pub(crate) store: MemoryStore,
}

impl StateFiles for MemoryFiles {
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        if let Some(location) = location {
            return Err(format!("state in memory can't be written to `{location}`").into());
        }
        let mut contents = self.store.contents();
        contents.files_created += 1;
        let name = format!("{checkpoint}/{subtask}-{}", contents.files_created);
        Ok(Box::new(MemoryFile {
            store: self.store.clone(),
            name,
            bytes: Vec::new(),
        }))
    }

    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        let bytes = self.store.contents().files.get(&file.name).cloned();
        match bytes {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes))),
            None => Err(format!("state file `{}` is not in memory", file.name).into()),
        }
    }

    fn discard(&self, _checkpoint: CheckpointId, file: &FileHandle) {
        self.store.contents().files.remove(&file.name);
    }
}

struct MemoryFile {
    store: MemoryStore,
    name: String,
    bytes: Vec<u8>,
}

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl StateFileWrite for MemoryFile {
    fn finish(self: Box<Self>) -> Result<FileHandle, BoxError> {
        let MemoryFile { store, name, bytes } = *self;
        let crc32c = crc32c::crc32c(&bytes);
        let handle = FileHandle {
            name: name.clone(),
            bytes: bytes.len() as u64,
            crc32c,
        };
        store.contents().files.insert(name, bytes.into());
        Ok(handle)
    }
}
