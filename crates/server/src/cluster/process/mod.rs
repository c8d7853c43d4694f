//! A process of an attempt: this process's part of it, from its start to its exit.
//!
//! It was started by a TaskManager, with a listening socket as standard input, and belongs to one
//! attempt. It builds the job as everywhere, tells the JobManager that it is there, gets its part,
//! is connected with its peers, and works until it is told to end, can't go on, or hears nothing
//! from the JobManager. Then it exits: no thread is joined, no connection closed. Whatever it has
//! not made durable is forgotten, as if it had been killed.

mod describe;
mod state;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::{
    Attempt, AttemptContext, AttemptMetrics, Clock, ClusterPart, JobPlan, MetricsExport,
    StateFiles, SubtaskProgress,
};
use tidegate_storage::JobStore;
use tidegate_types::message::{AddressedReport, Notice, Report as Said, SubtaskFailure};
use tidegate_types::{
    AttemptNumber, CheckpointId, ErrorChain, FileHandle, JobId, MaxParallelism, Scale,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::client::reach;
use super::parent::die_with_parent;
use super::refusal::Farewell;
use super::settings::{ClusterSettings, heartbeat, heartbeat_interval};
use super::task::Task;
use super::wire::{
    Deployment, Discard, ProcessHello, ProcessMessage, ProcessOrder, Progress, Report, VERSION,
    process_message, process_order,
};
use crate::data::{BuildFingerprint, ConnectOptions, Membership, connect};
use crate::driver::{AttemptOptions, look_interval, takes_records};
use crate::files::StoredFiles;
use crate::options::{CheckpointLocation, JobOptions};

pub(crate) use describe::describe;

use state::{PartState, Restoring};

/// How long a last word may take to reach the JobManager.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(50);

/// How long the JobManager, which has just been there, may take to take a connection.
const JOBMANAGER_PATIENCE: Duration = Duration::from_secs(10);

/// How long peers may take to connect once they have been deployed.
const PEERS_PATIENCE: Duration = Duration::from_secs(20);

/// What this process has to say to the JobManager. Nobody listens any more once the process ends.
#[derive(Clone)]
struct Outbox(UnboundedSender<ProcessMessage>);

impl Outbox {
    fn say(&self, message: process_message::Message) {
        let message = Some(message);
        let _ = self.0.send(ProcessMessage { message });
    }

    fn report(&self, report: AddressedReport) {
        self.say(process_message::Message::Report(Report::from(report)));
    }

    /// Says that this process is there, until the result is dropped.
    fn keep_alive(&self, heartbeat_timeout: Duration) -> KeepAlive {
        let outbox = self.clone();
        let mut heartbeat = heartbeat(heartbeat_interval(heartbeat_timeout));
        let saying = tokio::spawn(async move {
            loop {
                heartbeat.tick().await;
                outbox.say(process_message::Message::Progress(Progress::default()));
            }
        });
        KeepAlive(saying.abort_handle())
    }

    /// Says why this process ends, so that people needn't look for what it has printed.
    async fn complain(&self, attempt: AttemptNumber, why: &str) {
        let report = Said::Failed(SubtaskFailure::here(None, why));
        self.report(AddressedReport { attempt, report });
        sleep(FAREWELL_PATIENCE).await;
    }

    /// Only the JobManager deletes.
    fn discard(&self, checkpoint: CheckpointId, file: &FileHandle) {
        self.say(process_message::Message::Discard(Discard {
            checkpoint: checkpoint.0,
            file: Some(file.clone().into()),
        }));
    }
}

/// Dropped, nothing more is said.
struct KeepAlive(AbortHandle);

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why the process ends before it is told to.
#[derive(Debug)]
struct Ending(String);

/// Runs this process's part of an attempt, then exits. Never returns: what isn't told to the
/// JobManager goes to standard error.
pub fn attend(plan: JobPlan, options: &JobOptions, cluster: &ClusterSettings, task: &Task) -> ! {
    die_with_parent(task.parent);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let handle = runtime.handle().clone();
            let outcome = runtime.block_on(run(plan, options, cluster, task, handle));
            // Dropping it would wait for whatever blocks.
            std::mem::forget(runtime);
            outcome
        }
        Err(cause) => Err(Ending(format!("start a runtime: {cause}"))),
    };
    match outcome {
        Ok(()) => std::process::exit(0),
        Err(Ending(why)) => {
            tracing::error!("{} ends: {why}", task.process);
            std::process::exit(1);
        }
    }
}

