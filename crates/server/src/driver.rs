//! The loop around the coordinator: wait, step, carry out, hand back.
//!
//! Storage runs on a Tokio runtime beside the loop, workers on their own threads; all of them
//! answer through one queue. The loop itself never blocks on either.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use tidegate_coordinator::{
    AbortReason, Job, JobAction, JobEnd, JobEvent, JobNote, TriggerRefusal,
};
use tidegate_runtime::{Attempt, AttemptContext, AttemptMetrics, JobPlan};
use tidegate_storage::JobStore;
use tidegate_types::graph::OperatorRole;
use tidegate_types::{AlignmentMode, AttemptNumber, CheckpointId, ErrorChain, RestorePlan};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::client::Shared;
use crate::clock::Clock;
use crate::files::StoredFiles;
use crate::options::JobOptions;
use crate::progress::{Observer, Progress};
use crate::storage_actions::StorageActions;
use crate::waiting::{Observed, WaitingFor, Watch};

/// How often the observer hears of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// An attempt that takes longer to stop is reported.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How the attempts of a job run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptOptions {
    mode: AlignmentMode,
    buffer_timeout: Duration,
    serialize: bool,
    checkpoint_timeout: Duration,
}

impl AttemptOptions {
    pub(crate) fn new(options: &JobOptions) -> Self {
        AttemptOptions {
            mode: options.mode,
            buffer_timeout: options.buffer_timeout,
            serialize: options.serialize,
            checkpoint_timeout: options.settings.checkpoints.timeout,
        }
    }
}

struct Running {
    attempt: Attempt,
    observed: Observed,
}

impl Running {
    fn number(&self) -> AttemptNumber {
        self.observed.attempt
    }
}

/// Drives one job to its end.
pub(crate) struct Driver {
    job: Job,
    plan: Arc<JobPlan>,
    store: JobStore,
    storage: StorageActions,
    options: AttemptOptions,
    observer: Box<dyn Observer>,
    clock: Clock,
    runtime: Handle,
    events: Receiver<JobEvent>,
    sender: Sender<JobEvent>,
    shared: Arc<Shared>,
    watch: Watch,
    tasks: JoinSet<()>,
    running: Option<Running>,
    /// Whether clients have been told that every subtask runs.
    told_running: bool,
    /// The last attempt that was asked to stop.
    stopping: Option<AttemptNumber>,
    records_before: u64,
}

