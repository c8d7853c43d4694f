//! Starts a job inside the calling process.

use std::sync::Arc;
use std::sync::mpsc::channel;

use tidegate_coordinator::{Job, JobEnd, Recovery};
use tidegate_runtime::JobPlan;
use tidegate_runtime::sink::SubmitContext;
use tidegate_types::CheckpointId;
use tokio::runtime::Runtime;

use crate::client::{Ended, JobClient, Shared};
use crate::clock::Clock;
use crate::driver::{AttemptOptions, Driver, Setup, on_own_thread};
use crate::error::RunError;
use crate::namespace::{Namespace, sweep};
use crate::options::JobOptions;
use crate::progress::Observer;
use crate::report::{JobOutcome, JobReport};

/// Starts a job: on as many worker threads as its largest parallelism, and a driver's thread.
/// Returns when it is known that it can run; [`JobClient::wait`] waits for its end.
///
/// It goes on from the latest completed checkpoint in the job's namespace. Before that it removes
/// files that no completed checkpoint refers to. When the job has finished, no checkpoint is left,
/// and the namespace says that it has.
///
/// # Errors
/// See [`RunError`]. Nothing runs then, and no completed checkpoint has been touched.
pub fn start(
    plan: JobPlan,
    options: &JobOptions,
    observer: Box<dyn Observer>,
) -> Result<JobClient, RunError> {
    check_before_start(&plan, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("storage")
        .enable_time()
        .build()
        .map_err(RunError::Threads)?;
    let clock = Clock::start();
    let (sender, events) = channel();
    let graph = plan.graph().clone();
    let shared = Shared::new(options.name.clone(), graph, clock, sender.clone());
    let client = JobClient {
        shared: Arc::new(shared),
    };
    let namespace = runtime.block_on(Namespace::open(&plan, options, runtime.handle()))?;
    if namespace.finished {
        let report = JobReport::already_finished();
        client.shared.end(Ended::Well(Box::new(report)));
        return Ok(client);
    }
    let restored = namespace.completed.last().map(|latest| latest.id);
    let store = namespace.store.clone();
    let job = prepare(&plan, options, namespace)?;
    let driver = Driver::new(Setup {
        job,
        plan: Arc::new(plan),
        store,
        options: AttemptOptions::new(options),
        runtime: runtime.handle().clone(),
        observer,
        events,
        sender,
        clock,
        shared: Arc::clone(&client.shared),
    });
    let run = Run {
        driver,
        runtime,
        restored,
        durable: options.location.is_durable(),
        began: Clock::start(),
    };
    let shared = Arc::clone(&client.shared);
    on_own_thread(move || run.drive(&shared)).map_err(RunError::Threads)?;
    Ok(client)
}

fn check_before_start(plan: &JobPlan, options: &JobOptions) -> Result<(), RunError> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(RunError::InsideTokio);
    }
    plan.validate().map_err(RunError::Graph)?;
    options.settings.validate().map_err(RunError::Settings)?;
    for (asked, setting) in [
        (options.restore.is_some(), "restore-from"),
        (options.dry_run, "dry-run"),
    ] {
        if asked {
            return Err(RunError::Unsupported { setting });
        }
    }
    if cfg!(panic = "abort") {
        tracing::warn!(
            "this program is built with panic = \"abort\": a panic in the job's code ends the \
             process instead of restarting the job"
        );
    }
    Ok(())
}

/// Lets sources and sinks check their configuration, and makes the coordinator of the job.
fn prepare(plan: &JobPlan, options: &JobOptions, namespace: Namespace) -> Result<Job, RunError> {
    let job = namespace.store.job();
    let fresh = namespace.completed.is_empty();
    plan.check(SubmitContext { job, fresh })
        .map_err(RunError::Check)?;
    let settings = options.settings.clone();
    let recovery = Recovery {
        completed: namespace.completed,
        origin: None,
        facts: namespace.facts,
    };
    Job::new(job, plan.graph().clone(), settings, recovery).map_err(|cause| RunError::Restore {
        job: options.name.clone(),
        cause,
    })
}

/// Everything that a job in this process holds on to.
struct Run {
    driver: Driver,
    runtime: Runtime,
    restored: Option<CheckpointId>,
    durable: bool,
    began: Clock,
}

/// Says that the driver has panicked, unless it has ended otherwise before.
struct EndGuard<'a>(&'a Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.end(Ended::Panicked);
    }
}

impl Run {
    fn drive(mut self, shared: &Shared) {
        let guard = EndGuard(shared);
        let (end, records) = self.driver.run();
        let ended = self.ended(end, records);
        // Ordering: whoever hears of the end may open the namespace at once.
        drop(self);
        guard.0.end(ended);
    }

    fn ended(&self, end: JobEnd, records: u64) -> Ended {
        let outcome = match end {
            JobEnd::Finished => JobOutcome::Finished,
            JobEnd::Stopped {
                savepoint,
                location,
                drained: false,
            } => JobOutcome::Stopped {
                savepoint,
                location,
            },
            JobEnd::Stopped {
                savepoint,
                location,
                drained: true,
            } => JobOutcome::Drained {
                savepoint,
                location,
            },
            JobEnd::Cancelled => {
                let latest = self.driver.job().latest_completed();
                let latest = latest.filter(|_| self.durable).map(|latest| latest.id);
                return Ended::Cancelled { latest };
            }
            JobEnd::Failed(failure) => return Ended::Failed(failure),
        };
        self.runtime.block_on(sweep(self.driver.store()));
        Ended::Well(Box::new(JobReport {
            outcome,
            restored: self.restored,
            records,
            elapsed: self.began.elapsed(),
            statistics: self.driver.job().statistics().clone(),
        }))
    }
}
