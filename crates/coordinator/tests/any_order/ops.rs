//! What may happen to a job, as proptest picks it.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_coordinator::{CheckpointSettings, ElasticSettings};
use tidegate_types::SnapshotFormat;

/// What happens next. Numbers pick among what is possible at that moment.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Advance(u16),
    /// One outstanding action is answered.
    Answer(usize, Fate),
    /// A subtask acknowledges a checkpoint that was triggered in its attempt.
    Acknowledge(usize, usize),
    /// Every subtask does.
    AcknowledgeAll(usize),
    /// An acknowledgement is delivered once more.
    Repeat(usize),
    Decline(usize, usize, bool),
    Run(usize),
    RunAll,
    EndSource(usize),
    Commit(usize, usize),
    Fail(usize),
    /// A write of unknown outcome comes to pass after all.
    LateWrite(usize),
    /// Somebody asks for a snapshot, a stop, or an abort.
    Request(usize),
    /// Somebody asks for another parallelism.
    Rescale(u32),
    /// TaskManagers come and go.
    Slots(u32),
    Nonsense(u64),
}

/// How a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    NotDone,
    UnknownDone,
    UnknownNotDone,
}

pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let fate = prop_oneof![
        8 => Just(Fate::Done),
        1 => Just(Fate::NotDone),
        1 => Just(Fate::UnknownDone),
        1 => Just(Fate::UnknownNotDone),
    ];
    let (a, b) = (any::<usize>(), any::<usize>());
    let op = prop_oneof![
        6 => (0u16..400).prop_map(Op::Advance),
        20 => (a, fate).prop_map(|(index, fate)| Op::Answer(index, fate)),
        30 => (a, b).prop_map(|(c, s)| Op::Acknowledge(c, s)),
        6 => a.prop_map(Op::AcknowledgeAll),
        4 => a.prop_map(Op::Repeat),
        1 => (a, b, any::<bool>()).prop_map(|(c, s, fault)| Op::Decline(c, s, fault)),
        2 => a.prop_map(Op::Run),
        8 => Just(Op::RunAll),
        1 => a.prop_map(Op::EndSource),
        3 => (a, b).prop_map(|(c, s)| Op::Commit(c, s)),
        1 => a.prop_map(Op::Fail),
        1 => a.prop_map(Op::LateWrite),
        3 => a.prop_map(Op::Request),
        2 => (0u32..5).prop_map(Op::Rescale),
        1 => (0u32..5).prop_map(Op::Slots),
        1 => any::<u64>().prop_map(Op::Nonsense),
    ];
    prop::collection::vec(op, 0..400)
}

pub(crate) fn settings() -> impl Strategy<Value = (CheckpointSettings, ElasticSettings)> {
    let min = prop_oneof![Just(None), (1u32..3).prop_map(Some)];
    let elastic = min.prop_map(|parallelism_min| ElasticSettings {
        parallelism_min,
        stabilization_timeout: Duration::from_millis(150),
    });
    (checkpoint_settings(), elastic)
}

fn checkpoint_settings() -> impl Strategy<Value = CheckpointSettings> {
    let interval = prop_oneof![Just(None), (1u64..300).prop_map(Some)];
    let tolerable = prop_oneof![Just(None), (0u32..4).prop_map(Some)];
    let format = prop_oneof![
        Just(SnapshotFormat::Full),
        Just(SnapshotFormat::Incremental)
    ];
    (
        interval,
        1u64..1000,
        0u64..200,
        1u32..4,
        tolerable,
        1u32..4,
        format,
    )
        .prop_map(
            |(interval, timeout, pause, max_concurrent, tolerable_failures, retained, format)| {
                CheckpointSettings {
                    interval: interval.map(Duration::from_millis),
                    timeout: Duration::from_millis(timeout),
                    min_pause: Duration::from_millis(pause),
                    max_concurrent,
                    tolerable_failures,
                    retained,
                    format,
                    ..CheckpointSettings::default()
                }
            },
        )
}
