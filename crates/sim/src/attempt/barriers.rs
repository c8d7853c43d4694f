//! A simulated subtask's part in checkpoints: as the real one, notice by notice.

use std::rc::Rc;

use tidegate_runtime::alignment::{AlignmentAction, ChannelIndex};
use tidegate_types::message::{DeclineReason, Notice, Report};
use tidegate_types::{CheckpointBarrier, CheckpointId, SubtaskId};

use crate::mutation::Mutation;
use crate::record::Payload;
use crate::topology::Kind;
use crate::trace::trace;

use super::background::{Commit, SnapshotJob, Task};
use super::logic::Logic;
use super::subtask::{Cancelled, Subtask};
use super::{Hands, Stop, Thread};

impl Subtask {
    pub(super) fn on_notice(&mut self, notice: Notice, hands: &mut Hands<'_>) -> Result<(), Stop> {
        hands.survive()?;
        match notice {
            // The same trigger again.
            Notice::Trigger(barrier)
                if barrier.checkpoint == self.passed
                    && !hands.outside.has(Mutation::TriggerRepeated) =>
            {
                Ok(())
            }
            Notice::Trigger(barrier) if barrier.checkpoint < self.passed => {
                let latest = self.passed;
                self.decline(
                    barrier.checkpoint,
                    DeclineReason::Superseded { latest },
                    hands,
                );
                Ok(())
            }
            Notice::Trigger(barrier) => self.snapshot(barrier, hands),
            Notice::Completed { checkpoint } => {
                self.on_completed(checkpoint, hands);
                Ok(())
            }
            Notice::Aborted { checkpoint, .. } => self.on_aborted(checkpoint, hands),
        }
    }

    pub(super) fn on_barrier(
        &mut self,
        input: usize,
        barrier: CheckpointBarrier,
        hands: &mut Hands<'_>,
    ) -> Result<(), Stop> {
        let channel = ChannelIndex(input as u32);
        let mut actions = std::mem::take(&mut self.alignment_actions);
        let now = hands.outside.elapsed();
        let accepted = self
            .alignment
            .on_barrier(channel, barrier, now, &mut actions);
        accepted.map_err(|cause| Stop::Failed(format!("corrupt stream: {cause}")))?;
        self.perform(actions, hands)
    }

    pub(super) fn on_cancel(
        &mut self,
        input: usize,
        checkpoint: CheckpointId,
        hands: &mut Hands<'_>,
    ) -> Result<(), Stop> {
        let mut actions = std::mem::take(&mut self.alignment_actions);
        self.alignment
            .on_cancel(ChannelIndex(input as u32), checkpoint, &mut actions);
        self.perform(actions, hands)
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId, hands: &mut Hands<'_>) -> Result<(), Stop> {
        self.snapshots.retain(|(id, cancelled)| {
            if *id == checkpoint {
                cancelled.set(true);
            }
            *id != checkpoint
        });
        if self.inputs.is_empty() {
            return Ok(());
        }
        let mut actions = std::mem::take(&mut self.alignment_actions);
        self.alignment.on_abort_notice(checkpoint, &mut actions);
        self.perform(actions, hands)
    }

    fn on_completed(&mut self, checkpoint: CheckpointId, hands: &mut Hands<'_>) {
        let trusting = hands.outside.has(Mutation::StaleNotice);
        if !trusting && !self.snapshots.iter().any(|(id, _)| *id == checkpoint) {
            return;
        }
        self.snapshots.retain(|(id, _)| *id > checkpoint);
        let subtask = self.id;
        if let Some(Logic::Sink(sink)) = self.logic() {
            let cleans_up = std::mem::take(&mut sink.cleans_up);
            commit_later(subtask, checkpoint, cleans_up, hands);
        }
    }

    fn perform(
        &mut self,
        mut actions: Vec<AlignmentAction>,
        hands: &mut Hands<'_>,
    ) -> Result<(), Stop> {
        for action in actions.drain(..) {
            match action {
                AlignmentAction::Snapshot { barrier, .. } => self.snapshot(barrier, hands)?,
                AlignmentAction::Abort { checkpoint, reason } => {
                    self.decline(checkpoint, reason, hands);
                    self.flush(hands);
                    let cancel = Payload::Cancel(checkpoint);
                    for output in &self.outputs {
                        output.send_marker(&cancel, hands.channels);
                    }
                }
            }
        }
        self.alignment_actions = actions;
        Ok(())
    }

    fn decline(&self, checkpoint: CheckpointId, reason: DeclineReason, hands: &mut Hands<'_>) {
        let subtask = self.id;
        trace!(
            hands.outside,
            "{} {subtask} declines {checkpoint}: {reason}", hands.attempt
        );
        hands.report(
            self.lane(),
            Report::Declined {
                checkpoint,
                subtask,
                reason,
            },
        );
    }

    fn snapshot(&mut self, barrier: CheckpointBarrier, hands: &mut Hands<'_>) -> Result<(), Stop> {
        let (id, checkpoint) = (self.id, barrier.checkpoint);
        self.drain_before(&barrier, hands);
        let channels = self.inputs.iter().map(|at| &hands.channels[*at]);
        let alignment = &mut hands.outside.invariants.alignment;
        alignment.on_snapshot(id, checkpoint, self.mode, channels)?;
        self.passed = checkpoint;
        hands.survive()?;
        if !hands.outside.has(Mutation::BarrierOvertakesBatch) {
            self.flush(hands);
        }
        for output in &self.outputs {
            output.send_marker(&Payload::Barrier(barrier.clone()), hands.channels);
        }
        self.stopped |= barrier.kind.stops() && !hands.outside.has(Mutation::SourceRunsOn);
        hands.survive()?;
        if hands.outside.rng.chance(hands.outside.faults.freeze) {
            let cause = "injected".to_owned();
            self.decline(checkpoint, DeclineReason::SnapshotFailed { cause }, hands);
            return Ok(());
        }
        self.hand_over(barrier, hands);
        hands.survive()
    }

    /// A source that is drained comes to its end before the barrier.
    fn drain_before(&mut self, barrier: &CheckpointBarrier, hands: &mut Hands<'_>) {
        let is_source = matches!(self.kind, Kind::Enumerator { .. } | Kind::Reader { .. });
        if is_source && barrier.kind.drains() && !self.end_sent {
            self.end(hands);
        }
    }

    fn hand_over(&mut self, barrier: CheckpointBarrier, hands: &mut Hands<'_>) {
        let (id, lane, checkpoint) = (self.id, self.lane(), barrier.checkpoint);
        let Some(logic) = self.logic() else { return };
        let frozen = logic.freeze(id, checkpoint, hands);
        let cancelled = Cancelled::default();
        self.snapshots.push((checkpoint, Rc::clone(&cancelled)));
        trace!(
            hands.outside,
            "{} {id} snapshots {checkpoint}", hands.attempt
        );
        let mut job = SnapshotJob::new(self, barrier, frozen, cancelled, hands.outside);
        if job.is_instant() {
            job.acknowledge(lane, hands);
        } else {
            let queue = hands
                .tasks
                .entry((Thread::Snapshots, id.index))
                .or_default();
            queue.push_back(Task::Snapshot(job));
        }
    }
}

/// Gives a commit to the background.
pub(super) fn commit_later(
    subtask: SubtaskId,
    checkpoint: CheckpointId,
    cleans_up: bool,
    hands: &mut Hands<'_>,
) {
    let commit = Commit::new(subtask, checkpoint, cleans_up);
    let queue = hands
        .tasks
        .entry((Thread::Commits, subtask.index))
        .or_default();
    queue.push_back(Task::Commit(commit));
}
