//! Notes when the output of each record has been committed.
//!
//! The sink around which this is put writes and commits as it always does. A transaction is
//! accompanied by the number under which the times of its records are kept in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate::sink::{
    Committer, PreCommitted, SinkContext, SubmitContext, TransactionWriter, TwoPhaseSink,
};
use tidegate::{AttemptNumber, Batch, BoxError, CheckpointId, Flow, OperatorUid, Ticks};

use super::Arrivals;

/// Tells when a record was due.
type Due<T> = fn(&T) -> Ticks;

/// What has been written and what has been committed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    /// When the records of each transaction that is not committed were due.
    written: BTreeMap<u64, Vec<Ticks>>,
    /// Microseconds from due to committed.
    micros: Vec<u32>,
}

impl Ledger {
    fn with<R>(&self, work: impl FnOnce(&mut Entries) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn on_pre_commit(&self, due: Vec<Ticks>) -> u64 {
        self.with(|entries| {
            entries.next += 1;
            entries.written.insert(entries.next, due);
            entries.next
        })
    }

    fn on_commit(&self, transaction: u64, now: Ticks) {
        self.with(|entries| {
            let due = entries.written.remove(&transaction).unwrap_or_default();
            let micros = |due| u32::try_from(now.since(due).as_micros()).unwrap_or(u32::MAX);
            entries.micros.extend(due.into_iter().map(micros));
        });
    }

    /// Microseconds from due to committed, of all committed records, sorted.
    pub(crate) fn take_micros(&self) -> Vec<u32> {
        let mut micros = self.with(|entries| std::mem::take(&mut entries.micros));
        micros.sort_unstable();
        micros
    }
}

/// A sink whose commits are noted.
#[derive(Clone, Debug)]
pub(crate) struct Committed<S, T> {
    /// Does the work.
    pub(crate) sink: S,
    /// Tells when a record was due.
    pub(crate) due: Due<T>,
    /// Notes.
    pub(crate) ledger: Ledger,
    /// Notes when the first record comes, and how many do.
    pub(crate) arrivals: Arrivals,
}

/// A transaction of the sink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<X> {
    transaction: X,
    /// The number of the times of its records, with the last transaction that they went into.
    number: Option<u64>,
}

impl<T: 'static, S: TwoPhaseSink<T>> TwoPhaseSink<T> for Committed<S, T> {
    type Transaction = Numbered<S::Transaction>;
    type Writer = CommittedWriter<S::Writer, T>;
    type Committer = NotedCommitter<S::Committer>;

    fn check(&self, uid: &OperatorUid, context: SubmitContext) -> Result<(), BoxError> {
        self.sink.check(uid, context)
    }

    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError> {
        Ok(CommittedWriter {
            writer: self.sink.writer(context)?,
            due_of: self.due,
            due: Vec::new(),
            ledger: self.ledger.clone(),
            arrivals: self.arrivals.clone(),
        })
    }

    fn committer(&self, context: SinkContext) -> Result<Self::Committer, BoxError> {
        Ok(NotedCommitter {
            committer: self.sink.committer(context)?,
            ledger: self.ledger.clone(),
        })
    }
}

/// Writes, and keeps when each record was due.
pub(crate) struct CommittedWriter<W, T> {
    writer: W,
    due_of: Due<T>,
    due: Vec<Ticks>,
    ledger: Ledger,
    arrivals: Arrivals,
}

impl<T: 'static, W: TransactionWriter<T>> TransactionWriter<T> for CommittedWriter<W, T> {
    type Transaction = Numbered<W::Transaction>;

    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        let offered = records.len();
        self.due.extend(records.as_slice().iter().map(self.due_of));
        let flow = self.writer.write(records)?;
        let left = records.len();
        self.due.truncate(self.due.len() - left);
        self.arrivals.add(offered - left);
        Ok(flow)
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Vec<PreCommitted<Self::Transaction>>, BoxError> {
        let written = self.writer.pre_commit(checkpoint)?;
        let last = written.len().checked_sub(1);
        let number = last.map(|_| self.ledger.on_pre_commit(std::mem::take(&mut self.due)));
        let numbered = written.into_iter().enumerate().map(|(at, written)| {
            let PreCommitted { transaction, seal } = written;
            let number = number.filter(|_| Some(at) == last);
            let transaction = Numbered {
                transaction,
                number,
            };
            PreCommitted { transaction, seal }
        });
        Ok(numbered.collect())
    }
}

/// Commits, and notes when that is done.
pub(crate) struct NotedCommitter<C> {
    committer: C,
    ledger: Ledger,
}

impl<C: Committer> Committer for NotedCommitter<C> {
    type Transaction = Numbered<C::Transaction>;

    fn commit(&mut self, numbered: &Self::Transaction) -> Result<(), BoxError> {
        self.committer.commit(&numbered.transaction)?;
        if let Some(number) = numbered.number {
            self.ledger.on_commit(number, Ticks::now());
        }
        Ok(())
    }

    fn clean_up(&mut self, attempt: AttemptNumber) -> Result<(), BoxError> {
        self.committer.clean_up(attempt)
    }
}
