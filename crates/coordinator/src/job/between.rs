//! From the end of one attempt to the start of the next, or to the end of the job.
//!
//! Ordering: an attempt is stopped; what it was finalising is decided; the store is read if a write
//! to it is in doubt; the restart strategy's delay passes. Only then the next number is reserved.

use std::time::Duration;

use tidegate_types::{AttemptNumber, CompletedCheckpoint};

use crate::action::{JobAction, JobEnd, JobNote, RestartDecision};
use crate::failure::{FailureReason, JobFailure, StorageStep};
use crate::lifecycle::{Next, Phase, Threads};

use super::Job;

impl Job {
    /// The running attempt can't go on: stops it and asks the restart strategy. What the marker
    /// of a finished job says is true whatever happens to its last attempt.
    pub(super) fn on_attempt_failed(
        &mut self,
        number: AttemptNumber,
        reason: FailureReason,
        actions: &mut Vec<JobAction>,
    ) {
        match &self.phase {
            Phase::Active(attempt) if attempt.number == number => {
                self.stop_after_failure(number, Threads::Running, reason, actions);
            }
            _ => {}
        }
    }

    pub(super) fn stop_after_failure(
        &mut self,
        number: AttemptNumber,
        threads: Threads,
        reason: FailureReason,
        actions: &mut Vec<JobAction>,
    ) {
        self.answer_not_stopped(&reason.to_string(), actions);
        let next = self.after_failure(Some(number), reason, actions);
        self.stop_attempt(number, threads, next, actions);
    }

    pub(super) fn stop_attempt(
        &mut self,
        attempt: AttemptNumber,
        threads: Threads,
        next: Next,
        actions: &mut Vec<JobAction>,
    ) {
        // Ordering: stopping comes first, since the next attempt waits for it, not for deletions.
        if threads == Threads::Running {
            actions.push(JobAction::StopAttempt { attempt });
        }
        self.checkpoints.end_attempt(actions);
        if let Next::Restart { .. } = next {
            self.note_restart(actions);
        }
        match threads {
            Threads::Running => self.phase = Phase::Stopping { attempt, next },
            Threads::Joined => self.settle(next, actions),
        }
    }

    pub(super) fn after_failure(
        &mut self,
        attempt: Option<AttemptNumber>,
        reason: FailureReason,
        actions: &mut Vec<JobAction>,
    ) -> Next {
        let failure = self.failure(attempt, reason.clone());
        let decision = match attempt.is_some() && self.elastic.is_untried() {
            // The job goes back to what worked. To ask for a rescale must not use up its restarts.
            true => RestartDecision::RestartAfter(Duration::ZERO),
            false => self.restarts.on_failure(self.now.monotonic),
        };
        self.checkpoints.statistics_mut().restarts = self.restarts.count();
        actions.push(JobAction::Note(JobNote::AttemptFailed {
            attempt,
            reason,
            decision,
        }));
        match decision {
            RestartDecision::RestartAfter(delay) => Next::Restart {
                at: self.now.monotonic.after(delay),
            },
            RestartDecision::GiveUp => Next::End(JobEnd::Failed(failure)),
        }
    }

    pub(super) fn failure(
        &self,
        attempt: Option<AttemptNumber>,
        reason: FailureReason,
    ) -> Box<JobFailure> {
        Box::new(JobFailure {
            attempt,
            reason,
            restarts: self.restarts.count(),
            strategy: self.restarts.strategy().to_string(),
        })
    }

    pub(super) fn on_attempt_stopped(
        &mut self,
        number: AttemptNumber,
        actions: &mut Vec<JobAction>,
    ) {
        match &mut self.phase {
            Phase::Active(attempt) if attempt.number == number => {
                let reason = FailureReason::StoppedSilently;
                self.stop_after_failure(number, Threads::Joined, reason, actions);
            }
            Phase::MarkingFinished {
                attempt, threads, ..
            } if *attempt == number => {
                *threads = Threads::Joined;
            }
            Phase::Stopping { attempt, .. } if *attempt == number => {
                if let Phase::Stopping { next, .. } = self.take_phase() {
                    self.settle(next, actions);
                }
            }
            _ => {}
        }
    }

    /// No attempt runs: goes on as soon as what the last one was writing is decided. An end also
    /// waits for what would be left behind: nothing can be cleaned up after it.
    pub(super) fn settle(&mut self, next: Next, actions: &mut Vec<JobAction>) {
        let settled = match next {
            Next::Restart { .. } => self.checkpoints.is_settled(),
            Next::End(_) => self.checkpoints.is_settled() && !self.checkpoints.is_preparing(),
        };
        if settled {
            self.proceed(next, actions);
        } else {
            self.phase = Phase::Settling { next };
        }
    }

