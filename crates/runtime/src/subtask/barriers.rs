//! A subtask's part in checkpoints: barriers and cancel markers from its channels, notices from
//! the coordinator, snapshots, and what it tells others about them.

use tidegate_state::Record;
use tidegate_types::message::{DeclineReason, Notice, Report, SnapshotMetrics};
use tidegate_types::{CheckpointBarrier, CheckpointId, SnapshotKind};

use super::first_barriers::start_delay;
use super::{Phase, Subtask};
use crate::alignment::{AlignmentAction, ChannelIndex};
use crate::clock::{Ticks, wall_clock};
use crate::error::{BoxError, chain};
use crate::logic::{Logic, Snapshot};
use crate::metrics::SnapshotStage;
use crate::snapshot::SnapshotJob;

impl<In: Record, Out: Record, L: Logic<In, Out>> Subtask<In, Out, L> {
    pub(super) fn handle_notices(&mut self) -> Result<(), BoxError> {
        loop {
            let notice = self.mailbox.borrow_mut().pop_front();
            match notice {
                None => return Ok(()),
                Some(Notice::Trigger(barrier)) => self.on_trigger(barrier)?,
                Some(Notice::Completed { checkpoint }) => self.on_completed(checkpoint)?,
                Some(Notice::Aborted {
                    checkpoint,
                    latest_completed,
                }) => self.on_aborted(checkpoint, latest_completed)?,
            }
        }
    }

    /// Only enumerators are triggered; all others learn of a checkpoint by its barrier. A trigger
    /// behind a stop is a trigger like any other: only data has come to its end.
    fn on_trigger(&mut self, barrier: CheckpointBarrier) -> Result<(), BoxError> {
        if barrier.checkpoint == self.passed {
            // The same trigger again.
            return Ok(());
        }
        if barrier.checkpoint < self.passed {
            let reason = DeclineReason::Superseded {
                latest: self.passed,
            };
            self.decline(barrier.checkpoint, reason);
            return Ok(());
        }
        let metrics = SnapshotMetrics {
            start_delay: start_delay(&barrier, wall_clock()),
            ..SnapshotMetrics::default()
        };
        self.snapshot(barrier, metrics)
    }

    /// Nobody should wait for the barriers of a source that is dead.
    pub(super) fn decline_triggers(&mut self) {
        let notices = std::mem::take(&mut *self.mailbox.borrow_mut());
        for notice in notices {
            if let Notice::Trigger(barrier) = notice {
                self.decline(barrier.checkpoint, DeclineReason::NotReady);
            }
        }
    }

    pub(super) fn on_barrier(
        &mut self,
        channel: ChannelIndex,
        barrier: CheckpointBarrier,
    ) -> Result<(), BoxError> {
        self.metrics.on_barrier(channel, barrier.checkpoint);
        if barrier.checkpoint > self.alignment.latest() {
            self.first_barriers
                .note(&barrier, wall_clock(), self.bytes_in);
        }
        let mut actions = std::mem::take(&mut self.alignment_actions);
        let accepted = self
            .alignment
            .on_barrier(channel, barrier, Ticks::now().0, &mut actions);
        accepted.map_err(|cause| self.inputs.corrupt(channel, cause))?;
        self.perform(actions)
    }

    pub(super) fn on_cancel(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
    ) -> Result<(), BoxError> {
        let mut actions = std::mem::take(&mut self.alignment_actions);
        self.alignment.on_cancel(channel, checkpoint, &mut actions);
        self.perform(actions)
    }

    /// Rolls nothing back, commits nothing; a stop that was aborted is not undone either, since
    /// the whole attempt starts anew.
    fn on_aborted(
        &mut self,
        checkpoint: CheckpointId,
        latest_completed: CheckpointId,
    ) -> Result<(), BoxError> {
        self.taken.on_aborted(checkpoint, latest_completed);
        self.give_up_cancelled();
        if self.inputs.channel_count() > 0 {
            let mut actions = std::mem::take(&mut self.alignment_actions);
            self.alignment.on_abort_notice(checkpoint, &mut actions);
            self.perform(actions)?;
        }
        Ok(())
    }

    fn on_completed(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        // A notice for a checkpoint that this subtask didn't take in this attempt says nothing
        // about its transactions.
        let is_news = self.taken.on_completed(checkpoint);
        self.give_up_cancelled();
        if is_news {
            self.logic().on_completed(checkpoint)?;
        }
        Ok(())
    }

    fn give_up_cancelled(&mut self) {
        for checkpoint in self.taken.take_cancelled() {
            self.logic().on_aborted(checkpoint);
        }
    }

