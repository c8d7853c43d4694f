//! Sinks: plain ones, and two-phase ones whose transactions become visible exactly once.
//!
//! A two-phase sink writes into transactions. With each barrier the open one is pre-committed: it
//! is made durable before the checkpoint is acknowledged, and listed in the snapshot together with
//! every other transaction that isn't known to be committed. When the checkpoint completes, all
//! transactions up to it are committed; when the job is restored, those in the snapshot are. A
//! commit may be asked for more than once and must then do nothing.

mod plain;
mod two_phase;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_types::{AttemptNumber, CheckpointId, JobId, OperatorUid, SubtaskId};

pub(crate) use plain::Plain;
pub(crate) use two_phase::TwoPhase;

use crate::batch::Batch;
use crate::error::BoxError;
use crate::logic::{Flow, Seal};

/// Where a subtask of a sink runs.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// The subtask.
    pub subtask: SubtaskId,
    /// The operator's uid.
    pub uid: String,
    /// The operator's parallelism.
    pub parallelism: u32,
    /// The run of the job; part of every name that must be unique.
    pub attempt: AttemptNumber,
}

/// What a sink may check before a job starts.
#[derive(Clone, Copy, Debug)]
pub struct SubmitContext {
    /// Identity of the job.
    pub job: JobId,
    /// Whether the job starts without any checkpoint.
    pub fresh: bool,
}

/// A sink that writes as it goes: at least once, or for the eye only.
pub trait Sink<T>: Send + Sync + 'static {
    /// Writes for one subtask.
    type Writer: SinkWriter<T>;

    /// Checks the configuration when the job is submitted, before anything runs.
    ///
    /// # Errors
    /// For what can't work, naming it and what to do.
    fn check(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes the writer of one subtask.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError>;
}

/// Writes the records of one subtask.
pub trait SinkWriter<T>: 'static {
    /// Takes records until `records` is empty or it must pause; never blocks for long.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError>;

    /// Lets go of everything that it holds back. Called before each snapshot and at the end.
    ///
    /// # Errors
    /// An error ends the attempt: the job restarts from the latest completed checkpoint, and what
    /// came after it is written anew. So nothing need be kept for another try.
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A sink whose output becomes visible exactly once, checkpoint by checkpoint.
pub trait TwoPhaseSink<T>: Send + Sync + 'static {
    /// All that is needed to commit, also after a crash, by another process. Kept in checkpoints.
    type Transaction: Serialize + DeserializeOwned + Clone + Send + 'static;
    /// Writes for one subtask.
    type Writer: TransactionWriter<T, Transaction = Self::Transaction>;
    /// Commits for one subtask.
    type Committer: Committer<Transaction = Self::Transaction>;

    /// Checks, when the job is submitted, that the place it writes to can be used by the operator
    /// `uid` of this job.
    ///
    /// # Errors
    /// For what can't work, naming it and what to do.
    fn check(&self, _uid: &OperatorUid, _context: SubmitContext) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes the writer of one subtask.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError>;

    /// Makes the committer of one subtask; it works on a background thread.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn committer(&self, context: SinkContext) -> Result<Self::Committer, BoxError>;
}

/// A transaction that has been written and will not change any more.
pub struct PreCommitted<X> {
    /// What the snapshot keeps.
    pub transaction: X,
    /// Makes it durable; runs on a background thread before the acknowledgement.
    pub seal: Seal,
}

/// Writes transactions.
pub trait TransactionWriter<T>: 'static {
    /// See [`TwoPhaseSink::Transaction`].
    type Transaction;

    /// Takes records until `records` is empty or it must pause; never blocks for long.
    ///
    /// # Errors
    /// An error ends the attempt.
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError>;

    /// Ends what has been written since the last call, as any number of transactions; none if
    /// nothing was written. Quick: the slow part goes into the seals.
    ///
    /// # Errors
    /// An error declines the checkpoint. What was written must then be part of the next call.
    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Vec<PreCommitted<Self::Transaction>>, BoxError>;
}

/// Makes transactions visible.
pub trait Committer: Send + 'static {
    /// See [`TwoPhaseSink::Transaction`].
    type Transaction;

    /// Publishes a transaction durably. Does nothing if that has happened already.
    ///
    /// # Errors
    /// An error ends the attempt; the restored job tries again. If the transaction is neither
    /// there to be published nor already published, the error says that data was lost.
    fn commit(&mut self, transaction: &Self::Transaction) -> Result<(), BoxError>;

    /// Removes what attempts before `attempt` have left and will never be committed. Called on one
    /// subtask when every subtask of the attempt has restored and committed.
    ///
    /// # Errors
    /// An error is logged; the rest is tried again later.
    fn clean_up(&mut self, attempt: AttemptNumber) -> Result<(), BoxError>;
}

impl<T, S: TwoPhaseSink<T>> TwoPhaseSink<T> for Arc<S> {
    type Transaction = S::Transaction;
    type Writer = S::Writer;
    type Committer = S::Committer;

    fn check(&self, uid: &OperatorUid, context: SubmitContext) -> Result<(), BoxError> {
        S::check(self, uid, context)
    }

    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError> {
        S::writer(self, context)
    }

    fn committer(&self, context: SinkContext) -> Result<Self::Committer, BoxError> {
        S::committer(self, context)
    }
}
