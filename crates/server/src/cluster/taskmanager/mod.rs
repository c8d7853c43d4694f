//! The TaskManager: a supervisor that runs the process of each attempt, and keeps nothing between
//! them but, if it is told to, a folder with copies of their state files.
//!
//! It belongs to whoever leads: it registers, and does what it is told until its stream ends or is
//! silent for the heartbeat timeout. Then it kills its process, since nobody would know of it, and
//! looks for a leader again. Its process dies with it, too.

mod child;

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_coordinator::ProcessId;
use tidegate_types::{ErrorChain, JobId, LeaderEpoch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::client::reach;
use super::refusal::Farewell;
use super::secret::{AddressError, check_address};
use super::settings::{TaskManagerOptions, heartbeat, heartbeat_interval};
use super::task::Task;
use super::wire::{
    Alive, Launch, ManagerHello, ManagerMessage, ManagerOrder, ManagerWelcome, ProcessEnded,
    VERSION, manager_message, manager_order, process_id,
};
use crate::data::BuildFingerprint;
use crate::local_recovery::{Claimed, claim};

use child::Child;

/// How long a JobManager may take to answer to a registration.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

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
    runtime.block_on(async { Supervisor::new(options)?.run().await })
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
    options: TaskManagerOptions,
    build: BuildFingerprint,
    /// Tells this process from others of its name.
    instance: u64,
    /// Of the newest leadership that it has been registered with, and of which job.
    leadership: Option<(JobId, LeaderEpoch)>,
    child: Option<Child>,
    /// What is to be started once the child, which is being killed, has ended.
    next: Option<Launch>,
    /// The folder of its copies, once it is known of which job.
    copies: Option<Claimed>,
    /// SIGTERM, and SIGINT.
    signals: [Signal; 2],
}

