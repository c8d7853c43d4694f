//! A job: a series of attempts, the checkpoints that connect them, and an end.
//!
//! [`Job`] routes events to the parts that decide (checkpoints, the restart strategy, the way to
//! the end) and turns what they signal into a change of phase. It knows neither how a checkpoint
//! comes about nor when a restart is allowed.

mod asked;
mod between;
mod conclusion;
mod error;
mod rescale;

pub use error::JobError;

use asked::Record;
use conclusion::not_stopped;
use rescale::Elastic;

use std::sync::Arc;

use tidegate_types::graph::JobGraph;
use tidegate_types::message::{AddressedReport, Report, SubtaskFailure, WriteOutcome};
use tidegate_types::{AttemptNumber, CompletedCheckpoint, JobId, Millis, Scaling, SubtaskId};

use crate::action::{JobAction, JobEnd};
use crate::checkpoint::{Acknowledgement, CheckpointCoordinator, Signal, Stop};
use crate::event::{JobEvent, Now, Recovery};
use crate::failure::{FailureReason, StorageStep, TriggerRefusal};
use crate::lifecycle::{Attempt, Next, Phase};
use crate::request::Request;
use crate::restart::Restarts;
use crate::restore::{plan_restore, refuse_drained};
use crate::settings::{JobSettings, Retention};
use crate::statistics::{RestoredSummary, Statistics};

/// All decisions of one job. Performs no IO.
///
/// Drive it with [`step`](Self::step): one event in, actions out, in the order in which they must
/// be issued; outcomes come back as events. One `Job` at a time may exist for a namespace: it
/// takes for granted that nobody else writes there.
///
/// ```
/// use tidegate_coordinator::{Job, JobAction, JobEvent, JobSettings, Now, Recovery};
/// use tidegate_types::graph::{JobGraph, OperatorRole, OperatorSpec};
/// use tidegate_types::message::WriteOutcome;
/// use tidegate_types::{AttemptNumber, JobId, MaxParallelism, OperatorUid};
///
/// let graph = JobGraph {
///     operators: vec![OperatorSpec {
///         uid: OperatorUid("numbers".to_owned()),
///         parallelism: 1,
///         max_parallelism: MaxParallelism::derive(1),
///         max_parallelism_derived: true,
///         role: OperatorRole::Enumerator,
///     }],
///     edges: vec![],
/// };
/// let mut job = Job::new(JobId(1), graph, JobSettings::default(), Recovery::default())?;
///
/// let mut actions = Vec::new();
/// job.step(Now::default(), JobEvent::Start, &mut actions);
/// assert_eq!(actions, [JobAction::ReserveAttempt]);
///
/// // The driver makes the number durable, says so, and is told what to do next.
/// actions.clear();
/// let attempt = AttemptNumber(1);
/// let outcome = WriteOutcome::Done;
/// job.step(Now::default(), JobEvent::AttemptReserved { attempt, outcome }, &mut actions);
/// assert!(matches!(actions[..], [JobAction::StartAttempt { restore: None, .. }]));
/// # Ok::<(), tidegate_coordinator::JobError>(())
/// ```
#[derive(Debug)]
pub struct Job {
    graph: Arc<JobGraph>,
    allow_non_restored_state: bool,
    retention: Retention,
    now: Now,
    phase: Phase,
    checkpoints: CheckpointCoordinator,
    restarts: Restarts,
    elastic: Elastic,
    record: Record,
    /// Whoever stops the job, until it is recorded that it has ended.
    stopping: Option<Stop>,
    /// The largest attempt number ever seen.
    attempt_max: AttemptNumber,
    /// Attempts above this number are of this `Job`; what those below write is not its business.
    attempt_before: AttemptNumber,
}

