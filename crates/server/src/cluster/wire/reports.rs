//! What subtasks tell the coordinator.

use std::time::Duration;

use tidegate_types::message::{
    self, AddressedReport, DeclineReason, FailureOrigin, RestoredFiles, SnapshotMetrics,
    SubtaskFailure,
};
use tidegate_types::{AttemptNumber, CheckpointId, KeyedStateHandle, SubtaskId, SubtaskState};

use super::declined::Reason;
use super::{
    Acknowledged, Alive, BadMessage, Committed, Declined, Failed, KeyedState, ListState, Report,
    Restored, Subtask, report, required,
};

impl From<AddressedReport> for Report {
    fn from(addressed: AddressedReport) -> Self {
        let report = match addressed.report {
            message::Report::Running { subtask } => report::Report::Running(subtask.into()),
            message::Report::Acknowledged {
                checkpoint,
                subtask,
                state,
                metrics,
            } => report::Report::Acknowledged(acknowledged(checkpoint, subtask, state, metrics)),
            message::Report::Declined {
                checkpoint,
                subtask,
                reason,
            } => report::Report::Declined(Declined {
                subtask: Some(subtask.into()),
                checkpoint: checkpoint.0,
                reason: Some(reason.into()),
            }),
            message::Report::SourceEnded { subtask } => report::Report::SourceEnded(subtask.into()),
            message::Report::Committed {
                checkpoint,
                subtask,
            } => report::Report::Committed(Committed {
                subtask: Some(subtask.into()),
                checkpoint: checkpoint.0,
            }),
            message::Report::Restored(restored) => report::Report::Restored(Restored {
                files: restored.files,
                bytes: restored.bytes,
                local_files: restored.local_files,
                local_bytes: restored.local_bytes,
            }),
            message::Report::Failed(failure) => report::Report::Failed(Failed {
                subtask: failure.subtask.map(Subtask::from),
                cause: failure.cause,
                peer: match failure.origin {
                    FailureOrigin::Here => None,
                    FailureOrigin::Peer { process } => Some(process),
                },
            }),
        };
        Report {
            attempt: addressed.attempt.0,
            report: Some(report),
        }
    }
}

impl TryFrom<Report> for AddressedReport {
    type Error = BadMessage;

    fn try_from(report: Report) -> Result<Self, BadMessage> {
        let attempt = AttemptNumber(report.attempt);
        let report = match required(report.report, "a report without content")? {
            report::Report::Running(subtask) => message::Report::Running {
                subtask: subtask.into(),
            },
            report::Report::Acknowledged(acknowledged) => acknowledged.try_into()?,
            report::Report::Declined(declined) => message::Report::Declined {
                checkpoint: CheckpointId(declined.checkpoint),
                subtask: subtask(declined.subtask)?,
                reason: required(declined.reason, "a decline without a reason")?.into(),
            },
            report::Report::SourceEnded(subtask) => message::Report::SourceEnded {
                subtask: subtask.into(),
            },
            report::Report::Committed(committed) => message::Report::Committed {
                checkpoint: CheckpointId(committed.checkpoint),
                subtask: subtask(committed.subtask)?,
            },
            report::Report::Restored(restored) => message::Report::Restored(RestoredFiles {
                files: restored.files,
                bytes: restored.bytes,
                local_files: restored.local_files,
                local_bytes: restored.local_bytes,
            }),
            report::Report::Failed(failed) => message::Report::Failed(SubtaskFailure {
                subtask: failed.subtask.map(SubtaskId::from),
                origin: match failed.peer {
                    None => FailureOrigin::Here,
                    Some(process) => FailureOrigin::Peer { process },
                },
                cause: failed.cause,
            }),
        };
        Ok(AddressedReport { attempt, report })
    }
}

fn subtask(subtask: Option<Subtask>) -> Result<SubtaskId, BadMessage> {
    required(subtask, "a report of nobody").map(SubtaskId::from)
}

fn acknowledged(
    checkpoint: CheckpointId,
    subtask: SubtaskId,
    state: SubtaskState,
    metrics: SnapshotMetrics,
) -> Acknowledged {
    Acknowledged {
        subtask: Some(subtask.into()),
        checkpoint: checkpoint.0,
        keyed: state.keyed.map(KeyedState::from),
        lists: state.lists.into_iter().map(ListState::from).collect(),
        finished: state.finished,
        start_delay_micros: micros(metrics.start_delay),
        alignment_micros: micros(metrics.alignment),
        alignment_bytes: metrics.alignment_bytes,
        sync_micros: micros(metrics.sync),
        write_micros: micros(metrics.write),
    }
}

impl TryFrom<Acknowledged> for message::Report {
    type Error = BadMessage;

    fn try_from(acknowledged: Acknowledged) -> Result<Self, BadMessage> {
        let keyed = acknowledged.keyed.map(KeyedStateHandle::try_from);
        let lists = acknowledged.lists.into_iter();
        let lists = lists.map(tidegate_types::ListState::try_from);
        Ok(message::Report::Acknowledged {
            checkpoint: CheckpointId(acknowledged.checkpoint),
            subtask: subtask(acknowledged.subtask)?,
            state: SubtaskState {
                keyed: keyed.transpose()?,
                lists: lists.collect::<Result<_, _>>()?,
                finished: acknowledged.finished,
            },
            metrics: SnapshotMetrics {
                start_delay: Duration::from_micros(acknowledged.start_delay_micros),
                alignment: Duration::from_micros(acknowledged.alignment_micros),
                alignment_bytes: acknowledged.alignment_bytes,
                sync: Duration::from_micros(acknowledged.sync_micros),
                write: Duration::from_micros(acknowledged.write_micros),
            },
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl From<DeclineReason> for Reason {
    fn from(reason: DeclineReason) -> Self {
        match reason {
            DeclineReason::NotReady => Reason::NotReady(Alive {}),
            DeclineReason::Superseded { latest } => Reason::Superseded(latest.0),
            DeclineReason::SubsumedByBarrier { newer } => Reason::SubsumedByBarrier(newer.0),
            DeclineReason::CancelledUpstream => Reason::CancelledUpstream(Alive {}),
            DeclineReason::SnapshotFailed { cause } => Reason::SnapshotFailed(cause),
            DeclineReason::WriteFailed { cause } => Reason::WriteFailed(cause),
        }
    }
}

impl From<Reason> for DeclineReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::NotReady(_) => DeclineReason::NotReady,
            Reason::Superseded(latest) => DeclineReason::Superseded {
                latest: CheckpointId(latest),
            },
            Reason::SubsumedByBarrier(newer) => DeclineReason::SubsumedByBarrier {
                newer: CheckpointId(newer),
            },
            Reason::CancelledUpstream(_) => DeclineReason::CancelledUpstream,
            Reason::SnapshotFailed(cause) => DeclineReason::SnapshotFailed { cause },
            Reason::WriteFailed(cause) => DeclineReason::WriteFailed { cause },
        }
    }
}
