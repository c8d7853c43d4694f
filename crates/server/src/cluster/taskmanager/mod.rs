//! The TaskManager: a supervisor that runs the process of each attempt, and keeps nothing between
//! them but, if it is told to, a folder with copies of their state files.
//!
//! It belongs to whoever leads: it registers, and does what it is told until its stream ends or is
//! silent for the heartbeat timeout. Then it kills its process, since nobody would know of it, and
//! looks for a leader again. Its process dies with it, too.
//!
//! A process that is killed may take long to end: its disk may hang. Nothing waits for that but the
//! next process, of which there is never more than one.

mod child;
mod registration;

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use tidegate_coordinator::ProcessId;
use tidegate_types::{ErrorChain, LeaderEpoch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::search::NotFound;
use super::secret::{AddressError, check_address};
use super::settings::{TaskManagerOptions, heartbeat, heartbeat_interval};
use super::task::Task;
use super::wire::{
    Alive, Launch, ManagerOrder, ProcessEnded, manager_message, manager_order, process_id,
};
use crate::data::BuildFingerprint;
use crate::local_recovery::{Claimed, claim};
use crate::termination::Signals;

use child::Child;
use registration::{Applicant, Registration, leadership};

/// How long a JobManager may take to answer to a registration.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// How long a process that is killed may take to end before this one ends without it.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Pauses between looks for a leader.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// Why a TaskManager gives up.
#[derive(Debug, thiserror::Error)]
pub enum TaskManagerError {
    /// An option is wrong.
    #[error("{0}")]
    Options(String),
    /// The JobManager doesn't want it, and won't later.
    #[error("the JobManager at `{address}` refuses this TaskManager: {cause}")]
    Refused {
        /// Where it is.
        address: String,
        /// What it says.
        cause: String,
    },
    /// Copies of state files can't be kept where they are to be.
    #[error("keep local copies of state in `{directory}`")]
    LocalRecovery {
        /// The folder.
        directory: String,
        /// What is wrong with it.
        #[source]
        cause: std::io::Error,
    },
    /// No JobManager has taken it for too long.
    #[error(
        "for {patience:?} no JobManager has registered this TaskManager, the last one asked being \
         `{address}` ({cause}); the job may be over, or the address be another one. \
         `--registration-timeout` says how long to wait"
    )]
    Alone {
        /// How long it has tried.
        patience: Duration,
        /// Where the last one should be.
        address: String,
        /// What stood in the way.
        cause: String,
    },
    /// The operating system refused something.
    #[error("{what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What it said.
        #[source]
        cause: std::io::Error,
    },
}

/// Runs a TaskManager until its job is over, or until it is told to end by a signal. Blocks.
///
/// # Errors
/// If it can't be started, or the JobManager refuses it for a reason that time doesn't mend. A
/// JobManager that isn't there is waited for.
pub fn run_task_manager(options: TaskManagerOptions) -> Result<(), TaskManagerError> {
    check(&options).map_err(TaskManagerError::Options)?;
    if let Some(recovery) = &options.local_recovery {
        recovery
            .check()
            .map_err(|cause| TaskManagerError::LocalRecovery {
                directory: recovery.directory.display().to_string(),
                cause,
            })?;
    }
    // Processes die with the thread that started them, so everything is done on this one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| system("start a runtime", cause))?;
    let outcome = runtime.block_on(async { Supervisor::new(options)?.run().await });
    // Names that are still looked up are waited for by nobody.
    runtime.shutdown_background();
    outcome
}

/// Checks what doesn't change. Names of machines may be known later.
fn check(options: &TaskManagerOptions) -> Result<(), String> {
    let other_machines = options.cluster.leaves_the_machine();
    for address in &options.jobmanagers {
        if let Err(error @ (AddressError::Malformed(_) | AddressError::Foreign(_))) =
            check_address(address, other_machines)
        {
            return Err(error.to_string());
        }
    }
    match options.host {
        Some(host) if !other_machines && !host.is_loopback() => {
            Err(AddressError::Foreign(host.to_string()).to_string())
        }
        _ => Ok(()),
    }
}

fn system(what: &'static str, cause: std::io::Error) -> TaskManagerError {
    TaskManagerError::System { what, cause }
}

/// What identifies the binary that this process was started from: its content.
///
/// # Errors
/// If it can't be read any more.
pub(super) fn build_of_this_binary() -> std::io::Result<BuildFingerprint> {
    let mut binary = std::fs::File::open("/proc/self/exe")?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match binary.read(&mut buffer)? {
            0 => return Ok(BuildFingerprint::of(&hash.digest128().to_le_bytes())),
            read => hash.update(&buffer[..read]),
        }
    }
}