/// The stream on which it is registered.
struct Registration {
    jobmanager: String,
    welcome: ManagerWelcome,
    orders: Streaming<ManagerOrder>,
    says: UnboundedSender<ManagerMessage>,
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
        let on = |kind| signal(kind).map_err(|cause| system("listen for signals", cause));
        Ok(Supervisor {
            build: build_of_this_binary().map_err(|cause| system("read the binary", cause))?,
            signals: [on(SignalKind::terminate())?, on(SignalKind::interrupt())?],
            instance: random().map_err(|cause| system("draw a random number", cause))?,
            leadership: None,
            child: None,
            next: None,
            copies: None,
            options,
        })
    }

    async fn run(mut self) -> Result<(), TaskManagerError> {
        let mut pause = RETRY_MIN;
        let mut alone_since = Instant::now();
        loop {
            for address in self.options.jobmanagers.clone() {
                match self.register(&address).await {
                    Ok(registration) => {
                        pause = RETRY_MIN;
                        self.leadership = Some(leadership(&registration.welcome));
                        tracing::info!(address, "registered");
                        match self.serve(registration).await {
                            end @ (End::Dismissed | End::Told) => {
                                self.remove_copies_after(&end);
                                return Ok(());
                            }
                            End::Gone(cause) => tracing::warn!(address, cause, "JobManager lost"),
                        }
                        alone_since = Instant::now();
                    }
                    Err(Farewell::Refused(cause)) => {
                        return Err(TaskManagerError::Refused { address, cause });
                    }
                    Err(Farewell::Gone(cause)) => {
                        tracing::debug!(address, cause, "no JobManager");
                        let patience = self.options.registration_timeout;
                        if alone_since.elapsed() >= patience {
                            return Err(TaskManagerError::Alone {
                                patience,
                                address,
                                cause,
                            });
                        }
                    }
                }
            }
            let [terminate, interrupt] = &mut self.signals;
            tokio::select! {
                () = sleep(pause) => pause = RETRY_MAX.min(pause * 2),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        self.remove_copies_after(&End::Told);
        Ok(())
    }

    async fn register(&self, address: &str) -> Result<Registration, Farewell> {
        let gone = |cause: &dyn std::error::Error| Farewell::Gone(ErrorChain(cause).to_string());
        match check_address(address, self.options.cluster.leaves_the_machine()) {
            Ok(_) => {}
            Err(error @ AddressError::Foreign(_)) => {
                return Err(Farewell::Refused(error.to_string()));
            }
            Err(error) => return Err(gone(&error)),
        }
        let mut client = reach(address, &self.options.cluster, ANSWER_PATIENCE).await?;
        let (says, said) = unbounded_channel();
        let _ = says.send(message(manager_message::Message::Hello(ManagerHello {
            version: VERSION,
            name: self.options.name.clone(),
            slots: self.options.slots,
            build: self.build.to_string(),
            instance: self.instance,
        })));
        let answered = async {
            let answer = client.register(UnboundedReceiverStream::new(said)).await?;
            let mut orders = answer.into_inner();
            let first = orders.message().await?.and_then(|order| order.order);
            Ok::<_, tonic::Status>((first, orders))
        };
        let late = |_| Farewell::Gone("it doesn't answer".to_owned());
        let answered = timeout(ANSWER_PATIENCE, answered).await.map_err(late)?;
        let (first, orders) = answered.map_err(Farewell::from)?;
        let Some(manager_order::Order::Welcome(welcome)) = first else {
            return Err(Farewell::Gone("it does not welcome us".to_owned()));
        };
        self.check_leadership(&welcome)?;
        Ok(Registration {
            jobmanager: address.to_owned(),
            welcome,
            orders,
            says,
        })
    }

    /// One that led before another is paused, or doesn't know yet: it must not be obeyed.
    fn check_leadership(&self, welcome: &ManagerWelcome) -> Result<(), Farewell> {
        let (_, epoch) = leadership(welcome);
        match since(self.leadership, leadership(welcome)) {
            Some(newest) => {
                tracing::warn!(%epoch, %newest, "a JobManager that has lost the lead is ignored");
                Err(Farewell::Gone(format!(
                    "it leads as `{epoch}`, and another has led as `{newest}` since"
                )))
            }
            None => Ok(()),
        }
    }

    /// Does what the JobManager says until it is gone. Nothing runs afterwards.
    async fn serve(&mut self, mut registration: Registration) -> End {
        let patience = Duration::from_millis(registration.welcome.heartbeat_timeout_millis);
        let mut heartbeat = heartbeat(heartbeat_interval(patience));
        let mut heard = Instant::now();
        let end = loop {
            let [terminate, interrupt] = &mut self.signals;
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
                    let alive = manager_message::Message::Alive(Alive {});
                    let _ = registration.says.send(message(alive));
                }
                _ = terminate.recv() => break End::Told,
                _ = interrupt.recv() => break End::Told,
            }
        };
        self.next = None;
        self.end_child().await;
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
                    Some(running) if running.process == process => running.begin_to_kill(),
                    _ => {
                        let how = "had ended before".to_owned();
                        let _ = registration.says.send(ended_message((process, how)));
                    }
                }
            }
            Some(manager_order::Order::Dismiss(_)) => return true,
            Some(manager_order::Order::Welcome(_) | manager_order::Order::Alive(_)) | None => {}
        }
        false
    }

    /// The process has ended; another one may have been waiting for that.
    fn on_end(&mut self, registration: &Registration, ended: (ProcessId, String)) {
        let _ = registration.says.send(ended_message(ended));
        if let Some(launch) = self.next.take() {
            self.launch_or_say_why(registration, launch);
        }
    }

    fn launch_or_say_why(&mut self, registration: &Registration, launch: Launch) {
        let process = process_id(launch.attempt, launch.process);
        if let Err(how) = self.launch(registration, launch, process) {
            let _ = registration.says.send(ended_message((process, how)));
        }
    }

    fn launch(
        &mut self,
        registration: &Registration,
        launch: Launch,
        process: ProcessId,
    ) -> Result<(), String> {
        let host = match self.options.host {
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
            build: self.build,
            local_copies: self.local_copies(&launch.job),
            job: launch.job.clone(),
        };
        let child = Child::start(&task, &launch, &self.options.cluster);
        self.child = Some(child.map_err(|cause| format!("could not be started: {cause}"))?);
        Ok(())
    }

    /// Where the process that is to be started keeps copies of state files. If there is no such
    /// place now, there may be for the next.
    fn local_copies(&mut self, job: &str) -> Option<PathBuf> {
        let recovery = self.options.local_recovery.as_ref()?;
        if self
            .copies
            .as_ref()
            .and_then(|claimed| claimed.of(job))
            .is_none()
        {
            self.copies = None;
            match claim(recovery, job, &self.options.name) {
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
        let recovery = self.options.local_recovery.as_ref();
        let comes_back = matches!(end, End::Told) && recovery.is_some_and(|local| local.keep);
        if let Some(claimed) = self.copies.take().filter(|_| !comes_back) {
            claimed.remove();
        }
    }

    async fn end_child(&mut self) {
        if let Some(child) = &mut self.child {
            child.begin_to_kill();
            child::ended(&mut self.child).await;
        }
    }
}

fn random() -> std::io::Result<u64> {
    getrandom::u64().map_err(std::io::Error::other)
}

fn leadership(welcome: &ManagerWelcome) -> (JobId, LeaderEpoch) {
    let job = u128::from(welcome.job_high) << 64 | u128::from(welcome.job_low);
    (JobId(job), LeaderEpoch(welcome.epoch))
}

/// The leadership that has followed this one, as far as is known. Another job's epochs are its own.
fn since(
    known: Option<(JobId, LeaderEpoch)>,
    (job, epoch): (JobId, LeaderEpoch),
) -> Option<LeaderEpoch> {
    let (_, newest) = known.filter(|(known, _)| *known == job)?;
    (epoch < newest).then_some(newest)
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

fn message(message: manager_message::Message) -> ManagerMessage {
    ManagerMessage {
        message: Some(message),
    }
}

fn ended_message((process, how): (ProcessId, String)) -> ManagerMessage {
    message(manager_message::Message::Ended(ProcessEnded {
        attempt: process.attempt.0,
        process: process.index,
        how,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A leader that was paused wakes up, and doesn't know yet that another one leads.
    #[test]
    fn a_former_leader_of_the_same_job_is_known_to_be_one() {
        let of = |job, epoch| (JobId(job), LeaderEpoch(epoch));
        assert_eq!(since(Some(of(1, 5)), of(1, 4)), Some(LeaderEpoch(5)));
        for (known, offered) in [
            (None, of(1, 4)),
            (Some(of(1, 5)), of(1, 5)),
            (Some(of(1, 5)), of(1, 6)),
            (Some(of(1, 5)), of(2, 1)),
        ] {
            assert_eq!(since(known, offered), None);
        }
    }
}
