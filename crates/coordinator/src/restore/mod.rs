//! Who restores what: deals the state of a checkpoint out to the subtasks of a job graph that may
//! have changed since.
//!
//! The plan is pure and printable. State follows the operator's uid, never its position. Keyed
//! state goes to whoever owns its key groups now; list state as its [`Redistribution`] says. The
//! rules are those of Flink's `StateAssignmentOperation`.
//!
//! [`Redistribution`]: tidegate_types::Redistribution

mod error;
mod lists;
mod plan;

pub use error::RestoreError;
pub use plan::DisplayPlan;

use std::collections::BTreeSet;

use tidegate_types::graph::{JobGraph, OperatorSpec};
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, HASH_ID, KeyGroupRange, KeyedStateHandle,
    OperatorCheckpoint, OperatorUid, RestorePlan, SubtaskRestore, SubtaskState,
};

/// Plans the restore of `checkpoint`, or an empty start without one.
///
/// `graph` must be [valid](JobGraph::validate). Operators that the checkpoint doesn't know start
/// empty.
///
/// # Errors
/// If the checkpoint doesn't fit the graph; nothing is restored then. State of operators that the
/// graph doesn't have is an error unless `allow_non_restored`.
///
/// # Panics
/// If an operator's parallelism is above its max parallelism, which a valid graph rules out.
pub fn plan_restore(
    graph: &JobGraph,
    checkpoint: Option<&CompletedCheckpoint>,
    allow_non_restored: bool,
) -> Result<RestorePlan, RestoreError> {
    if let Some(checkpoint) = checkpoint {
        check_hash(checkpoint)?;
        if !allow_non_restored {
            check_unmatched(graph, checkpoint)?;
        }
    }
    let operators = graph
        .operators
        .iter()
        .map(|spec| restore_operator(spec, checkpoint))
        .collect::<Result<_, _>>()?;
    Ok(RestorePlan { operators })
}

fn check_hash(checkpoint: &CompletedCheckpoint) -> Result<(), RestoreError> {
    if checkpoint.hash_id == HASH_ID {
        return Ok(());
    }
    Err(RestoreError::Hash {
        checkpoint: checkpoint.id,
        found: checkpoint.hash_id.clone(),
        expected: HASH_ID.to_owned(),
    })
}

fn check_unmatched(graph: &JobGraph, checkpoint: &CompletedCheckpoint) -> Result<(), RestoreError> {
    let known: BTreeSet<&OperatorUid> = graph.operators.iter().map(|op| &op.uid).collect();
    let missing: Vec<OperatorUid> = checkpoint
        .operators
        .iter()
        .filter(|op| !known.contains(&op.uid) && holds_state(op))
        .map(|op| op.uid.clone())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let saved: BTreeSet<&OperatorUid> = checkpoint.operators.iter().map(|op| &op.uid).collect();
    let new = graph
        .operators
        .iter()
        .filter(|op| !saved.contains(&op.uid))
        .map(|op| op.uid.clone())
        .collect();
    Err(RestoreError::Unmatched {
        checkpoint: checkpoint.id,
        missing,
        new,
    })
}

/// An entry of nothing but stateless subtasks loses nothing when it is dropped.
fn holds_state(operator: &OperatorCheckpoint) -> bool {
    operator.subtasks.iter().any(|subtask| {
        subtask.keyed.is_some() || subtask.lists.iter().any(|list| !list.elements.is_empty())
    })
}

fn restore_operator(
    spec: &OperatorSpec,
    checkpoint: Option<&CompletedCheckpoint>,
) -> Result<Vec<SubtaskRestore>, RestoreError> {
    let mut subtasks: Vec<SubtaskRestore> = (0..spec.parallelism)
        .map(|index| SubtaskRestore {
            key_groups: owned_key_groups(spec, index),
            keyed: Vec::new(),
            lists: Vec::new(),
            finished: false,
        })
        .collect();
    let saved = checkpoint.and_then(|checkpoint| {
        let operator = checkpoint.operators.iter().find(|op| op.uid == spec.uid)?;
        Some((checkpoint.id, operator))
    });
    if let Some((id, operator)) = saved {
        check_max_parallelism(spec, id, operator)?;
        deal_out_keyed(operator, &mut subtasks);
        lists::deal_out(id, operator, &mut subtasks)?;
        carry_over_finished(&operator.subtasks, &mut subtasks);
    }
    Ok(subtasks)
}

fn owned_key_groups(spec: &OperatorSpec, index: u32) -> KeyGroupRange {
    spec.max_parallelism
        .range(index, spec.parallelism)
        .expect("a valid graph has no parallelism above its max parallelism")
}

/// Only keyed state depends on the number of key groups; an operator without any may change it.
fn check_max_parallelism(
    spec: &OperatorSpec,
    checkpoint: CheckpointId,
    saved: &OperatorCheckpoint,
) -> Result<(), RestoreError> {
    let keyed = saved.subtasks.iter().any(|subtask| subtask.keyed.is_some());
    if keyed && spec.max_parallelism != saved.max_parallelism {
        return Err(RestoreError::MaxParallelism {
            checkpoint,
            operator: spec.uid.clone(),
            saved: saved.max_parallelism.get(),
            job: spec.max_parallelism.get(),
        });
    }
    Ok(())
}

fn deal_out_keyed(saved: &OperatorCheckpoint, subtasks: &mut [SubtaskRestore]) {
    for subtask in subtasks {
        let intersects = |handle: &&KeyedStateHandle| {
            let shared = handle.key_groups.intersection(subtask.key_groups);
            shared.is_some()
        };
        let handles = saved.subtasks.iter().filter_map(|old| old.keyed.as_ref());
        subtask.keyed = handles.filter(intersects).cloned().collect();
    }
}

/// A subtask has finished if its predecessor had; after a rescale, if all of them had.
fn carry_over_finished(old: &[SubtaskState], subtasks: &mut [SubtaskRestore]) {
    let unchanged = old.len() == subtasks.len();
    let all = !old.is_empty() && old.iter().all(|state| state.finished);
    for (index, subtask) in subtasks.iter_mut().enumerate() {
        subtask.finished = if unchanged { old[index].finished } else { all };
    }
}

#[cfg(test)]
mod tests;
