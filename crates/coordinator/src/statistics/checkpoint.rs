//! The details of one checkpoint: what became of it, and how each subtask spent its time.
//!
//! There may be 100 000 subtasks and the details of several checkpoints are kept, so a subtask's
//! record is packed into 48 bytes, and people see [`SubtaskStatistics`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_types::{
    AttemptNumber, CheckpointId, Millis, OperatorUid, SnapshotFormat, SnapshotKind,
    SnapshotLocation, UnixMillis,
};

use crate::checkpoint::PendingCheckpoint;
use crate::subtasks::{Arrivals, ArrivalsOf, SubtaskTable};
use crate::summary::Summary;

use super::{CompletedSummary, SubtaskSnapshot};

/// What became of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointStatus {
    /// It is under way.
    InProgress,
    /// It is durable and listed.
    Completed {
        /// From trigger to stored pointer.
        duration: Duration,
    },
    /// It was aborted.
    Failed {
        /// From trigger to abort.
        duration: Duration,
        /// Why, for people.
        reason: String,
    },
}

/// One checkpoint of the history.
#[derive(Clone, PartialEq, Eq)]
pub struct CheckpointStatistics {
    /// Its number.
    pub checkpoint: CheckpointId,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// What its files may be like.
    pub format: SnapshotFormat,
    /// The folder it lies in; `None` is the job's own namespace.
    pub location: Option<SnapshotLocation>,
    /// The attempt that took it.
    pub attempt: AttemptNumber,
    /// Wall-clock time of the trigger.
    pub triggered_at: UnixMillis,
    /// What became of it so far.
    pub status: CheckpointStatus,
    /// Bytes of state that were acknowledged in time, files and inline, each counted once.
    pub bytes: u64,
    /// Those of them that were written for this checkpoint, not for one that it rests on.
    pub new_bytes: u64,
    /// How many subtasks have acknowledged in time.
    pub acknowledged: usize,
    triggered: Millis,
    subtasks: Arc<SubtaskTable>,
    /// Of those that have acknowledged.
    records: Arrivals<Record>,
}

/// What a history knows of one subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    bytes: u64,
    new_bytes: u64,
    alignment_bytes: u64,
    acknowledged_after_ms: u32,
    start_delay_ms: u32,
    alignment_us: u32,
    sync_us: u32,
    write_us: u32,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    InTime,
    Late,
}

impl Record {
    fn new(snapshot: &SubtaskSnapshot, triggered: Millis, standing: Standing) -> Self {
        let metrics = &snapshot.metrics;
        Record {
            bytes: snapshot.bytes,
            new_bytes: snapshot.new_bytes,
            alignment_bytes: metrics.alignment_bytes,
            acknowledged_after_ms: clamp(snapshot.at.since(triggered).as_millis()),
            start_delay_ms: clamp(metrics.start_delay.as_millis()),
            alignment_us: clamp(metrics.alignment.as_micros()),
            sync_us: clamp(metrics.sync.as_micros()),
            write_us: clamp(metrics.write.as_micros()),
            standing,
        }
    }
}

fn clamp(count: u128) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// How a subtask spent its part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubtaskStatistics {
    /// From trigger to acknowledgement, in whole milliseconds; 49 days at most.
    pub acknowledged_after: Duration,
    /// Whether that was in time: otherwise the checkpoint had been aborted before.
    pub in_time: bool,
    /// From trigger to first barrier, by wall clocks, in whole milliseconds; 49 days at most.
    pub start_delay: Duration,
    /// From the first barrier to the last; 71 minutes at most.
    pub alignment: Duration,
    /// Bytes of records processed between the first barrier and the last.
    pub alignment_bytes: u64,
    /// How long the processing thread stood still; 71 minutes at most.
    pub sync: Duration,
    /// How long writing took beside the processing; 71 minutes at most.
    pub write: Duration,
    /// Bytes of its state, files and inline.
    pub bytes: u64,
    /// Those of them that were written for this checkpoint.
    pub new_bytes: u64,
}

impl From<&Record> for SubtaskStatistics {
    fn from(record: &Record) -> Self {
        SubtaskStatistics {
            acknowledged_after: Duration::from_millis(record.acknowledged_after_ms.into()),
            in_time: record.standing == Standing::InTime,
            start_delay: Duration::from_millis(record.start_delay_ms.into()),
            alignment: Duration::from_micros(record.alignment_us.into()),
            alignment_bytes: record.alignment_bytes,
            sync: Duration::from_micros(record.sync_us.into()),
            write: Duration::from_micros(record.write_us.into()),
            bytes: record.bytes,
            new_bytes: record.new_bytes,
        }
    }
}

impl CheckpointStatistics {
    pub(super) fn new(pending: &PendingCheckpoint) -> Self {
        CheckpointStatistics {
            checkpoint: pending.barrier.checkpoint,
            kind: pending.barrier.kind,
            format: pending.barrier.format,
            location: pending.barrier.location.clone(),
            attempt: pending.attempt,
            triggered_at: pending.barrier.created,
            status: CheckpointStatus::InProgress,
            bytes: 0,
            new_bytes: 0,
            acknowledged: 0,
            triggered: pending.triggered,
            subtasks: pending.subtasks.clone(),
            records: Arrivals::new(pending.subtasks.count()),
        }
    }

