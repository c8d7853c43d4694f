//! Who had finished: such a subtask doesn't run `finish()` again.
//!
//! `finish()` has run once all input of a subtask had ended, so whoever had finished has only
//! finished subtasks before it. A restore keeps it that way:
//!
//! - A job graph that puts an operator that certainly had not finished before one that had is
//!   refused (Flink's `VertexFinishedStateChecker`).
//! - Otherwise a subtask that would get data again, because parallelism or partitioning has
//!   changed, is no longer finished: its `finish()` runs once more, over the state that the first
//!   one left, when all its input has really ended. Refusing it instead would make checkpoints
//!   near the end of a job restorable at one parallelism only. The same goes for checkpoints at
//!   least once, where a subtask may finish before all channels have delivered the barrier.
//!
//! A savepoint taken with drain is different: all data had come to its end by decree, wherever the
//! readers stood. Whoever restores it only commits what is left to commit and ends, so everybody
//! has finished, readers with unread splits too.

use tidegate_types::graph::{JobGraph, OperatorSpec, Partitioning};
use tidegate_types::{CompletedCheckpoint, OperatorCheckpoint, SubtaskRestore};

use super::{RestoreError, Saved};

/// Marks the subtasks that have nothing left to do, operators in graph order.
pub(super) fn carry_over(
    graph: &JobGraph,
    checkpoint: &CompletedCheckpoint,
    saved: &Saved<'_>,
    operators: &mut [Vec<SubtaskRestore>],
) {
    if checkpoint.kind.drains() {
        for (spec, subtasks) in graph.operators.iter().zip(operators.iter_mut()) {
            let known = saved.of(spec).is_some();
            subtasks
                .iter_mut()
                .for_each(|subtask| subtask.finished = known);
        }
        return;
    }
    for (spec, subtasks) in graph.operators.iter().zip(operators.iter_mut()) {
        if let Some(old) = saved.of(spec) {
            follow(old, subtasks);
        }
    }
    while take_back(graph, operators) {}
}

/// A subtask has finished if its predecessor had; after a rescale, if all of them had.
fn follow(old: &OperatorCheckpoint, subtasks: &mut [SubtaskRestore]) {
    let old = &old.subtasks;
    let unchanged = old.len() == subtasks.len();
    let all = !old.is_empty() && old.iter().all(|state| state.finished);
    for (index, subtask) in subtasks.iter_mut().enumerate() {
        subtask.finished = if unchanged { old[index].finished } else { all };
    }
}

/// Looks once at every edge: whoever gets data has not finished. Returns whether that was news.
fn take_back(graph: &JobGraph, operators: &mut [Vec<SubtaskRestore>]) -> bool {
    let mut changed = false;
    for edge in &graph.edges {
        let senders = &operators[edge.from.0 as usize];
        let ended: Vec<bool> = senders.iter().map(|subtask| subtask.finished).collect();
        let all_ended = ended.iter().all(|ended| *ended);
        for (index, subtask) in operators[edge.to.0 as usize].iter_mut().enumerate() {
            let input_ended = match edge.partitioning {
                Partitioning::Forward => ended[index],
                Partitioning::KeyGroups | Partitioning::Rebalance | Partitioning::Broadcast => {
                    all_ended
                }
            };
            changed |= subtask.finished && !input_ended;
            subtask.finished &= input_ended;
        }
    }
    changed
}

/// Finds operators that had finished, in part at least, though none of what is before them in
/// this graph had.
pub(super) fn check(
    graph: &JobGraph,
    checkpoint: &CompletedCheckpoint,
    saved: &Saved<'_>,
    problems: &mut Vec<RestoreError>,
) {
    let had_finished = |spec: &OperatorSpec| {
        let subtasks = saved.of(spec).map_or(&[][..], |old| &old.subtasks);
        subtasks.iter().any(|subtask| subtask.finished)
    };
    for id in graph.operator_ids() {
        let spec = graph.operator(id);
        if !had_finished(spec) {
            continue;
        }
        let inputs = || graph.inputs_of(id).map(|edge| graph.operator(edge.from));
        let new = inputs().find(|input| saved.of(input).is_none());
        let none_had = !checkpoint.kind.drains() && !inputs().any(had_finished);
        let running = inputs().next().filter(|_| none_had);
        problems.extend(new.or(running).map(|input| RestoreError::UnfinishedInput {
            checkpoint: checkpoint.id,
            operator: spec.uid.clone(),
            input: input.uid.clone(),
        }));
    }
}
