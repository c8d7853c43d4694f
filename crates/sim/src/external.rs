//! The system that sinks write to: transactions, and what of them is visible.

use std::collections::BTreeMap;

use tidegate_types::{AttemptNumber, CheckpointId};

use crate::record::{Record, decode, encode};

/// Names a transaction, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransactionId {
    /// Which of the jobs that went on from each other.
    pub(crate) namespace: u32,
    pub(crate) attempt: AttemptNumber,
    pub(crate) operator: u32,
    pub(crate) subtask: u32,
    /// The checkpoint it was pre-committed for: at most one each.
    pub(crate) checkpoint: CheckpointId,
}

impl TransactionId {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let TransactionId {
            namespace,
            attempt,
            operator,
            subtask,
            checkpoint,
        } = *self;
        encode(&[
            u64::from(namespace),
            attempt.0,
            u64::from(operator),
            u64::from(subtask),
            checkpoint.0,
        ])
    }

    pub(crate) fn decode(bytes: &[u8]) -> TransactionId {
        let [namespace, attempt, operator, subtask, checkpoint] = decode(bytes);
        TransactionId {
            namespace: namespace as u32,
            attempt: AttemptNumber(attempt),
            operator: operator as u32,
            subtask: subtask as u32,
            checkpoint: CheckpointId(checkpoint),
        }
    }
}

impl std::fmt::Display for TransactionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TransactionId {
            namespace,
            attempt,
            operator,
            subtask,
            checkpoint,
        } = self;
        write!(
            f,
            "op{operator}[{subtask}]/job-{namespace}/{attempt}/{checkpoint}"
        )
    }
}

/// How far a transaction has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Written, but a power failure may undo that.
    Written,
    /// Durable, not visible.
    Sealed,
    /// Making it durable failed once; it can't be trusted any more.
    Spoilt,
    /// Visible.
    Committed,
}

#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) state: State,
    pub(crate) records: Vec<Record>,
}

#[derive(Debug, Default)]
pub(crate) struct External {
    pub(crate) transactions: BTreeMap<TransactionId, Transaction>,
}

impl External {
    pub(crate) fn write(&mut self, id: TransactionId, records: Vec<Record>) {
        self.transactions.insert(
            id,
            Transaction {
                state: State::Written,
                records,
            },
        );
    }

    pub(crate) fn state(&self, id: TransactionId) -> Option<State> {
        self.transactions
            .get(&id)
            .map(|transaction| transaction.state)
    }

    pub(crate) fn set(&mut self, id: TransactionId, state: State) {
        if let Some(transaction) = self.transactions.get_mut(&id) {
            transaction.state = state;
        }
    }

    /// Transactions of attempts before this one that are not visible.
    pub(crate) fn leftovers(&self, namespace: u32, before: AttemptNumber) -> Vec<TransactionId> {
        let left = self.transactions.iter().filter(|(id, transaction)| {
            (id.namespace, id.attempt) < (namespace, before)
                && transaction.state != State::Committed
        });
        left.map(|(id, _)| *id).collect()
    }
}
