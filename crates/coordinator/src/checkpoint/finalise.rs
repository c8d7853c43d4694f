//! From the last acknowledgement to a completed checkpoint.
//!
//! Ordering: metadata is durable before its pointer is stored; the pointer is stored before
//! anybody is told; and what is no longer retained is dropped only after all that. A crash between
//! any two leaves at most files that nobody refers to.

use tidegate_types::message::{Notice, WriteOutcome};
use tidegate_types::{CheckpointId, CompletedCheckpoint, Millis, SnapshotKind};

use crate::action::{JobAction, JobNote};
use crate::failure::{AbortReason, FailureReason, StorageStep};
use crate::statistics::CompletedSummary;

use super::{CheckpointCoordinator, Signal, Store};

/// Which write is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Publishing,
    StoringPointer,
}

/// A checkpoint that every subtask has acknowledged and that is being made durable.
#[derive(Debug)]
pub(crate) struct Finalising {
    checkpoint: Box<CompletedCheckpoint>,
    triggered: Millis,
    stage: Stage,
}

impl Finalising {
    pub(crate) fn id(&self) -> CheckpointId {
        self.checkpoint.id
    }

    pub(crate) fn kind(&self) -> SnapshotKind {
        self.checkpoint.kind
    }

    fn step(&self) -> StorageStep {
        match self.stage {
            Stage::Publishing => StorageStep::PublishMetadata(self.id()),
            Stage::StoringPointer => StorageStep::StorePointer(self.id()),
        }
    }
}

impl CheckpointCoordinator {
    /// Starts to finalise the oldest checkpoint that is fully acknowledged, if none is at it.
    pub(super) fn finalise_next(&mut self, actions: &mut Vec<JobAction>) {
        if self.finalising.is_some() {
            return;
        }
        let ready = |(id, pending): (&CheckpointId, &super::PendingCheckpoint)| {
            pending.is_fully_acknowledged().then_some(*id)
        };
        let Some(id) = self.pending.iter().find_map(ready) else {
            return;
        };
        let pending = self.pending.remove(&id).expect("it was just found");
        let triggered = pending.triggered;
        let checkpoint = Box::new(pending.into_completed(self.job, &self.graph));
        actions.push(JobAction::PublishMetadata(checkpoint.clone()));
        self.finalising = Some(Finalising {
            checkpoint,
            triggered,
            stage: Stage::Publishing,
        });
    }

    /// Takes the outcome of publishing metadata.
    pub(crate) fn on_metadata_published(
        &mut self,
        id: CheckpointId,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        let Some(mut finalising) = self.take_finalising(id, Stage::Publishing) else {
            return;
        };
        match outcome {
            WriteOutcome::Done => {
                finalising.stage = Stage::StoringPointer;
                actions.push(JobAction::StorePointer {
                    checkpoint: id,
                    location: finalising.checkpoint.location.clone(),
                    owner: finalising.checkpoint.owner,
                });
                self.finalising = Some(finalising);
            }
            WriteOutcome::NotDone { cause } => {
                self.give_up(finalising, AbortReason::PublishFailed { cause }, actions);
            }
            WriteOutcome::Unknown { cause } => self.doubt(finalising, cause, actions),
        }
    }

    /// Takes the outcome of storing a pointer.
    pub(crate) fn on_pointer_stored(
        &mut self,
        id: CheckpointId,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        let Some(finalising) = self.take_finalising(id, Stage::StoringPointer) else {
            return;
        };
        match outcome {
            WriteOutcome::Done => self.complete(finalising, actions),
            WriteOutcome::NotDone { cause } => {
                self.give_up(finalising, AbortReason::StoreFailed { cause }, actions);
            }
            WriteOutcome::Unknown { cause } => self.doubt(finalising, cause, actions),
        }
    }

    fn take_finalising(&mut self, id: CheckpointId, stage: Stage) -> Option<Finalising> {
        self.finalising
            .take_if(|finalising| finalising.id() == id && finalising.stage == stage)
    }

    /// The write certainly didn't happen: everything of the checkpoint is discarded.
    fn give_up(
        &mut self,
        finalising: Finalising,
        reason: AbortReason,
        actions: &mut Vec<JobAction>,
    ) {
        let (id, kind) = (finalising.id(), finalising.kind());
        self.notify_aborted(id, actions);
        actions.push(JobAction::DiscardFiles {
            checkpoint: id,
            location: finalising.checkpoint.location.clone(),
            files: finalising.checkpoint.files().cloned().collect(),
            metadata: true,
        });
        self.ended.abort(id, self.graph.subtasks());
        self.on_aborted(id, kind, reason, actions);
        self.finalise_next(actions);
    }

    /// The write may have happened: nothing is deleted, nobody is told, and the attempt ends so
    /// that the next one finds out what the store says. Rather a leak than a loss.
    fn doubt(&mut self, finalising: Finalising, cause: String, actions: &mut Vec<JobAction>) {
        let (id, step) = (finalising.id(), finalising.step());
        self.store = Store::InDoubt;
        self.ended.doubt(id);
        let reason = AbortReason::OutcomeUnknown {
            cause: cause.clone(),
        };
        self.on_aborted(id, finalising.kind(), reason, actions);
        let reason = FailureReason::Storage { step, cause };
        self.signals.push(Signal::Fail(reason));
    }

    fn complete(&mut self, finalising: Finalising, actions: &mut Vec<JobAction>) {
        let id = finalising.id();
        let newest = self.latest().map(|latest| latest.id);
        assert!(
            newest < Some(id),
            "{id} completes, but {newest:?} has completed before"
        );
        self.ended.complete(id);
        self.failures.on_completed(id);
        self.schedule.on_completed(self.now.monotonic);
        let summary = CompletedSummary {
            checkpoint: id,
            kind: finalising.kind(),
            location: finalising.checkpoint.location.clone(),
            bytes: finalising.checkpoint.state_bytes(),
            duration: self.now.monotonic.since(finalising.triggered),
        };
        actions.push(JobAction::Note(note(&summary)));
        self.statistics.on_completed(summary);
        self.subsume_older(id, actions);
        self.notify(Notice::Completed { checkpoint: id }, actions);
        self.retain(*finalising.checkpoint, actions);
        self.signals.push(Signal::Completed(id));
        self.finalise_next(actions);
    }

    /// Pending checkpoints older than a completed one are of no use any more. Savepoints would
    /// be: they are the user's.
    fn subsume_older(&mut self, by: CheckpointId, actions: &mut Vec<JobAction>) {
        let older: Vec<CheckpointId> = self
            .pending
            .range(..by)
            .filter(|(_, pending)| pending.can_be_subsumed())
            .map(|(id, _)| *id)
            .collect();
        for id in older {
            self.abort(id, AbortReason::Subsumed { by }, actions);
        }
    }

    fn retain(&mut self, checkpoint: CompletedCheckpoint, actions: &mut Vec<JobAction>) {
        self.retained.push(checkpoint);
        let excess = self
            .retained
            .len()
            .saturating_sub(self.settings.retained as usize);
        for dropped in self.retained.drain(..excess) {
            actions.push(JobAction::DropCompleted(Box::new(dropped)));
        }
    }
}

fn note(summary: &CompletedSummary) -> JobNote {
    JobNote::CheckpointCompleted {
        checkpoint: summary.checkpoint,
        kind: summary.kind,
        bytes: summary.bytes,
        duration: summary.duration,
    }
}
