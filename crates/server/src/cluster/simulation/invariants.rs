//! What must hold whatever happens, checked against what was really said and done.

use std::collections::BTreeSet;

use tidegate_coordinator::JobAction;
use tidegate_types::message::Notice;
use tidegate_types::{AttemptNumber, CheckpointId, CompletedCheckpoint, SubtaskId};

/// Watches what the job is told and decides.
#[derive(Debug)]
pub(super) struct Watch {
    subtasks: usize,
    attempt: AttemptNumber,
    triggered: CheckpointId,
    completed: CheckpointId,
    /// Who has acknowledged the newest checkpoint in the attempt that runs.
    acknowledged: BTreeSet<SubtaskId>,
}

impl Watch {
    pub(super) fn new(subtasks: usize) -> Self {
        Watch {
            subtasks,
            attempt: AttemptNumber(0),
            triggered: CheckpointId::NONE,
            completed: CheckpointId::NONE,
            acknowledged: BTreeSet::new(),
        }
    }

    /// An acknowledgement arrives.
    pub(super) fn on_acknowledged(
        &mut self,
        attempt: AttemptNumber,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
    ) {
        if (attempt, checkpoint) == (self.attempt, self.triggered) {
            self.acknowledged.insert(subtask);
        }
    }

    pub(super) fn on_action(&mut self, action: &JobAction) {
        match action {
            JobAction::StartAttempt { attempt, .. } => {
                assert!(*attempt > self.attempt, "{attempt} after {}", self.attempt);
                self.attempt = *attempt;
                self.acknowledged.clear();
            }
            JobAction::Notify {
                attempt,
                notice: Notice::Trigger(barrier),
                ..
            } => {
                let id = barrier.checkpoint;
                assert_eq!(*attempt, self.attempt, "{id} is of an attempt that is over");
                assert!(id > self.triggered, "{id} after {}", self.triggered);
                self.triggered = id;
                self.acknowledged.clear();
            }
            JobAction::PublishMetadata(checkpoint) => self.on_publish(checkpoint),
            JobAction::Notify {
                notice: Notice::Completed { checkpoint },
                ..
            } => {
                assert!(
                    *checkpoint > self.completed,
                    "completed twice or back in time"
                );
                self.completed = *checkpoint;
            }
            _ => {}
        }
    }

    fn on_publish(&self, checkpoint: &CompletedCheckpoint) {
        let id = checkpoint.id;
        assert_eq!(checkpoint.attempt, self.attempt, "{id} is of one attempt");
        assert_eq!(id, self.triggered, "one checkpoint is under way at a time");
        assert_eq!(self.acknowledged.len(), self.subtasks, "{id} is not whole");
        let states: usize = checkpoint
            .operators
            .iter()
            .map(|op| op.subtasks.len())
            .sum();
        assert_eq!(states, self.subtasks, "{id} lacks state");
    }
}
