//! Carries out what the fleet decides, and tells it what happens: one task, which owns all streams.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_coordinator::{
    Deployment, Fleet, FleetAction, FleetEvent, JobEvent, ManagerId, ManagerInfo, NoticeTarget,
    ProcessId,
};
use tidegate_types::message::{self, AddressedReport, FailureOrigin, Report, SubtaskFailure};
use tidegate_types::{AttemptNumber, CheckpointId, JobId, LeaderEpoch};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tonic::Status;

use super::streams::Orders;
use crate::clock::Clock;
use crate::cluster::refusal::misfit;
use crate::cluster::settings::{JobManagerOptions, heartbeat, heartbeat_interval};
use crate::cluster::wire::{
    self, Alive, Dismiss, Halt, ManagerOrder, ManagerWelcome, Notice, ProcessHello, ProcessOrder,
    SubtaskRestore, manager_message, manager_order, process_id, process_message, process_order,
};
use crate::driver::{Events, Launch};
use crate::files::Discard;

/// How long TaskManagers get to take note of the end of the job.
const DISMISSAL_PATIENCE: Duration = Duration::from_secs(1);

/// What a dispatcher is told, by the driver and by streams.
pub(super) enum Post {
    Start(Launch),
    Notify {
        attempt: AttemptNumber,
        notice: message::Notice,
        to: NoticeTarget,
    },
    Stop(AttemptNumber),
    /// Stop whatever runs, dismiss everybody if the job is `over`, and answer.
    Settle {
        over: bool,
        settled: oneshot::Sender<()>,
    },
    ManagerArrived {
        manager: ManagerId,
        info: ManagerInfo,
        orders: Orders<ManagerOrder>,
    },
    ManagerSaid {
        manager: ManagerId,
        message: manager_message::Message,
    },
    ManagerLeft {
        manager: ManagerId,
        cause: String,
    },
    ProcessArrived {
        stream: u64,
        process: ProcessId,
        hello: ProcessHello,
        orders: Orders<ProcessOrder>,
    },
    ProcessSaid {
        stream: u64,
        message: process_message::Message,
    },
    ProcessLeft {
        stream: u64,
        cause: String,
    },
}

/// What a dispatcher is made of.
pub(super) struct Terms {
    pub(super) options: JobManagerOptions,
    pub(super) name: String,
    pub(super) job: JobId,
    pub(super) epoch: LeaderEpoch,
    pub(super) events: Events,
    pub(super) discard: Discard,
}

pub(super) struct Dispatcher {
    terms: Terms,
    fleet: Fleet,
    clock: Clock,
    /// When the loop came round last.
    looked: Duration,
    /// The job graph as every process must have built it.
    graph: String,
    managers: BTreeMap<ManagerId, Orders<ManagerOrder>>,
    /// By stream: a process that has been taken for lost may come back with another.
    processes: BTreeMap<u64, Attending>,
    launch: Option<Launch>,
    settling: Option<oneshot::Sender<()>>,
    /// Whether the job is, when it has settled; else it goes on under another JobManager.
    over: bool,
}

/// What the loop has come round for.
enum Next {
    Post(Option<Post>),
    Heartbeat,
    Deadline,
}

/// A process that has a stream.
struct Attending {
    process: ProcessId,
    orders: Orders<ProcessOrder>,
}

impl Dispatcher {
    pub(super) fn new(terms: Terms, graph: String) -> Self {
        Dispatcher {
            fleet: Fleet::new(terms.options.fleet()),
            clock: Clock::start(),
            graph,
            looked: Duration::ZERO,
            managers: BTreeMap::new(),
            processes: BTreeMap::new(),
            launch: None,
            settling: None,
            over: false,
            terms,
        }
    }

    /// Runs until the job is over.
    pub(super) async fn run(mut self, mut posts: UnboundedReceiver<Post>) {
        let mut heartbeat = heartbeat(self.heartbeat_interval());
        loop {
            let due = self.fleet.next_deadline();
            let due = due.map_or(Duration::MAX, |due| self.clock.until(due));
            let next = tokio::select! {
                post = posts.recv() => Next::Post(post),
                _ = heartbeat.tick() => Next::Heartbeat,
                () = tokio::time::sleep(due) => Next::Deadline,
            };
            // Ordering: before anybody is blamed.
            self.notice_absence();
            match next {
                Next::Post(Some(post)) => self.take(post),
                Next::Post(None) => return,
                Next::Heartbeat => self.say_that_we_are_here(),
                Next::Deadline => self.step(FleetEvent::Tick),
            }
            if self.settling.is_some() && self.launch.is_none() {
                break;
            }
        }
        match self.over {
            true => self.dismiss_everybody(posts).await,
            false => self.leave(),
        }
    }

