//! Hands what one process' coordinator hears and says to the invariants about it.

use tidegate_coordinator::{
    AbortReason, CheckpointSettings, JobAction, JobEvent, JobNote, JobSettings, Now,
};
use tidegate_types::message::Notice;
use tidegate_types::{CheckpointId, CompletedCheckpoint, FileHandle, SnapshotKind};

use super::bursts::Bursts;
use super::concurrency::within_concurrency;
use super::min_pause::MinPause;
use super::outcomes::Outcomes;
use super::ownership::Ownership;
use super::requests::Requests;
use super::retention::Kept;
use super::{Checked, pauses_between_reads};
use crate::store::{Store, shared_with_later};

/// The invariants that remember what a process has been told and has done.
#[derive(Debug)]
pub(crate) struct Watch {
    settings: CheckpointSettings,
    /// Whether the job may take a checkpoint when it wants to, to be rescaled.
    rescales: bool,
    pub(crate) ownership: Ownership,
    outcomes: Outcomes,
    min_pause: MinPause,
    bursts: Bursts,
    requests: Requests,
    pub(crate) kept: Kept,
}

impl Watch {
    pub(crate) fn new(settings: JobSettings) -> Self {
        Watch {
            settings: settings.checkpoints,
            rescales: settings.elastic.parallelism_min.is_some(),
            ownership: Ownership::default(),
            outcomes: Outcomes::default(),
            min_pause: MinPause::default(),
            bursts: Bursts::default(),
            requests: Requests::default(),
            kept: Kept::default(),
        }
    }

    /// The newest snapshot under way.
    pub(crate) fn newest(&self) -> Option<CheckpointId> {
        self.outcomes.newest()
    }

    /// The coordinator is about to hear of something that concerns this process.
    pub(crate) fn on_event(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Report(report) => self.ownership.on_report(&report.report),
            JobEvent::Recovered {
                completed: Ok(found),
            } => self.ownership.on_recovered(found),
            JobEvent::Deleted { checkpoint } => self.ownership.on_deleted(*checkpoint),
            _ => {}
        }
        self.outcomes.on_event(event);
        self.requests.on_event(event);
    }

    /// What the coordinator makes of it, as a whole.
    pub(crate) fn on_actions(&mut self, event: &JobEvent, actions: &[JobAction]) -> Checked {
        pauses_between_reads(event, actions)
    }

    /// All of it has been taken on.
    pub(crate) fn after_step(&mut self, store: &Store) -> Checked {
        let none_under_way = self.outcomes.newest().is_none();
        self.ownership.after_step(none_under_way, store)
    }

    /// The coordinator wants this done, at this moment.
    pub(crate) fn on_action(&mut self, action: &JobAction, now: Now, store: &Store) -> Checked {
        self.outcomes.on_action(action)?;
        if let JobAction::Note(
            JobNote::CheckpointAborted { checkpoint, .. }
            | JobNote::CheckpointCompleted { checkpoint, .. },
        ) = action
        {
            self.ownership.on_ended(*checkpoint);
        }
        self.requests.on_action(action)?;
        match action {
            JobAction::StartAttempt { .. } => self.bursts.on_attempt(),
            JobAction::Notify {
                notice: Notice::Trigger(barrier),
                ..
            } => {
                within_concurrency(&self.outcomes, self.settings.max_concurrent)?;
                let asked_for = self.rescales || self.requests.are_open();
                if barrier.kind == SnapshotKind::Checkpoint && !asked_for {
                    self.on_periodic(now)?;
                }
            }
            JobAction::Note(JobNote::CheckpointCompleted {
                checkpoint, kind, ..
            }) => {
                self.min_pause.on_completed(now.monotonic);
                if *kind != SnapshotKind::Savepoint {
                    self.ownership.on_completed(*checkpoint);
                }
            }
            JobAction::Note(JobNote::CheckpointAborted {
                checkpoint,
                reason: AbortReason::OutcomeUnknown { .. },
                ..
            }) => self.ownership.on_doubt(*checkpoint),
            JobAction::End(end) => {
                let (retention, in_doubt) = (self.settings.retention, self.ownership.is_in_doubt());
                self.kept.on_end(end, retention, in_doubt, store)?;
            }
            JobAction::DropCompleted { checkpoint, spared } => {
                self.ownership.on_deleting(checkpoint.id);
                self.on_drop(checkpoint, spared, store)?;
            }
            JobAction::DiscardHistory(completed) => {
                for (index, checkpoint) in completed.iter().enumerate() {
                    let spared = shared_with_later(&completed[index..]);
                    self.on_drop(checkpoint, &spared, store)?;
                }
            }
            JobAction::DiscardFiles {
                checkpoint, files, ..
            } => {
                self.ownership.on_deleting(*checkpoint);
                self.ownership.on_discard(*checkpoint, files.iter())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn on_drop(
        &mut self,
        checkpoint: &CompletedCheckpoint,
        spared: &[FileHandle],
        store: &Store,
    ) -> Checked {
        self.kept.on_drop(checkpoint, store);
        self.ownership.on_dropped(checkpoint.id, spared);
        let gone = checkpoint.files().filter(|file| !spared.contains(file));
        self.ownership.on_discard(checkpoint.id, gone)
    }

    fn on_periodic(&mut self, now: Now) -> Checked {
        let (now, settings) = (now.monotonic, &self.settings);
        self.min_pause.on_periodic(now, settings.min_pause)?;
        match settings.interval {
            Some(interval) => self.bursts.on_periodic(now, interval),
            None => Ok(()),
        }
    }
}
