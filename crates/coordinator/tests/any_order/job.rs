//! The job that everything happens to, and the state of its subtasks.

use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{
    CheckpointId, FileHandle, KeyGroupRange, KeyedStateHandle, MaxParallelism, OperatorId,
    OperatorUid, SubtaskId, SubtaskState,
};

pub(crate) fn graph() -> JobGraph {
    let operators = [
        ("source", OperatorRole::Enumerator, 1),
        ("read", OperatorRole::Reader, 2),
        ("sink", OperatorRole::CommittingSink, 2),
    ];
    let operator = |(uid, role, parallelism): (&str, OperatorRole, u32)| OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism,
        max_parallelism: MaxParallelism::derive(2),
        max_parallelism_derived: true,
        role,
    };
    let edge = |to: u32| Edge {
        from: OperatorId(to - 1),
        to: OperatorId(to),
        partitioning: Partitioning::Rebalance,
    };
    JobGraph {
        operators: operators.into_iter().map(operator).collect(),
        edges: (1..3).map(edge).collect(),
    }
}

/// What the subtask owns; anything at all if the job has no such subtask.
fn key_groups(subtask: SubtaskId) -> KeyGroupRange {
    let graph = graph();
    let spec = graph.operators.get(subtask.operator.0 as usize);
    match spec.filter(|spec| subtask.index < spec.parallelism) {
        Some(spec) => spec.max_parallelism.range(subtask.index, spec.parallelism),
        None => MaxParallelism::derive(1).range(0, 1),
    }
    .expect("parallelism is below the number of key groups")
}

pub(crate) fn state(checkpoint: CheckpointId, subtask: SubtaskId) -> SubtaskState {
    SubtaskState {
        keyed: Some(KeyedStateHandle::of_file(
            FileHandle {
                name: format!("{checkpoint}/{subtask}"),
                bytes: 1,
                crc32c: 0,
            },
            key_groups(subtask),
        )),
        ..SubtaskState::default()
    }
}
