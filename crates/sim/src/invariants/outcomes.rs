//! Every checkpoint that is begun ends once: it completes or is aborted, before its job ends; and
//! as long as its attempt runs, all subtasks are told.
//!
//! Source: Flink's `CheckpointCoordinator`, whose pending checkpoints are disposed of once; BC-57,
//! expired once; IT-04, every operator hears of an abort.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_coordinator::{AbortReason, JobAction, JobEvent, JobNote};
use tidegate_types::message::Notice;
use tidegate_types::{CheckpointId, SnapshotKind};

use super::{Checked, ensure};

const NAME: &str = "outcomes";

/// What one process' coordinator has under way.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    begun: BTreeMap<CheckpointId, SnapshotKind>,
    triggered: BTreeSet<CheckpointId>,
    told: BTreeSet<CheckpointId>,
    attempt_runs: bool,
}

impl Outcomes {
    /// The newest of those under way.
    pub(super) fn newest(&self) -> Option<CheckpointId> {
        self.begun.keys().next_back().copied()
    }

    /// Checkpoints under way, and what they are.
    pub(super) fn under_way(&self) -> impl Iterator<Item = SnapshotKind> {
        self.begun.values().copied()
    }

    pub(crate) fn on_event(&mut self, event: &JobEvent) {
        if matches!(event, JobEvent::AttemptStopped { .. }) {
            self.attempt_runs = false;
        }
    }

    pub(crate) fn on_action(&mut self, action: &JobAction) -> Checked {
        match action {
            JobAction::StartAttempt { .. } => self.attempt_runs = true,
            JobAction::StopAttempt { .. } => self.attempt_runs = false,
            JobAction::PrepareSavepoint { checkpoint, .. } => {
                self.begun
                    .entry(*checkpoint)
                    .or_insert(SnapshotKind::Savepoint);
            }
            JobAction::Notify { notice, .. } => self.on_notice(notice),
            JobAction::Note(JobNote::CheckpointCompleted { checkpoint, .. }) => {
                self.end(*checkpoint, "completes")?;
            }
            JobAction::Note(JobNote::CheckpointAborted {
                checkpoint, reason, ..
            }) => {
                self.end(*checkpoint, "is aborted")?;
                // A doubt ends the attempt, and what is in doubt may have completed after all.
                let in_doubt = matches!(reason, AbortReason::OutcomeUnknown { .. });
                let untold = self.attempt_runs
                    && !in_doubt
                    && self.triggered.contains(checkpoint)
                    && !self.told.remove(checkpoint);
                ensure(!untold, NAME, || {
                    format!("{checkpoint} is aborted, and the subtasks are not told")
                })?;
            }
            JobAction::End(_) => {
                let left = &self.begun;
                ensure(left.is_empty(), NAME, || {
                    format!("the job ends while {left:?} are under way")
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn on_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Trigger(barrier) => {
                self.begun.insert(barrier.checkpoint, barrier.kind);
                self.triggered.insert(barrier.checkpoint);
            }
            Notice::Aborted { checkpoint, .. } => {
                self.told.insert(*checkpoint);
            }
            Notice::Completed { .. } => {}
        }
    }

    fn end(&mut self, checkpoint: CheckpointId, how: &str) -> Checked {
        let begun = self.begun.remove(&checkpoint);
        ensure(begun.is_some(), NAME, || {
            format!("{checkpoint} {how}, but is not under way")
        })
    }
}
