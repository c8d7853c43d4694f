//! A subtask's part in checkpoints: barriers and cancel markers from its channels, notices from
//! the coordinator, snapshots, and what it tells others about them.

use tidegate_state::Record;
use tidegate_types::message::{DeclineReason, Notice, Report};
use tidegate_types::{CheckpointBarrier, CheckpointId};

use super::{Phase, Subtask};
use crate::alignment::{AlignmentAction, ChannelIndex};
use crate::clock::Ticks;
use crate::error::{BoxError, chain};
use crate::logic::{Logic, Snapshot};
use crate::snapshot::{Cancelled, SnapshotJob};

/// Snapshots that a subtask remembers at most; older ones have long been decided.
const SNAPSHOTS_MAX: usize = 256;

impl<In: Record, Out: Record, L: Logic<In, Out>> Subtask<In, Out, L> {
    pub(super) fn handle_notices(&mut self) -> Result<(), BoxError> {
        loop {
            let notice = self.mailbox.borrow_mut().pop_front();
            match notice {
                None => return Ok(()),
                Some(Notice::Trigger(barrier)) => self.on_trigger(barrier),
                Some(Notice::Completed { checkpoint }) => self.on_completed(checkpoint)?,
                Some(Notice::Aborted { checkpoint, .. }) => self.on_aborted(checkpoint)?,
            }
        }
    }

    /// Only enumerators are triggered; all others learn of a checkpoint by its barrier.
    fn on_trigger(&mut self, barrier: CheckpointBarrier) {
        if barrier.checkpoint == self.passed {
            // The same trigger again.
            return;
        }
        if barrier.checkpoint < self.passed {
            let reason = DeclineReason::Superseded {
                latest: self.passed,
            };
            self.decline(barrier.checkpoint, reason);
            return;
        }
        self.snapshot(barrier, std::time::Duration::ZERO);
    }

    pub(super) fn on_barrier(
        &mut self,
        channel: ChannelIndex,
        barrier: CheckpointBarrier,
    ) -> Result<(), BoxError> {
        let mut actions = std::mem::take(&mut self.alignment_actions);
        let accepted = self
            .alignment
            .on_barrier(channel, barrier, Ticks::now().0, &mut actions);
        accepted.map_err(|cause| self.inputs.corrupt(channel, cause))?;
        self.perform(actions);
        Ok(())
    }

    pub(super) fn on_cancel(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
    ) -> Result<(), BoxError> {
        let mut actions = std::mem::take(&mut self.alignment_actions);
        self.alignment.on_cancel(channel, checkpoint, &mut actions);
        self.perform(actions);
        Ok(())
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.snapshots.retain(|(id, cancelled)| {
            if *id == checkpoint {
                cancelled.set();
            }
            *id != checkpoint
        });
        if self.inputs.channel_count() > 0 {
            let mut actions = std::mem::take(&mut self.alignment_actions);
            self.alignment.on_abort_notice(checkpoint, &mut actions);
            self.perform(actions);
        }
        Ok(())
    }

    fn on_completed(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        // A notice for a checkpoint that this subtask didn't take in this attempt says nothing
        // about its transactions.
        if !self.snapshots.iter().any(|(id, _)| *id == checkpoint) {
            return Ok(());
        }
        self.snapshots.retain(|(id, _)| *id > checkpoint);
        self.logic().on_completed(checkpoint)
    }

    fn perform(&mut self, mut actions: Vec<AlignmentAction>) {
        for action in actions.drain(..) {
            match action {
                AlignmentAction::Snapshot { barrier, alignment } => {
                    self.snapshot(barrier, alignment);
                }
                AlignmentAction::Abort { checkpoint, reason } => {
                    self.decline(checkpoint, reason);
                    self.out.send_cancel(checkpoint);
                }
            }
        }
        self.alignment_actions = actions;
    }

    fn decline(&self, checkpoint: CheckpointId, reason: DeclineReason) {
        let subtask = self.context.subtask;
        self.context.reports.send(Report::Declined {
            checkpoint,
            subtask,
            reason,
        });
    }

    /// The synchronous part: forward the barrier, freeze, hand over.
    fn snapshot(&mut self, barrier: CheckpointBarrier, alignment: std::time::Duration) {
        let began = Ticks::now();
        let checkpoint = barrier.checkpoint;
        self.passed = checkpoint;
        // Ordering: the barrier leaves first, so that receivers can align while this subtask
        // freezes; nothing is emitted in between.
        tidegate_fault::point("barrier:before");
        self.out.send_barrier(barrier);
        tidegate_fault::point("barrier:after");
        tidegate_fault::point("snapshot:before");
        let Phase::Running(logic) = &mut self.phase else {
            return;
        };
        let frozen = logic.snapshot(checkpoint);
        tidegate_fault::point("snapshot:after");
        match frozen {
            Ok(snapshot) => self.hand_over(checkpoint, snapshot, alignment, began),
            Err(error) => {
                self.decline(
                    checkpoint,
                    DeclineReason::SnapshotFailed {
                        cause: chain(&error),
                    },
                );
            }
        }
    }

    fn hand_over(
        &mut self,
        checkpoint: CheckpointId,
        snapshot: Snapshot,
        alignment: std::time::Duration,
        began: Ticks,
    ) {
        let cancelled = Cancelled::default();
        if self.snapshots.len() == SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        self.snapshots.push((checkpoint, cancelled.clone()));
        let key_groups = self.context.key_groups();
        let job = SnapshotJob {
            checkpoint,
            subtask: self.context.subtask,
            name: self.context.name.clone(),
            keyed: snapshot.keyed.map(|frozen| (frozen, key_groups)),
            lists: snapshot.lists,
            finished: self.finished,
            seals: snapshot.seals,
            alignment,
            sync: Ticks::now().since(began),
            cancelled,
            files: self.context.files.clone(),
            reports: self.context.reports.clone(),
        };
        if job.is_instant() {
            job.run();
        } else {
            let (reports, subtask) = (job.reports.clone(), job.subtask);
            let on_panic = move |cause| reports.fail(Some(subtask), cause);
            self.context.background.run(move || job.run(), on_panic);
        }
    }
}