    /// How many subtasks take part.
    pub fn subtask_count(&self) -> usize {
        self.records.positions()
    }

    /// From trigger to end; `None` while it is under way.
    pub fn duration(&self) -> Option<Duration> {
        match self.status {
            CheckpointStatus::InProgress => None,
            CheckpointStatus::Completed { duration }
            | CheckpointStatus::Failed { duration, .. } => Some(duration),
        }
    }

    /// Time since the trigger, by the clock that drives the job.
    pub fn age(&self, now: Millis) -> Duration {
        now.since(self.triggered)
    }

    /// What is known of each operator, in graph order.
    pub fn operators(&self) -> impl Iterator<Item = OperatorStatistics<'_>> {
        self.subtasks
            .operators()
            .map(|(uid, places)| OperatorStatistics {
                uid,
                records: self.records.range(places),
            })
    }

    pub(super) fn is_in_progress(&self) -> bool {
        self.status == CheckpointStatus::InProgress
    }

    /// Notes an acknowledgement that the checkpoint has accepted.
    pub(super) fn acknowledge(&mut self, snapshot: &SubtaskSnapshot) {
        if self.fill(snapshot, Standing::InTime) {
            self.acknowledged += 1;
            self.bytes += snapshot.bytes;
            self.new_bytes += snapshot.new_bytes;
        }
    }

    /// Notes how a subtask fared whose acknowledgement came too late.
    pub(super) fn enrich(&mut self, snapshot: &SubtaskSnapshot) {
        if matches!(self.status, CheckpointStatus::Failed { .. }) {
            self.fill(snapshot, Standing::Late);
        }
    }

    /// The first acknowledgement of a subtask is the one that tells how it fared.
    fn fill(&mut self, snapshot: &SubtaskSnapshot, standing: Standing) -> bool {
        let record = Record::new(snapshot, self.triggered, standing);
        let position = self.subtasks.position(snapshot.subtask);
        position.is_some_and(|position| self.records.insert(position, record))
    }

    pub(super) fn complete(&mut self, completed: &CompletedSummary) {
        self.bytes = completed.bytes;
        self.new_bytes = completed.new_bytes;
        self.location = completed.location.clone();
        self.status = CheckpointStatus::Completed {
            duration: completed.duration,
        };
    }

    pub(super) fn fail(&mut self, reason: String, now: Millis) {
        let duration = now.since(self.triggered);
        self.status = CheckpointStatus::Failed { duration, reason };
    }
}

impl fmt::Debug for CheckpointStatistics {
    /// Leaves the subtasks out: there are too many to read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointStatistics")
            .field("checkpoint", &self.checkpoint)
            .field("kind", &self.kind)
            .field("status", &self.status)
            .field("bytes", &self.bytes)
            .field("new_bytes", &self.new_bytes)
            .field("acknowledged", &self.acknowledged)
            .field("subtasks", &self.subtask_count())
            .finish_non_exhaustive()
    }
}

/// What a checkpoint's history knows of one operator.
#[derive(Clone, Copy, Debug)]
pub struct OperatorStatistics<'a> {
    /// The operator.
    pub uid: &'a OperatorUid,
    records: ArrivalsOf<'a, Record>,
}

impl<'a> OperatorStatistics<'a> {
    /// By subtask index; `None` for whoever has not acknowledged.
    pub fn subtasks(self) -> impl ExactSizeIterator<Item = Option<SubtaskStatistics>> + 'a {
        let records = self.records.iter();
        records.map(|record| record.map(SubtaskStatistics::from))
    }

    /// How many subtasks have acknowledged in time.
    pub fn acknowledged(self) -> usize {
        let in_time = |record: &&Record| record.standing == Standing::InTime;
        self.records.iter().flatten().filter(in_time).count()
    }

    /// Bytes of state of all its subtasks that have acknowledged, in time or not.
    pub fn bytes(self) -> u64 {
        let records = self.records.iter().flatten();
        records.map(|record| record.bytes).sum()
    }

    /// Those of them that were written for this checkpoint.
    pub fn new_bytes(self) -> u64 {
        let records = self.records.iter().flatten();
        records.map(|record| record.new_bytes).sum()
    }

    /// When the last of them so far acknowledged, from the trigger on.
    pub fn acknowledged_after(self) -> Option<Duration> {
        let after = self.subtasks().flatten().map(|s| s.acknowledged_after);
        after.max()
    }

    /// How one number of theirs is distributed, over those that have acknowledged:
    /// `operator.distribution(|subtask| subtask.bytes)`.
    pub fn distribution(self, of: impl Fn(&SubtaskStatistics) -> u64) -> Summary {
        let mut summary = Summary::default();
        for subtask in self.subtasks().flatten() {
            summary.record(of(&subtask));
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stays_small() {
        assert_eq!(size_of::<Record>(), 48);
    }
}