async fn run(
    plan: JobPlan,
    options: &JobOptions,
    cluster: &ClusterSettings,
    task: &Task,
    runtime: Handle,
) -> Result<(), Ending> {
    if options.name != task.job {
        return Err(Ending(format!(
            "this program runs the job `{}`, and the JobManager `{}`; on a cluster a program is \
             one job",
            options.name, task.job
        )));
    }
    let listener = std::io::stdin().as_fd().try_clone_to_owned();
    let listener = listener.map(std::net::TcpListener::from);
    let listener = listener.map_err(|cause| Ending(format!("standard input: {cause}")))?;
    let address = listener.local_addr();
    let address = address.map_err(|cause| Ending(format!("no socket as input: {cause}")))?;
    let graph = describe(&plan, options);
    let (orders, outbox) = hello(cluster, task, &graph, address.to_string()).await?;
    let part = Part {
        options,
        cluster,
        task,
        graph,
        runtime,
        outbox: outbox.clone(),
    };
    let outcome = part.run(plan, listener, orders).await;
    if let Err(Ending(why)) = &outcome {
        outbox.complain(task.process.attempt, why).await;
    }
    outcome
}

/// What this process knows of its part of the attempt.
struct Part<'a> {
    options: &'a JobOptions,
    cluster: &'a ClusterSettings,
    task: &'a Task,
    graph: String,
    runtime: Handle,
    outbox: Outbox,
}

impl Part<'_> {
    async fn run(
        self,
        plan: JobPlan,
        listener: std::net::TcpListener,
        mut orders: Streaming<ProcessOrder>,
    ) -> Result<(), Ending> {
        let patience = self.task.heartbeat_timeout;
        let alive = self.outbox.keep_alive(patience);
        let deployment = deployment(&mut orders, patience).await?;
        let work = self.prepare(plan, listener, deployment).await?;
        drop(alive);
        work.until_told(orders).await
    }

    async fn prepare(
        self,
        mut plan: JobPlan,
        listener: std::net::TcpListener,
        deployment: Deployment,
    ) -> Result<Work, Ending> {
        adopt(&mut plan, &deployment)?;
        let (process, threads) = (self.task.process.index, deployment.threads);
        let connections = connect(
            listener,
            ConnectOptions {
                membership: membership(self.task, &deployment, &self.graph),
                secret: self.cluster.secret.clone(),
                tls: self.cluster.tls.clone(),
                process,
                addresses: deployment.addresses.clone(),
                timeout: PEERS_PATIENCE,
                silence: self.task.heartbeat_timeout,
            },
        );
        let connections = connections.await;
        let connections = connections.map_err(|error| Ending(ErrorChain(&error).to_string()))?;
        let part = ClusterPart {
            process,
            threads,
            connections,
        };
        let first = process * threads;
        let metrics = AttemptMetrics::new(plan.graph());
        let plan = Arc::new(plan);
        let outbox = self.outbox;
        let restoring = Restoring::new(deployment)?;
        let store = shared_storage(self.options, restoring.job, self.runtime.clone()).await?;
        let state = state(store, self.task, &restoring, &outbox, self.runtime);
        let context = context(self.options, restoring, part, &metrics, &outbox, &state);
        let attempt = Attempt::start(Arc::clone(&plan), context)
            .map_err(|error| Ending(ErrorChain(&error).to_string()))?;
        Ok(Work {
            attempt,
            state,
            number: self.task.process.attempt,
            export: MetricsExport::new(metrics, plan.graph(), first..first + threads),
            plan,
            processes: false,
            outbox,
            patience: self.task.heartbeat_timeout,
        })
    }
}

