//! Who restores what: deals the state of a checkpoint out to the subtasks of a job graph that may
//! have changed since.
//!
//! The plan is pure and printable. State follows the operator's uid, never its position. Keyed
//! state goes to whoever owns its key groups now; list state as its [`Redistribution`] says. The
//! rules are those of Flink's `StateAssignmentOperation`.
//!
//! [`Redistribution`]: tidegate_types::Redistribution

mod check;
mod error;
mod finished;
mod keyed;
mod lists;
mod max_parallelism;
mod plan;
mod report;

pub use check::refuse_drained;
pub use error::{KeyGroupFault, RestoreError};
pub use max_parallelism::adopt_max_parallelism;
pub use plan::DisplayPlan;
pub use report::{OperatorOutlook, RestoreOutlook, preview_restore};

use std::collections::BTreeMap;

use tidegate_types::graph::{JobGraph, OperatorSpec};
use tidegate_types::{
    CompletedCheckpoint, KeyGroupRange, OperatorCheckpoint, OperatorUid, RestorePlan,
    SubtaskRestore,
};

/// Plans the restore of `checkpoint`, or an empty start without one.
///
/// `graph` must be [valid](JobGraph::validate) and have the checkpoint's max parallelism
/// [adopted](adopt_max_parallelism). Operators that the checkpoint doesn't know start empty.
///
/// # Errors
/// If the checkpoint doesn't fit the graph or is corrupt; nothing is restored then.
/// [`preview_restore`] finds all that is wrong, this the first. State of operators that the graph
/// doesn't have is an error unless `allow_non_restored`.
///
/// # Panics
/// If an operator's parallelism is above its max parallelism, which a valid graph rules out.
pub fn plan_restore(
    graph: &JobGraph,
    checkpoint: Option<&CompletedCheckpoint>,
    allow_non_restored: bool,
) -> Result<RestorePlan, RestoreError> {
    let mut operators: Vec<_> = graph.operators.iter().map(empty).collect();
    let Some(checkpoint) = checkpoint else {
        return Ok(RestorePlan { operators });
    };
    let problems = check::problems(graph, checkpoint, allow_non_restored);
    if let Some(first) = problems.into_iter().next() {
        return Err(first);
    }
    let saved = Saved::new(checkpoint);
    for (spec, subtasks) in graph.operators.iter().zip(&mut operators) {
        if let Some(operator) = saved.of(spec) {
            keyed::deal_out(operator, subtasks);
            lists::deal_out(operator, subtasks);
        }
    }
    finished::carry_over(graph, checkpoint, &saved, &mut operators);
    Ok(RestorePlan { operators })
}

/// The operators of a checkpoint by uid.
struct Saved<'a>(BTreeMap<&'a OperatorUid, &'a OperatorCheckpoint>);

impl<'a> Saved<'a> {
    fn new(checkpoint: &'a CompletedCheckpoint) -> Self {
        Saved(
            checkpoint
                .operators
                .iter()
                .map(|op| (&op.uid, op))
                .collect(),
        )
    }

    fn of(&self, spec: &OperatorSpec) -> Option<&'a OperatorCheckpoint> {
        self.0.get(&spec.uid).copied()
    }
}

/// What the subtasks of an operator start from that nothing is known of.
fn empty(spec: &OperatorSpec) -> Vec<SubtaskRestore> {
    (0..spec.parallelism)
        .map(|index| SubtaskRestore {
            key_groups: owned_key_groups(spec, index),
            keyed: Vec::new(),
            lists: Vec::new(),
            finished: false,
        })
        .collect()
}

fn owned_key_groups(spec: &OperatorSpec, index: u32) -> KeyGroupRange {
    spec.max_parallelism
        .range(index, spec.parallelism)
        .expect("a valid graph has no parallelism above its max parallelism")
}

#[cfg(test)]
mod tests;
