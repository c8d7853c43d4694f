//! What is found where the job keeps its checkpoints, before anything runs and after the end.

use tidegate_coordinator::DurableFacts;
use tidegate_runtime::JobPlan;
use tidegate_storage::{JobStore, NamespaceStatus, StorageError};
use tidegate_types::graph::OperatorRole;
use tidegate_types::{AttemptNumber, CompletedCheckpoint, ErrorChain};
use url::Url;

use crate::error::RunError;
use crate::memory::MemoryStore;
use crate::options::{CheckpointLocation, JobOptions};
use crate::store::Store;

/// The job's namespace, owned by this process until the last clone of `store` is dropped.
pub(crate) struct Namespace {
    pub(crate) store: Store,
    pub(crate) completed: Vec<CompletedCheckpoint>,
    pub(crate) facts: DurableFacts,
    pub(crate) finished: bool,
}

impl Namespace {
    pub(crate) async fn open(
        plan: &JobPlan,
        options: &JobOptions,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Namespace, RunError> {
        let operators = &plan.graph().operators;
        let commits = |role: OperatorRole| role == OperatorRole::CommittingSink;
        let committing = operators.iter().find(|op| commits(op.role));
        match (&options.location, committing) {
            (CheckpointLocation::Memory, Some(sink)) => Err(RunError::NeedsCheckpoints {
                uid: sink.uid.0.clone(),
            }),
            (CheckpointLocation::Memory | CheckpointLocation::MemoryForTests, _) => Ok(Namespace {
                store: Store::Memory(MemoryStore::default()),
                completed: Vec::new(),
                facts: DurableFacts::default(),
                finished: false,
            }),
            (CheckpointLocation::Directory(directory), _) => {
                let opened = Self::open_directory(directory, &options.name, runtime).await;
                opened.map_err(|cause| RunError::Storage {
                    job: options.name.clone(),
                    cause,
                })
            }
        }
    }

    async fn open_directory(
        directory: &Url,
        name: &str,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Namespace, StorageError> {
        let (store, status) = JobStore::open(directory, name, runtime.clone()).await?;
        let finished = matches!(status, NamespaceStatus::Finished { .. });
        let completed = store.recover().await?;
        if let Some(latest) = completed.last() {
            // Before anything runs: an attempt that can't restore would only be tried again.
            store.verify_files(latest).await?;
        }
        // Ordering: ids are also found by the names of folders, which the sweep may remove.
        let checkpoint_max = store.reserved_ids().await?;
        // Also of a finished job: it may have been killed between its marker and its last sweep.
        store.sweep_orphans(&completed).await?;
        let facts = DurableFacts {
            checkpoint_max,
            // The store itself never gives out an attempt number twice.
            attempt_max: AttemptNumber(0),
        };
        Ok(Namespace {
            store: Store::Durable(store),
            completed,
            facts,
            finished,
        })
    }
}

/// A clean end leaves no orphans. What can't be swept is named and left.
pub(crate) async fn sweep(store: &Store) {
    let Store::Durable(store) = store else { return };
    let swept = async {
        let live = store.recover().await?;
        store.sweep_orphans(&live).await
    };
    if let Err(error) = swept.await {
        let error = ErrorChain(&error);
        tracing::warn!(%error, "could not sweep the namespace after the end of the job");
    }
}
