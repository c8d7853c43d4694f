//! How far one subtask is with its checkpoints, written by its worker and its snapshot thread,
//! read by anyone.
//!
//! Invariant: a snapshot is listed as under way before its barrier counts as passed on, and until
//! its fate has been reported. So who reads `passed` first and the list second never takes a
//! snapshot for acknowledged that is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_types::graph::{JobGraph, Partitioning};
use tidegate_types::{CheckpointId, SubtaskId};

use crate::alignment::ChannelIndex;

/// What is being done for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotPhase {
    /// The worker freezes the state.
    Freezing,
    /// It is frozen, and written beside the processing.
    Writing,
}

#[derive(Debug)]
struct ChannelProgress {
    origin: SubtaskId,
    newest: AtomicU64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CheckpointProgress {
    passed: AtomicU64,
    /// In the order of [`ChannelIndex`].
    channels: Vec<ChannelProgress>,
    /// Locked a few times per checkpoint, for moments.
    under_way: Mutex<Vec<(CheckpointId, SnapshotPhase)>>,
}

impl CheckpointProgress {
    pub(super) fn new(graph: &JobGraph, subtask: SubtaskId) -> Self {
        let origins = graph.inputs_of(subtask.operator).flat_map(|edge| {
            let operator = edge.from;
            let all = 0..graph.operator(operator).parallelism;
            let origins = match edge.partitioning {
                Partitioning::Forward => subtask.index..subtask.index + 1,
                Partitioning::KeyGroups | Partitioning::Rebalance | Partitioning::Broadcast => all,
            };
            origins.map(move |index| SubtaskId { operator, index })
        });
        let channel = |origin| ChannelProgress {
            origin,
            newest: AtomicU64::new(CheckpointId::NONE.0),
        };
        CheckpointProgress {
            passed: AtomicU64::new(CheckpointId::NONE.0),
            channels: origins.map(channel).collect(),
            under_way: Mutex::default(),
        }
    }

    pub(super) fn passed(&self) -> CheckpointId {
        CheckpointId(self.passed.load(Ordering::Acquire))
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = (SubtaskId, CheckpointId)> + '_ {
        let newest =
            |channel: &ChannelProgress| CheckpointId(channel.newest.load(Ordering::Relaxed));
        self.channels
            .iter()
            .map(move |channel| (channel.origin, newest(channel)))
    }

    /// What is being done for the subtask's snapshot, if that has begun and is not over.
    pub(super) fn stage(&self, checkpoint: CheckpointId) -> Option<SnapshotPhase> {
        let under_way = self.under_way();
        let found = under_way.iter().find(|(id, _)| *id == checkpoint);
        found.map(|(_, stage)| *stage)
    }

    pub(super) fn on_barrier(&self, channel: ChannelIndex, checkpoint: CheckpointId) {
        self.channels[channel.as_usize()]
            .newest
            .store(checkpoint.0, Ordering::Relaxed);
    }

    pub(super) fn on_passed(&self, checkpoint: CheckpointId) {
        self.passed.store(checkpoint.0, Ordering::Release);
    }

    /// The snapshots under way, oldest first.
    pub(super) fn all_under_way(&self) -> Vec<(CheckpointId, SnapshotPhase)> {
        self.under_way().clone()
    }

    /// Takes over how far another process says that the subtask is. `newest` is by channel; what
    /// is there for more channels than the subtask has says nothing.
    pub(super) fn replace(
        &self,
        passed: CheckpointId,
        newest: impl Iterator<Item = CheckpointId>,
        under_way: &[(CheckpointId, SnapshotPhase)],
    ) {
        // Ordering: what is under way before what is passed, as if the subtask ran here.
        under_way.clone_into(&mut self.under_way());
        for (channel, newest) in self.channels.iter().zip(newest) {
            channel.newest.store(newest.0, Ordering::Relaxed);
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
