//! Starts a job inside the calling process.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tidegate_coordinator::{Job, JobEnd, JobEvent};
use tidegate_runtime::JobPlan;
use tidegate_runtime::sink::SubmitContext;
use tidegate_storage::{Candidate, Leadership, LossCause};
use tidegate_types::{CheckpointId, ErrorChain};
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use crate::client::{Ended, JobClient, Shared};
use crate::clock::Clock;
use crate::cluster::JobManagerOptions;
use crate::cluster::describe;
use crate::cluster::jobmanager::{JobOnCluster, OnCluster};
use crate::driver::{Driver, Events, Execution, InProcess, Setup, on_own_thread};
use crate::dry_run::dry_run;
use crate::error::RunError;
use crate::namespace::{Election, Namespace, check_sinks, leave_ended, storage, sweep};
use crate::options::JobOptions;
use crate::progress::Observer;
use crate::report::{JobOutcome, JobReport};
use crate::restore::{adopt, check_files, latest, recovery};
use crate::termination::word_to_end;

/// How a JobManager exits that has lost the lead. Whoever started it may start it again, to wait
/// for the lead.
pub(crate) const LOST_THE_LEAD: i32 = 75;

/// How long giving back a candidacy may take.
const WITHDRAWAL_PATIENCE: Duration = Duration::from_secs(2);

/// Starts a job: on as many worker threads as its largest parallelism, and a driver's thread.
/// Returns when it is known that it can run; [`JobClient::wait`] waits for its end.
///
/// It goes on from the latest completed checkpoint in the job's namespace. As long as there is
/// none, it begins from the snapshot that the options name, or that was named when it was first
/// begun. Files that no completed checkpoint refers to are removed before it runs. When the job has
/// finished, no checkpoint is left, and the namespace says that it has.
///
/// A dry run starts nothing: the result has ended already, and says how it would go on.
///
/// # Errors
/// See [`RunError`]. Nothing runs then. What the job goes on from is as it was, but the namespace
/// may have been made or taken over, its origin recorded or claimed, files that no completed
/// checkpoint refers to removed, and output folders claimed by sinks.
pub fn start(
    plan: JobPlan,
    options: &JobOptions,
    observer: Box<dyn Observer>,
) -> Result<JobClient, RunError> {
    start_where(plan, options, None, observer)
}

/// As [`start`], as the JobManager of a cluster: attempts run on the TaskManagers that register.
/// Until there are enough of them the job waits.
///
/// # Errors
/// As [`start`]; [`RunError::Listen`], [`RunError::NeedsSharedCheckpoints`].
pub fn start_on_cluster(
    plan: JobPlan,
    options: &JobOptions,
    jobmanager: &JobManagerOptions,
    observer: Box<dyn Observer>,
) -> Result<JobClient, RunError> {
    if !options.dry_run && !options.location.is_durable() {
        return Err(RunError::NeedsSharedCheckpoints);
    }
    if options.dry_run && jobmanager.ha.is_some() {
        return Err(RunError::DryRunElsewhere);
    }
    start_where(plan, options, Some(jobmanager), observer)
}

