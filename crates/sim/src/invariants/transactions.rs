//! A transaction becomes visible at most once, only after a completed checkpoint has promised it,
//! and only if it is durable; what is promised is never thrown away.
//!
//! Source: design section 5, the rules of commits; `TwoPhaseCommitSinkFunction` of Flink; BC-14,
//! BC-15, BC-29. That every promise is kept in the end shows in the output.

use std::collections::BTreeSet;

use tidegate_types::CompletedCheckpoint;

use super::{Checked, ensure};
use crate::external::{State, TransactionId};
use crate::store::Store;

const NAME: &str = "transactions";

/// Name of the list state with a sink's transactions.
pub(crate) const LIST: &str = "transactions";

#[derive(Debug, Default)]
pub(crate) struct Transactions {
    promised: BTreeSet<TransactionId>,
}

pub(super) fn listed(checkpoint: &CompletedCheckpoint) -> impl Iterator<Item = TransactionId> {
    let subtasks = checkpoint
        .operators
        .iter()
        .flat_map(|operator| &operator.subtasks);
    let lists = subtasks
        .flat_map(|subtask| &subtask.lists)
        .filter(|list| list.name == LIST);
    lists
        .flat_map(|list| &list.elements)
        .map(|element| TransactionId::decode(element))
}

impl Transactions {
    /// A checkpoint has completed, whether anybody knows or not.
    pub(crate) fn on_pointer(&mut self, checkpoint: &CompletedCheckpoint) {
        self.promised.extend(listed(checkpoint));
    }

    /// Somebody makes a transaction visible that was in this state.
    pub(crate) fn on_commit(&self, id: TransactionId, state: Option<State>) -> Checked {
        ensure(state.is_some(), NAME, || {
            format!("{id} is to be committed, but is gone")
        })?;
        ensure(state != Some(State::Committed), NAME, || {
            format!("{id} is committed twice")
        })?;
        ensure(self.promised.contains(&id), NAME, || {
            format!("{id} is committed, but no completed checkpoint lists it")
        })?;
        ensure(state == Some(State::Sealed), NAME, || {
            format!("{id} is committed, but isn't durable: {state:?}")
        })
    }

    /// A sink throws an invisible transaction away.
    pub(crate) fn on_discard(&self, id: TransactionId, store: &Store) -> Checked {
        let latest = store.latest();
        let needed = latest.is_some_and(|checkpoint| listed(checkpoint).any(|kept| kept == id));
        ensure(!needed, NAME, || {
            format!("{id} is thrown away, but the latest checkpoint has it")
        })
    }
}
