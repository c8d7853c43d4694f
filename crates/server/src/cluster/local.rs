//! A whole cluster on this machine: a process that starts a JobManager and TaskManagers, each a
//! process of its own, and starts again whichever of them dies.
//!
//! The JobManager's port belongs to this process, which hands the listening socket over: a
//! JobManager that is started again is found where the one before was.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use super::parent::{die_with_parent, this_binary};
use super::settings::Variable;
use super::task::VARIABLE as TASK;
use super::taskmanager::TaskManagerError;
use crate::hex;
use crate::local_recovery::LocalRecovery;
use crate::start::LOST_THE_LEAD;
use crate::termination::SAME_SIGNAL;
use crate::tls::TlsFiles;

/// The variable that makes a JobManager or TaskManager part of a local cluster: it dies with the
/// thread that started it, whose process this is the id of, and a JobManager listens on the socket
/// that is its standard input.
pub const MEMBER: &str = "TIDEGATE_LOCAL_CLUSTER";

/// How long TaskManagers may take to end by themselves when the job is over.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);

/// How long TaskManagers may be without a JobManager: its process is started again by this one, and
/// may have to wait for the lead as long as the store of `--ha` is gone.
const FOR_EVER: &str = "100years";

/// A process that lived shorter than this is started again only after a pause of that length.
const SHORT_LIFE: Duration = Duration::from_millis(500);

/// A cluster of processes on this machine.
#[derive(Clone, Debug)]
pub struct LocalCluster {
    /// How many TaskManagers; at least 1.
    pub taskmanagers: u32,
    /// Slots of each; at least 1.
    pub slots: u32,
    /// Where TaskManagers keep copies of state files, if they do.
    pub local_recovery: Option<LocalRecovery>,
    /// Where its JobManager listens: `host:port`, on this machine.
    pub listen: String,
    /// Whether others may reach it although nothing is encrypted.
    pub insecure: bool,
    /// The job's arguments, and how the JobManager is started besides.
    pub jobmanager: Vec<OsString>,
    /// What its members are started with besides: settings that they don't read themselves.
    pub variables: Vec<Variable>,
    /// The cluster's secret; by default a new one.
    pub secret: Option<String>,
    /// The certificates of its members, if they encrypt.
    pub tls: Option<TlsFiles>,
}

/// Whether another process of a cluster has started this one, and has handed it all settings that
/// it has read from a file.
pub fn is_started_by_cluster() -> bool {
    [MEMBER, TASK]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

/// Whether this process was started by [`run_local_cluster`]; if it was, it dies with that.
pub fn is_member() -> bool {
    let parent = std::env::var(MEMBER).ok().and_then(|pid| pid.parse().ok());
    if let Some(parent) = parent {
        die_with_parent(parent);
    }
    parent.is_some()
}

/// Runs a cluster on this machine until its job is over, and returns how its JobManager ended.
/// Blocks.
///
/// # Errors
/// If processes can't be started.
pub fn run_local_cluster(cluster: LocalCluster) -> Result<ExitStatus, TaskManagerError> {
    let system = |what| move |cause| TaskManagerError::System { what, cause };
    // Members die with the thread that started them, so everything is done on this one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start a runtime"))?;
    let run = async { Parent::new(cluster)?.run().await };
    runtime.block_on(run).map_err(system("run a local cluster"))
}

struct Parent {
    cluster: LocalCluster,
    secret: String,
    listener: TcpListener,
}

/// A JobManager or a TaskManager.
struct Member {
    name: String,
    /// Among the TaskManagers, from 1.
    number: u32,
    running: Child,
    since: Instant,
}

impl Parent {
    fn new(cluster: LocalCluster) -> std::io::Result<Self> {
        let secret = match &cluster.secret {
            Some(secret) => secret.clone(),
            None => random_secret()?,
        };
        Ok(Parent {
            secret,
            listener: TcpListener::bind(&cluster.listen)?,
            cluster,
        })
    }

    async fn run(self) -> std::io::Result<ExitStatus> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut told_to_end: Option<Instant> = None;
        let mut jobmanager = self.start_jobmanager()?;
        let mut taskmanagers = Vec::new();
        for number in 1..=self.cluster.taskmanagers {
            taskmanagers.push(self.start_taskmanager(number)?);
        }
        // TaskManagers that ended well, and when they are missed if the job goes on without them.
        let mut ended = VecDeque::new();
        loop {
            tokio::select! {
                status = jobmanager.running.wait() => {
                    let status = status?;
                    let has_crashed = has_crashed(status);
                    if told_to_end.is_some() || !has_crashed {
                        if has_crashed {
                            // The job isn't over, so nobody has dismissed them.
                            taskmanagers.iter().for_each(Member::tell_to_end);
                        }
                        say_goodbye(taskmanagers).await;
                        return Ok(status);
                    }
                    tell(&jobmanager, status).await;
                    jobmanager = self.start_jobmanager()?;
                }
                (index, status) = first_to_end(&mut taskmanagers) => {
                    let status = status?;
                    if status.success() {
                        // Dismissed, since the job is over; or told to end by somebody.
                        let number = taskmanagers.remove(index).number;
                        ended.push_back((Instant::now() + FAREWELL_PATIENCE, number));
                    } else if has_crashed(status) {
                        tell(&taskmanagers[index], status).await;
                        taskmanagers[index] = self.start_taskmanager(taskmanagers[index].number)?;
                    } else {
                        // It has said why, and would say so again.
                        return Ok(status);
                    }
                }
                () = until_first(&ended) => {
                    if let Some((_, number)) = ended.pop_front() {
                        tracing::warn!("taskmanager-{number} had ended and is started again");
                        taskmanagers.push(self.start_taskmanager(number)?);
                    }
                }
                signal = either(&mut terminate, &mut interrupt) => {
                    let told = told_to_end.get_or_insert_with(|| {
                        jobmanager.tell_to_end();
                        Instant::now()
                    });
                    // Members are killed as they are dropped.
                    if told.elapsed() >= SAME_SIGNAL {
                        return Ok(ExitStatus::from_raw(signal));
                    }
                }
            }
        }
    }

    fn start_jobmanager(&self) -> std::io::Result<Member> {
        let address = self.listener.local_addr()?.to_string();
        let socket = OwnedFd::from(self.listener.try_clone()?);
        let mut command = self.member("jobmanager");
        command
            .args(&self.cluster.jobmanager)
            .env("TIDEGATE_LISTEN", address)
            .stdin(Stdio::from(socket));
        Member::start("jobmanager".to_owned(), 0, command)
    }

    fn start_taskmanager(&self, number: u32) -> std::io::Result<Member> {
        let address = self.listener.local_addr()?.to_string();
        let name = format!("taskmanager-{number}");
        let slots = self.cluster.slots.to_string();
        let mut command = self.member("taskmanager");
        command
            .args(["--jobmanager", &address, "--slots", &slots, "--name", &name])
            .args(["--registration-timeout", FOR_EVER])
            .stdin(Stdio::null());
        if let Some(recovery) = &self.cluster.local_recovery {
            command.args(["--local-recovery", "--local-dir"]);
            command.arg(&recovery.directory);
        }
        Member::start(name, number, command)
    }

    fn member(&self, role: &str) -> Command {
        let mut command = this_binary();
        command
            .arg(role)
            .envs(self.cluster.variables.iter().map(|v| (&v.name, &v.value)))
            .env(MEMBER, std::process::id().to_string())
            .env("TIDEGATE_CLUSTER_SECRET", &self.secret)
            // Ctrl-C is for this process, which tells the JobManager.
            .process_group(0)
            .kill_on_drop(true);
        if self.cluster.insecure {
            command.env("TIDEGATE_INSECURE", "true");
        }
        if let Some(files) = &self.cluster.tls {
            command.envs(files.variables());
        }
        command
    }
}

