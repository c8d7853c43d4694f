//! The number of key groups, which decides where a key's state is for as long as the state lives.

use tidegate_types::graph::{JobGraph, OperatorSpec};
use tidegate_types::{CheckpointId, CompletedCheckpoint, OperatorCheckpoint};

use super::{RestoreError, Saved, keyed};

/// Gives every operator whose max parallelism nobody chose the one its keyed state in `checkpoint`
/// was made with. To be called before anything is made of the graph.
///
/// Operators without keyed state there keep theirs, and so do those whose user chose: if that is
/// another than the checkpoint's, [`plan_restore`](super::plan_restore) refuses it.
///
/// # Errors
/// [`RestoreError::ParallelismAboveMax`] of the first operator whose parallelism is above the
/// checkpoint's max parallelism. The graph is as it was then.
pub fn adopt_max_parallelism(
    graph: &mut JobGraph,
    checkpoint: &CompletedCheckpoint,
) -> Result<(), RestoreError> {
    let saved = Saved::new(checkpoint);
    let conflict = |spec: &OperatorSpec| above_max(spec, checkpoint.id, saved.of(spec)?);
    if let Some(error) = graph.operators.iter().find_map(conflict) {
        return Err(error);
    }
    adopt_where_possible(graph, &saved);
    Ok(())
}

/// Adopts the checkpoint's max parallelism wherever parallelism allows.
pub(super) fn adopt_where_possible(graph: &mut JobGraph, saved: &Saved<'_>) {
    for spec in &mut graph.operators {
        if let Some(operator) = saved.of(spec)
            && adopts(spec, operator)
            && spec.parallelism <= operator.max_parallelism.get()
        {
            spec.max_parallelism = operator.max_parallelism;
        }
    }
}

fn adopts(spec: &OperatorSpec, saved: &OperatorCheckpoint) -> bool {
    spec.max_parallelism_derived && keyed::is_keyed(saved)
}

fn above_max(
    spec: &OperatorSpec,
    checkpoint: CheckpointId,
    saved: &OperatorCheckpoint,
) -> Option<RestoreError> {
    let max = saved.max_parallelism.get();
    (adopts(spec, saved) && spec.parallelism > max).then(|| RestoreError::ParallelismAboveMax {
        checkpoint,
        operator: spec.uid.clone(),
        parallelism: spec.parallelism,
        saved: max,
    })
}

/// Only keyed state depends on the number of key groups; an operator without any may change it.
pub(super) fn check(
    spec: &OperatorSpec,
    checkpoint: CheckpointId,
    saved: &OperatorCheckpoint,
) -> Option<RestoreError> {
    if !keyed::is_keyed(saved) || spec.max_parallelism == saved.max_parallelism {
        return None;
    }
    let chosen = || RestoreError::MaxParallelism {
        checkpoint,
        operator: spec.uid.clone(),
        saved: saved.max_parallelism.get(),
        job: spec.max_parallelism.get(),
    };
    Some(above_max(spec, checkpoint, saved).unwrap_or_else(chosen))
}
