//! State files of one attempt.

use std::io::{BufReader, Write};
use std::sync::Arc;

use tidegate_runtime::{BoxError, StateFileRead, StateFileWrite, StateFiles};
use tidegate_storage::{JobStore, StateFileWriter};
use tidegate_types::{AttemptNumber, CheckpointId, ErrorChain, FileHandle, SnapshotLocation};
use tokio::runtime::Handle;

/// How much of a state file is read at once while restoring.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Lets a file be deleted that was written for a checkpoint and belongs to nothing any more.
pub(crate) type Discard = Arc<dyn Fn(CheckpointId, &FileHandle) + Send + Sync>;

/// Deletes in the background what belongs to nothing any more.
pub(crate) fn discard_with(store: JobStore, runtime: Handle) -> Discard {
    Arc::new(move |checkpoint, file| {
        let (store, file) = (store.clone(), file.clone());
        runtime.spawn(async move {
            if let Err(error) = store.discard_state_file(checkpoint, &file).await {
                let error = ErrorChain(&error);
                tracing::warn!(%error, "a state file was left for the next sweep");
            }
        });
    })
}

/// State files in the job's namespace and, of savepoints, in their folders.
pub(crate) struct StoredFiles {
    pub(crate) store: JobStore,
    pub(crate) attempt: AttemptNumber,
    pub(crate) discard: Discard,
}

impl StateFiles for StoredFiles {
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        let (store, attempt) = (&self.store, self.attempt);
        let name = match location {
            Some(location) => store.savepoint_file_name(location, attempt, subtask),
            None => store.state_file_name(attempt, checkpoint, subtask),
        };
        Ok(Box::new(StoredFile(store.create_state_file(name))))
    }

    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        let reader = self.store.open_state_file(file)?;
        reader.verify()?;
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, reader)))
    }

    fn discard(&self, checkpoint: CheckpointId, file: &FileHandle) {
        (self.discard)(checkpoint, file);
    }
}

struct StoredFile(StateFileWriter);

impl Write for StoredFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl StateFileWrite for StoredFile {
    fn finish(self: Box<Self>) -> Result<FileHandle, BoxError> {
        Ok(self.0.finish()?)
    }
}