    pub(super) fn leave_settling(&mut self, actions: &mut Vec<JobAction>) {
        if matches!(self.phase, Phase::Settling { .. })
            && let Phase::Settling { next } = self.take_phase()
        {
            self.settle(next, actions);
        }
    }

    fn proceed(&mut self, next: Next, actions: &mut Vec<JobAction>) {
        match next {
            Next::End(end) => self.end(end, actions),
            Next::Restart { at } if self.checkpoints.is_in_doubt() => {
                self.phase = Phase::Recovering { restart_at: at };
                actions.push(JobAction::RecoverCompleted);
            }
            Next::Restart { at } => self.phase = Phase::Waiting { restart_at: at },
        }
    }

    pub(super) fn on_recovered(
        &mut self,
        completed: Result<Vec<CompletedCheckpoint>, String>,
        actions: &mut Vec<JobAction>,
    ) {
        let restart_at = match self.phase {
            Phase::Recovering { restart_at } => restart_at,
            Phase::Cancelling { .. } => {
                // What turned out to be completed outlives the job, or not, like the rest.
                if let Ok(completed) = completed.and_then(|found| self.check_recovered(found)) {
                    self.checkpoints.on_recovered(completed);
                }
                return self.leave_cancelling(actions);
            }
            _ => return,
        };
        match completed.and_then(|completed| self.check_recovered(completed)) {
            Ok(completed) => {
                self.checkpoints.on_recovered(completed);
                self.phase = Phase::Waiting { restart_at };
            }
            Err(cause) => {
                let step = StorageStep::RecoverCompleted;
                let reason = FailureReason::Storage { step, cause };
                match self.after_failure(None, reason, actions) {
                    // The delay comes before the next look: a store that can't be reached would
                    // be asked without pause until the strategy gives up.
                    Next::Restart { at } => self.phase = Phase::Waiting { restart_at: at },
                    end => self.settle(end, actions),
                }
            }
        }
    }

    /// A store that has lost what it had is not restored from: its older checkpoints would undo
    /// what has been committed.
    pub(super) fn check_recovered(
        &self,
        completed: Vec<CompletedCheckpoint>,
    ) -> Result<Vec<CompletedCheckpoint>, String> {
        // What the job was begun from is listed nowhere unless it was claimed.
        let known = self.checkpoints.newest_listed();
        let found = completed.iter().map(|completed| completed.id).max();
        match known {
            Some(known) if found < Some(known) => Err(format!(
                "`{known}` has completed, but is not listed any more"
            )),
            _ => Ok(completed),
        }
    }

    /// The delay is over: an attempt starts, or the store is read once more if what to restore is
    /// still in doubt.
    pub(super) fn restart_if_due(&mut self, actions: &mut Vec<JobAction>) {
        if let Phase::Waiting { restart_at } = self.phase
            && restart_at <= self.now.monotonic
        {
            if self.checkpoints.is_in_doubt() {
                self.phase = Phase::Recovering { restart_at };
                actions.push(JobAction::RecoverCompleted);
            } else {
                self.phase = Phase::ReservingAttempt;
                actions.push(JobAction::ReserveAttempt);
            }
        }
    }

    /// Stops the job with this end, unless it has come to another.
    pub(super) fn on_cancel(&mut self, end: &JobEnd, actions: &mut Vec<JobAction>) {
        let cancelled = Next::End(end.clone());
        match &mut self.phase {
            Phase::Created | Phase::Waiting { .. } => self.settle(cancelled, actions),
            Phase::ReservingAttempt | Phase::Recovering { .. } => {
                self.phase = Phase::Cancelling { end: end.clone() };
            }
            Phase::Active(attempt) => {
                let number = attempt.number;
                let how = match end {
                    JobEnd::Suspended => "the job was suspended",
                    _ => "the job was cancelled",
                };
                self.answer_not_stopped(how, actions);
                self.stop_attempt(number, Threads::Running, cancelled, actions);
            }
            Phase::Stopping { next, .. } | Phase::Settling { next } => {
                if matches!(next, Next::Restart { .. }) {
                    *next = cancelled;
                }
            }
            // A job that has done everything is finished rather than cancelled, if that can be
            // noted.
            Phase::MarkingFinished { otherwise, .. } => {
                otherwise.get_or_insert_with(|| end.clone());
            }
            Phase::Cancelling { .. } | Phase::RecordingEnd { .. } | Phase::Ended => {}
        }
    }

    pub(super) fn leave_cancelling(&mut self, actions: &mut Vec<JobAction>) {
        if let Phase::Cancelling { end } = self.take_phase() {
            self.settle(Next::End(end), actions);
        }
    }

    /// Takes the phase out to move parts of it; the caller sets the next one.
    pub(super) fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Ended)
    }
}