impl Job {
    /// Makes a job that waits for [`JobEvent::Start`].
    ///
    /// # Errors
    /// If the graph or the settings are invalid, if a checkpoint is of another job, or if the
    /// latest doesn't fit the graph. Nothing has been started or changed then.
    pub fn new(
        job: JobId,
        graph: JobGraph,
        settings: JobSettings,
        recovery: Recovery,
    ) -> Result<Self, JobError> {
        let Recovery {
            completed: mut recovered,
            origin,
            facts,
        } = recovery;
        graph.validate().map_err(JobError::Graph)?;
        settings.validate().map_err(JobError::Settings)?;
        let foreign =
            |completed: &&CompletedCheckpoint| completed.job != job && completed.location.is_none();
        if let Some(foreign) = recovered.iter().find(foreign) {
            return Err(JobError::ForeignCheckpoint {
                checkpoint: foreign.id,
                found: foreign.job,
                job,
            });
        }
        recovered.sort_by_key(|completed| completed.id);
        recovered.dedup_by_key(|completed| completed.id);
        // Another job, whose checkpoint was claimed, counts its attempts by itself.
        let own = recovered.iter().filter(|completed| completed.job == job);
        let attempts = own.map(|completed| completed.attempt);
        let attempt_max = attempts.fold(facts.attempt_max, AttemptNumber::max);
        let latest = recovered.last().or(origin.as_ref());
        latest
            .map_or(Ok(()), |latest| refuse_drained(job, latest))
            .map_err(JobError::Restore)?;
        plan_restore(&graph, latest, settings.allow_non_restored_state)
            .map_err(JobError::Restore)?;
        let graph = Arc::new(graph);
        Ok(Job {
            allow_non_restored_state: settings.allow_non_restored_state,
            retention: settings.checkpoints.retention,
            now: Now::default(),
            phase: Phase::Created,
            checkpoints: CheckpointCoordinator::new(
                job,
                graph.clone(),
                settings.checkpoints,
                recovered,
                origin,
                facts.checkpoint_max,
            ),
            graph,
            restarts: Restarts::new(settings.restart),
            elastic: Elastic::new(Scaling::default(), settings.elastic),
            record: Record::found(facts.asked),
            stopping: None,
            attempt_max,
            attempt_before: attempt_max,
        })
    }

    /// Says what depends on how large the job is run. Without it no operator's parallelism changes.
    /// If a parallelism is recorded that somebody asked for when the job had been started as it is
    /// now, the first attempt has that.
    #[must_use]
    pub fn with_scaling(mut self, scaling: Scaling) -> Self {
        let recorded = self.record.scale(&scaling);
        self.elastic.begin(scaling, recorded);
        self
    }

    /// The graph of the attempt that runs, or of the last one.
    pub fn graph(&self) -> &Arc<JobGraph> {
        &self.graph
    }

