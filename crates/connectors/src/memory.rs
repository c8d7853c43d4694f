//! Sinks that keep records in memory, for tests, and one that keeps nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate_runtime::Batch;
use tidegate_runtime::sink::{
    Committer, PreCommitted, Sink, SinkContext, SinkWriter, TransactionWriter, TwoPhaseSink,
};
use tidegate_runtime::{BoxError, Flow};
use tidegate_state::Record;
use tidegate_types::{AttemptNumber, CheckpointId};

/// Drops every record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl<T: 'static> Sink<T> for Discard {
    type Writer = Discard;

    fn writer(&self, _context: SinkContext) -> Result<Discard, BoxError> {
        Ok(Discard)
    }
}

impl<T: 'static> SinkWriter<T> for Discard {
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        records.for_each(drop);
        Ok(Flow::Continue)
    }
}

/// What a panicking subtask has left is still a list of records.
fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps every record in a list that its clones share: keep one, and give the other to the job.
///
/// At least once: after a failure, records since the last checkpoint appear again. Records of
/// different subtasks are interleaved.
///
/// ```
/// use tidegate_connectors::Collect;
///
/// let results = Collect::<u64>::new();
/// let sink = results.clone();
/// // … run a job that writes to `sink` …
/// assert_eq!(results.take(), []);
/// ```
#[derive(Debug)]
pub struct Collect<T> {
    records: Arc<Mutex<Vec<T>>>,
}

impl<T> Clone for Collect<T> {
    fn clone(&self) -> Self {
        Collect {
            records: Arc::clone(&self.records),
        }
    }
}

impl<T> Default for Collect<T> {
    fn default() -> Self {
        Collect {
            records: Arc::default(),
        }
    }
}

impl<T> Collect<T> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes out what has been written since the last call.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.records))
    }
}

impl<T: Send + 'static> Sink<T> for Collect<T> {
    type Writer = Collect<T>;

    fn writer(&self, _context: SinkContext) -> Result<Collect<T>, BoxError> {
        Ok(self.clone())
    }
}

impl<T: Send + 'static> SinkWriter<T> for Collect<T> {
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        lock(&self.records).extend(records);
        Ok(Flow::Continue)
    }
}

/// Keeps records in a list, each exactly once and only when its checkpoint has completed; clones
/// share the list.
///
/// For tests of jobs that fail and restart within one process. The records travel in the
/// checkpoint's metadata, so there should be few of them per checkpoint.
#[derive(Debug)]
pub struct CollectCommitted<T> {
    committed: Arc<Mutex<Committed<T>>>,
}

#[derive(Debug)]
struct Committed<T> {
    records: Vec<T>,
    /// Kept when records are taken out: a commit may be repeated much later.
    transactions: BTreeSet<TransactionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct TransactionId {
    attempt: u64,
    subtask: u32,
    checkpoint: CheckpointId,
}

/// A transaction of [`CollectCommitted`]: it carries its records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CollectTransaction<T> {
    id: TransactionId,
    records: Vec<T>,
}

impl<T> Clone for CollectCommitted<T> {
    fn clone(&self) -> Self {
        CollectCommitted {
            committed: Arc::clone(&self.committed),
        }
    }
}

impl<T> Default for CollectCommitted<T> {
    fn default() -> Self {
        let committed = Committed {
            records: Vec::new(),
            transactions: BTreeSet::new(),
        };
        CollectCommitted {
            committed: Arc::new(Mutex::new(committed)),
        }
    }
}

impl<T> CollectCommitted<T> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes out what has been committed since the last call, transaction by transaction.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.committed).records)
    }
}

impl<T: Record> TwoPhaseSink<T> for CollectCommitted<T> {
    type Transaction = CollectTransaction<T>;
    type Writer = CollectWriter<T>;
    type Committer = CollectCommitted<T>;

