//! The TaskManager: a supervisor that runs the process of each attempt, and keeps nothing between
//! them.
//!
//! It belongs to whoever leads: it registers, and does what it is told until its stream ends or is
//! silent for the heartbeat timeout. Then it kills its process, since nobody would know of it, and
//! looks for a leader again. Its process dies with it, too.

mod child;

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tidegate_coordinator::ProcessId;
use tidegate_types::{ErrorChain, LeaderEpoch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::client::{client, endpoint};
use super::refusal::Farewell;
use super::secret::{AddressError, check_address};
use super::settings::{TaskManagerOptions, heartbeat, heartbeat_interval};
use super::task::Task;
use super::wire::{
    Alive, Launch, ManagerHello, ManagerMessage, ManagerOrder, ManagerWelcome, ProcessEnded,
    VERSION, manager_message, manager_order, process_id,
};
use crate::data::BuildFingerprint;

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
    // Processes die with the thread that started them, so everything is done on this one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| system("start a runtime", cause))?;
    runtime.block_on(async { Supervisor::new(options)?.run().await })
}

/// Checks what doesn't change. Names of machines may be known later.
fn check(options: &TaskManagerOptions) -> Result<(), String> {
    let insecure = options.cluster.insecure;
    for address in &options.jobmanagers {
        if let Err(error @ (AddressError::Malformed(_) | AddressError::Foreign(_))) =
            check_address(address, insecure)
        {
            return Err(error.to_string());
        }
    }
    match options.host {
        Some(host) if !insecure && !host.is_loopback() => {
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
    child: Option<Child>,
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
    /// There is nothing left to do.
    Over,
}

impl Supervisor {
    fn new(options: TaskManagerOptions) -> Result<Self, TaskManagerError> {
        let on = |kind| signal(kind).map_err(|cause| system("listen for signals", cause));
        Ok(Supervisor {
            build: build_of_this_binary().map_err(|cause| system("read the binary", cause))?,
            signals: [on(SignalKind::terminate())?, on(SignalKind::interrupt())?],
            child: None,
            options,
        })
    }

    async fn run(mut self) -> Result<(), TaskManagerError> {
        let mut pause = RETRY_MIN;
        loop {
            for address in self.options.jobmanagers.clone() {
                match self.register(&address).await {
                    Ok(registration) => {
                        pause = RETRY_MIN;
                        tracing::info!(address, "registered");
                        match self.serve(registration).await {
                            End::Over => return Ok(()),
                            End::Gone(cause) => tracing::warn!(address, cause, "JobManager lost"),
                        }
                    }
                    Err(Farewell::Refused(cause)) => {
                        return Err(TaskManagerError::Refused { address, cause });
                    }
                    Err(Farewell::Gone(cause)) => {
                        tracing::debug!(address, cause, "no JobManager");
                    }
                }
            }
            let [terminate, interrupt] = &mut self.signals;
            tokio::select! {
                () = sleep(pause) => pause = RETRY_MAX.min(pause * 2),
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
            }
        }
    }

    async fn register(&self, address: &str) -> Result<Registration, Farewell> {
        let gone = |cause: &dyn std::error::Error| Farewell::Gone(ErrorChain(cause).to_string());
        match check_address(address, self.options.cluster.insecure) {
            Ok(_) => {}
            Err(error @ AddressError::Foreign(_)) => {
                return Err(Farewell::Refused(error.to_string()));
            }
            Err(error) => return Err(gone(&error)),
        }
        let endpoint = endpoint(address).map_err(|error| gone(&error))?;
        let channel = endpoint.connect_timeout(ANSWER_PATIENCE).connect().await;
        let channel = channel.map_err(|error| gone(&error))?;
        let mut client = client(channel, &self.options.cluster.secret);
        let (says, said) = unbounded_channel();
        let _ = says.send(message(manager_message::Message::Hello(ManagerHello {
            version: VERSION,
            name: self.options.name.clone(),
            slots: self.options.slots,
            build: self.build.to_string(),
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
        Ok(Registration {
            jobmanager: address.to_owned(),
            welcome,
            orders,
            says,
        })
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
                            if self.obey(&registration, order).await {
                                break End::Over;
                            }
                        }
                        Ok(Ok(None)) => break End::Gone("it closed the stream".to_owned()),
                        Ok(Err(status)) => break End::Gone(status.message().to_owned()),
                        Err(_) => break End::Gone(format!("not heard of for {patience:?}")),
                    }
                }
                ended = child::ended(&mut self.child) => {
                    let _ = registration.says.send(ended_message(ended));
                }
                _ = heartbeat.tick() => {
                    let alive = manager_message::Message::Alive(Alive {});
                    let _ = registration.says.send(message(alive));
                }
                _ = terminate.recv() => break End::Over,
                _ = interrupt.recv() => break End::Over,
            }
        };
        self.end_child().await;
        end
    }

    /// Whether it was the last order.
    async fn obey(&mut self, registration: &Registration, order: ManagerOrder) -> bool {
        match order.order {
            Some(manager_order::Order::Launch(launch)) => {
                self.end_child().await;
                let process = process_id(launch.attempt, launch.process);
                if let Err(how) = self.launch(registration, launch, process) {
                    let _ = registration.says.send(ended_message((process, how)));
                }
            }
            Some(manager_order::Order::Kill(kill)) => {
                let process = process_id(kill.attempt, kill.process);
                let running = self.child.as_ref().map(|child| child.process);
                if running != Some(process) {
                    let how = "had ended before".to_owned();
                    let _ = registration.says.send(ended_message((process, how)));
                } else if let Some(ended) = self.end_child().await {
                    let _ = registration.says.send(ended_message(ended));
                }
            }
            Some(manager_order::Order::Dismiss(_)) => return true,
            Some(manager_order::Order::Welcome(_) | manager_order::Order::Alive(_)) | None => {}
        }
        false
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
            job: launch.job.clone(),
        };
        let child = Child::start(&task, &launch, self.options.cluster.insecure);
        self.child = Some(child.map_err(|cause| format!("could not be started: {cause}"))?);
        Ok(())
    }

    async fn end_child(&mut self) -> Option<(ProcessId, String)> {
        let child = self.child.take()?;
        Some(child.kill().await)
    }
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
