//! What people want to know about a job's checkpoints, in bounded memory.
//!
//! Counters and distributions cover everything since the coordinator was made; the
//! [history](Statistics::history) has the details of the most recent checkpoints. The latest
//! completed, failed and restored one and the latest savepoint are kept apart from it, so that no
//! number of others pushes them out. `Statistics` is a plain value: cloning it takes a picture that
//! nothing changes any more, at the price of a few reference counts.
//!
//! Invariant: `triggered = completed + failed + in_progress`.

mod checkpoint;
mod history;

pub use checkpoint::SubtaskStatistics;
pub use checkpoint::{CheckpointStatistics, CheckpointStatus, OperatorStatistics};

use std::sync::Arc;
use std::time::Duration;

use tidegate_types::message::{RestoredFiles, SnapshotMetrics};
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, Millis, SnapshotKind, SnapshotLocation, SubtaskId,
    UnixMillis,
};

use crate::checkpoint::PendingCheckpoint;
use crate::summary::Summary;

use history::History;

/// The last checkpoint that completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedSummary {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// The folder it lies in; `None` is the job's own namespace.
    pub location: Option<SnapshotLocation>,
    /// Bytes of state, files and inline, each counted once, whether they were written for this
    /// checkpoint or for one that it rests on: what a restore reads (Flink's `state_size`).
    pub bytes: u64,
    /// Those of them that were written for this checkpoint (Flink's `checkpointed_size`).
    pub new_bytes: u64,
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

/// What an attempt was restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredSummary {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// The folder it lies in; `None` is the job's own namespace.
    pub location: Option<SnapshotLocation>,
    /// Wall-clock time of the attempt's start.
    pub restored_at: UnixMillis,
}

impl RestoredSummary {
    pub(crate) fn new(checkpoint: &CompletedCheckpoint, restored_at: UnixMillis) -> Self {
        RestoredSummary {
            checkpoint: checkpoint.id,
            kind: checkpoint.kind,
            location: checkpoint.location.clone(),
            restored_at,
        }
    }
}

/// One subtask's part of a checkpoint, as far as statistics go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubtaskSnapshot {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) subtask: SubtaskId,
    pub(crate) metrics: SnapshotMetrics,
    /// Bytes of its state, files and inline.
    pub(crate) bytes: u64,
    /// Those of them that were written for this checkpoint.
    pub(crate) new_bytes: u64,
    /// When its acknowledgement arrived.
    pub(crate) at: Millis,
}

/// Counters, distributions and recent history since the coordinator was made.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The last completed checkpoint of this coordinator that is no savepoint.
    pub latest_completed: Option<CompletedSummary>,
    /// The last completed savepoint of this coordinator.
    pub latest_savepoint: Option<CompletedSummary>,
    /// The last failed checkpoint of this coordinator.
    pub latest_failed: Option<FailedSummary>,
    /// What an attempt of this coordinator was last restored from.
    pub latest_restored: Option<RestoredSummary>,
    /// State files that the processes of a cluster have read to restore state, in all attempts.
    pub restored_files: RestoredFiles,
    /// Milliseconds from trigger to stored pointer, per completed checkpoint.
    pub duration_ms: Summary,
    /// Bytes of state per completed checkpoint, each counted once.
    pub bytes: Summary,
    /// Bytes written for it, per completed checkpoint.
    pub new_bytes: Summary,
    /// Microseconds from trigger to the first barrier, per subtask snapshot.
    pub start_delay_us: Summary,
    /// Microseconds of alignment, per subtask snapshot.
    pub alignment_us: Summary,
    /// Microseconds that a processing thread stood still, per subtask snapshot.
    pub sync_us: Summary,
    /// Microseconds of writing beside the processing, per subtask snapshot.
    pub write_us: Summary,
    history: History,
}

