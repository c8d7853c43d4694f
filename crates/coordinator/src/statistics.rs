//! What people want to know about a job's checkpoints, in bounded memory.
//!
//! Invariant: `triggered = completed + failed + in_progress`.

use std::time::Duration;

use tidegate_types::message::SnapshotMetrics;
use tidegate_types::{CheckpointId, SnapshotKind, SnapshotLocation};

use crate::summary::Summary;

/// The last checkpoint that completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedSummary {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// The folder it lies in; `None` is the job's own namespace.
    pub location: Option<SnapshotLocation>,
    /// Bytes of state, files and inline, each counted once.
    pub bytes: u64,
    /// From trigger to stored pointer.
    pub duration: Duration,
}

/// The last checkpoint that didn't complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedSummary {
    /// The checkpoint; `None` if it did not even get an id.
    pub checkpoint: Option<CheckpointId>,
    /// Why, for people.
    pub reason: String,
}

/// Counters and distributions since the coordinator was made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Checkpoints that were to be taken.
    pub triggered: u64,
    /// Those of them that completed.
    pub completed: u64,
    /// Those that were aborted for whatever reason, or got no id.
    pub failed: u64,
    /// Those under way.
    pub in_progress: u64,
    /// Restarts that the restart strategy allowed.
    pub restarts: u64,
    /// The last completed checkpoint of this coordinator.
    pub latest_completed: Option<CompletedSummary>,
    /// The last failed checkpoint of this coordinator.
    pub latest_failed: Option<FailedSummary>,
    /// The checkpoint that the current attempt was restored from.
    pub latest_restored: Option<CheckpointId>,
    /// Milliseconds from trigger to stored pointer, per completed checkpoint.
    pub duration_ms: Summary,
    /// Bytes of state per completed checkpoint.
    pub bytes: Summary,
    /// Microseconds of alignment, per subtask snapshot.
    pub alignment_us: Summary,
    /// Microseconds that a processing thread stood still, per subtask snapshot.
    pub sync_us: Summary,
    /// Microseconds of writing beside the processing, per subtask snapshot.
    pub write_us: Summary,
}

impl Statistics {
    pub(crate) fn on_triggered(&mut self) {
        self.triggered += 1;
        self.in_progress += 1;
    }

    pub(crate) fn on_snapshot(&mut self, metrics: &SnapshotMetrics) {
        self.alignment_us.record(micros(metrics.alignment));
        self.sync_us.record(micros(metrics.sync));
        self.write_us.record(micros(metrics.write));
    }

    pub(crate) fn on_completed(&mut self, completed: CompletedSummary) {
        self.in_progress -= 1;
        self.completed += 1;
        let millis = u64::try_from(completed.duration.as_millis()).unwrap_or(u64::MAX);
        self.duration_ms.record(millis);
        self.bytes.record(completed.bytes);
        self.latest_completed = Some(completed);
    }

    pub(crate) fn on_aborted(&mut self, checkpoint: CheckpointId, reason: String) {
        self.in_progress -= 1;
        self.failed += 1;
        self.latest_failed = Some(FailedSummary {
            checkpoint: Some(checkpoint),
            reason,
        });
    }

    /// A checkpoint failed before it had an id (CC-39).
    pub(crate) fn on_not_triggered(&mut self, reason: String) {
        self.triggered += 1;
        self.failed += 1;
        self.latest_failed = Some(FailedSummary {
            checkpoint: None,
            reason,
        });
    }

    pub(crate) fn check_invariants(&self) {
        let ended = self.completed + self.failed;
        assert_eq!(self.triggered, ended + self.in_progress, "counters add up");
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