/// Says who we are. Gives the JobManager's orders, and where to put what we have to say.
async fn hello(
    cluster: &ClusterSettings,
    task: &Task,
    graph: &str,
    address: String,
) -> Result<(Streaming<ProcessOrder>, Outbox), Ending> {
    let failed = |what: String| Ending(format!("the JobManager at `{}`: {what}", task.jobmanager));
    let refused = |farewell| match farewell {
        Farewell::Refused(why) | Farewell::Gone(why) => failed(why),
    };
    let client = reach(&task.jobmanager, cluster, JOBMANAGER_PATIENCE).await;
    let mut client = client.map_err(refused)?;
    let (outbox, said) = unbounded_channel();
    let outbox = Outbox(outbox);
    outbox.say(process_message::Message::Hello(ProcessHello {
        version: VERSION,
        attempt: task.process.attempt.0,
        process: task.process.index,
        epoch: task.epoch.0,
        graph: graph.to_owned(),
        address,
    }));
    let answer = client.attend(UnboundedReceiverStream::new(said)).await;
    let answer = answer.map_err(|status| refused(Farewell::from(status)))?;
    Ok((answer.into_inner(), outbox))
}

/// Waits for as long as the JobManager is there: others may take their time.
async fn deployment(
    orders: &mut Streaming<ProcessOrder>,
    patience: Duration,
) -> Result<Deployment, Ending> {
    loop {
        let order = timeout(patience, orders.message()).await;
        let order = order
            .map_err(|_| Ending(format!("the JobManager was not heard of for {patience:?}")))?;
        match order.map_err(|status| Ending(status.message().to_owned()))? {
            Some(ProcessOrder {
                order: Some(process_order::Order::Deployment(deployment)),
            }) => return Ok(deployment),
            Some(ProcessOrder {
                order: Some(process_order::Order::Halt(_)),
            }) => std::process::exit(0),
            Some(_) => {}
            None => return Err(Ending("the JobManager is gone".to_owned())),
        }
    }
}

/// The JobManager knows the max parallelism of the state that is restored, and how large the job
/// is.
fn adopt(plan: &mut JobPlan, deployment: &Deployment) -> Result<(), Ending> {
    let operators: Vec<_> = plan.graph().operator_ids().collect();
    if operators.len() != deployment.max_parallelism.len() {
        return Err(Ending("the job has another number of operators".to_owned()));
    }
    for (operator, &max) in operators.into_iter().zip(&deployment.max_parallelism) {
        let max = MaxParallelism::new(max).map_err(|error| Ending(error.to_string()))?;
        plan.operator_mut(operator).max_parallelism = max;
    }
    *plan = plan.at(Scale {
        parallelism: deployment.parallelism,
        at_most: deployment.at_most,
    });
    Ok(())
}

fn membership(task: &Task, deployment: &Deployment, graph: &str) -> Membership {
    let mut built = task.build.0.to_vec();
    built.extend_from_slice(graph.as_bytes());
    Membership {
        job: job(deployment),
        epoch: task.epoch,
        attempt: task.process.attempt,
        build: BuildFingerprint::of(&built),
    }
}

fn job(deployment: &Deployment) -> JobId {
    JobId(u128::from(deployment.job_high) << 64 | u128::from(deployment.job_low))
}

/// State files in the job's namespace, and copies of them.
fn state(
    store: JobStore,
    task: &Task,
    restoring: &Restoring,
    outbox: &Outbox,
    runtime: Handle,
) -> PartState {
    let discards = outbox.clone();
    let stored = StoredFiles {
        store,
        attempt: restoring.attempt,
        discard: Arc::new(move |checkpoint, file| discards.discard(checkpoint, file)),
    };
    PartState::new(stored, task.local_copies.as_deref(), restoring, runtime)
}

