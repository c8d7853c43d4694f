//! How far one subtask is with its checkpoints, written by its worker and its snapshot thread,
//! read by anyone.
//!
//! Invariant: a snapshot is listed as under way before its barrier counts as passed on, and until
//! its fate has been reported. So who reads `passed` first and the list second never takes a
//! snapshot for acknowledged that is not.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_types::graph::{JobGraph, Partitioning};
use tidegate_types::{CheckpointId, OperatorId, SubtaskId};

use crate::alignment::ChannelIndex;

/// What is being done for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotPhase {
    /// The worker freezes the state.
    Freezing,
    /// It is frozen, and written beside the processing.
    Writing,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CheckpointProgress {
    passed: AtomicU64,
    /// Who sends on the channels, in the order of [`ChannelIndex`]: of each input, the subtasks of
    /// one operator. So a channel takes no more than a number below: a cluster has as many as the
    /// square of its parallelism.
    origins: Vec<(OperatorId, Range<u32>)>,
    /// The newest checkpoint whose barrier has been taken from each channel.
    newest: Vec<AtomicU64>,
    /// Locked a few times per checkpoint, for moments.
    under_way: Mutex<Vec<(CheckpointId, SnapshotPhase)>>,
}

impl CheckpointProgress {
    pub(super) fn new(graph: &JobGraph, subtask: SubtaskId) -> Self {
        let origins = graph.inputs_of(subtask.operator).map(|edge| {
            let all = 0..graph.operator(edge.from).parallelism;
            let origins = match edge.partitioning {
                Partitioning::Forward => subtask.index..subtask.index + 1,
                Partitioning::KeyGroups | Partitioning::Rebalance | Partitioning::Broadcast => all,
            };
            (edge.from, origins)
        });
        let origins: Vec<_> = origins.collect();
        let channels = origins.iter().map(|(_, indexes)| indexes.len()).sum();
        let none = || AtomicU64::new(CheckpointId::NONE.0);
        CheckpointProgress {
            passed: none(),
            origins,
            newest: std::iter::repeat_with(none).take(channels).collect(),
            under_way: Mutex::default(),
        }
    }

    pub(super) fn passed(&self) -> CheckpointId {
        CheckpointId(self.passed.load(Ordering::Acquire))
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = (SubtaskId, CheckpointId)> + '_ {
        let subtasks = |(operator, indexes): &(OperatorId, Range<u32>)| {
            let operator = *operator;
            let subtask = move |index| SubtaskId { operator, index };
            indexes.clone().map(subtask)
        };
        self.origins.iter().flat_map(subtasks).zip(self.newest())
    }

    /// By channel.
    pub(super) fn newest(&self) -> impl Iterator<Item = CheckpointId> + '_ {
        let newest = self.newest.iter();
        newest.map(|newest| CheckpointId(newest.load(Ordering::Relaxed)))
    }

    /// What is being done for the subtask's snapshot, if that has begun and is not over.
    pub(super) fn stage(&self, checkpoint: CheckpointId) -> Option<SnapshotPhase> {
        let under_way = self.under_way();
        let found = under_way.iter().find(|(id, _)| *id == checkpoint);
        found.map(|(_, stage)| *stage)
    }

    pub(super) fn on_barrier(&self, channel: ChannelIndex, checkpoint: CheckpointId) {
        self.newest[channel.as_usize()].store(checkpoint.0, Ordering::Relaxed);
    }

    pub(super) fn on_passed(&self, checkpoint: CheckpointId) {
        self.passed.store(checkpoint.0, Ordering::Release);
    }

    /// The snapshots under way, oldest first.
    pub(super) fn all_under_way(&self) -> Vec<(CheckpointId, SnapshotPhase)> {
        self.under_way().clone()
    }

    /// Takes over how far another process says that the subtask is. `newest` is by channel;
    /// channels for which there is nothing stay where they are, and what is there for more of them
    /// than the subtask has says nothing.
    pub(super) fn replace(
        &self,
        passed: CheckpointId,
        newest: impl Iterator<Item = CheckpointId>,
        under_way: &[(CheckpointId, SnapshotPhase)],
    ) {
        // Ordering: what is under way before what is passed, as if the subtask ran here.
        under_way.clone_into(&mut self.under_way());
        for (channel, newest) in self.newest.iter().zip(newest) {
            channel.store(newest.0, Ordering::Relaxed);
        }
        self.on_passed(passed);
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<(CheckpointId, SnapshotPhase)>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A snapshot under way; dropped when it has been acknowledged, declined or given up.
#[derive(Debug)]
pub(crate) struct SnapshotStage {
    progress: Arc<CheckpointProgress>,
    checkpoint: CheckpointId,
}

impl SnapshotStage {
    pub(super) fn begin(progress: &Arc<CheckpointProgress>, checkpoint: CheckpointId) -> Self {
        progress
            .under_way()
            .push((checkpoint, SnapshotPhase::Freezing));
        SnapshotStage {
            progress: Arc::clone(progress),
            checkpoint,
        }
    }

    /// The state is frozen.
    pub(crate) fn begin_write(&self) {
        for (checkpoint, stage) in self.progress.under_way().iter_mut() {
            if *checkpoint == self.checkpoint {
                *stage = SnapshotPhase::Writing;
            }
        }
    }
}

impl Drop for SnapshotStage {
    fn drop(&mut self) {
        self.progress
            .under_way()
            .retain(|(checkpoint, _)| *checkpoint != self.checkpoint);
    }
}
