//! Counters that anyone may read while the job runs, and where a checkpoint stands.
//!
//! A worker that is busy, or stuck in user code, answers no questions; so every subtask leaves what
//! people may want to know where another thread can read it. That costs one store per activation
//! for records and one per barrier and channel for checkpoints, and never a lock per record.

mod checkpoints;
mod held_back;
mod traffic;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::{CheckpointId, SubtaskId};

use crate::alignment::ChannelIndex;

use checkpoints::CheckpointProgress;
pub use checkpoints::SnapshotPhase;
pub(crate) use checkpoints::SnapshotStage;
pub use held_back::{HeldBack, HeldBackBy};
pub(crate) use traffic::{ChannelKind, TrafficCounters};
pub use traffic::{Traffic, Volume};
pub use transfer::{ChannelRun, MetricsExport, SubtaskProgress};

#[derive(Debug)]
struct Counters {
    records_in: AtomicU64,
    records_out: AtomicU64,
    checkpoints: Arc<CheckpointProgress>,
}

/// What every subtask of one attempt has done. Cheap to clone; clones share the counters.
#[derive(Clone, Debug)]
pub struct AttemptMetrics {
    /// By operator, by subtask index.
    operators: Arc<Vec<Vec<Arc<Counters>>>>,
    traffic: Arc<TrafficCounters>,
}

impl AttemptMetrics {
    /// All zero, for the subtasks of `graph`.
    pub fn new(graph: &JobGraph) -> Self {
        let counters = |subtask| {
            Arc::new(Counters {
                records_in: AtomicU64::new(0),
                records_out: AtomicU64::new(0),
                checkpoints: Arc::new(CheckpointProgress::new(graph, subtask)),
            })
        };
        let operators = graph
            .operator_ids()
            .map(|id| graph.subtasks_of(id).map(counters).collect())
            .collect();
        AttemptMetrics {
            operators: Arc::new(operators),
            traffic: Arc::default(),
        }
    }

    /// Records that a subtask has taken in this attempt.
    pub fn records_in(&self, subtask: SubtaskId) -> u64 {
        self.counters(subtask).records_in.load(Ordering::Relaxed)
    }

    /// Records that a subtask has emitted in this attempt.
    pub fn records_out(&self, subtask: SubtaskId) -> u64 {
        self.counters(subtask).records_out.load(Ordering::Relaxed)
    }

    /// Records that the sources of `graph`, which these counters are of, have emitted in this
    /// attempt.
    pub fn records_of_sources(&self, graph: &JobGraph) -> u64 {
        let readers = graph.subtasks_where(|op| op.role == OperatorRole::Reader);
        let emitted = readers.into_iter().map(|reader| self.records_out(reader));
        emitted.sum()
    }

    /// The newest checkpoint whose barrier a subtask has passed on to all its receivers;
    /// [`CheckpointId::NONE`] before the first.
    pub fn passed(&self, subtask: SubtaskId) -> CheckpointId {
        self.counters(subtask).checkpoints.passed()
    }

    /// The input channels of a subtask: who sends on each, and the newest checkpoint whose barrier
    /// the subtask has taken from it, behind all data before.
    pub fn channels(
        &self,
        subtask: SubtaskId,
    ) -> impl Iterator<Item = (SubtaskId, CheckpointId)> + '_ {
        self.counters(subtask).checkpoints.channels()
    }

    /// What the processes of the attempt have sent each other, as far as it can be seen here: in a
    /// process that is part of one, by itself.
    pub fn traffic(&self) -> Traffic {
        self.traffic.total()
    }

    /// Takes over what the process with this index says that it has sent since the attempt began.
    pub fn apply_traffic(&self, process: u32, sent: Traffic) {
        self.traffic.apply(process, sent);
    }

    pub(crate) fn traffic_counters(&self) -> &Arc<TrafficCounters> {
        &self.traffic
    }

    fn counters(&self, subtask: SubtaskId) -> &Arc<Counters> {
        &self.operators[subtask.operator.0 as usize][subtask.index as usize]
    }

    pub(crate) fn of(&self, subtask: SubtaskId) -> SubtaskMetrics {
        SubtaskMetrics {
            counters: Arc::clone(self.counters(subtask)),
        }
    }
}

/// One subtask's own counters.
pub(crate) struct SubtaskMetrics {
    counters: Arc<Counters>,
}

impl SubtaskMetrics {
    pub(crate) fn update(&self, records_in: u64, records_out: u64) {
        self.counters
            .records_in
            .store(records_in, Ordering::Relaxed);
        self.counters
            .records_out
            .store(records_out, Ordering::Relaxed);
    }

    /// The barrier of `checkpoint` has been taken from `channel`.
    pub(crate) fn on_barrier(&self, channel: ChannelIndex, checkpoint: CheckpointId) {
        self.counters.checkpoints.on_barrier(channel, checkpoint);
    }

    /// The snapshot for `checkpoint` begins. It is under way until the result is dropped.
    pub(crate) fn begin_snapshot(&self, checkpoint: CheckpointId) -> SnapshotStage {
        SnapshotStage::begin(&self.counters.checkpoints, checkpoint)
    }

    /// The barrier of `checkpoint` has been passed on.
    pub(crate) fn on_passed(&self, checkpoint: CheckpointId) {
        self.counters.checkpoints.on_passed(checkpoint);
    }
}
