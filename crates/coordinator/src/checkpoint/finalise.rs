//! From the last acknowledgement to a completed checkpoint.
//!
//! Ordering: metadata is durable before its pointer is stored; the pointer is stored before
//! anybody is told; and what is no longer retained is dropped only after all that. A crash between
//! any two leaves at most files that nobody refers to. A plain savepoint ends with its metadata: it
//! is the user's, listed nowhere, and nobody commits because of it.

use std::sync::Arc;

use tidegate_types::message::{Notice, WriteOutcome};
use tidegate_types::{CheckpointId, CompletedCheckpoint, Millis, SnapshotKind};

use crate::action::{JobAction, JobNote};
use crate::failure::{AbortReason, FailureReason, StorageStep};
use crate::request::{Answer, RequestId};
use crate::statistics::CompletedSummary;

use super::abort::Remains;
use super::ended::{Aborted, Discarded};
use super::trigger::answer;
use super::{CheckpointCoordinator, Signal, Stop, Store, pending};

/// Which write is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Publishing,
    StoringPointer,
}

/// A checkpoint that every subtask has acknowledged and that is being made durable.
#[derive(Debug)]
pub(crate) struct Finalising {
    /// Shared with whoever publishes it, and with nobody once that is done.
    checkpoint: Arc<CompletedCheckpoint>,
    /// What it rests on.
    base: Option<CheckpointId>,
    triggered: Millis,
    request: Option<RequestId>,
    stage: Stage,
}

impl Finalising {
    pub(super) fn checkpoint(&self) -> &CompletedCheckpoint {
        &self.checkpoint
    }

    pub(super) fn base(&self) -> Option<CheckpointId> {
        self.base
    }

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

    fn remains(&self) -> Remains {
        Remains {
            id: self.id(),
            kind: self.kind(),
            request: self.request,
            triggered: true,
        }
    }

    fn store_pointer(&self) -> JobAction {
        JobAction::StorePointer {
            checkpoint: self.id(),
            location: self.checkpoint.location.clone(),
            owner: self.checkpoint.owner,
        }
    }

    fn summary(&self, now: Millis) -> CompletedSummary {
        CompletedSummary {
            checkpoint: self.id(),
            kind: self.kind(),
            location: self.checkpoint.location.clone(),
            bytes: self.checkpoint.state_bytes(),
            new_bytes: self.checkpoint.new_bytes(),
            duration: now.since(self.triggered),
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
            let ready =
                pending.is_fully_acknowledged() && pending.stage == pending::Stage::Triggered;
            ready.then_some(*id)
        };
        let Some(id) = self.pending.iter().find_map(ready) else {
            return;
        };
        let pending = self.pending.remove(&id).expect("it was just found");
        let (triggered, request) = (pending.triggered, pending.request);
        let base = pending.barrier.base;
        let checkpoint = Arc::new(pending.into_completed(self.job, &self.graph));
        actions.push(JobAction::PublishMetadata(checkpoint.clone()));
        self.finalising = Some(Finalising {
            checkpoint,
            base,
            triggered,
            request,
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
            WriteOutcome::Done if finalising.kind() == SnapshotKind::Savepoint => {
                self.complete_savepoint(finalising, actions);
            }
            WriteOutcome::Done => {
                finalising.stage = Stage::StoringPointer;
                actions.push(finalising.store_pointer());
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
        let id = finalising.id();
        self.notify_aborted(id, actions);
        self.discard_finalised(&finalising.checkpoint, actions);
        let aborted = Aborted {
            discarded: Discarded::All,
            location: finalising.checkpoint.location.clone(),
        };
        self.ended.abort(id, aborted);
        self.on_aborted(finalising.remains(), reason, actions);
        self.finalise_next(actions);
    }

    /// The write may have happened: nothing is deleted and nobody is told. Rather a leak than a
    /// loss. If the store may list it, the attempt ends, so that the next one finds out.
    fn doubt(&mut self, finalising: Finalising, cause: String, actions: &mut Vec<JobAction>) {
        let (id, step) = (finalising.id(), finalising.step());
        self.ended.doubt(id);
        if finalising.kind() != SnapshotKind::Savepoint {
            self.store = Store::InDoubt;
            self.kept.doubt(finalising.checkpoint.clone());
            let cause = cause.clone();
            self.signals
                .push(Signal::Fail(FailureReason::Storage { step, cause }));
        }
        let reason = AbortReason::OutcomeUnknown { cause };
        self.on_aborted(finalising.remains(), reason, actions);
        self.finalise_next(actions);
    }

    /// A savepoint that the job goes on from as if it had not been taken.
    fn complete_savepoint(&mut self, finalising: Finalising, actions: &mut Vec<JobAction>) {
        let summary = finalising.summary(self.now.monotonic);
        self.on_durable(&summary, actions);
        if let Some(request) = finalising.request {
            answer(request, Answer::Completed(summary), actions);
        }
        self.finalise_next(actions);
    }

    fn complete(&mut self, finalising: Finalising, actions: &mut Vec<JobAction>) {
        let id = finalising.id();
        let newest = self.latest().map(|latest| latest.id);
        assert!(
            newest < Some(id),
            "{id} completes, but {newest:?} has completed before"
        );
        let summary = finalising.summary(self.now.monotonic);
        self.on_durable(&summary, actions);
        self.failures.on_completed(id);
        self.subsume_older(id, actions);
        self.notify(Notice::Completed { checkpoint: id }, actions);
        self.retain(Arc::unwrap_or_clone(finalising.checkpoint), actions);
        if summary.kind.stops() {
            let request = finalising.request;
            self.signals
                .push(Signal::Stopped(Stop { summary, request }));
        } else {
            if let Some(request) = finalising.request {
                answer(request, Answer::Completed(summary), actions);
            }
            self.signals.push(Signal::Completed(id));
        }
        self.finalise_next(actions);
    }

    /// What every completion has in common, savepoint or not.
    fn on_durable(&mut self, summary: &CompletedSummary, actions: &mut Vec<JobAction>) {
        self.ended.complete(summary.checkpoint);
        self.schedule.on_completed(self.now.monotonic);
        actions.push(JobAction::Note(note(summary)));
        self.statistics.on_completed(summary.clone());
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
        // One after the other: what several of them share goes with the last.
        while self.retained.len() > self.settings.retained as usize {
            let oldest = self.retained.remove(0);
            self.drop_completed(oldest, actions);
        }
    }

    /// The job is over and nothing of it is kept: drops all checkpoints that have completed or may
    /// have, and those whose files had to wait. One in doubt may rest on the others, so it can't
    /// stay without them.
    pub(crate) fn drop_retained(&mut self, actions: &mut Vec<JobAction>) {
        let mut history = std::mem::take(&mut self.retained);
        history.extend(self.kept.give_up());
        history.sort_by_key(|completed| completed.id);
        if !history.is_empty() {
            actions.push(JobAction::DiscardHistory(history));
        }
    }
}

fn note(summary: &CompletedSummary) -> JobNote {
    JobNote::CheckpointCompleted {
        checkpoint: summary.checkpoint,
        kind: summary.kind,
        bytes: summary.bytes,
        new_bytes: summary.new_bytes,
        duration: summary.duration,
    }
}