fn context(
    options: &JobOptions,
    restoring: Restoring,
    part: ClusterPart,
    metrics: &AttemptMetrics,
    outbox: &Outbox,
    state: &PartState,
) -> AttemptContext {
    let (reports, of_reports) = (outbox.clone(), state.clone());
    let AttemptOptions {
        placement,
        mode,
        buffer_timeout,
        serialize,
    } = AttemptOptions::new(options);
    AttemptContext {
        number: restoring.attempt,
        restored: restoring.restored,
        restore: restoring.part,
        cluster: Some(part),
        files: Arc::clone(&state.files) as Arc<dyn StateFiles>,
        placement,
        reports: Arc::new(move |report: AddressedReport| {
            let attempt = report.attempt;
            let restored = of_reports.on_report(&report.report);
            reports.report(report);
            if let Some(restored) = restored {
                let report = Said::Restored(restored);
                reports.report(AddressedReport { attempt, report });
            }
        }),
        metrics: metrics.clone(),
        mode,
        buffer_timeout,
        clock: Clock::System,
        serialize,
    }
}

/// The job's namespace, in which this process writes state files and nothing else.
async fn shared_storage(
    options: &JobOptions,
    job: JobId,
    runtime: Handle,
) -> Result<JobStore, Ending> {
    let CheckpointLocation::Directory(directory) = &options.location else {
        return Err(Ending("there is no checkpoint directory".to_owned()));
    };
    let found = JobStore::attend(directory, &options.name, job, runtime).await;
    let found = found.map_err(|error| Ending(ErrorChain(&error).to_string()))?;
    found.ok_or_else(|| {
        Ending(format!(
            "the checkpoint directory `{directory}` is not the JobManager's; all machines of a \
             cluster must share it"
        ))
    })
}

/// A part of an attempt that runs.
struct Work {
    attempt: Attempt,
    state: PartState,
    number: AttemptNumber,
    plan: Arc<JobPlan>,
    export: MetricsExport,
    /// Whether any record has got past the sources here.
    processes: bool,
    outbox: Outbox,
    patience: Duration,
}

impl Work {
    async fn until_told(mut self, mut orders: Streaming<ProcessOrder>) -> Result<(), Ending> {
        let began = Instant::now();
        let (mut heard, mut tells) = (began, began);
        loop {
            tokio::select! {
                order = timeout_at(heard + self.patience, orders.message()) => {
                    heard = Instant::now();
                    let order = order.map_err(|_| {
                        let patience = self.patience;
                        Ending(format!("the JobManager was not heard of for {patience:?}"))
                    })?;
                    let order = order.map_err(|status| {
                        Ending(format!("the JobManager is gone: {}", status.message()))
                    })?;
                    let Some(order) = order else {
                        return Err(Ending("the JobManager is gone".to_owned()));
                    };
                    if self.obey(order)? {
                        return Ok(());
                    }
                }
                () = sleep_until(tells) => {
                    self.say_how_it_goes();
                    tells = Instant::now() + self.progress_interval(began);
                }
            }
        }
    }

    /// The first record is told of soon after it has been processed: people wait for it.
    fn progress_interval(&self, began: Instant) -> Duration {
        let interval = heartbeat_interval(self.patience).min(PROGRESS_INTERVAL);
        match self.processes {
            true => interval,
            false => interval.min(look_interval(began.elapsed())),
        }
    }

    /// Whether it was the last order.
    fn obey(&self, order: ProcessOrder) -> Result<bool, Ending> {
        match order.order {
            Some(process_order::Order::Notice(notice)) => {
                let notice: Result<(AttemptNumber, Notice), _> = notice.try_into();
                let (attempt, notice) = notice.map_err(|bad| Ending(bad.to_string()))?;
                if attempt == self.number {
                    self.state.on_notice(&notice);
                    self.attempt.notify(notice);
                }
                Ok(false)
            }
            Some(process_order::Order::Halt(_)) => Ok(true),
            Some(process_order::Order::Alive(_) | process_order::Order::Deployment(_)) | None => {
                Ok(false)
            }
        }
    }

    fn say_how_it_goes(&mut self) {
        let busy = self.attempt.busy_workers();
        let changes = self.export.changes();
        let traffic = self.export.traffic();
        let graph = self.plan.graph();
        let processed = |change: &SubtaskProgress| {
            change.records_in > 0 && takes_records(graph, change.subtask)
        };
        self.processes |= changes.iter().any(processed);
        let progress = Progress::new(changes, traffic, &busy, graph);
        self.outbox
            .say(process_message::Message::Progress(progress));
    }
}

/// How often the JobManager hears how far everybody is.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