    /// Takes one event and appends what to do to `actions`, in the order in which it must be
    /// issued. After [`JobAction::End`] nothing is appended any more.
    pub fn step(&mut self, now: Now, event: JobEvent, actions: &mut Vec<JobAction>) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        self.now = Now {
            monotonic: now.monotonic.max(self.now.monotonic),
            wall: now.wall,
        };
        self.checkpoints.advance(self.now, actions);
        self.react(actions);
        self.on_event(event, actions);
        self.react(actions);
        self.release_bases(actions);
        self.conclude_if_over(actions);
        self.restart_if_due(actions);
        self.adapt(actions);
        self.checkpoints.trigger_due(actions);
        self.release_bases(actions);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// When to call [`step`](Self::step) with [`JobEvent::Tick`] if nothing happens before; always
    /// later than the last step.
    pub fn next_deadline(&self) -> Option<Millis> {
        match self.phase {
            Phase::Ended => None,
            Phase::Waiting { restart_at } => Some(restart_at),
            _ => [self.checkpoints.deadline(), self.adapt_deadline()]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Counters and distributions since this `Job` was made.
    pub fn statistics(&self) -> &Statistics {
        self.checkpoints.statistics()
    }

    /// The checkpoint that a restart would restore.
    pub fn latest_completed(&self) -> Option<&CompletedCheckpoint> {
        self.checkpoints.latest()
    }

    /// What keeps periodic checkpoints from being triggered at the moment of the last step; `None`
    /// if nothing but the interval does.
    pub fn held_back(&self) -> Option<TriggerRefusal> {
        self.checkpoints.held_back()
    }

    /// Asserts what must hold between steps. Called after every step of a debug build.
    ///
    /// # Panics
    /// If something doesn't hold, which is a bug of this crate.
    pub fn check_invariants(&self) {
        self.checkpoints.check_invariants();
        match &self.phase {
            Phase::Active(attempt) => assert_eq!(attempt.number, self.attempt_max),
            Phase::Settling { .. } => {
                let undecided = !self.checkpoints.is_settled() || self.checkpoints.is_preparing();
                assert!(undecided, "there is something to wait for");
            }
            Phase::Waiting { restart_at } => {
                assert!(
                    *restart_at > self.now.monotonic,
                    "a due restart is under way"
                );
                assert!(
                    self.checkpoints.is_settled(),
                    "a restart knows its checkpoint"
                );
            }
            _ => {}
        }
    }

    fn on_event(&mut self, event: JobEvent, actions: &mut Vec<JobAction>) {
        match event {
            JobEvent::Tick => {}
            JobEvent::Start => self.on_start(actions),
            JobEvent::Report(report) => self.on_report(report, actions),
            JobEvent::AttemptReserved { attempt, outcome } => {
                self.on_attempt_reserved(attempt, outcome, actions);
            }
            JobEvent::AttemptLaunchFailed { attempt, cause } => {
                self.on_attempt_failed(attempt, FailureReason::Launch { cause }, actions);
            }
            JobEvent::AttemptStopped { attempt } => self.on_attempt_stopped(attempt, actions),
            JobEvent::IdsReserved { up_to, outcome } => {
                self.checkpoints.on_ids_reserved(up_to, outcome, actions);
            }
            JobEvent::MetadataPublished {
                checkpoint,
                outcome,
            } => {
                self.checkpoints
                    .on_metadata_published(checkpoint, outcome, actions);
                self.react(actions);
                self.leave_settling(actions);
            }
            JobEvent::PointerStored {
                checkpoint,
                outcome,
            } => {
                self.checkpoints
                    .on_pointer_stored(checkpoint, outcome, actions);
                self.react(actions);
                self.leave_settling(actions);
            }
            JobEvent::Recovered { completed } => self.on_recovered(completed, actions),
            JobEvent::MarkedFinished { outcome } => self.on_marked_finished(outcome, actions),
            JobEvent::Requested {
                request,
                what: Request::Rescale { parallelism },
            } => self.on_rescale_requested(request, parallelism, actions),
            JobEvent::EndRecorded { outcome } => self.on_end_recorded(outcome, actions),
            JobEvent::ParallelismRecorded { outcome } => {
                self.on_parallelism_recorded(outcome, actions);
            }
            JobEvent::Slots { slots } => self.on_slots(slots),
            JobEvent::Requested { request, what } => {
                self.checkpoints.on_requested(request, what, actions);
            }
            JobEvent::SavepointPrepared {
                checkpoint,
                outcome,
            } => {
                self.checkpoints
                    .on_savepoint_prepared(checkpoint, outcome, actions);
                self.leave_settling(actions);
            }
            JobEvent::Deleted { checkpoint } => self.checkpoints.on_deleted(checkpoint),
            JobEvent::CancelRequested => self.on_cancel(&JobEnd::Cancelled, actions),
            JobEvent::SuspendRequested => self.on_cancel(&JobEnd::Suspended, actions),
        }
    }

    fn on_start(&mut self, actions: &mut Vec<JobAction>) {
        if matches!(self.phase, Phase::Created) {
            self.forget_other_parallelism(actions);
            self.phase = Phase::ReservingAttempt;
            actions.push(JobAction::ReserveAttempt);
        }
    }

    fn on_attempt_reserved(
        &mut self,
        attempt: AttemptNumber,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        match self.phase {
            Phase::ReservingAttempt => {}
            Phase::Cancelling { .. } => return self.leave_cancelling(actions),
            _ => return,
        }
        let cause = match outcome {
            WriteOutcome::Done if attempt > self.attempt_max => {
                return self.start_attempt(attempt, actions);
            }
            WriteOutcome::Done => {
                let max = self.attempt_max;
                format!("`{attempt}` was reserved, but `{max}` is in use already")
            }
            // A number that was reserved all the same is skipped.
            WriteOutcome::NotDone { cause } | WriteOutcome::Unknown { cause } => cause,
        };
        let step = StorageStep::ReserveAttempt;
        let reason = FailureReason::Storage { step, cause };
        let next = self.after_failure(None, reason, actions);
        self.settle(next, actions);
    }

    fn start_attempt(&mut self, attempt: AttemptNumber, actions: &mut Vec<JobAction>) {
        self.attempt_max = attempt;
        match self.plan_attempt(actions) {
            Ok(plan) => {
                let latest = self.checkpoints.latest();
                let restore = latest.map(|checkpoint| checkpoint.id);
                let restored = latest.map(|from| RestoredSummary::new(from, self.now.wall));
                self.checkpoints.statistics_mut().on_restored(restored);
                self.phase = Phase::Active(Attempt::new(attempt, &self.graph, self.now.monotonic));
                let plan = Box::new(plan);
                actions.push(JobAction::StartAttempt {
                    attempt,
                    restore,
                    scale: self.elastic.scale(),
                    plan,
                });
            }
            // Another attempt would meet the same checkpoint.
            Err(cause) => {
                let failure = self.failure(None, FailureReason::Restore { cause });
                self.settle(Next::End(JobEnd::Failed(failure)), actions);
            }
        }
    }

    fn on_report(&mut self, report: AddressedReport, actions: &mut Vec<JobAction>) {
        let number = report.attempt;
        if number <= self.attempt_before || number > self.attempt_max {
            // Of an attempt that this job didn't start: whatever it wrote belongs to others.
            return;
        }
        match report.report {
            Report::Acknowledged {
                checkpoint,
                subtask,
                state,
                metrics,
            } => {
                let ack = Acknowledgement {
                    attempt: number,
                    checkpoint,
                    subtask,
                    state,
                    metrics,
                };
                self.checkpoints.on_acknowledged(ack, actions);
            }
            Report::Failed(failure) => {
                let reason = self.failure_reason(failure);
                self.on_attempt_failed(number, reason, actions);
            }
            report => self.on_active_report(number, report, actions),
        }
    }

    /// Takes reports that mean nothing once their attempt is over.
    fn on_active_report(
        &mut self,
        number: AttemptNumber,
        report: Report,
        actions: &mut Vec<JobAction>,
    ) {
        let Phase::Active(attempt) = &mut self.phase else {
            return;
        };
        if attempt.number != number {
            return;
        }
        match report {
            Report::Running { subtask } => {
                if attempt.starting.remove(&subtask) && attempt.runs() {
                    self.checkpoints.start(number, actions);
                    if attempt.end.sources_ended() {
                        self.checkpoints.on_sources_ended();
                    }
                    self.on_all_running(actions);
                }
            }
            Report::Declined {
                checkpoint,
                subtask,
                reason,
            } => self
                .checkpoints
                .on_declined(checkpoint, subtask, reason, actions),
            Report::SourceEnded { subtask } => {
                let last = self.checkpoints.last_id();
                if attempt.end.on_source_ended(subtask, last) && attempt.starting.is_empty() {
                    self.checkpoints.on_sources_ended();
                }
            }
            Report::Committed {
                checkpoint,
                subtask,
            } => attempt.end.on_committed(subtask, checkpoint),
            Report::Restored(files) => {
                self.checkpoints.statistics_mut().restored_files += files;
            }
            Report::Acknowledged { .. } | Report::Failed(_) => {
                unreachable!("handled for attempts that are over as well")
            }
        }
    }

    fn failure_reason(&self, failure: SubtaskFailure) -> FailureReason {
        let cause = failure.cause;
        match failure.subtask {
            Some(SubtaskId { operator, index })
                if self.graph.operators.len() > operator.0 as usize =>
            {
                FailureReason::Subtask {
                    operator: self.graph.operator(operator).uid.clone(),
                    index,
                    cause,
                }
            }
            _ => FailureReason::Attempt { cause },
        }
    }

    /// Deletes what nothing under way rests on any more, unless everything is over.
    fn release_bases(&mut self, actions: &mut Vec<JobAction>) {
        if !matches!(self.phase, Phase::Ended) {
            self.checkpoints.release_bases(actions);
        }
    }

    /// Reacts to what the checkpoints have signalled.
    fn react(&mut self, actions: &mut Vec<JobAction>) {
        for signal in self.checkpoints.take_signals() {
            let Phase::Active(attempt) = &mut self.phase else {
                if let Signal::Stopped(stop) = signal {
                    not_stopped(stop, "the attempt had ended before", actions);
                }
                continue;
            };
            let number = attempt.number;
            match signal {
                Signal::Completed(checkpoint) => match attempt.end.on_completed(checkpoint) {
                    true => self.checkpoints.wind_down(actions),
                    false => self.rescale_if_checkpointed(actions),
                },
                Signal::Stopped(stop) => {
                    attempt.end.on_stopped(stop);
                    self.checkpoints.wind_down(actions);
                }
                Signal::OwnAborted { checkpoint, reason } => {
                    self.on_own_aborted(checkpoint, &reason, actions);
                }
                Signal::Fail(reason) => self.on_attempt_failed(number, reason, actions),
            }
        }
        // Stopping an attempt aborts checkpoints, which is no failure of theirs.
        assert_eq!(
            self.checkpoints.take_signals(),
            [],
            "aborting for good signals nothing"
        );
    }
}

#[cfg(test)]
mod tests;