    fn writer(&self, context: SinkContext) -> Result<CollectWriter<T>, BoxError> {
        Ok(CollectWriter {
            context,
            records: Vec::new(),
        })
    }

    fn committer(&self, _context: SinkContext) -> Result<CollectCommitted<T>, BoxError> {
        Ok(self.clone())
    }
}

/// Collects the records of one subtask between two checkpoints.
#[derive(Debug)]
pub struct CollectWriter<T> {
    context: SinkContext,
    records: Vec<T>,
}

impl<T: Record> TransactionWriter<T> for CollectWriter<T> {
    type Transaction = CollectTransaction<T>;

    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        self.records.extend(records);
        Ok(Flow::Continue)
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Vec<PreCommitted<CollectTransaction<T>>>, BoxError> {
        if self.records.is_empty() {
            return Ok(Vec::new());
        }
        let id = TransactionId {
            attempt: self.context.attempt.0,
            subtask: self.context.subtask.index,
            checkpoint,
        };
        let transaction = CollectTransaction {
            id,
            records: std::mem::take(&mut self.records),
        };
        // The transaction itself is all there is: it becomes durable with the checkpoint.
        Ok(vec![PreCommitted {
            transaction,
            seal: Box::new(|| Ok(())),
        }])
    }
}

impl<T: Record> Committer for CollectCommitted<T> {
    type Transaction = CollectTransaction<T>;

    fn commit(&mut self, transaction: &CollectTransaction<T>) -> Result<(), BoxError> {
        let mut committed = lock(&self.committed);
        if committed.transactions.insert(transaction.id) {
            committed.records.extend_from_slice(&transaction.records);
        }
        Ok(())
    }

    fn clean_up(&mut self, _attempt: AttemptNumber) -> Result<(), BoxError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::{OperatorId, SubtaskId};

    use super::*;

    fn context(attempt: u64) -> SinkContext {
        SinkContext {
            subtask: SubtaskId {
                operator: OperatorId(1),
                index: 0,
            },
            uid: "results".to_owned(),
            parallelism: 1,
            attempt: AttemptNumber(attempt),
        }
    }

    fn written(
        writer: &mut CollectWriter<u32>,
        record: u32,
        checkpoint: u64,
    ) -> CollectTransaction<u32> {
        writer.write(&mut vec![record].into()).unwrap();
        let mut ended = writer.pre_commit(CheckpointId(checkpoint)).unwrap();
        assert_eq!(ended.len(), 1);
        ended.remove(0).transaction
    }

    // TP-08
    #[test]
    fn commits_show_once_however_often_they_are_asked_for() {
        let sink = CollectCommitted::new();
        let mut writer = sink.writer(context(1)).unwrap();
        let first = written(&mut writer, 42, 1);
        let second = written(&mut writer, 43, 2);
        assert_eq!(sink.take(), []);
        let mut committer = TwoPhaseSink::<u32>::committer(&sink, context(1)).unwrap();
        committer.commit(&first).unwrap();
        committer.commit(&second).unwrap();
        committer.commit(&first).unwrap();
        assert_eq!(sink.take(), [42, 43]);
        committer.commit(&second).unwrap();
        assert_eq!(sink.take(), []);
    }

    #[test]
    fn the_same_checkpoint_of_another_attempt_is_another_transaction() {
        let sink = CollectCommitted::new();
        let lost = written(&mut sink.writer(context(1)).unwrap(), 1, 5);
        let mut writer = sink.writer(context(2)).unwrap();
        let kept = written(&mut writer, 2, 5);
        assert_ne!(lost.id, kept.id);
        assert!(writer.pre_commit(CheckpointId(6)).unwrap().is_empty());
    }

    #[test]
    fn collected_records_are_shared() {
        let results = Collect::new();
        let mut writer = results.writer(context(1)).unwrap();
        writer.write(&mut vec![1, 2].into()).unwrap();
        assert_eq!(results.take(), [1, 2]);
        assert_eq!(results.take(), []);
    }
}