/// What a driver is made of.
pub(crate) struct Setup {
    pub(crate) job: Job,
    pub(crate) plan: Arc<JobPlan>,
    pub(crate) store: JobStore,
    pub(crate) options: AttemptOptions,
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
            watch: Watch::new(setup.options.checkpoint_timeout),
            options: setup.options,
            observer: setup.observer,
            clock: setup.clock,
            runtime: setup.runtime,
            events: setup.events,
            sender: setup.sender,
            shared: setup.shared,
            tasks: JoinSet::new(),
            running: None,
            told_running: false,
            stopping: None,
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
                    self.settle();
                    return (end, self.records());
                }
            }
            self.tell_whether_running();
            if self.clock.elapsed() >= progress_due {
                progress_due = self.clock.elapsed() + PROGRESS_INTERVAL;
                self.show_progress();
            }
            event = self.wait(progress_due);
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
        let timeout = deadline.map_or(progress, |deadline| deadline.min(progress));
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
                plan,
            } => {
                self.start(attempt, restore, *plan);
            }
            JobAction::StopAttempt { attempt } => self.stop(attempt),
            JobAction::Notify {
                attempt,
                notice,
                to: _,
            } => {
                // Which subtasks a notice concerns follows from the notice itself.
                if let Some(running) = self.running.as_ref().filter(|r| r.number() == attempt) {
                    running.attempt.notify(notice);
                }
            }
            JobAction::Note(note) => {
                log(&note);
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

    fn start(
        &mut self,
        number: AttemptNumber,
        restored: Option<CheckpointId>,
        restore: RestorePlan,
    ) {
        let statistics = self.job.statistics();
        self.observer
            .on_attempt(statistics.latest_restored.as_ref());
        let metrics = AttemptMetrics::new(self.plan.graph());
        let reports = self.sender.clone();
        let context = AttemptContext {
            number,
            restored,
            restore,
            files: Arc::new(StoredFiles {
                store: self.store.clone(),
                attempt: number,
                runtime: self.runtime.clone(),
            }),
            reports: Arc::new(move |report| {
                let _ = reports.send(JobEvent::Report(report));
            }),
            metrics: metrics.clone(),
            mode: self.options.mode,
            buffer_timeout: self.options.buffer_timeout,
            serialize: self.options.serialize,
        };
        match Attempt::start(Arc::clone(&self.plan), context) {
            Ok(attempt) => {
                let observed = Observed {
                    attempt: number,
                    metrics,
                };
                self.shared.observe(Some(observed.clone()));
                self.running = Some(Running { attempt, observed });
            }
            Err(error) => {
                let cause = ErrorChain(&error).to_string();
                let _ = self.sender.send(JobEvent::AttemptLaunchFailed {
                    attempt: number,
                    cause,
                });
            }
        }
    }

    /// Joining waits for user code to return, so it has a thread of its own. Asked again, it
    /// doesn't answer before that thread does.
    fn stop(&mut self, attempt: AttemptNumber) {
        if self.stopping == Some(attempt) {
            return;
        }
        self.stopping = Some(attempt);
        let running = self.running.take_if(|running| running.number() == attempt);
        if let Some(running) = &running {
            self.records_before += emitted(&self.plan, &running.observed.metrics);
            self.shared.observe(None);
        }
        let sender = self.sender.clone();
        let join = move || {
            if let Some(running) = running {
                running.attempt.stop();
            }
            let _ = sender.send(JobEvent::AttemptStopped { attempt });
        };
        let mut joined = self.runtime.spawn_blocking(join);
        let watched = async move {
            if tokio::time::timeout(STOP_PATIENCE, &mut joined)
                .await
                .is_err()
            {
                tracing::warn!(
                    %attempt,
                    "the attempt has not stopped after {STOP_PATIENCE:?}: code of the job, or the \
                     storage, doesn't return; the job goes on when it does"
                );
                let _ = joined.await;
            }
        };
        self.tasks.spawn_on(watched, &self.runtime);
    }

    fn records(&self) -> u64 {
        let metrics = self.running.as_ref().map(|r| &r.observed.metrics);
        self.records_before + metrics.map_or(0, |metrics| emitted(&self.plan, metrics))
    }

    fn show_progress(&mut self) {
        let statistics = self.job.statistics();
        let now = self.clock.now().monotonic;
        let observed = self.running.as_ref().map(|running| &running.observed);
        self.watch
            .look(statistics, now, self.plan.graph(), observed);
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
                let observed = self.running.as_ref().map(|running| &running.observed);
                let waiting = WaitingFor::new(entry, now, self.plan.graph(), observed);
                tracing::warn!(%checkpoint, "checkpoint expired: {waiting}");
            }
        }
    }

    /// Lets everything end that was issued before the job's end.
    fn settle(&mut self) {
        if let Some(running) = self.running.take() {
            self.records_before += emitted(&self.plan, &running.observed.metrics);
            self.shared.observe(None);
            running.attempt.stop();
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        // A task that panicked has given its outcome, or nobody waits for one.
        self.runtime
            .block_on(async { while tasks.join_next().await.is_some() {} });
        self.show_progress();
    }
}

/// Records emitted by the job's sources in one attempt.
fn emitted(plan: &JobPlan, metrics: &AttemptMetrics) -> u64 {
    let readers = plan
        .graph()
        .subtasks_where(|op| op.role == OperatorRole::Reader);
    readers
        .into_iter()
        .map(|subtask| metrics.records_out(subtask))
        .sum()
}

fn log(note: &JobNote) {
    match note {
        JobNote::CheckpointCompleted {
            checkpoint,
            bytes,
            duration,
            ..
        } => {
            tracing::debug!(%checkpoint, bytes, ?duration, "checkpoint completed");
        }
        JobNote::CheckpointAborted {
            checkpoint, reason, ..
        } => {
            tracing::warn!(%checkpoint, %reason, "checkpoint aborted");
        }
        JobNote::TriggerFailed { cause } => {
            tracing::warn!(cause, "no checkpoint could be triggered");
        }
        JobNote::AttemptFailed {
            attempt,
            reason,
            decision,
        } => {
            let attempt = attempt.map(|attempt| attempt.to_string());
            tracing::info!(attempt, %reason, %decision, "attempt failed");
        }
    }
}
