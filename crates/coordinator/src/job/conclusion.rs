//! From the last checkpoint of a job to its end: everything published, the marker written, what
//! isn't kept deleted, and whoever asked for the stop told.

use tidegate_types::message::WriteOutcome;

use crate::action::{JobAction, JobEnd};
use crate::checkpoint::{Stop, answer};
use crate::end::Conclusion;
use crate::failure::{FailureReason, RescaleRefusal, StorageStep};
use crate::lifecycle::{Next, Phase, Threads};
use crate::request::Answer;
use crate::settings::Retention;

use super::Job;

impl Job {
    /// Goes on to the end of the job if its attempt has come to one.
    pub(super) fn conclude_if_over(&mut self, actions: &mut Vec<JobAction>) {
        let Phase::Active(attempt) = &self.phase else {
            return;
        };
        if !self.checkpoints.is_settled() {
            return;
        }
        let number = attempt.number;
        match attempt.end.conclusion() {
            None => {}
            Some(Conclusion::Finished(stop)) => {
                let latest = self.checkpoints.latest();
                let checkpoint = latest
                    .expect("a job is over once a checkpoint has completed")
                    .id;
                self.phase = Phase::MarkingFinished {
                    attempt: number,
                    threads: Threads::Running,
                    stop,
                    otherwise: None,
                };
                actions.push(JobAction::MarkFinished { checkpoint });
            }
            Some(Conclusion::Suspended(stop)) => {
                let next = Next::End(self.stopped(stop, false, actions));
                self.stop_attempt(number, Threads::Running, next, actions);
            }
        }
    }

    pub(super) fn on_marked_finished(
        &mut self,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        let Phase::MarkingFinished {
            attempt,
            threads,
            otherwise,
            ..
        } = &mut self.phase
        else {
            return;
        };
        let (attempt, threads, otherwise) = (*attempt, *threads, otherwise.take());
        match outcome {
            WriteOutcome::Done => {
                let end = match self.take_stop() {
                    Some(stop) => self.stopped(stop, true, actions),
                    None => JobEnd::Finished,
                };
                self.stop_attempt(attempt, threads, Next::End(end), actions);
            }
            // If the marker is there after all, the next attempt ends the same way.
            WriteOutcome::NotDone { cause } | WriteOutcome::Unknown { cause } => {
                if let Some(end) = otherwise {
                    self.answer_not_stopped("the job was told to end", actions);
                    return self.stop_attempt(attempt, threads, Next::End(end), actions);
                }
                let step = StorageStep::MarkFinished;
                let reason = FailureReason::Storage { step, cause };
                self.stop_after_failure(attempt, threads, reason, actions);
            }
        }
    }

    /// Tells whoever asked for the stop that it has worked; returns the end that it is.
    fn stopped(&self, stop: Stop, drained: bool, actions: &mut Vec<JobAction>) -> JobEnd {
        let Stop { summary, request } = stop;
        let savepoint = summary.checkpoint;
        let location = summary.location.clone();
        if let Some(request) = request {
            answer(request, Answer::Completed(summary), actions);
        }
        JobEnd::Stopped {
            savepoint,
            location: location.expect("a savepoint has a folder"),
            drained,
        }
    }

    /// The attempt ends before everything of its stop is committed: tells whoever asked for it.
    pub(super) fn answer_not_stopped(&mut self, cause: &str, actions: &mut Vec<JobAction>) {
        if let Some(stop) = self.take_stop() {
            not_stopped(stop, cause, actions);
        }
    }

    fn take_stop(&mut self) -> Option<Stop> {
        match &mut self.phase {
            Phase::Active(attempt) => attempt.end.take_stop(),
            Phase::MarkingFinished { stop, .. } => stop.take(),
            _ => None,
        }
    }

    /// Ends the job, and deletes what doesn't outlive such an end.
    pub(super) fn end(&mut self, end: JobEnd, actions: &mut Vec<JobAction>) {
        if !self.keeps_checkpoints(&end) {
            self.checkpoints.drop_retained(actions);
        }
        self.not_rescaled(RescaleRefusal::Ended, actions);
        self.end_record(&end, actions);
        self.phase = Phase::Ended;
        actions.push(JobAction::End(end));
    }

    fn keeps_checkpoints(&self, end: &JobEnd) -> bool {
        match end {
            JobEnd::Finished => false,
            JobEnd::Stopped { drained, .. } => !drained,
            JobEnd::Suspended => true,
            JobEnd::Cancelled => self.retention == Retention::RetainOnCancellation,
            // A job that has been changed so that it doesn't fit is no reason to lose its state.
            JobEnd::Failed(failure) => {
                self.retention != Retention::NoRetention
                    || matches!(failure.reason, FailureReason::Restore { .. })
            }
        }
    }
}

/// The savepoint of a stop is durable, but not everything up to it was committed.
pub(super) fn not_stopped(stop: Stop, cause: &str, actions: &mut Vec<JobAction>) {
    if let Some(request) = stop.request {
        let not_stopped = Answer::NotStopped {
            savepoint: stop.summary,
            cause: cause.to_owned(),
        };
        answer(request, not_stopped, actions);
    }
}
