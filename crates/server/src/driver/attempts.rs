//! Starting and stopping attempts, and what is counted of them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_coordinator::JobEvent;
use tidegate_runtime::{Attempt, AttemptContext, AttemptMetrics, Clock, JobPlan, StatePlacement};
use tidegate_types::graph::OperatorRole;
use tidegate_types::{AlignmentMode, AttemptNumber, CheckpointId, ErrorChain, RestorePlan};

use crate::files::StoredFiles;
use crate::options::JobOptions;
use crate::waiting::Observed;

use super::Driver;
use super::injected::Injector;

/// An attempt that takes longer to stop is reported.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How the attempts of a job run.
pub(crate) struct AttemptOptions {
    pub(super) placement: StatePlacement,
    pub(super) mode: AlignmentMode,
    pub(super) buffer_timeout: Duration,
    pub(super) serialize: bool,
    pub(super) checkpoint_timeout: Duration,
    pub(super) injector: Injector,
}

impl AttemptOptions {
    pub(crate) fn new(options: &JobOptions) -> Self {
        AttemptOptions {
            placement: options.placement,
            mode: options.mode,
            buffer_timeout: options.buffer_timeout,
            serialize: options.serialize,
            checkpoint_timeout: options.settings.checkpoints.timeout,
            injector: Injector::new(options.injected.as_ref()),
        }
    }
}

/// The attempt that runs.
pub(super) struct Running {
    pub(super) attempt: Attempt,
    pub(super) observed: Observed,
}

impl Running {
    pub(super) fn number(&self) -> AttemptNumber {
        self.observed.attempt
    }
}

impl Driver {
    pub(super) fn start(
        &mut self,
        number: AttemptNumber,
        restored: Option<CheckpointId>,
        restore: RestorePlan,
    ) {
        let statistics = self.job.statistics();
        self.observer
            .on_attempt(statistics.latest_restored.as_ref());
        let metrics = AttemptMetrics::new(self.plan.graph());
        let sender = self.sender.clone();
        let reports = Arc::new(move |report| {
            // The loop is gone only when nobody waits for the outcome any more.
            let _ = sender.send(JobEvent::Report(report));
        });
        let context = AttemptContext {
            number,
            restored,
            restore: restore.into(),
            cluster: None,
            files: Arc::new(StoredFiles {
                store: self.store.clone(),
                attempt: number,
                runtime: self.runtime.clone(),
            }),
            reports: self.options.injector.wrap(reports),
            metrics: metrics.clone(),
            placement: self.options.placement,
            mode: self.options.mode,
            buffer_timeout: self.options.buffer_timeout,
            clock: Clock::System,
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
    pub(super) fn stop(&mut self, attempt: AttemptNumber) {
        if self.stopping == Some(attempt) {
            return;
        }
        self.stopping = Some(attempt);
        let running = self.running.take_if(|running| running.number() == attempt);
        if let Some(running) = &running {
            self.take_leave_of(running);
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

    /// Records emitted by the job's sources, in all attempts.
    pub(super) fn records(&self) -> u64 {
        let metrics = self.running.as_ref().map(|r| &r.observed.metrics);
        self.records_before + metrics.map_or(0, |metrics| emitted(&self.plan, metrics))
    }

    /// Counts what an attempt has emitted; nobody looks at it any more.
    pub(super) fn take_leave_of(&mut self, running: &Running) {
        self.records_before += emitted(&self.plan, &running.observed.metrics);
        self.shared.observe(None);
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
