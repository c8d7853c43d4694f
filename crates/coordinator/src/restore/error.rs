//! Why a checkpoint can't be restored into a job graph.

use tidegate_types::{CheckpointId, KeyGroupRange, OperatorUid};

/// What is wrong with the key groups that the files of an operator cover. Each must be covered
/// once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyGroupFault {
    /// Two files claim the same ones.
    #[error("two files hold key groups `{shared}`")]
    Overlap {
        /// What they share.
        shared: KeyGroupRange,
    },
    /// No file has these.
    #[error("no file holds key groups `{missing}`")]
    Gap {
        /// What is missing.
        missing: KeyGroupRange,
    },
    /// A file claims more than there are.
    #[error("a file holds key groups `{claimed}`, but there are `{count}`")]
    Outside {
        /// What the file claims.
        claimed: KeyGroupRange,
        /// How many key groups there are.
        count: u32,
    },
    /// A range ends before it starts.
    #[error("a file holds key groups from `{start}` to `{end}`")]
    Reversed {
        /// First key group.
        start: u16,
        /// Last key group.
        end: u16,
    },
}

/// A checkpoint and a job that don't fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The job that made it is done for good, and so would be any job begun from it.
    #[error(
        "`{checkpoint}` was taken by draining, which ends a job for good: nothing is left to go on \
         with; stop without drain to get a savepoint that a job can be begun from"
    )]
    Drained {
        /// The savepoint.
        checkpoint: CheckpointId,
    },
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
    /// An operator is to be more parallel than it has key groups, and their number is fixed.
    #[error(
        "operator `{operator}` has parallelism `{parallelism}`, but its keyed state in \
         `{checkpoint}` was made with max parallelism `{saved}`, which it can never exceed"
    )]
    ParallelismAboveMax {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
        /// In the job graph.
        parallelism: u32,
        /// Max parallelism in the checkpoint.
        saved: u32,
    },
    /// Data would flow into an operator that has said it is done. Only a job graph that has
    /// changed can ask for that.
    #[error(
        "operator `{operator}` had finished in `{checkpoint}`, but its input `{input}` had not: a \
         finished operator takes no more input; restore an earlier checkpoint"
    )]
    UnfinishedInput {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The finished operator.
        operator: OperatorUid,
        /// The operator it would get data from.
        input: OperatorUid,
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
    /// An operator is listed more than once: the checkpoint is corrupt.
    #[error("`{checkpoint}` is corrupt: it lists operator `{operator}` more than once")]
    DuplicateOperator {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
    },
    /// An operator without subtasks: the checkpoint is corrupt.
    #[error("`{checkpoint}` is corrupt: it lists no subtasks of operator `{operator}`")]
    NoSubtasks {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
    },
    /// Key groups are not covered once each: the checkpoint is corrupt.
    #[error("keyed state of operator `{operator}` in `{checkpoint}` is corrupt: {fault}")]
    KeyGroups {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
        /// What is wrong.
        fault: KeyGroupFault,
    },
    /// A subtask has two lists of one name: the checkpoint is corrupt.
    #[error("a subtask of `{operator}` in `{checkpoint}` has the list `{list}` more than once")]
    DuplicateList {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        operator: OperatorUid,
        /// The list state's name.
        list: String,
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