struct Supervisor {
    applicant: Applicant,
    /// The process of the attempt; or what is left of one, which is being killed.
    child: Option<Child>,
    /// What is to be started once the child, which is being killed, has ended.
    next: Option<Launch>,
    /// The folder of its copies, once it is known of which job.
    copies: Option<Claimed>,
    signals: Signals,
}

/// What a registration ends with.
enum End {
    /// The leader is gone; look for the next.
    Gone(String),
    /// The job is over.
    Dismissed,
    /// Somebody told this process to end.
    Told,
}

impl Supervisor {
    fn new(options: TaskManagerOptions) -> Result<Self, TaskManagerError> {
        Ok(Supervisor {
            signals: Signals::new().map_err(|cause| system("listen for signals", cause))?,
            applicant: Applicant {
                build: build_of_this_binary().map_err(|cause| system("read the binary", cause))?,
                instance: random().map_err(|cause| system("draw a random number", cause))?,
                leadership: None,
                options,
            },
            child: None,
            next: None,
            copies: None,
        })
    }

    async fn run(mut self) -> Result<(), TaskManagerError> {
        let mut pause = RETRY_MIN;
        let mut alone_since = Instant::now();
        let end = loop {
            let found = self.applicant.apply();
            match meanwhile(&mut self.child, &mut self.signals, found).await {
                None => break End::Told,
                Some(Ok(registration)) => {
                    pause = RETRY_MIN;
                    self.applicant.leadership = Some(leadership(&registration.welcome));
                    let address = registration.jobmanager.clone();
                    tracing::info!(address, "registered");
                    match self.serve(registration).await {
                        End::Gone(cause) => tracing::warn!(address, cause, "JobManager lost"),
                        end => break end,
                    }
                    alone_since = Instant::now();
                }
                Some(Err(NotFound::Refused { address, cause })) => {
                    return Err(TaskManagerError::Refused { address, cause });
                }
                Some(Err(NotFound::Nobody(tried))) => self.check_patience(alone_since, tried)?,
            }
            let pausing = meanwhile(&mut self.child, &mut self.signals, sleep(pause));
            if pausing.await.is_none() {
                break End::Told;
            }
            pause = RETRY_MAX.min(pause * 2);
        };
        // Whatever still runs dies with this process.
        let _ = timeout(END_PATIENCE, gone(&mut self.child)).await;
        self.remove_copies_after(&end);
        Ok(())
    }

    /// Fails if it has been without a JobManager for too long.
    fn check_patience(
        &self,
        alone_since: Instant,
        mut tried: Vec<(String, String)>,
    ) -> Result<(), TaskManagerError> {
        for (address, cause) in &tried {
            tracing::debug!(address, cause, "no JobManager");
        }
        let patience = self.applicant.options.registration_timeout;
        if alone_since.elapsed() < patience {
            return Ok(());
        }
        let (address, cause) = tried.pop().unwrap_or_default();
        Err(TaskManagerError::Alone {
            patience,
            address,
            cause,
        })
    }

    /// Does what the JobManager says until it is gone. What runs then is being killed.
    async fn serve(&mut self, mut registration: Registration) -> End {
        let patience = Duration::from_millis(registration.welcome.heartbeat_timeout_millis);
        let mut heartbeat = heartbeat(heartbeat_interval(patience));
        let mut heard = Instant::now();
        let end = loop {
            tokio::select! {
                order = timeout_at(heard + patience, registration.orders.message()) => {
                    heard = Instant::now();
                    match order {
                        Ok(Ok(Some(order))) => {
                            if self.obey(&registration, order) {
                                break End::Dismissed;
                            }
                        }
                        Ok(Ok(None)) => break End::Gone("it closed the stream".to_owned()),
                        Ok(Err(status)) => break End::Gone(status.message().to_owned()),
                        Err(_) => break End::Gone(format!("not heard of for {patience:?}")),
                    }
                }
                ended = child::ended(&mut self.child) => self.on_end(&registration, ended),
                _ = heartbeat.tick() => {
                    registration.say(manager_message::Message::Alive(Alive {}));
                }
                _ = self.signals.next() => break End::Told,
            }
        };
        self.next = None;
        if let Some(child) = &mut self.child {
            child.abandon();
        }
        end
    }