fn random_secret() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(hex::text(&bytes))
}

impl Member {
    fn start(name: String, number: u32, mut command: Command) -> std::io::Result<Member> {
        let running = command.spawn()?;
        tracing::info!(name, pid = running.id(), "started");
        Ok(Member {
            name,
            number,
            running,
            since: Instant::now(),
        })
    }
}

impl Member {
    /// One that has ended needn't be told.
    fn tell_to_end(&self) {
        let pid = self
            .running
            .id()
            .and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The number of whichever signal comes first.
async fn either(terminate: &mut SignalStream, interrupt: &mut SignalStream) -> i32 {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
    }
}

/// Waits for the first of these moments; for ever, if there is none.
async fn until_first(moments: &VecDeque<(Instant, u32)>) {
    match moments.front() {
        Some((moment, _)) => tokio::time::sleep_until(*moment).await,
        None => std::future::pending().await,
    }
}

/// The first TaskManager that ends; for ever, if there are none.
async fn first_to_end(members: &mut [Member]) -> (usize, std::io::Result<ExitStatus>) {
    if members.is_empty() {
        return std::future::pending().await;
    }
    let waiting = members
        .iter_mut()
        .enumerate()
        .map(|(index, member)| Box::pin(async move { (index, member.running.wait().await) }));
    let (first, _, _) = futures::future::select_all(waiting).await;
    first
}

/// A JobManager that exits by itself, unless it has lost the lead, has said what there is to say;
/// one that was killed, has panicked, or was told to end by somebody else, goes on from the latest
/// checkpoint.
fn has_crashed(status: ExitStatus) -> bool {
    status.signal().is_some() || matches!(status.code(), Some(101 | 130 | 143 | LOST_THE_LEAD))
}

async fn tell(member: &Member, status: ExitStatus) {
    tracing::warn!("{} has ended ({status}) and is started again", member.name);
    if member.since.elapsed() < SHORT_LIFE {
        sleep(SHORT_LIFE).await;
    }
}

/// Lets TaskManagers end by themselves, and kills those that don't.
async fn say_goodbye(taskmanagers: Vec<Member>) {
    let deadline = Instant::now() + FAREWELL_PATIENCE;
    for mut member in taskmanagers {
        let left = deadline.saturating_duration_since(Instant::now());
        // Killed when it is dropped.
        let _ = timeout(left, member.running.wait()).await;
    }
}