impl Default for Statistics {
    /// Remembers [`HISTORY_SIZE`](Self::HISTORY_SIZE) checkpoints.
    fn default() -> Self {
        Statistics::new(Statistics::HISTORY_SIZE)
    }
}

impl Statistics {
    /// How many ended checkpoints the history remembers by default.
    pub const HISTORY_SIZE: usize = 10;

    /// Counts from zero and remembers the details of the last `history_size` checkpoints that
    /// ended, each of which takes 52 bytes per subtask. Zero remembers none.
    pub fn new(history_size: usize) -> Self {
        Statistics {
            triggered: 0,
            completed: 0,
            failed: 0,
            in_progress: 0,
            restarts: 0,
            latest_completed: None,
            latest_savepoint: None,
            latest_failed: None,
            latest_restored: None,
            restored_files: RestoredFiles::default(),
            duration_ms: Summary::default(),
            bytes: Summary::default(),
            new_bytes: Summary::default(),
            start_delay_us: Summary::default(),
            alignment_us: Summary::default(),
            sync_us: Summary::default(),
            write_us: Summary::default(),
            history: History::new(history_size),
        }
    }

    /// The checkpoints under way and the last ones that ended, newest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Arc<CheckpointStatistics>> {
        self.history.newest_first()
    }

    /// The details of one checkpoint, if the history remembers it.
    pub fn checkpoint(&self, checkpoint: CheckpointId) -> Option<&Arc<CheckpointStatistics>> {
        self.history.get(checkpoint)
    }

    pub(crate) fn on_triggered(&mut self, pending: &PendingCheckpoint) {
        self.triggered += 1;
        self.in_progress += 1;
        self.history.begin(CheckpointStatistics::new(pending));
    }

    /// A subtask has acknowledged in time.
    pub(crate) fn on_snapshot(&mut self, snapshot: &SubtaskSnapshot) {
        let metrics = &snapshot.metrics;
        self.start_delay_us.record(micros(metrics.start_delay));
        self.alignment_us.record(micros(metrics.alignment));
        self.sync_us.record(micros(metrics.sync));
        self.write_us.record(micros(metrics.write));
        if let Some(entry) = self.history.get_mut(snapshot.checkpoint) {
            entry.acknowledge(snapshot);
        }
    }

    /// A subtask has acknowledged a checkpoint that has been aborted: whoever looks for the cause
    /// wants to see how long it took, but it counts for nothing.
    pub(crate) fn on_late_snapshot(&mut self, snapshot: &SubtaskSnapshot) {
        if let Some(entry) = self.history.get_mut(snapshot.checkpoint) {
            entry.enrich(snapshot);
        }
    }

    pub(crate) fn on_completed(&mut self, completed: CompletedSummary) {
        self.in_progress -= 1;
        self.completed += 1;
        let millis = u64::try_from(completed.duration.as_millis()).unwrap_or(u64::MAX);
        self.duration_ms.record(millis);
        self.bytes.record(completed.bytes);
        self.new_bytes.record(completed.new_bytes);
        self.history.end(completed.checkpoint, |entry| {
            entry.complete(&completed);
        });
        let latest = match completed.kind.is_savepoint() {
            true => &mut self.latest_savepoint,
            false => &mut self.latest_completed,
        };
        *latest = Some(completed);
    }

    pub(crate) fn on_aborted(&mut self, checkpoint: CheckpointId, reason: String, now: Millis) {
        self.in_progress -= 1;
        self.failed += 1;
        self.history.end(checkpoint, |entry| {
            entry.fail(reason.clone(), now);
        });
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

    /// An attempt starts; from nothing if there is no checkpoint.
    pub(crate) fn on_restored(&mut self, restored: Option<RestoredSummary>) {
        self.latest_restored = restored;
    }

    pub(crate) fn check_invariants(&self) {
        let ended = self.completed + self.failed;
        assert_eq!(self.triggered, ended + self.in_progress, "counters add up");
        self.history.check_invariants(self.in_progress);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
