//! What the coordinator tells subtasks.

use tidegate_types::message;
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, SnapshotFormat, SnapshotKind, SnapshotLocation,
    UnixMillis,
};

use super::barrier::{Format, Kind};
use super::{Aborted, BadMessage, Barrier, Notice, notice, required};

impl From<CheckpointBarrier> for Barrier {
    fn from(barrier: CheckpointBarrier) -> Self {
        let kind = match barrier.kind {
            SnapshotKind::Checkpoint => Kind::Checkpoint,
            SnapshotKind::Final => Kind::Final,
            SnapshotKind::Savepoint => Kind::Savepoint,
            SnapshotKind::StopWithSavepoint { drain: false } => Kind::Stop,
            SnapshotKind::StopWithSavepoint { drain: true } => Kind::Drain,
        };
        let format = match barrier.format {
            SnapshotFormat::Canonical => Format::Canonical,
            SnapshotFormat::Full => Format::Full,
            SnapshotFormat::Incremental => Format::Incremental,
        };
        Barrier {
            checkpoint: barrier.checkpoint.0,
            kind: kind.into(),
            format: format.into(),
            base: barrier.base.map(|base| base.0),
            location: barrier
                .location
                .map(|location| location.as_str().to_owned()),
            created_unix_millis: barrier.created.0,
        }
    }
}

impl TryFrom<Barrier> for CheckpointBarrier {
    type Error = BadMessage;

    fn try_from(barrier: Barrier) -> Result<Self, BadMessage> {
        let kind = Kind::try_from(barrier.kind)
            .map_err(|_| BadMessage::new("an unknown kind of snapshot"))?;
        let format = Format::try_from(barrier.format)
            .map_err(|_| BadMessage::new("an unknown format of snapshots"))?;
        Ok(CheckpointBarrier {
            checkpoint: CheckpointId(barrier.checkpoint),
            kind: match kind {
                Kind::Checkpoint => SnapshotKind::Checkpoint,
                Kind::Final => SnapshotKind::Final,
                Kind::Savepoint => SnapshotKind::Savepoint,
                Kind::Stop => SnapshotKind::StopWithSavepoint { drain: false },
                Kind::Drain => SnapshotKind::StopWithSavepoint { drain: true },
            },
            format: match format {
                Format::Canonical => SnapshotFormat::Canonical,
                Format::Full => SnapshotFormat::Full,
                Format::Incremental => SnapshotFormat::Incremental,
            },
            base: barrier.base.map(CheckpointId),
            location: barrier.location.map(|url| SnapshotLocation::new(&url)),
            created: UnixMillis(barrier.created_unix_millis),
        })
    }
}

impl Notice {
    pub(crate) fn new(attempt: AttemptNumber, notice: message::Notice) -> Self {
        let notice = match notice {
            message::Notice::Trigger(barrier) => notice::Notice::Trigger(barrier.into()),
            message::Notice::Completed { checkpoint } => notice::Notice::Completed(checkpoint.0),
            message::Notice::Aborted {
                checkpoint,
                latest_completed,
            } => notice::Notice::Aborted(Aborted {
                checkpoint: checkpoint.0,
                latest_completed: latest_completed.0,
            }),
        };
        Notice {
            attempt: attempt.0,
            notice: Some(notice),
        }
    }
}

impl TryFrom<Notice> for (AttemptNumber, message::Notice) {
    type Error = BadMessage;

    fn try_from(notice: Notice) -> Result<Self, BadMessage> {
        let attempt = AttemptNumber(notice.attempt);
        let notice = match required(notice.notice, "a notice without content")? {
            notice::Notice::Trigger(barrier) => message::Notice::Trigger(barrier.try_into()?),
            notice::Notice::Completed(checkpoint) => message::Notice::Completed {
                checkpoint: CheckpointId(checkpoint),
            },
            notice::Notice::Aborted(aborted) => message::Notice::Aborted {
                checkpoint: CheckpointId(aborted.checkpoint),
                latest_completed: CheckpointId(aborted.latest_completed),
            },
        };
        Ok((attempt, notice))
    }
}
