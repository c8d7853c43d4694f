//! Where a job keeps its checkpoints: durably, or in memory.

use std::sync::Arc;

use tidegate_runtime::StateFiles;
use tidegate_storage::{CheckpointPointer, JobStore, StorageError};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, ErrorChain, FileHandle, JobId, Owner,
    SnapshotLocation,
};
use tokio::runtime::Handle;

use crate::files::DurableFiles;
use crate::memory::{MemoryFiles, MemoryStore};

#[derive(Clone)]
pub(crate) enum Store {
    Durable(JobStore),
    Memory(MemoryStore),
}

/// An error with all its causes, for reports that only people read.
fn text(error: &StorageError) -> String {
    ErrorChain(error).to_string()
}

impl Store {
    pub(crate) fn job(&self) -> JobId {
        match self {
            Store::Durable(store) => store.job(),
            // Nothing outlives the process that could be mistaken for another job's.
            Store::Memory(_) => JobId(0),
        }
    }

    pub(crate) fn files(&self, attempt: AttemptNumber, runtime: &Handle) -> Arc<dyn StateFiles> {
        match self.clone() {
            Store::Durable(store) => Arc::new(DurableFiles {
                store,
                attempt,
                runtime: runtime.clone(),
            }),
            Store::Memory(store) => Arc::new(MemoryFiles { store }),
        }
    }

    pub(crate) async fn reserve_attempt(&self) -> Result<AttemptNumber, String> {
        match self {
            Store::Durable(store) => store.reserve_attempt().await.map_err(|e| text(&e)),
            Store::Memory(store) => Ok(store.reserve_attempt()),
        }
    }

    pub(crate) async fn reserve_ids(&self, up_to: CheckpointId) -> WriteOutcome {
        match self {
            Store::Durable(store) => store.reserve_ids(up_to).await,
            Store::Memory(_) => WriteOutcome::Done,
        }
    }

    pub(crate) async fn publish_metadata(
        &self,
        checkpoint: Arc<CompletedCheckpoint>,
    ) -> WriteOutcome {
        match self {
            Store::Durable(store) => store.publish_metadata(&checkpoint).await,
            Store::Memory(store) => {
                store.publish(Arc::unwrap_or_clone(checkpoint));
                WriteOutcome::Done
            }
        }
    }

    pub(crate) async fn store_pointer(
        &self,
        checkpoint: CheckpointId,
        location: Option<SnapshotLocation>,
        owner: Owner,
    ) -> WriteOutcome {
        match self {
            Store::Durable(store) => {
                let pointer = CheckpointPointer {
                    checkpoint,
                    taken_by: store.job(),
                    owner,
                    location,
                };
                store.store_pointer(&pointer).await
            }
            Store::Memory(store) if store.store_pointer(checkpoint) => WriteOutcome::Done,
            Store::Memory(_) => {
                let cause = format!("`{checkpoint}` has not been published");
                WriteOutcome::NotDone { cause }
            }
        }
    }

    pub(crate) async fn recover(&self) -> Result<Vec<CompletedCheckpoint>, String> {
        match self {
            Store::Durable(store) => store.recover().await.map_err(|e| text(&e)),
            Store::Memory(store) => Ok(store.recover()),
        }
    }

    pub(crate) async fn drop_completed(&self, checkpoint: &CompletedCheckpoint) {
        match self {
            Store::Durable(store) => warn(store.drop_completed(checkpoint).await),
            Store::Memory(store) => store.drop_completed(checkpoint),
        }
    }

    pub(crate) async fn discard(
        &self,
        checkpoint: CheckpointId,
        files: &[FileHandle],
        metadata: bool,
    ) {
        match self {
            Store::Durable(store) => {
                warn(store.discard_files(checkpoint, None, files, metadata).await);
            }
            Store::Memory(store) => store.discard(checkpoint, files, metadata),
        }
    }

    pub(crate) async fn mark_finished(&self, checkpoint: CheckpointId) -> WriteOutcome {
        match self {
            Store::Durable(store) => store.mark_finished(checkpoint).await,
            Store::Memory(_) => WriteOutcome::Done,
        }
    }
}

/// What could not be deleted is found by the next sweep.
fn warn(outcome: Result<(), StorageError>) {
    if let Err(error) = outcome {
        tracing::warn!(
            error = text(&error),
            "some files were left for the next sweep"
        );
    }
}
