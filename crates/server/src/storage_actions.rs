//! Carries out the coordinator's storage actions. Each of them answers, in bounded time, whatever
//! the storage does: an answer that doesn't come is an outcome that isn't known.

use std::sync::Arc;
use std::time::Duration;

use tidegate_coordinator::{JobAction, JobEvent};
use tidegate_storage::{CheckpointPointer, JobStore, StorageError};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, ErrorChain};
use tokio::sync::RwLock;

/// How long a storage may take for one small write before its outcome counts as unknown.
const DEADLINE: Duration = Duration::from_secs(60);

/// Issues storage actions.
pub(crate) struct StorageActions {
    store: JobStore,
    /// Held shared by every action while it really runs, also past its deadline, and exclusively
    /// by a look at what is completed: a pointer that is written, or removed, after that look would
    /// give the job two histories.
    in_flight: Arc<RwLock<()>>,
}

impl StorageActions {
    pub(crate) fn new(store: JobStore) -> Self {
        StorageActions {
            store,
            in_flight: Arc::default(),
        }
    }

    /// Performs `action` when polled, as one that was issued now. Gives what to tell the
    /// coordinator, if anything.
    ///
    /// # Panics
    /// If it isn't an action for the storage.
    pub(crate) fn issue(
        &self,
        action: JobAction,
    ) -> impl Future<Output = Option<JobEvent>> + Send + use<> {
        let store = self.store.clone();
        let asked = action.clone();
        let in_flight = Arc::clone(&self.in_flight);
        // Ordering: taken here rather than in the task, so that a later look waits for this action
        // even if its task hasn't begun.
        let shared = match action {
            JobAction::RecoverCompleted => None,
            _ => Arc::clone(&in_flight).try_read_owned().ok(),
        };
        let task = async move {
            let looks = matches!(action, JobAction::RecoverCompleted);
            let _alone = if looks {
                Some(in_flight.clone().write_owned().await)
            } else {
                None
            };
            let _shared = match shared {
                None if !looks => Some(in_flight.read_owned().await),
                shared => shared,
            };
            carry_out(&store, action).await
        };
        answer_in_time(asked, task)
    }
}

async fn answer_in_time(
    asked: JobAction,
    task: impl Future<Output = Option<JobEvent>> + Send + 'static,
) -> Option<JobEvent> {
    // A task of its own, so that a panic in it is an outcome too. After the deadline it goes on.
    match tokio::time::timeout(DEADLINE, tokio::spawn(task)).await {
        Ok(Ok(event)) => event,
        Ok(Err(error)) => unsettled(&asked, format!("a storage task failed: {error}")),
        Err(_) => unsettled(
            &asked,
            format!("the storage did not answer within {DEADLINE:?}"),
        ),
    }
}

fn unsettled(action: &JobAction, cause: String) -> Option<JobEvent> {
    tracing::warn!(cause, "a storage action has no outcome");
    let outcome = WriteOutcome::Unknown {
        cause: cause.clone(),
    };
    Some(match action {
        JobAction::ReserveAttempt => JobEvent::AttemptReserved {
            attempt: AttemptNumber(0),
            outcome,
        },
        JobAction::ReserveIds { up_to } => JobEvent::IdsReserved {
            up_to: *up_to,
            outcome,
        },
        JobAction::PublishMetadata(checkpoint) => JobEvent::MetadataPublished {
            checkpoint: checkpoint.id,
            outcome,
        },
        JobAction::StorePointer { checkpoint, .. } => JobEvent::PointerStored {
            checkpoint: *checkpoint,
            outcome,
        },
        JobAction::RecoverCompleted => JobEvent::Recovered {
            completed: Err(cause),
        },
        JobAction::MarkFinished { .. } => JobEvent::MarkedFinished { outcome },
        JobAction::RecordParallelism { .. } => JobEvent::ParallelismRecorded { outcome },
        JobAction::RecordEnd { .. } => JobEvent::EndRecorded { outcome },
        JobAction::DropCompleted { checkpoint, .. } => JobEvent::Deleted {
            checkpoint: checkpoint.id,
        },
        JobAction::DiscardFiles { checkpoint, .. } => JobEvent::Deleted {
            checkpoint: *checkpoint,
        },
        JobAction::PrepareSavepoint { checkpoint, .. } => JobEvent::SavepointPrepared {
            checkpoint: *checkpoint,
            outcome,
        },
        _ => return None,
    })
}

async fn carry_out(store: &JobStore, action: JobAction) -> Option<JobEvent> {
    Some(match action {
        JobAction::ReserveAttempt => reserve_attempt(store).await,
        JobAction::ReserveIds { up_to } => JobEvent::IdsReserved {
            up_to,
            outcome: store.reserve_ids(up_to).await,
        },
        JobAction::PublishMetadata(checkpoint) => JobEvent::MetadataPublished {
            checkpoint: checkpoint.id,
            outcome: store.publish_metadata(&checkpoint).await,
        },
        JobAction::StorePointer {
            checkpoint,
            location,
            owner,
        } => {
            let pointer = CheckpointPointer {
                checkpoint,
                taken_by: store.job(),
                owner,
                location,
            };
            store_pointer(store, &pointer).await
        }
        JobAction::RecoverCompleted => JobEvent::Recovered {
            completed: store.recover().await.map_err(|error| text(&error)),
        },
        JobAction::MarkFinished { checkpoint } => JobEvent::MarkedFinished {
            outcome: store.mark_finished(checkpoint).await,
        },
        JobAction::RecordParallelism { asked } => JobEvent::ParallelismRecorded {
            outcome: store.record_parallelism(asked).await,
        },
        JobAction::RecordEnd { end } => JobEvent::EndRecorded {
            outcome: store.record_end(&end).await,
        },
        JobAction::DiscardHistory(completed) => {
            warn(store.discard_history(&completed).await);
            return None;
        }
        JobAction::DropCompleted { checkpoint, spared } => {
            warn(store.drop_completed(&checkpoint, &spared).await);
            let checkpoint = checkpoint.id;
            JobEvent::Deleted { checkpoint }
        }
        JobAction::DiscardFiles {
            checkpoint,
            location,
            files,
            metadata,
        } => {
            let discarded = store.discard_files(checkpoint, location.as_ref(), &files, metadata);
            warn(discarded.await);
            JobEvent::Deleted { checkpoint }
        }
        JobAction::PrepareSavepoint {
            checkpoint,
            location,
        } => JobEvent::SavepointPrepared {
            checkpoint,
            outcome: store.prepare_savepoint(checkpoint, &location).await,
        },
        JobAction::End(_)
        | JobAction::StartAttempt { .. }
        | JobAction::StopAttempt { .. }
        | JobAction::Notify { .. }
        | JobAction::Note(_)
        | JobAction::Answer { .. } => unreachable!("performed by the driver's loop"),
    })
}

async fn reserve_attempt(store: &JobStore) -> JobEvent {
    match store.reserve_attempt().await {
        Ok(attempt) => JobEvent::AttemptReserved {
            attempt,
            outcome: WriteOutcome::Done,
        },
        Err(error) => JobEvent::AttemptReserved {
            attempt: AttemptNumber(0),
            outcome: WriteOutcome::NotDone {
                cause: text(&error),
            },
        },
    }
}

async fn store_pointer(store: &JobStore, pointer: &CheckpointPointer) -> JobEvent {
    JobEvent::PointerStored {
        checkpoint: pointer.checkpoint,
        outcome: store.store_pointer(pointer).await,
    }
}

/// An error with all its causes, for reports that only people read.
fn text(error: &StorageError) -> String {
    ErrorChain(error).to_string()
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
