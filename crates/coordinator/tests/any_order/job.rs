//! The job that everything happens to, and the state of its subtasks.

use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{
    CheckpointBarrier, FileHandle, KeyGroupRange, KeyedPiece, KeyedStateHandle, MaxParallelism,
    OperatorId, OperatorUid, SubtaskId, SubtaskState,
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
fn key_groups(graph: &JobGraph, subtask: SubtaskId) -> KeyGroupRange {
    let spec = graph.operators.get(subtask.operator.0 as usize);
    match spec.filter(|spec| subtask.index < spec.parallelism) {
        Some(spec) => spec.max_parallelism.range(subtask.index, spec.parallelism),
        None => MaxParallelism::derive(1).range(0, 1),
    }
    .expect("parallelism is below the number of key groups")
}

/// A new file of its own, and some of what the subtask had in the base of the checkpoint.
pub(crate) fn state(
    graph: &JobGraph,
    barrier: &CheckpointBarrier,
    subtask: SubtaskId,
    base: Option<&SubtaskState>,
) -> SubtaskState {
    let id = barrier.checkpoint;
    let folder = match &barrier.location {
        None => id.to_string(),
        Some(location) => location.to_string(),
    };
    let old = base.iter().flat_map(|base| base.files()).cloned();
    let mut pieces: Vec<KeyedPiece> = old.map(KeyedPiece::File).collect();
    // Of some subtasks all of it, of others the newest part; and sometimes nothing is new.
    let mix =
        id.0.wrapping_add(u64::from(subtask.index) * 3 + u64::from(subtask.operator.0));
    if mix.is_multiple_of(3) {
        pieces.truncate(1);
    }
    if pieces.is_empty() || mix % 4 != 1 {
        pieces.push(KeyedPiece::File(FileHandle {
            name: format!("{folder}/{subtask}"),
            bytes: 1,
            crc32c: 0,
        }));
    }
    SubtaskState {
        keyed: Some(KeyedStateHandle {
            pieces,
            key_groups: key_groups(graph, subtask),
        }),
        ..SubtaskState::default()
    }
}
