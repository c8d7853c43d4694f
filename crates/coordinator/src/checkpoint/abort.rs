//! What happens to a snapshot that comes to nothing: its files, its subtasks, its requester, and
//! the count of failures.

use tidegate_types::message::Notice;
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, FileHandle, SnapshotKind, SnapshotLocation,
};

use crate::action::{JobAction, JobNote};
use crate::failure::{AbortReason, FailureReason};
use crate::request::{Answer, RequestId};

use super::ended::{Aborted, Discarded};
use super::failures::TooMany;
use super::pending::Stage;
use super::trigger::answer;
use super::{CheckpointCoordinator, Signal};

/// What is left of a snapshot once its files have been dealt with.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) id: CheckpointId,
    pub(super) kind: SnapshotKind,
    pub(super) request: Option<RequestId>,
    /// Whether any subtask has heard of it.
    pub(super) triggered: bool,
}

impl CheckpointCoordinator {
    /// Aborts a pending checkpoint: discards its files, tells the subtasks, counts the failure.
    pub(super) fn abort(
        &mut self,
        id: CheckpointId,
        reason: AbortReason,
        actions: &mut Vec<JobAction>,
    ) {
        let pending = self
            .pending
            .remove(&id)
            .expect("only pending checkpoints are aborted");
        let remains = Remains {
            id,
            kind: pending.kind(),
            request: pending.request,
            triggered: pending.stage == Stage::Triggered,
        };
        let location = pending.barrier.location.clone();
        let (subtasks, files) = pending.into_files();
        // Nobody hears of the end of what they have not heard the beginning of, and a folder that
        // is still being made is removed when it is there.
        if remains.triggered {
            self.notify_aborted(id, actions);
            self.discard(id, location.clone(), files, actions);
        }
        let discarded = Discarded::Of(subtasks);
        self.ended.abort(
            id,
            Aborted {
                discarded,
                location,
            },
        );
        self.on_aborted(remains, reason, actions);
    }

    /// What every abort has in common, whatever became of the files.
    pub(super) fn on_aborted(
        &mut self,
        remains: Remains,
        reason: AbortReason,
        actions: &mut Vec<JobAction>,
    ) {
        let Remains {
            id, kind, request, ..
        } = remains;
        let now = self.now.monotonic;
        self.statistics.on_aborted(id, reason.to_string(), now);
        self.schedule.on_aborted(now, id);
        if reason.counts() && !kind.is_savepoint() {
            self.count_failure(id, reason.to_string());
        }
        let for_good = !matches!(
            reason,
            AbortReason::AttemptEnded | AbortReason::Subsumed { .. }
        );
        if self.own.take_if(|own| *own == id).is_some() && for_good {
            self.signals.push(Signal::OwnAborted {
                checkpoint: id,
                reason: reason.to_string(),
            });
        }
        if kind.stops() && remains.triggered && reason != AbortReason::AttemptEnded {
            self.signals.push(Signal::Fail(FailureReason::StopFailed {
                savepoint: id,
                cause: reason.clone(),
            }));
        }
        if let Some(request) = request {
            let failed = Answer::Failed {
                checkpoint: id,
                kind,
                reason: reason.clone(),
            };
            answer(request, failed, actions);
        }
        actions.push(JobAction::Note(JobNote::CheckpointAborted {
            checkpoint: id,
            kind,
            reason,
        }));
    }

    pub(super) fn count_failure(&mut self, checkpoint: CheckpointId, last: String) {
        let counted = self.failures.on_failed(checkpoint);
        self.fail_if_too_many(counted, format!("`{checkpoint}`: {last}"));
    }

    pub(super) fn fail_if_too_many(&mut self, counted: Result<(), TooMany>, last: String) {
        if let Err(TooMany { failed, tolerable }) = counted {
            self.signals.push(Signal::Fail(FailureReason::Checkpoints {
                failed,
                tolerable,
                last,
            }));
        }
    }

    pub(super) fn notify_aborted(&self, checkpoint: CheckpointId, actions: &mut Vec<JobAction>) {
        let latest = self.retained.last();
        let latest_completed = latest.map_or(CheckpointId::NONE, |latest| latest.id);
        let notice = Notice::Aborted {
            checkpoint,
            latest_completed,
        };
        self.notify(notice, actions);
    }

    /// Discards files of a snapshot that has no metadata, and the folder of a savepoint.
    pub(super) fn discard(
        &mut self,
        checkpoint: CheckpointId,
        location: Option<SnapshotLocation>,
        mut files: Vec<FileHandle>,
        actions: &mut Vec<JobAction>,
    ) {
        self.spare_referred(&mut files);
        if files.is_empty() && location.is_none() {
            return;
        }
        self.deletions.begin(checkpoint);
        actions.push(JobAction::DiscardFiles {
            checkpoint,
            location,
            files,
            metadata: false,
        });
    }

    /// Discards everything of a snapshot whose metadata may have been written in part.
    pub(super) fn discard_finalised(
        &mut self,
        checkpoint: &CompletedCheckpoint,
        actions: &mut Vec<JobAction>,
    ) {
        self.deletions.begin(checkpoint.id);
        let own = checkpoint.files().filter(|file| checkpoint.owns(file));
        actions.push(JobAction::DiscardFiles {
            checkpoint: checkpoint.id,
            location: checkpoint.location.clone(),
            files: own.cloned().collect(),
            metadata: true,
        });
    }

    /// A deletion has ended.
    pub(crate) fn on_deleted(&mut self, checkpoint: CheckpointId) {
        self.deletions.end(checkpoint);
    }
}
