//! Everything that may be wrong between a checkpoint and a job graph, found at once.

use std::collections::BTreeSet;

use tidegate_types::graph::JobGraph;
use tidegate_types::{CompletedCheckpoint, HASH_ID, JobId, OperatorCheckpoint, OperatorUid};

use super::{RestoreError, Saved, finished, keyed, lists, max_parallelism};

/// Refuses to begin `job` from a savepoint that another job was drained into. The job itself may
/// restore it, to commit what is left to commit and end.
///
/// # Errors
/// [`RestoreError::Drained`].
pub fn refuse_drained(job: JobId, checkpoint: &CompletedCheckpoint) -> Result<(), RestoreError> {
    if checkpoint.kind.drains() && checkpoint.job != job {
        return Err(RestoreError::Drained {
            checkpoint: checkpoint.id,
        });
    }
    Ok(())
}

/// Every reason why `checkpoint` can't be restored into `graph`; none if it can.
pub(super) fn problems(
    graph: &JobGraph,
    checkpoint: &CompletedCheckpoint,
    allow_non_restored: bool,
) -> Vec<RestoreError> {
    let id = checkpoint.id;
    let saved = Saved::new(checkpoint);
    let mut problems = Vec::new();
    problems.extend(hash(checkpoint));
    problems.extend(duplicates(checkpoint));
    if !allow_non_restored {
        problems.extend(unmatched(graph, checkpoint));
    }
    for spec in &graph.operators {
        if let Some(operator) = saved.of(spec) {
            problems.extend(no_subtasks(checkpoint, operator));
            problems.extend(keyed::check(id, operator));
            lists::check(id, operator, &mut problems);
            problems.extend(max_parallelism::check(spec, id, operator));
        }
    }
    finished::check(graph, checkpoint, &saved, &mut problems);
    problems
}

fn hash(checkpoint: &CompletedCheckpoint) -> Option<RestoreError> {
    (checkpoint.hash_id != HASH_ID).then(|| RestoreError::Hash {
        checkpoint: checkpoint.id,
        found: checkpoint.hash_id.clone(),
        expected: HASH_ID.to_owned(),
    })
}

fn duplicates(checkpoint: &CompletedCheckpoint) -> impl Iterator<Item = RestoreError> {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for operator in &checkpoint.operators {
        if !seen.insert(&operator.uid) {
            twice.insert(&operator.uid);
        }
    }
    twice
        .into_iter()
        .map(|uid| RestoreError::DuplicateOperator {
            checkpoint: checkpoint.id,
            operator: uid.clone(),
        })
}

fn no_subtasks(
    checkpoint: &CompletedCheckpoint,
    operator: &OperatorCheckpoint,
) -> Option<RestoreError> {
    operator
        .subtasks
        .is_empty()
        .then(|| RestoreError::NoSubtasks {
            checkpoint: checkpoint.id,
            operator: operator.uid.clone(),
        })
}

/// State of operators that the graph doesn't have, beside the operators that are new in it: what
/// was renamed stands in both lists.
fn unmatched(graph: &JobGraph, checkpoint: &CompletedCheckpoint) -> Option<RestoreError> {
    let known: BTreeSet<&OperatorUid> = graph.operators.iter().map(|op| &op.uid).collect();
    let missing: Vec<OperatorUid> = checkpoint
        .operators
        .iter()
        .filter(|op| !known.contains(&op.uid) && holds_state(op))
        .map(|op| op.uid.clone())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let saved: BTreeSet<&OperatorUid> = checkpoint.operators.iter().map(|op| &op.uid).collect();
    let is_new = |uid: &&OperatorUid| !saved.contains(uid);
    let uids = graph.operators.iter().map(|op| &op.uid);
    Some(RestoreError::Unmatched {
        checkpoint: checkpoint.id,
        missing,
        new: uids.filter(is_new).cloned().collect(),
    })
}

/// An entry of nothing but stateless subtasks loses nothing when it is dropped.
fn holds_state(operator: &OperatorCheckpoint) -> bool {
    operator.subtasks.iter().any(|subtask| {
        subtask.keyed.is_some() || subtask.lists.iter().any(|list| !list.elements.is_empty())
    })
}
