//! The loop around the coordinator: wait, step, carry out, hand back.
//!
//! Storage runs on a Tokio runtime beside the loop, workers on their own threads; all of them
//! answer through one queue. The loop itself never blocks on either.

mod attempts;
mod execution;
mod in_process;
mod injected;
mod log;
mod recovery;

pub(crate) use execution::{Events, Execution, Launch};
pub(crate) use in_process::{AttemptOptions, InProcess};
pub(crate) use recovery::{look_interval, takes_records};

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use tidegate_coordinator::{
    AbortReason, Job, JobAction, JobEnd, JobEvent, JobNote, TriggerRefusal,
};
use tidegate_runtime::JobPlan;
use tidegate_storage::JobStore;
use tidegate_types::message::{AddressedReport, Report};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::client::Shared;
use crate::clock::Clock;
use crate::progress::{Observer, Progress};
use crate::storage_actions::StorageActions;
use crate::waiting::{Observed, WaitingFor, Watch};

use log::{log, log_milestone};
use recovery::{Recovery, processes};

/// How often the observer hears of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Drives one job to its end.
pub(crate) struct Driver {
    job: Job,
    /// At the scale of the attempt that runs, or of the last one.
    plan: Arc<JobPlan>,
    store: JobStore,
    storage: StorageActions,
    execution: Box<dyn Execution>,
    observer: Box<dyn Observer>,
    clock: Clock,
    runtime: Handle,
    events: Receiver<JobEvent>,
    sender: Sender<JobEvent>,
    shared: Arc<Shared>,
    watch: Watch,
    tasks: JoinSet<()>,
    /// The attempt that runs.
    observed: Option<Observed>,
    /// Whether clients have been told that every subtask runs.
    told_running: bool,
    recovery: Recovery,
    records_before: u64,
}

/// What a driver is made of.
pub(crate) struct Setup {
    pub(crate) job: Job,
    pub(crate) plan: Arc<JobPlan>,
    pub(crate) store: JobStore,
    pub(crate) execution: Box<dyn Execution>,
    pub(crate) checkpoint_timeout: Duration,
    pub(crate) runtime: Handle,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) events: Receiver<JobEvent>,
    /// The other end of `events`.
    pub(crate) sender: Sender<JobEvent>,
    pub(crate) clock: Clock,
    pub(crate) shared: Arc<Shared>,
}

/// Runs what drives a job, which blocks.
///
/// # Errors
/// If the operating system refuses a thread.
pub(crate) fn on_own_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("job driver".to_owned());
    thread.spawn(run).map(drop)
}

impl Driver {
    pub(crate) fn new(setup: Setup) -> Self {
        Driver {
            job: setup.job,
            plan: setup.plan,
            storage: StorageActions::new(setup.store.clone()),
            store: setup.store,
            watch: Watch::new(setup.checkpoint_timeout),
            execution: setup.execution,
            observer: setup.observer,
            clock: setup.clock,
            runtime: setup.runtime,
            events: setup.events,
            sender: setup.sender,
            shared: setup.shared,
            tasks: JoinSet::new(),
            observed: None,
            told_running: false,
            recovery: Recovery::default(),
            records_before: 0,
        }
    }

    /// Returns how the job ended, and how many records its sources emitted.
    pub(crate) fn run(&mut self) -> (JobEnd, u64) {
        let mut event = JobEvent::Start;
        let mut actions = Vec::new();
        let mut progress_due = self.clock.elapsed() + PROGRESS_INTERVAL;
        loop {
            self.job.step(self.clock.now(), event, &mut actions);
            // Ordering: before the subtasks are told to give it up.
            self.explain_expired(&actions);
            for action in actions.drain(..) {
                if let Some(end) = self.perform(action) {
                    // Ordering: whoever asks for something now is told before the listener closes.
                    self.shared.close_requests();
                    self.settle(end != JobEnd::Suspended);
                    return (end, self.records());
                }
            }
            self.tell_whether_running();
            self.look_for_first_record();
            if self.clock.elapsed() >= progress_due {
                progress_due = self.clock.elapsed() + PROGRESS_INTERVAL;
                self.show_progress();
            }
            event = self.wait(progress_due);
            self.notice_commit(&event);
        }
    }

