//! From the last checkpoint of a job to its end: everything published, the end recorded, whoever
//! asked for it told, and what isn't kept deleted.
//!
//! An end that isn't recorded is no end: another JobManager that waits for the lead, or whatever
//! starts this one again, would go on where it left off. So a job that has finished is marked, one
//! that somebody ends is recorded as ended (Flink's job result store), and only then whoever asked
//! for it is told.

use tidegate_types::OrderedEnd;
use tidegate_types::message::WriteOutcome;

use crate::action::{JobAction, JobEnd, JobNote};
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
                let next = Next::End(stopped(&stop, false));
                self.stopping = Some(stop);
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
                    Some(stop) => {
                        let end = stopped(&stop, true);
                        answer_stopped(stop, actions);
                        end
                    }
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

    /// Ends the job; first records that it has, if somebody wanted it to.
    pub(super) fn end(&mut self, end: JobEnd, actions: &mut Vec<JobAction>) {
        match ordered(&end) {
            None => self.end_now(end, actions),
            Some(ordered) => {
                self.phase = Phase::RecordingEnd {
                    end: ordered,
                    as_told: end,
                };
                self.record_end(actions);
            }
        }
    }

    /// Ordering: one record at a time. The end takes that of the parallelism away.
    pub(super) fn record_end(&mut self, actions: &mut Vec<JobAction>) {
        if let Phase::RecordingEnd { end, .. } = &self.phase
            && !self.record.is_being_written()
        {
            let end = end.clone();
            actions.push(JobAction::RecordEnd { end });
        }
    }

    /// Whoever waits for the lead knows now that there is nothing to go on with; or may not, and
    /// then whoever asked for the stop is told.
    pub(super) fn on_end_recorded(&mut self, outcome: WriteOutcome, actions: &mut Vec<JobAction>) {
        let Phase::RecordingEnd { as_told, .. } = &self.phase else {
            return;
        };
        let as_told = as_told.clone();
        let stop = self.stopping.take();
        match outcome {
            WriteOutcome::Done => {
                if let Some(stop) = stop {
                    answer_stopped(stop, actions);
                }
            }
            WriteOutcome::NotDone { cause } | WriteOutcome::Unknown { cause } => {
                if let Some(stop) = stop {
                    let cause = format!("that the job has ended was not recorded: {cause}");
                    not_stopped(stop, &cause, actions);
                }
                actions.push(JobAction::Note(JobNote::EndNotRecorded { cause }));
            }
        }
        self.end_now(as_told, actions);
    }

    /// Deletes what doesn't outlive such an end.
    fn end_now(&mut self, end: JobEnd, actions: &mut Vec<JobAction>) {
        if !self.keeps_checkpoints(&end) {
            self.checkpoints.drop_retained(actions);
        }
        self.not_rescaled(RescaleRefusal::Ended, actions);
        self.leave_record(&end, actions);
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

fn stopped(stop: &Stop, drained: bool) -> JobEnd {
    let location = stop.summary.location.clone();
    JobEnd::Stopped {
        savepoint: stop.summary.checkpoint,
        location: location.expect("a savepoint has a folder"),
        drained,
    }
}

/// The end that is to be recorded. A job that has finished is marked so, whoever drained it; and
/// one that has failed may do better elsewhere.
fn ordered(end: &JobEnd) -> Option<OrderedEnd> {
    match end {
        JobEnd::Stopped {
            location,
            drained: false,
            ..
        } => Some(OrderedEnd::Stopped {
            savepoint: location.clone(),
        }),
        JobEnd::Cancelled => Some(OrderedEnd::Cancelled),
        JobEnd::Finished
        | JobEnd::Stopped { drained: true, .. }
        | JobEnd::Suspended
        | JobEnd::Failed(_) => None,
    }
}

/// Everything up to the savepoint is committed, and nobody goes on by mistake.
fn answer_stopped(stop: Stop, actions: &mut Vec<JobAction>) {
    if let Some(request) = stop.request {
        answer(request, Answer::Completed(stop.summary), actions);
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