    /// Whether it was the last order. Waits for nothing: a process that is killed may take long to
    /// end, and this TaskManager says meanwhile that it is there.
    fn obey(&mut self, registration: &Registration, order: ManagerOrder) -> bool {
        match order.order {
            Some(manager_order::Order::Launch(launch)) => match &mut self.child {
                Some(former) => {
                    former.begin_to_kill();
                    self.next = Some(launch);
                }
                None => self.launch_or_say_why(registration, launch),
            },
            Some(manager_order::Order::Kill(kill)) => {
                let process = process_id(kill.attempt, kill.process);
                let next = &mut self.next;
                next.take_if(|next| process_id(next.attempt, next.process) == process);
                match &mut self.child {
                    Some(running) if running.process == Some(process) => running.begin_to_kill(),
                    _ => {
                        let how = "had ended before".to_owned();
                        registration.say(ended_message(process, how));
                    }
                }
            }
            Some(manager_order::Order::Dismiss(_)) => return true,
            Some(manager_order::Order::Welcome(_) | manager_order::Order::Alive(_)) | None => {}
        }
        false
    }

    /// The process has ended; another one may have been waiting for that.
    fn on_end(&mut self, registration: &Registration, ended: (Option<ProcessId>, String)) {
        if let (Some(process), how) = ended {
            registration.say(ended_message(process, how));
        }
        if let Some(launch) = self.next.take() {
            self.launch_or_say_why(registration, launch);
        }
    }

    fn launch_or_say_why(&mut self, registration: &Registration, launch: Launch) {
        let process = process_id(launch.attempt, launch.process);
        if let Err(how) = self.launch(registration, launch, process) {
            registration.say(ended_message(process, how));
        }
    }

    fn launch(
        &mut self,
        registration: &Registration,
        launch: Launch,
        process: ProcessId,
    ) -> Result<(), String> {
        let host = match self.applicant.options.host {
            Some(host) => host,
            None => own_address(&registration.jobmanager)
                .map_err(|cause| format!("could not be started: no own address: {cause}"))?,
        };
        let task = Task {
            process,
            epoch: LeaderEpoch(registration.welcome.epoch),
            jobmanager: registration.jobmanager.clone(),
            host,
            parent: std::process::id(),
            heartbeat_timeout: Duration::from_millis(registration.welcome.heartbeat_timeout_millis),
            build: self.applicant.build,
            local_copies: self.local_copies(&launch.job),
            job: launch.job.clone(),
        };
        let child = Child::start(&task, &launch, &self.applicant.options.cluster);
        self.child = Some(child.map_err(|cause| format!("could not be started: {cause}"))?);
        Ok(())
    }

    /// Where the process that is to be started keeps copies of state files. If there is no such
    /// place now, there may be for the next.
    fn local_copies(&mut self, job: &str) -> Option<PathBuf> {
        let recovery = self.applicant.options.local_recovery.as_ref()?;
        if self
            .copies
            .as_ref()
            .and_then(|claimed| claimed.of(job))
            .is_none()
        {
            self.copies = None;
            match claim(recovery, job, &self.applicant.options.name) {
                Ok(claimed) => self.copies = Some(claimed),
                Err(cause) => {
                    let cause = ErrorChain(&cause);
                    tracing::warn!(%cause, "this attempt goes without local copies of state");
                }
            }
        }
        let folder = self.copies.as_ref()?.of(job)?;
        Some(folder.to_owned())
    }

    /// Copies outlive this process only if somebody may look for them.
    fn remove_copies_after(&mut self, end: &End) {
        let recovery = self.applicant.options.local_recovery.as_ref();
        let comes_back = matches!(end, End::Told) && recovery.is_some_and(|local| local.keep);
        if let Some(claimed) = self.copies.take().filter(|_| !comes_back) {
            claimed.remove();
        }
    }
}

/// Waits until nothing runs.
async fn gone(child: &mut Option<Child>) {
    while child.is_some() {
        child::ended(child).await;
    }
}

/// Waits for what this TaskManager does without a JobManager; `None` if it is told to end before.
/// What is left of an attempt may end meanwhile, as slowly as it likes.
async fn meanwhile<T>(
    child: &mut Option<Child>,
    signals: &mut Signals,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Some(done),
            _ = child::ended(child) => {}
            _ = signals.next() => return None,
        }
    }
}

fn random() -> std::io::Result<u64> {
    getrandom::u64().map_err(std::io::Error::other)
}

/// The address of this machine from which the JobManager is reached. Nothing is sent.
fn own_address(jobmanager: &str) -> std::io::Result<IpAddr> {
    let any: [SocketAddr; 2] = [([0, 0, 0, 0], 0).into(), ([0u16; 8], 0).into()];
    let mut outcome = Err(std::io::ErrorKind::AddrNotAvailable.into());
    for from in any {
        outcome = UdpSocket::bind(from).and_then(|socket| {
            socket.connect(jobmanager)?;
            Ok(socket.local_addr()?.ip())
        });
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn ended_message(process: ProcessId, how: String) -> manager_message::Message {
    manager_message::Message::Ended(ProcessEnded {
        attempt: process.attempt.0,
        process: process.index,
        how,
    })
}