    /// The loop comes round with every heartbeat, unless this process stood still.
    fn notice_absence(&mut self) {
        let now = self.clock.elapsed();
        let gap = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        if gap > self.heartbeat_interval() * 2 {
            tracing::warn!(?gap, "the JobManager stood still");
            self.step(FleetEvent::WeWereAway(gap));
        }
    }

    fn heartbeat_interval(&self) -> Duration {
        heartbeat_interval(self.terms.options.heartbeat_timeout)
    }

    fn say_that_we_are_here(&mut self) {
        for orders in self.managers.values() {
            give(orders, manager_order::Order::Alive(Alive {}));
        }
        for attending in self.processes.values() {
            tell(&attending.orders, process_order::Order::Alive(Alive {}));
        }
    }

    fn take(&mut self, post: Post) {
        match post {
            Post::Start(launch) => {
                let (attempt, workers) = (launch.number, launch.plan.graph().parallelism_max());
                self.launch = Some(launch);
                self.step(FleetEvent::Start { attempt, workers });
            }
            Post::Notify {
                attempt,
                notice,
                to,
            } => self.notify(attempt, &notice, to),
            Post::Stop(attempt) => self.step(FleetEvent::Stop { attempt }),
            Post::Settle { over, settled } => {
                (self.settling, self.over) = (Some(settled), over);
                if let Some(launch) = &self.launch {
                    let attempt = launch.number;
                    self.step(FleetEvent::Stop { attempt });
                }
            }
            Post::ManagerArrived {
                manager,
                info,
                orders,
            } => {
                let (name, slots) = (&info.name, info.slots);
                tracing::info!(name, slots, "a TaskManager registers");
                self.managers.insert(manager, orders);
                self.step(FleetEvent::Registered { manager, info });
            }
            Post::ManagerSaid { manager, message } => self.on_manager(manager, message),
            Post::ManagerLeft { manager, cause } => {
                self.managers.remove(&manager);
                self.step(FleetEvent::ManagerLost { manager, cause });
            }
            Post::ProcessArrived {
                stream,
                process,
                hello,
                orders,
            } => self.on_arrival(stream, process, hello, orders),
            Post::ProcessSaid { stream, message } => self.on_process(stream, message),
            Post::ProcessLeft { stream, cause } => {
                if let Some(attending) = self.processes.remove(&stream) {
                    let process = attending.process;
                    self.step(FleetEvent::ProcessLost { process, cause });
                }
            }
        }
    }

    fn on_manager(&mut self, manager: ManagerId, message: manager_message::Message) {
        self.step(FleetEvent::ManagerHeard(manager));
        if let manager_message::Message::Ended(ended) = message {
            let process = process_id(ended.attempt, ended.process);
            self.step(FleetEvent::ProcessEnded {
                manager,
                process,
                how: ended.how,
            });
        }
    }

    fn on_arrival(
        &mut self,
        stream: u64,
        process: ProcessId,
        hello: ProcessHello,
        orders: Orders<ProcessOrder>,
    ) {
        let current = self.launch.as_ref().map(|launch| launch.number);
        if current != Some(process.attempt) || hello.epoch != self.terms.epoch.0 {
            let now = current.map_or("none runs".to_owned(), |now| format!("now it is {now}"));
            let stale = format!("{process} of epoch-{} is over; {now}", hello.epoch);
            let _ = orders.send(Err(Status::aborted(stale)));
            return;
        }
        if let Some(difference) = first_difference(&self.graph, &hello.graph) {
            let cause = format!("it has built another job than the JobManager: {difference}");
            let _ = orders.send(Err(Status::failed_precondition(cause.clone())));
            self.step(FleetEvent::ProcessUnfit { process, cause });
            return;
        }
        self.processes.insert(stream, Attending { process, orders });
        let address = hello.address;
        self.step(FleetEvent::ProcessConnected { process, address });
    }

