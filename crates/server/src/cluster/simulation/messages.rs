//! What simulated subtasks say, in the sizes that real ones say it in.

use std::time::Duration;

use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::message::{Report, SnapshotMetrics};
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, FileHandle, KeyedStateHandle, ListState, MaxParallelism,
    OperatorId, OperatorUid, Redistribution, SubtaskId, SubtaskState,
};

use crate::cluster::wire::{ChannelRun, SubtaskProgress};

/// A source, a keyed operator, one behind it, and a transactional sink: all-to-all in the middle.
pub(super) fn graph(parallelism: u32) -> JobGraph {
    use OperatorRole::{CommittingSink, Enumerator, Reader, Transform};
    let operators = [
        ("events-splits", Enumerator),
        ("events", Reader),
        ("sessions", Transform),
        ("scores", Transform),
        ("results", CommittingSink),
    ];
    let spec = |(uid, role): (&str, OperatorRole)| OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism: if role == Enumerator { 1 } else { parallelism },
        max_parallelism: MaxParallelism::new(32_768).expect("it is the limit"),
        max_parallelism_derived: false,
        role,
    };
    use Partitioning::{Forward, KeyGroups, Rebalance};
    let edges = [Rebalance, KeyGroups, Forward, Forward];
    let edge = |(from, partitioning)| Edge {
        from: OperatorId(from),
        to: OperatorId(from + 1),
        partitioning,
    };
    JobGraph {
        operators: operators.map(spec).into(),
        edges: (0..).zip(edges).map(edge).collect(),
    }
}

/// State of a subtask: a file of keyed state, offsets, or a transaction.
pub(super) fn acknowledged(
    graph: &JobGraph,
    checkpoint: CheckpointId,
    subtask: SubtaskId,
) -> Report {
    let spec = graph.operator(subtask.operator);
    let state = match spec.role {
        OperatorRole::Transform => SubtaskState {
            keyed: Some(keyed(spec, checkpoint, subtask)),
            ..SubtaskState::default()
        },
        role => SubtaskState {
            lists: vec![ListState {
                name: "offsets".to_owned(),
                redistribution: Redistribution::Split,
                elements: vec![vec![0; if role == OperatorRole::Reader { 24 } else { 64 }]],
            }],
            ..SubtaskState::default()
        },
    };
    Report::Acknowledged {
        checkpoint,
        subtask,
        state,
        metrics: SnapshotMetrics {
            start_delay: Duration::from_micros(900),
            alignment: Duration::from_micros(1_500),
            alignment_bytes: 0,
            sync: Duration::from_micros(50),
            write: Duration::from_millis(12),
        },
    }
}

fn keyed(spec: &OperatorSpec, checkpoint: CheckpointId, subtask: SubtaskId) -> KeyedStateHandle {
    let uid = &spec.uid;
    let index = subtask.index;
    let file = FileHandle {
        name: format!("{checkpoint}/a1-{uid}.{index}-0123456789abcdef0123456789abcdef.state"),
        bytes: 1 << 24,
        crc32c: 0x1234_5678,
    };
    let groups = spec.max_parallelism.range(index, spec.parallelism);
    KeyedStateHandle::of_file(file, groups.expect("parallelism is below the limit"))
}

/// How far a subtask is: its channels all stand at the same barrier, of which nothing is said if
/// that was `told` before.
pub(super) fn progress(
    graph: &JobGraph,
    subtask: SubtaskId,
    records: u64,
    (passed, told): (CheckpointId, CheckpointId),
) -> SubtaskProgress {
    let inputs = graph.inputs_of(subtask.operator);
    let channels = inputs
        .filter(|_| passed != told)
        .map(|edge| match edge.partitioning {
            Partitioning::Forward => 1,
            _ => graph.operator(edge.from).parallelism,
        });
    let run = |channels| ChannelRun {
        channels,
        newest: passed.0,
    };
    SubtaskProgress {
        subtask: Some(subtask.into()),
        records_in: records,
        records_out: records,
        passed: passed.0,
        channels: channels.map(run).collect(),
        under_way: Vec::new(),
    }
}

/// The length of `_metadata` by the tables of docs/formats.md.
pub(super) fn metadata_bytes(checkpoint: &CompletedCheckpoint) -> u64 {
    let text = |text: &str| 4 + text.len();
    let list = |list: &ListState| {
        let elements = list.elements.iter().map(|element| 4 + element.len());
        text(&list.name) + 5 + elements.sum::<usize>()
    };
    let subtask = |state: &SubtaskState| {
        let keyed = state.keyed.iter().map(|_| 8).sum::<usize>();
        let files = state.files().map(|file| 1 + text(&file.name) + 12);
        5 + keyed + files.sum::<usize>() + state.lists.iter().map(list).sum::<usize>()
    };
    let operators = checkpoint.operators.iter().map(|operator| {
        text(&operator.uid.0) + 8 + operator.subtasks.iter().map(subtask).sum::<usize>()
    });
    (28 + 41 + text(&checkpoint.hash_id) + 4 + operators.sum::<usize>()) as u64
}
