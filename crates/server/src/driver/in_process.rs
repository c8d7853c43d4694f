//! Attempts on threads of this process.

use std::sync::Arc;
use std::time::Duration;

use tidegate_coordinator::{JobEvent, NoticeTarget};
use tidegate_runtime::{Attempt, AttemptContext, Clock, StatePlacement};
use tidegate_storage::JobStore;
use tidegate_types::message::Notice;
use tidegate_types::{AlignmentMode, AttemptNumber, ErrorChain};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::files::{StoredFiles, discard_with};
use crate::options::JobOptions;

use super::execution::{Events, Execution, Launch};
use super::injected::Injector;

/// An attempt that takes longer to stop is reported.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How attempts run, wherever they do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptOptions {
    pub(crate) placement: StatePlacement,
    pub(crate) mode: AlignmentMode,
    pub(crate) buffer_timeout: Duration,
    pub(crate) serialize: bool,
}

impl AttemptOptions {
    pub(crate) fn new(options: &JobOptions) -> Self {
        AttemptOptions {
            placement: options.placement,
            mode: options.mode,
            buffer_timeout: options.buffer_timeout,
            serialize: options.serialize,
        }
    }
}

/// Runs attempts on worker threads of this process.
pub(crate) struct InProcess {
    store: JobStore,
    runtime: Handle,
    options: AttemptOptions,
    injector: Injector,
    events: Events,
    running: Option<Running>,
    /// The last attempt that was asked to stop.
    stopping: Option<AttemptNumber>,
    tasks: JoinSet<()>,
}

struct Running {
    number: AttemptNumber,
    attempt: Attempt,
}

impl InProcess {
    pub(crate) fn new(
        store: JobStore,
        runtime: Handle,
        options: &JobOptions,
        events: Events,
    ) -> Self {
        InProcess {
            store,
            runtime,
            options: AttemptOptions::new(options),
            injector: Injector::new(options.injected.as_ref()),
            events,
            running: None,
            stopping: None,
            tasks: JoinSet::new(),
        }
    }

    fn context(&self, launch: Launch) -> AttemptContext {
        let events = Arc::clone(&self.events);
        let reports = Arc::new(move |report| events(JobEvent::Report(report)));
        AttemptContext {
            number: launch.number,
            restored: launch.restored,
            restore: launch.restore.into(),
            cluster: None,
            files: Arc::new(StoredFiles {
                store: self.store.clone(),
                attempt: launch.number,
                discard: discard_with(self.store.clone(), self.runtime.clone()),
            }),
            reports: self.injector.wrap(reports),
            metrics: launch.metrics,
            placement: self.options.placement,
            mode: self.options.mode,
            buffer_timeout: self.options.buffer_timeout,
            clock: Clock::System,
            serialize: self.options.serialize,
        }
    }
}

impl Execution for InProcess {
    fn start(&mut self, launch: Launch) {
        let number = launch.number;
        let plan = Arc::clone(&launch.plan);
        match Attempt::start(plan, self.context(launch)) {
            Ok(attempt) => {
                self.running = Some(Running { number, attempt });
            }
            Err(error) => (self.events)(JobEvent::AttemptLaunchFailed {
                attempt: number,
                cause: ErrorChain(&error).to_string(),
            }),
        }
    }

    fn notify(&mut self, attempt: AttemptNumber, notice: Notice, _: NoticeTarget) {
        // Which subtasks a notice concerns follows from the notice itself.
        if let Some(running) = self.running.as_ref().filter(|r| r.number == attempt) {
            running.attempt.notify(notice);
        }
    }

    /// Joining waits for user code to return, so it has a thread of its own. Asked again, it
    /// doesn't answer before that thread does.
    fn stop(&mut self, attempt: AttemptNumber) {
        if self.stopping == Some(attempt) {
            return;
        }
        self.stopping = Some(attempt);
        let running = self.running.take_if(|running| running.number == attempt);
        let events = Arc::clone(&self.events);
        let join = move || {
            if let Some(running) = running {
                running.attempt.stop();
            }
            events(JobEvent::AttemptStopped { attempt });
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

    fn settle(&mut self, _: bool) {
        if let Some(running) = self.running.take() {
            running.attempt.stop();
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        self.runtime
            .block_on(async { while tasks.join_next().await.is_some() {} });
    }
}