    fn on_process(&mut self, stream: u64, message: process_message::Message) {
        let Some(attending) = self.processes.get(&stream) else {
            return;
        };
        let process = attending.process;
        self.step(FleetEvent::ProcessHeard(process));
        match message {
            process_message::Message::Hello(_) => {}
            process_message::Message::Progress(progress) => self.on_progress(process, &progress),
            process_message::Message::Report(report) => match AddressedReport::try_from(report) {
                Ok(report) => self.on_report(process, report),
                Err(bad) => {
                    let cause = bad.to_string();
                    self.step(FleetEvent::ProcessUnfit { process, cause });
                }
            },
            process_message::Message::Discard(discard) => {
                if let Some(file) = discard.file {
                    let checkpoint = CheckpointId(discard.checkpoint);
                    (self.terms.discard)(checkpoint, &file.into());
                }
            }
        }
    }

    fn on_progress(&mut self, process: ProcessId, progress: &wire::Progress) {
        let launch = self.launch.as_ref();
        if let Some(launch) = launch.filter(|launch| launch.number == process.attempt) {
            progress.apply_to(&launch.metrics, process.index);
        }
        let Some(timeout) = self.terms.options.task_timeout else {
            return;
        };
        let stuck = progress.stuck.iter();
        let stuck = stuck.max_by_key(|stuck| stuck.millis);
        if let Some(stuck) = stuck.filter(|s| Duration::from_millis(s.millis) > timeout) {
            let silent = Duration::from_millis(stuck.millis);
            let cause = format!(
                "worker {} has been at `{}` for {silent:?}, longer than --task-timeout allows",
                stuck.worker, stuck.subtask
            );
            self.step(FleetEvent::ProcessUnfit { process, cause });
        }
    }

    fn on_report(&mut self, process: ProcessId, addressed: AddressedReport) {
        match addressed.report {
            Report::Failed(SubtaskFailure {
                origin: FailureOrigin::Peer { .. },
                cause,
                ..
            }) => self.step(FleetEvent::PeerLost { process, cause }),
            report => (self.terms.events)(JobEvent::Report(AddressedReport {
                attempt: addressed.attempt,
                report,
            })),
        }
    }

    fn notify(&mut self, attempt: AttemptNumber, notice: &message::Notice, to: NoticeTarget) {
        // Enumerators have one subtask, and that is on the first worker.
        let concerned = |process: ProcessId| match to {
            NoticeTarget::Enumerators => process.index == 0,
            NoticeTarget::All => true,
        };
        for attending in self.processes.values() {
            if attending.process.attempt == attempt && concerned(attending.process) {
                let notice = Notice::new(attempt, notice.clone());
                tell(&attending.orders, process_order::Order::Notice(notice));
            }
        }
    }

    fn step(&mut self, event: FleetEvent) {
        let mut actions = Vec::new();
        self.fleet
            .step(self.clock.now().monotonic, event, &mut actions);
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: FleetAction) {
        match action {
            FleetAction::Welcome(manager) => {
                let timeout = self.terms.options.heartbeat_timeout;
                let welcome = ManagerWelcome {
                    epoch: self.terms.epoch.0,
                    heartbeat_timeout_millis: timeout.as_millis() as u64,
                    job_low: self.terms.job.0 as u64,
                    job_high: (self.terms.job.0 >> 64) as u64,
                };
                self.give_to(manager, manager_order::Order::Welcome(welcome));
            }
            FleetAction::Refuse {
                manager,
                cause,
                may_retry,
            } => {
                tracing::warn!(cause, "a TaskManager was refused");
                if let Some(orders) = self.managers.remove(&manager) {
                    let _ = orders.send(Err(match may_retry {
                        true => Status::unavailable(cause),
                        false => misfit(cause),
                    }));
                }
            }
            FleetAction::Launch { manager, process } => {
                let launch = self.order_to_launch(process);
                self.give_to(manager, manager_order::Order::Launch(launch));
            }
            FleetAction::Deploy(deployment) => self.deploy(&deployment),
            FleetAction::Kill { manager, process } => self.kill(manager, process),
            FleetAction::Disconnect(manager) => drop(self.managers.remove(&manager)),
            FleetAction::Failed { attempt, cause } => {
                let report = Report::Failed(SubtaskFailure::here(None, cause));
                (self.terms.events)(JobEvent::Report(AddressedReport { attempt, report }));
            }
            FleetAction::Stopped(attempt) => {
                self.launch.take_if(|launch| launch.number == attempt);
                self.processes
                    .retain(|_, attending| attending.process.attempt != attempt);
                (self.terms.events)(JobEvent::AttemptStopped { attempt });
            }
            FleetAction::Slots(slots) => (self.terms.events)(JobEvent::Slots { slots }),
            FleetAction::Waiting(waiting) => tracing::warn!("{waiting}"),
        }
    }

