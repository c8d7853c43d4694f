//! What a job goes on from: found, checked, and fitted to the job before anything runs.

use tidegate_coordinator::{DurableFacts, JobError, Recovery, RestoreError, adopt_max_parallelism};
use tidegate_runtime::JobPlan;
use tidegate_storage::{JobStore, Resumed, StorageError};
use tidegate_types::{CompletedCheckpoint, FileHandle};
use tokio::task::{JoinSet, spawn_blocking};

/// Files that are read at the same time.
const READERS: usize = 4;

/// The snapshot that the first attempt restores.
pub(crate) fn latest(resumed: &Resumed) -> Option<&CompletedCheckpoint> {
    resumed.completed.last().or(resumed.origin.as_ref())
}

pub(crate) fn recovery(resumed: Resumed) -> Recovery {
    Recovery {
        completed: resumed.completed,
        origin: resumed.origin,
        facts: DurableFacts {
            checkpoint_max: resumed.checkpoint_max,
            attempt_max: resumed.attempt_max,
            asked: resumed.asked,
        },
    }
}

/// Gives operators whose max parallelism nobody chose the one of their state.
pub(crate) fn adopt(plan: &mut JobPlan, from: &CompletedCheckpoint) -> Result<(), JobError> {
    let adopted = |plan: &JobPlan| -> Result<_, RestoreError> {
        let mut graph = plan.graph().clone();
        adopt_max_parallelism(&mut graph, from)?;
        Ok(graph)
    };
    let graph = adopted(plan).map_err(JobError::Restore)?;
    for id in graph.operator_ids() {
        plan.operator_mut(id).max_parallelism = graph.operator(id).max_parallelism;
    }
    Ok(())
}

/// Checks the files of what is to be restored before anything runs: an attempt that can't restore
/// would only be tried again. The lengths of all; the contents only of a snapshot that lies
/// elsewhere, which may have been copied or moved by whatever means. Attempts check what they read.
pub(crate) async fn check_files(
    store: &JobStore,
    from: &CompletedCheckpoint,
) -> Result<(), StorageError> {
    store.verify_files(from).await?;
    if from.location.is_none() {
        return Ok(());
    }
    match damaged_files(store, from).await.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What is wrong with the files of a snapshot; all of them are read.
pub(crate) async fn damaged_files(
    store: &JobStore,
    snapshot: &CompletedCheckpoint,
) -> Vec<StorageError> {
    let mut files = snapshot.files().cloned();
    let mut readers = JoinSet::new();
    let mut damaged = Vec::new();
    loop {
        while readers.len() < READERS
            && let Some(file) = files.next()
        {
            readers.spawn(verify(store.clone(), file));
        }
        match readers.join_next().await {
            None => return damaged,
            Some(Ok(verified)) => damaged.extend(verified.err()),
            Some(Err(lost)) => damaged.push(StorageError::TaskLost(lost)),
        }
    }
}

async fn verify(store: JobStore, file: FileHandle) -> Result<(), StorageError> {
    let verify = move || store.open_state_file(&file)?.verify();
    spawn_blocking(verify)
        .await
        .unwrap_or_else(|lost| Err(StorageError::TaskLost(lost)))
}
