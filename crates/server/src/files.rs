//! State files of one attempt in a durable namespace.

use std::io::{BufReader, Write};

use tidegate_runtime::{BoxError, StateFileRead, StateFileWrite, StateFiles};
use tidegate_storage::{JobStore, StateFileWriter};
use tidegate_types::{AttemptNumber, CheckpointId, FileHandle, SnapshotLocation};
use tokio::runtime::Handle;

/// How much of a state file is read at once while restoring.
const READ_BYTES: usize = 1 << 20;

pub(crate) struct DurableFiles {
    pub(crate) store: JobStore,
    pub(crate) attempt: AttemptNumber,
    pub(crate) runtime: Handle,
}

impl StateFiles for DurableFiles {
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        if let Some(location) = location {
            return Err(format!("state files can't be written to `{location}` yet").into());
        }
        let name = self
            .store
            .state_file_name(self.attempt, checkpoint, subtask);
        Ok(Box::new(DurableFile(self.store.create_state_file(name))))
    }

    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        let reader = self.store.open_state_file(file)?;
        reader.verify()?;
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, reader)))
    }

    fn discard(&self, checkpoint: CheckpointId, file: &FileHandle) {
        let store = self.store.clone();
        let files = [file.clone()];
        self.runtime.spawn(async move {
            if let Err(error) = store.discard_files(checkpoint, None, &files, false).await {
                tracing::warn!(%error, "a state file was left for the next sweep");
            }
        });
    }
}

struct DurableFile(StateFileWriter);

impl Write for DurableFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl StateFileWrite for DurableFile {
    fn finish(self: Box<Self>) -> Result<FileHandle, BoxError> {
        Ok(self.0.finish()?)
    }
}