    fn order_to_launch(&self, process: ProcessId) -> wire::Launch {
        let options = &self.terms.options;
        let argument = |argument: &std::ffi::OsString| argument.as_encoded_bytes().to_vec();
        let variable = |variable: &crate::cluster::Variable| wire::Variable {
            name: variable.name.clone(),
            value: variable.value.clone(),
        };
        wire::Launch {
            attempt: process.attempt.0,
            process: process.index,
            job: self.terms.name.clone(),
            arguments: options.arguments.iter().map(argument).collect(),
            variables: options.variables.iter().map(variable).collect(),
        }
    }

    fn deploy(&mut self, deployment: &Deployment) {
        let Some(launch) = self.launch.as_ref() else {
            return;
        };
        let graph = launch.plan.graph();
        let max = graph.operators.iter().map(|op| op.max_parallelism.get());
        let max_parallelism: Vec<u32> = max.collect();
        for attending in self.processes.values() {
            if attending.process.attempt != deployment.attempt {
                continue;
            }
            let first = attending.process.index * deployment.threads;
            let part = launch.restore.part(first..first + deployment.threads);
            let restore = part.subtasks.into_iter();
            let restore = restore.map(|(subtask, restore)| SubtaskRestore::new(subtask, restore));
            let order = wire::Deployment {
                job_low: self.terms.job.0 as u64,
                job_high: (self.terms.job.0 >> 64) as u64,
                attempt: deployment.attempt.0,
                threads: deployment.threads,
                addresses: deployment.addresses.to_vec(),
                restored: launch.restored.map(|restored| restored.0),
                restore: restore.collect(),
                max_parallelism: max_parallelism.clone(),
                parallelism: launch.scale.parallelism,
                at_most: launch.scale.at_most,
            };
            tell(&attending.orders, process_order::Order::Deployment(order));
        }
    }

    /// Whoever can be reached is told: the supervisor, which is sure to succeed, and the process
    /// itself, whose supervisor may be out of reach.
    fn kill(&mut self, manager: ManagerId, process: ProcessId) {
        let kill = wire::Kill {
            attempt: process.attempt.0,
            process: process.index,
        };
        self.give_to(manager, manager_order::Order::Kill(kill));
        let of_process = self.processes.iter();
        let mut of_process = of_process.filter(|(_, attending)| attending.process == process);
        let Some((&stream, attending)) = of_process.next() else {
            return;
        };
        tell(&attending.orders, process_order::Order::Halt(Halt {}));
        self.processes.remove(&stream);
        let cause = "it was told to end".to_owned();
        self.step(FleetEvent::ProcessLost { process, cause });
    }

    fn give_to(&self, manager: ManagerId, order: manager_order::Order) {
        if let Some(orders) = self.managers.get(&manager) {
            give(orders, order);
        }
    }

    /// TaskManagers find their streams closed, and look for the next JobManager.
    fn leave(mut self) {
        self.managers.clear();
        if let Some(settled) = self.settling.take() {
            let _ = settled.send(());
        }
    }

    /// Tells every TaskManager that the job is over, and waits for a moment until they have heard.
    async fn dismiss_everybody(mut self, mut posts: UnboundedReceiver<Post>) {
        for orders in self.managers.values() {
            give(orders, manager_order::Order::Dismiss(Dismiss {}));
        }
        let farewell = async {
            while !self.managers.is_empty() {
                match posts.recv().await {
                    Some(Post::ManagerLeft { manager, .. }) => {
                        self.managers.remove(&manager);
                    }
                    Some(_) => {}
                    None => return,
                }
            }
        };
        let _ = tokio::time::timeout(DISMISSAL_PATIENCE, farewell).await;
        if let Some(settled) = self.settling.take() {
            let _ = settled.send(());
        }
    }
}

/// A stream that has ended takes no orders; that it has is posted.
fn give(orders: &Orders<ManagerOrder>, order: manager_order::Order) {
    let _ = orders.send(Ok(ManagerOrder { order: Some(order) }));
}

fn tell(orders: &Orders<ProcessOrder>, order: process_order::Order) {
    let _ = orders.send(Ok(ProcessOrder { order: Some(order) }));
}

/// Where two descriptions differ, for people.
fn first_difference(ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let (mut ours, mut theirs) = (ours.lines(), theirs.lines());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Some("only the ends of lines differ".to_owned()),
            (a, b) if a == b => {}
            (a, b) => {
                let (a, b) = (a.unwrap_or("nothing"), b.unwrap_or("nothing"));
                return Some(format!("`{b}` instead of `{a}`"));
            }
        }
    }
}
