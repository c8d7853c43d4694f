//! Why something that was asked of a running job didn't come about.

use tidegate_coordinator::{
    AbortReason, Answer, CompletedSummary, RescaleRefusal, Rescaled, TriggerRefusal,
};
use tidegate_storage::StorageError;
use tidegate_types::{CheckpointId, SnapshotKind};

use crate::error::RunError;

/// Why a request to a running job came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The folder for the savepoint is neither a path nor a URL that can be used. Nothing was
    /// asked of the job.
    #[error("`{given}` can't be the folder for savepoints")]
    Directory {
        /// What was given.
        given: String,
        /// What is wrong with it.
        #[source]
        cause: Box<StorageError>,
    },
    /// Nothing was begun.
    #[error("the request was refused")]
    Refused(#[source] TriggerRefusal),
    /// The job has kept its parallelism.
    #[error("the job was not rescaled")]
    NotRescaled(#[source] RescaleRefusal),
    /// The snapshot was begun and came to nothing. What was written of it is deleted, as far as
    /// storage lets it be; of [`AbortReason::OutcomeUnknown`] nothing is, since it may be complete
    /// after all.
    #[error("`{checkpoint}` failed")]
    Failed {
        /// Its id.
        checkpoint: CheckpointId,
        /// What it was meant for.
        kind: SnapshotKind,
        /// Why.
        #[source]
        reason: AbortReason,
    },
    /// The savepoint of a stop is durable and complete, but the attempt failed or was cancelled
    /// before everything up to it was committed. A job that has failed restarts from the savepoint,
    /// which commits the rest, and goes on: ask again. One that was cancelled, or whose restart
    /// strategy has given up, has ended; it can be started from the savepoint.
    #[error(
        "the job was not stopped: its savepoint `{}` is complete, but not everything up to it was \
         committed ({cause}); if the job still runs it goes on from it, else it can be started \
         from it",
        place(savepoint)
    )]
    NotStopped {
        /// The savepoint.
        savepoint: Box<CompletedSummary>,
        /// What failed, for people.
        cause: String,
    },
    /// The savepoint of a stop is complete and everything up to it is committed, but the job's end
    /// was not that of a stop. It doesn't run any more.
    #[error(
        "the savepoint `{}` is complete and everything up to it is committed, but the job came to \
         another end",
        place(savepoint)
    )]
    EndedOtherwise {
        /// The savepoint.
        savepoint: Box<CompletedSummary>,
        /// How it ended.
        #[source]
        cause: Box<RunError>,
    },
}

fn place(savepoint: &CompletedSummary) -> String {
    match &savepoint.location {
        Some(location) => location.to_string(),
        None => savepoint.checkpoint.to_string(),
    }
}

/// Reads the answer to a request for a snapshot.
pub(super) fn completed(answer: Answer) -> Result<CompletedSummary, RequestError> {
    match answer {
        Answer::Completed(summary) => Ok(summary),
        other => Err(failed(other)),
    }
}

/// Reads the answer to a request for an abort.
pub(super) fn aborted(answer: Answer) -> Result<(), RequestError> {
    match answer {
        Answer::Aborted { .. } => Ok(()),
        other => Err(failed(other)),
    }
}

/// Reads the answer to a request for another parallelism.
pub(super) fn rescaled(answer: Answer) -> Result<Rescaled, RequestError> {
    match answer {
        Answer::Rescaled(rescaled) => Ok(rescaled),
        Answer::Refused(TriggerRefusal::Ended) => {
            Err(RequestError::NotRescaled(RescaleRefusal::Ended))
        }
        other => Err(failed(other)),
    }
}

fn failed(answer: Answer) -> RequestError {
    match answer {
        Answer::Refused(refusal) => RequestError::Refused(refusal),
        Answer::Failed {
            checkpoint,
            kind,
            reason,
        } => RequestError::Failed {
            checkpoint,
            kind,
            reason,
        },
        Answer::NotStopped { savepoint, cause } => RequestError::NotStopped {
            savepoint: Box::new(savepoint),
            cause,
        },
        Answer::NotRescaled(refusal) => RequestError::NotRescaled(refusal),
        Answer::Completed(_) | Answer::Aborted { .. } | Answer::Rescaled(_) => {
            unreachable!("a request gets the answer that is meant for it")
        }
    }
}