    fn perform(&mut self, mut actions: Vec<AlignmentAction>) -> Result<(), BoxError> {
        for action in actions.drain(..) {
            match action {
                AlignmentAction::Snapshot { barrier, alignment } => {
                    let (start_delay, alignment_bytes) = self
                        .first_barriers
                        .on_last(barrier.checkpoint, self.bytes_in);
                    let metrics = SnapshotMetrics {
                        start_delay,
                        alignment,
                        alignment_bytes,
                        ..SnapshotMetrics::default()
                    };
                    self.snapshot(barrier, metrics)?;
                }
                AlignmentAction::Abort { checkpoint, reason } => {
                    self.first_barriers.on_aborted(checkpoint);
                    self.decline(checkpoint, reason);
                    self.out.send_cancel(checkpoint);
                }
            }
        }
        self.alignment_actions = actions;
        Ok(())
    }

    fn decline(&self, checkpoint: CheckpointId, reason: DeclineReason) {
        let subtask = self.context.subtask;
        self.context.reports.send(Report::Declined {
            checkpoint,
            subtask,
            reason,
        });
    }

    /// The synchronous part: forward the barrier, freeze, hand over. State that can't be frozen
    /// now can be frozen later; what could not be let go of may be nowhere any more.
    fn snapshot(
        &mut self,
        barrier: CheckpointBarrier,
        metrics: SnapshotMetrics,
    ) -> Result<(), BoxError> {
        let checkpoint = barrier.checkpoint;
        self.passed = checkpoint;
        let stage = self.metrics.begin_snapshot(checkpoint);
        self.stop_if_told(barrier.kind);
        // Ordering: the barrier leaves first, so that receivers can align while this subtask
        // freezes, or have frozen already if they are called; nothing is emitted in between.
        tidegate_fault::point("barrier:before");
        self.out.send_barrier(barrier.clone());
        self.metrics.on_passed(checkpoint);
        tidegate_fault::point("barrier:after");
        // Behind the barrier: receivers that are called work off what is in front of it, and take
        // snapshots of their own, within that call.
        let began = Ticks::now();
        tidegate_fault::point("snapshot:before");
        let Phase::Running(logic) = &mut self.phase else {
            return Ok(());
        };
        logic.prepare_snapshot()?;
        let frozen = logic.snapshot(&barrier);
        tidegate_fault::point("snapshot:after");
        match frozen {
            Ok(snapshot) => {
                let sync = Ticks::now().since(began);
                let metrics = SnapshotMetrics { sync, ..metrics };
                self.hand_over(barrier, snapshot, metrics, stage);
            }
            Err(error) => {
                self.decline(
                    checkpoint,
                    DeclineReason::SnapshotFailed {
                        cause: chain(&error),
                    },
                );
            }
        }
        Ok(())
    }

    /// Behind the barrier of a stop this subtask makes nothing by itself any more.
    ///
    /// A reader that is to drain ends its data here, wherever it stands: what is behind it
    /// finishes. It has not *read* its last record, so its state remains a position to read on
    /// from, and its end is not reported. All others have come to the end of their data by the
    /// end markers in front of this barrier.
    fn stop_if_told(&mut self, kind: SnapshotKind) {
        if kind.drains() && self.is_reader && !self.end_sent {
            self.out.send_end_of_data();
            self.end_sent = true;
        }
        self.stopped |= kind.stops();
    }

    fn hand_over(
        &mut self,
        barrier: CheckpointBarrier,
        snapshot: Snapshot,
        metrics: SnapshotMetrics,
        stage: SnapshotStage,
    ) {
        let checkpoint = barrier.checkpoint;
        let write = self.taken.insert(checkpoint, barrier.kind);
        let has_keyed = snapshot.keyed.is_some();
        if let Some(keyed) = snapshot.keyed {
            write.hold(keyed);
        }
        let job = SnapshotJob {
            checkpoint,
            location: barrier.location,
            subtask: self.context.subtask,
            name: self.context.name.clone(),
            keyed: has_keyed.then(|| self.context.key_groups()),
            lists: snapshot.lists,
            finished: self.finished,
            seals: snapshot.seals,
            metrics,
            write,
            stage,
            files: self.context.files.clone(),
            placement: self.context.placement,
            reports: self.context.reports.clone(),
        };
        if job.is_instant() {
            job.run();
        } else {
            job.stage.begin_write();
            let (reports, subtask) = (job.reports.clone(), job.subtask);
            let on_panic = move |cause| reports.fail(Some(subtask), cause);
            self.context.background.run(move || job.run(), on_panic);
        }
    }
}
