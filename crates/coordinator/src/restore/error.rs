//! Why a checkpoint can't be restored into a job graph.

use tidegate_types::{CheckpointId, OperatorUid};

/// A checkpoint and a job that don't fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Keys were mapped to key groups with another hash.
    #[error("`{checkpoint}` was made with the key hash `{found}`, this version uses `{expected}`")]
    Hash {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Its hash.
        found: String,
        /// Ours.
        expected: String,
    },
    /// The number of key groups has changed, so keys would be looked for in the wrong ones.
    #[error(
        "operator `{operator}` has max parallelism `{job}`, but its keyed state in `{checkpoint}` \
         was made with `{saved}`; set it to `{saved}`"
    )]
    MaxParallelism {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
        /// In the checkpoint.
        saved: u32,
        /// In the job graph.
        job: u32,
    },
    /// State would be dropped silently.
    #[error(
        "`{checkpoint}` holds state of operators that the job doesn't have: {}; operators of the \
         job that it knows nothing of: {}; give an operator its old name back, or pass \
         --allow-non-restored-state to drop the state",
        names(.missing),
        names(.new)
    )]
    Unmatched {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// With state, but not in the job.
        missing: Vec<OperatorUid>,
        /// In the job, but not in the checkpoint.
        new: Vec<OperatorUid>,
    },
    /// Subtasks disagree about how a list is dealt out: the checkpoint is corrupt.
    #[error("subtasks of `{operator}` in `{checkpoint}` disagree on how to redistribute `{list}`")]
    Redistribution {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
        /// The list state's name.
        list: String,
    },
}

fn names(operators: &[OperatorUid]) -> String {
    if operators.is_empty() {
        return "none".to_owned();
    }
    let quoted: Vec<String> = operators.iter().map(|uid| format!("`{uid}`")).collect();
    quoted.join(", ")
}