    pub(crate) fn store(&self) -> &JobStore {
        &self.store
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    fn wait(&self, progress_due: Duration) -> JobEvent {
        let deadline = self
            .job
            .next_deadline()
            .map(|deadline| self.clock.until(deadline));
        let progress = progress_due.saturating_sub(self.clock.elapsed());
        let look = self.recovery.until_look(self.clock.elapsed());
        let timeout = [deadline, look]
            .into_iter()
            .flatten()
            .fold(progress, Duration::min);
        match self.events.recv_timeout(timeout) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => JobEvent::Tick,
        }
    }

    fn perform(&mut self, action: JobAction) -> Option<JobEnd> {
        match action {
            JobAction::End(end) => return Some(end),
            JobAction::StartAttempt {
                attempt,
                restore,
                scale,
                plan,
            } => self.start(attempt, (restore, *plan), scale),
            JobAction::StopAttempt { attempt } => self.stop(attempt),
            JobAction::Notify {
                attempt,
                notice,
                to,
            } => self.execution.notify(attempt, notice, to),
            JobAction::Note(note) => {
                log(&note);
                if let JobNote::AttemptFailed { .. } = note {
                    self.recovery.on_failure(self.clock.elapsed());
                }
                self.observer.on_note(&note);
            }
            JobAction::Answer { request, answer } => {
                tracing::debug!(%request, ?answer, "answered");
                self.shared.publish(self.job.statistics());
                self.shared.answer(request, *answer);
            }
            storage => self.spawn(storage),
        }
        None
    }

    /// Storage actions run side by side; what is to follow one waits for its event.
    fn spawn(&mut self, action: JobAction) {
        while self.tasks.try_join_next().is_some() {}
        let outcome = self.storage.issue(action);
        let sender = self.sender.clone();
        let task = async move {
            if let Some(event) = outcome.await {
                // The loop is gone only when nobody waits for the outcome any more.
                let _ = sender.send(event);
            }
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    fn show_progress(&mut self) {
        let statistics = self.job.statistics();
        let now = self.clock.now().monotonic;
        self.watch
            .look(statistics, now, self.plan.graph(), self.observed.as_ref());
        self.shared.publish(statistics);
        let progress = Progress {
            records: self.records(),
            statistics,
            waiting_for: self.watch.current(),
        };
        self.observer.on_progress(progress);
    }

    fn tell_whether_running(&mut self) {
        let running = self.job.held_back() != Some(TriggerRefusal::NotRunning);
        if running != self.told_running {
            self.told_running = running;
            self.shared.publish(self.job.statistics());
            self.shared.set_running(running);
            if running {
                log_milestone(self.recovery.on_running(self.clock.elapsed()));
            }
        }
    }

    fn look_for_first_record(&mut self) {
        let now = self.clock.elapsed();
        if !self.recovery.look_due(now) {
            return;
        }
        let metrics = self.observed.as_ref().map(|observed| &observed.metrics);
        if metrics.is_some_and(|metrics| processes(self.plan.graph(), metrics)) {
            log_milestone(self.recovery.on_record(now));
        }
    }

    fn notice_commit(&mut self, event: &JobEvent) {
        if let JobEvent::Report(AddressedReport {
            attempt,
            report: Report::Committed { .. },
        }) = event
        {
            let now = self.clock.elapsed();
            log_milestone(self.recovery.on_committed(now, *attempt));
        }
    }

    /// Says what checkpoints that have timed out were waiting for.
    fn explain_expired(&self, actions: &[JobAction]) {
        for action in actions {
            if let JobAction::Note(JobNote::CheckpointAborted {
                checkpoint,
                reason: AbortReason::Expired { .. },
                ..
            }) = action
                && let Some(entry) = self.job.statistics().checkpoint(*checkpoint)
            {
                let now = self.clock.now().monotonic;
                let graph = self.plan.graph();
                let waiting = WaitingFor::new(entry, now, graph, self.observed.as_ref());
                tracing::warn!(%checkpoint, "checkpoint expired: {waiting}");
            }
        }
    }

    /// Lets everything end that was issued before the job's end.
    fn settle(&mut self, over: bool) {
        if let Some(observed) = self.observed.take() {
            self.take_leave_of(&observed);
        }
        self.execution.settle(over);
        let mut tasks = std::mem::take(&mut self.tasks);
        // A task that panicked has given its outcome, or nobody waits for one.
        self.runtime
            .block_on(async { while tasks.join_next().await.is_some() {} });
        self.show_progress();
    }
}