fn start_where(
    mut plan: JobPlan,
    options: &JobOptions,
    jobmanager: Option<&JobManagerOptions>,
    observer: Box<dyn Observer>,
) -> Result<JobClient, RunError> {
    check_before_start(&plan, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("storage")
        .enable_all()
        .build()
        .map_err(RunError::Threads)?;
    if options.dry_run {
        let report = runtime.block_on(dry_run(&plan, options, runtime.handle()))?;
        return Ok(JobClient::ended(options, &plan, report));
    }
    let mut namespace = runtime.block_on(open(options, jobmanager, runtime.handle()))?;
    let store = namespace.store.clone();
    let lead = Lead::new(namespace.leadership.take(), runtime.handle());
    let prepared = runtime.block_on(prepare(&mut plan, options, namespace))?;
    let Prepared { job, restored } = match prepared {
        Ok(prepared) => prepared,
        Err(outcome) => return Ok(without_a_run(options, &plan, outcome)),
    };
    let (clock, (sender, receiver)) = (Clock::start(), channel());
    let client = JobClient::new(options, &plan, clock, sender.clone());
    let plan = Arc::new(plan);
    let events = events_into(sender.clone());
    let handle = runtime.handle().clone();
    let execution: Box<dyn Execution> = match jobmanager {
        None => Box::new(InProcess::new(store.clone(), handle, options, events)),
        Some(jobmanager) => {
            let job = JobOnCluster {
                description: describe(&plan, options),
                name: options.name.clone(),
                store: store.clone(),
                client: client.clone(),
                events,
            };
            Box::new(OnCluster::start(job, jobmanager, handle)?)
        }
    };
    let driver = Driver::new(Setup {
        job,
        plan,
        store,
        execution,
        checkpoint_timeout: options.settings.checkpoints.timeout,
        runtime: runtime.handle().clone(),
        observer,
        events: receiver,
        sender,
        clock,
        shared: Arc::clone(&client.shared),
    });
    let run = Run {
        driver,
        _lead: lead,
        runtime,
        restored,
        durable: options.location.is_durable(),
        began: Clock::start(),
    };
    let shared = Arc::clone(&client.shared);
    on_own_thread(move || run.drive(&shared)).map_err(RunError::Threads)?;
    Ok(client)
}

fn without_a_run(options: &JobOptions, plan: &JobPlan, outcome: JobOutcome) -> JobClient {
    JobClient::ended(options, plan, JobReport::without_a_run(outcome))
}

/// What happens to attempts goes to the driver.
fn events_into(sender: Sender<JobEvent>) -> Events {
    Arc::new(move |event| {
        // The loop is gone only when nobody waits for the outcome any more.
        let _ = sender.send(event);
    })
}

async fn open(
    options: &JobOptions,
    jobmanager: Option<&JobManagerOptions>,
    runtime: &Handle,
) -> Result<Namespace, RunError> {
    let elected = jobmanager.and_then(|jobmanager| Some((jobmanager, jobmanager.ha.as_ref()?)));
    let Some((jobmanager, location)) = elected else {
        return Namespace::open(options, runtime).await;
    };
    let campaign = location.election_with(&options.name, jobmanager.ha_lease);
    let campaign = campaign.map_err(storage(options))?;
    let election = Election {
        location,
        campaign: &*campaign,
        candidate: Candidate::new(&jobmanager.listen),
    };
    let led = Namespace::lead(options, runtime, election);
    if !jobmanager.ends_on_signals {
        return led.await;
    }
    let mut told = word_to_end().map_err(RunError::Threads)?;
    tokio::select! {
        led = led => led,
        () = told.wait() => {
            // Ordering: the candidacy is over, so it can be waited for that the others know.
            match timeout(WITHDRAWAL_PATIENCE, campaign.withdrawn()).await {
                Ok(()) => tracing::warn!("the candidacy was given back"),
                Err(_) => tracing::warn!("the candidacy was not given back; it expires"),
            }
            told.exit()
        }
    }
}

/// The lead over a job, if there was an election. Dropped, it is given back, so that the next
/// leader needn't wait.
struct Lead {
    leadership: Option<Leadership>,
    runtime: Handle,
}

impl Lead {
    /// A leader that has lost the lead must do nothing more, and can do nothing better than to end:
    /// its records reject whatever it writes, and the processes of its attempt end with their
    /// streams.
    fn new(leadership: Option<Leadership>, runtime: &Handle) -> Self {
        if let Some(leadership) = &leadership {
            let mut loss = leadership.loss();
            runtime.spawn(async move {
                let cause = loss.lost().await;
                if cause != LossCause::Released {
                    tracing::error!(%cause, "this JobManager has lost the lead, and ends");
                    std::process::exit(LOST_THE_LEAD);
                }
            });
        }
        Lead {
            leadership,
            runtime: runtime.clone(),
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(leadership) = self.leadership.take()
            && let Err(error) = self.runtime.block_on(leadership.release())
        {
            let error = ErrorChain(&error);
            tracing::warn!(%error, "the lead was not given back; it expires");
        }
    }
}

fn check_before_start(plan: &JobPlan, options: &JobOptions) -> Result<(), RunError> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(RunError::InsideTokio);
    }
    plan.validate().map_err(RunError::Graph)?;
    options.settings.validate().map_err(RunError::Settings)?;
    // Nothing is committed by a dry run, which may do without a directory.
    if !options.dry_run {
        check_sinks(plan, options)?;
    }
    if cfg!(panic = "abort") {
        tracing::warn!(
            "this program is built with panic = \"abort\": a panic in the job's code ends the \
             process instead of restarting the job"
        );
    }
    Ok(())
}

/// A job that is ready to run.
struct Prepared {
    job: Job,
    restored: Option<CheckpointId>,
}

/// Finds what the job goes on from, lets sources and sinks check their configuration, and makes the
/// coordinator. An outcome if there is nothing to run.
async fn prepare(
    plan: &mut JobPlan,
    options: &JobOptions,
    namespace: Namespace,
) -> Result<Result<Prepared, JobOutcome>, RunError> {
    let store = &namespace.store;
    if namespace.finished {
        namespace.refuse_new_origin(options).await?;
        // It may have been killed between its marker and its last sweep.
        sweep(store).await;
        return Ok(Err(JobOutcome::AlreadyFinished));
    }
    if let Some(end) = namespace.ended {
        leave_ended(store).await;
        return Ok(Err(JobOutcome::AlreadyEnded(end)));
    }
    let unfit = |cause| RunError::Restore {
        job: options.name.clone(),
        cause,
    };
    let from = namespace.from.as_ref();
    let found = store.preview_resume(from).await;
    let found = found.map_err(storage(options))?;
    if let Some(latest) = latest(&found) {
        let checked = check_files(store, latest).await;
        checked.map_err(storage(options))?;
        adopt(plan, latest).map_err(unfit)?;
    }
    let restored = latest(&found).map(|latest| latest.id);
    let (settings, graph) = (options.settings.clone(), plan.graph().clone());
    let job = Job::new(store.job(), graph, settings, recovery(found)).map_err(unfit)?;
    let job = job.with_scaling(plan.scaling().clone());
    let context = SubmitContext {
        job: store.job(),
        fresh: restored.is_none(),
    };
    plan.check(context).map_err(RunError::Check)?;
    // Ordering: what the job is begun from is recorded when it is known that it can be, and before
    // anything runs. The sweep needs to know it, and may remove folders that ids are found by.
    let recorded = async {
        let resumed = store.resume(from).await?;
        store.sweep_orphans(&resumed.completed).await
    };
    recorded.await.map_err(storage(options))?;
    Ok(Ok(Prepared { job, restored }))
}

/// Everything that a job in this process holds on to.
struct Run {
    driver: Driver,
    /// Given back when the driver is gone, and nothing is written any more.
    _lead: Lead,
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
                self.runtime.block_on(leave_ended(self.driver.store()));
                self.runtime.block_on(sweep(self.driver.store()));
                return Ended::Cancelled { latest };
            }
            JobEnd::Suspended => {
                let latest = self.driver.job().latest_completed().map(|latest| latest.id);
                return Ended::Suspended { latest };
            }
            JobEnd::Failed(failure) => return Ended::Failed(failure),
        };
        self.runtime.block_on(leave_ended(self.driver.store()));
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
