//! One run of a job: worker threads with the dataflow on them, from start to stop.
//!
//! An attempt is fail-stop: the first failure of any subtask is reported, and whoever drives the
//! attempt stops it as a whole and starts the next. Stopping drops every dataflow and joins every
//! thread, so that nothing of a dead attempt can still write when the next one restores.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use tidegate_types::message::Notice;
use tidegate_types::{AlignmentMode, AttemptNumber, CheckpointId, RestorePlan};
use timely::WorkerConfig;
use timely::communication::{Config, WorkerGuards};
use timely::worker::Worker;

use crate::background::{Background, panic_message};
use crate::clock::Clock;
use crate::metrics::AttemptMetrics;
use crate::piece::StatePlacement;
use crate::plan::{BuiltWorker, JobPlan, build};
use crate::report::{ReportSink, Reporter};
use crate::snapshot::StateFiles;

/// What an attempt is started with.
pub struct AttemptContext {
    /// Its number, never used before.
    pub number: AttemptNumber,
    /// The checkpoint it starts from, if any.
    pub restored: Option<CheckpointId>,
    /// What of it falls to each subtask.
    pub restore: RestorePlan,
    /// Where state files live.
    pub files: Arc<dyn StateFiles>,
    /// Which keyed state goes into files, and which travels in acknowledgements.
    pub placement: StatePlacement,
    /// Where reports go.
    pub reports: ReportSink,
    /// Counters to fill.
    pub metrics: AttemptMetrics,
    /// How barriers are aligned.
    pub mode: AlignmentMode,
    /// A record waits no longer than this for its batch to fill.
    pub buffer_timeout: Duration,
    /// What operators go by.
    pub clock: Clock,
    /// Whether items are serialised between the workers of this process, as they are between
    /// processes. For tests: slower, and shows whether records survive it.
    pub serialize: bool,
}

/// The attempt's threads couldn't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Timely refused.
    #[error("start {workers} timely workers: {cause}")]
    Timely {
        /// How many were asked for.
        workers: u32,
        /// Timely's text.
        cause: String,
    },
    /// The operating system refused a thread.
    #[error("start a background thread")]
    Thread(#[source] std::io::Error),
}

/// Shared between the attempt's owner and its workers.
struct Shared {
    stop: AtomicBool,
    workers: Vec<WorkerInbox>,
}

#[derive(Default)]
struct WorkerInbox {
    notices: Mutex<VecDeque<Notice>>,
    thread: OnceLock<Thread>,
}

impl WorkerInbox {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn take(&self) -> VecDeque<Notice> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A running attempt. Dropping it stops it.
pub struct Attempt {
    shared: Arc<Shared>,
    guards: Option<WorkerGuards<()>>,
    background: Vec<JoinHandle<()>>,
}

impl Attempt {
    /// Starts as many workers as the job's largest parallelism.
    ///
    /// # Errors
    /// If the threads can't be had; nothing is left running then.
    pub fn start(plan: Arc<JobPlan>, context: AttemptContext) -> Result<Attempt, StartError> {
        let workers = plan.graph().parallelism_max();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            workers: (0..workers).map(|_| WorkerInbox::default()).collect(),
        });
        let mut threads = Vec::new();
        let mut backgrounds = Vec::new();
        for index in 0..workers {
            let start =
                |what| Background::start(format!("{what}-{index}")).map_err(StartError::Thread);
            let (snapshots, thread) = start("snapshot")?;
            threads.push(thread);
            let (commits, thread) = start("commit")?;
            threads.push(thread);
            backgrounds.push(Mutex::new(Some((snapshots, commits))));
        }
        let communication = match context.serialize {
            true => Config::ProcessBinary(workers as usize),
            false => Config::Process(workers as usize),
        };
        let config = timely::Config {
            communication,
            worker: WorkerConfig::default(),
        };
        let in_workers = Arc::clone(&shared);
        let guards = timely::execute(config, move |worker| {
            let slot = &backgrounds[worker.index()];
            let background = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let background = background.expect("each worker starts once");
            run_worker(worker, &plan, &context, background, &in_workers);
        })
        .map_err(|cause| StartError::Timely { workers, cause })?;
        Ok(Attempt {
            shared,
            guards: Some(guards),
            background: threads,
        })
    }

    /// Passes a notice to all subtasks that are concerned: triggers to enumerators, the rest to
    /// everyone. Notices arrive in the order in which they are given.
    pub fn notify(&self, notice: Notice) {
        for worker in &self.shared.workers {
            worker
                .notices
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_back(notice.clone());
            worker.wake();
        }
    }

    /// Stops the attempt and waits until every thread of it is gone. Data in flight is dropped;
    /// snapshots and commits that have begun end first.
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        let Some(guards) = self.guards.take() else {
            return;
        };
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.workers.iter().for_each(WorkerInbox::wake);
        // A worker that panicked has reported that itself.
        for outcome in guards.join() {
            if let Err(cause) = outcome {
                tracing::debug!(cause, "a worker ended by a panic");
            }
        }
        for thread in self.background.drain(..) {
            // Background threads catch the panics of their tasks.
            let _ = thread.join();
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

fn run_worker(
    worker: &mut Worker,
    plan: &JobPlan,
    context: &AttemptContext,
    background: (Background, Background),
    shared: &Shared,
) {
    let inbox = &shared.workers[worker.index()];
    inbox.thread.get_or_init(std::thread::current);
    let reports = Reporter::new(context.number, Arc::clone(&context.reports));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let built = build(worker, plan, context, background, reports.clone());
        run_until_stopped(worker, &built, inbox, shared);
    }));
    if let Err(panic) = outcome {
        // The subtasks catch their own panics, so this one is ours or timely's.
        let message = panic_message(&*panic);
        reports.fail(
            None,
            format!("worker {} panicked: {message}", worker.index()),
        );
        wait_for_stop(shared);
    }
    // Without this, timely would wait for dataflows that will never end by themselves.
    for dataflow in worker.installed_dataflows() {
        worker.drop_dataflow(dataflow);
    }
}

fn run_until_stopped(
    worker: &mut Worker,
    built: &BuiltWorker,
    inbox: &WorkerInbox,
    shared: &Shared,
) {
    while !shared.stop.load(Ordering::SeqCst) {
        for notice in inbox.take() {
            deliver(built, notice);
        }
        worker.step_or_park(None);
    }
}

/// The owner of the attempt stops all workers together; the others may still talk to this one.
fn wait_for_stop(shared: &Shared) {
    while !shared.stop.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn deliver(built: &BuiltWorker, notice: Notice) {
    let trigger = matches!(notice, Notice::Trigger(_));
    for mailbox in &built.mailboxes {
        if !trigger || mailbox.takes_triggers {
            mailbox.notices.borrow_mut().push_back(notice.clone());
            mailbox.activator.activate();
        }
    }
}
