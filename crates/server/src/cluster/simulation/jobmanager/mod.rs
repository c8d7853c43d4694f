//! The JobManager: `Job` and `Fleet` behind real messages, metered.
//!
//! It does what dispatcher and driver do, one turn per virtual millisecond in which something
//! arrives: decode, let the fleet and the job decide, encode.

mod hearing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prost::Message;
use tidegate_coordinator::{
    CheckpointSettings, Fleet, FleetAction, FleetEvent, FleetSettings, Job, JobAction, JobEvent,
    JobSettings, ManagerId, ManagerInfo, NoticeTarget, Now, ProcessId, Recovery, RestartStrategy,
    Statistics, TriggerRefusal,
};
use tidegate_runtime::AttemptMetrics;
use tidegate_types::graph::JobGraph;
use tidegate_types::message::{self, AddressedReport, Report, SubtaskFailure, WriteOutcome};
use tidegate_types::{AttemptNumber, CheckpointId, JobId, Millis, RestorePlan, UnixMillis};

use super::invariants::Watch;
use super::messages::metadata_bytes;
use super::meter::{Meter, Part};
use super::{Figures, RecoveryTime, Scale};
use crate::cluster::wire::{
    self, Alive, Halt, Kill, ManagerOrder, Notice, ProcessOrder, SubtaskRestore, manager_order,
    process_order,
};

/// What reaches it. Streams of processes are numbered; a number is never used again.
pub(super) enum Heard {
    Registered(ManagerId, ManagerInfo),
    FromManager(ManagerId, Vec<u8>),
    ManagerLeft(ManagerId),
    /// The first message on a stream.
    FromNewProcess(u64, Vec<u8>),
    FromProcess(u64, Vec<u8>),
    ProcessLeft(u64),
    /// The store has done something.
    Stored(JobEvent),
}

/// What it does.
pub(super) enum Order {
    ToManager(ManagerId, Vec<u8>),
    ToProcess(u64, Vec<u8>),
    Disconnect(ManagerId),
    /// Something for the store to do, which this is the outcome of.
    Store(JobEvent),
}

/// What came of a message.
enum News {
    Fleet(FleetEvent),
    Progress(ProcessId, wire::Progress),
    Job(JobEvent),
}

/// What is left to do in a turn.
#[derive(Default)]
struct Agenda {
    fleet: Vec<FleetEvent>,
    job: Vec<JobEvent>,
    orders: Vec<Order>,
}

/// An attempt that has failed, until the next one runs.
struct Outage {
    since: Millis,
    spent: Duration,
    launched: Option<Millis>,
    deployed: Option<(Millis, Duration)>,
}

pub(super) struct JobManager {
    graph: JobGraph,
    job: Job,
    fleet: Fleet,
    metrics: AttemptMetrics,
    attempts: AttemptNumber,
    /// What the attempt that runs starts from.
    restore: Option<(Option<CheckpointId>, RestorePlan)>,
    managers: BTreeSet<ManagerId>,
    processes: BTreeMap<u64, ProcessId>,
    picture: Statistics,
    watch: Watch,
    outage: Option<Outage>,
    running_since: Option<Millis>,
    now: Millis,
    /// What the meter showed after the last turn.
    counted: Meter,
    pub(super) figures: Figures,
}

impl JobManager {
    pub(super) fn new(scale: &Scale, graph: JobGraph) -> Self {
        let settings = JobSettings {
            checkpoints: CheckpointSettings {
                interval: Some(scale.interval),
                timeout: scale.interval * 2,
                tolerable_failures: None,
                ..CheckpointSettings::default()
            },
            restart: RestartStrategy::FixedDelay {
                attempts: u32::MAX,
                delay: Duration::from_millis(100),
            },
            ..JobSettings::default()
        };
        let job = Job::new(JobId(1), graph.clone(), settings, Recovery::default());
        let job = job.expect("the graph is valid");
        let subtasks = graph.subtasks().len();
        let resident = resident_bytes();
        let metrics = AttemptMetrics::new(&graph);
        JobManager {
            picture: job.statistics().clone(),
            job,
            fleet: Fleet::new(FleetSettings::default()),
            attempts: AttemptNumber(0),
            restore: None,
            managers: BTreeSet::new(),
            processes: BTreeMap::new(),
            watch: Watch::new(subtasks),
            outage: None,
            running_since: None,
            now: Millis(0),
            counted: Meter::default(),
            figures: Figures {
                subtasks: subtasks as u64,
                metrics_bytes: resident_bytes().saturating_sub(resident),
                ..Figures::default()
            },
            metrics,
            graph,
        }
    }

    /// When it has something to do without hearing anything.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let deadlines = self.fleet.next_deadline().into_iter();
        deadlines.chain(self.job.next_deadline()).min()
    }

    /// Takes what has arrived, and what time asks for.
    pub(super) fn turn(&mut self, now: Millis, heard: Vec<Heard>) -> Vec<Order> {
        let since = std::mem::replace(&mut self.now, now);
        let mut agenda = Agenda::default();
        for news in self.decode(heard) {
            match news {
                News::Fleet(event) => agenda.fleet.push(event),
                News::Job(event) => agenda.job.push(event),
                News::Progress(process, progress) => {
                    agenda.fleet.push(FleetEvent::ProcessHeard(process));
                    let metrics = &self.metrics;
                    let apply = || progress.apply_to(metrics, process.index);
                    self.figures.meter.time(Part::Progress, apply);
                }
            }
        }
        if self.fleet.next_deadline().is_some_and(|due| due <= now) {
            agenda.fleet.push(FleetEvent::Tick);
        }
        if self.job.next_deadline().is_some_and(|due| due <= now) {
            agenda.job.push(JobEvent::Tick);
        }
        while !agenda.fleet.is_empty() || !agenda.job.is_empty() {
            self.let_fleet_decide(&mut agenda);
            self.let_job_decide(&mut agenda);
        }
        self.count_turn(since);
        agenda.orders
    }

    /// Starts the job.
    pub(super) fn start(&mut self) -> Vec<Order> {
        let mut agenda = Agenda::default();
        agenda.job.push(JobEvent::Start);
        self.let_job_decide(&mut agenda);
        agenda.orders
    }

    /// Says to everybody that it is there.
    pub(super) fn beat(&mut self) -> Vec<Order> {
        let meter = &mut self.figures.meter;
        let to_managers = self.managers.iter().map(|manager| {
            let alive = manager_order::Order::Alive(Alive {});
            Order::ToManager(*manager, order_to_manager(meter, alive))
        });
        let mut orders: Vec<Order> = to_managers.collect();
        for stream in self.processes.keys() {
            let alive = process_order::Order::Alive(Alive {});
            orders.push(Order::ToProcess(*stream, order_to_process(meter, alive)));
        }
        orders
    }

    /// What the driver does for clients, ten times a second.
    pub(super) fn take_picture(&mut self) {
        let (job, picture) = (&self.job, &mut self.picture);
        self.figures.meter.time(Part::Pictures, || {
            if *picture != *job.statistics() {
                *picture = job.statistics().clone();
            }
        });
    }

    fn let_fleet_decide(&mut self, agenda: &mut Agenda) {
        let (now, fleet) = (self.now, &mut self.fleet);
        let mut actions = Vec::new();
        let events = std::mem::take(&mut agenda.fleet);
        self.figures.meter.time(Part::Fleet, || {
            for event in events {
                fleet.step(now, event, &mut actions);
                // As the loop around it asks after each.
                std::hint::black_box(fleet.next_deadline());
            }
        });
        for action in actions {
            self.perform_for_fleet(action, agenda);
        }
    }

    fn perform_for_fleet(&mut self, action: FleetAction, agenda: &mut Agenda) {
        match action {
            FleetAction::Launch { manager, process } => {
                self.note_launch();
                let launch = manager_order::Order::Launch(launch(process));
                self.order(manager, launch, agenda);
            }
            FleetAction::Deploy(deployment) => self.deploy(&deployment, agenda),
            FleetAction::Kill { manager, process } => self.kill(manager, process, agenda),
            FleetAction::Disconnect(manager) => {
                self.managers.remove(&manager);
                agenda.orders.push(Order::Disconnect(manager));
            }
            FleetAction::Failed { attempt, cause } => {
                self.note_failure();
                let report = Report::Failed(SubtaskFailure::here(None, cause));
                let event = JobEvent::Report(AddressedReport { attempt, report });
                agenda.job.push(event);
            }
            FleetAction::Stopped(attempt) => {
                self.processes
                    .retain(|_, process| process.attempt != attempt);
                agenda.job.push(JobEvent::AttemptStopped { attempt });
            }
            FleetAction::Slots(slots) => agenda.job.push(JobEvent::Slots { slots }),
            FleetAction::Refuse { .. } => unreachable!("no two machines have the same name"),
            FleetAction::Welcome(_) | FleetAction::Waiting(_) => {}
        }
    }

    fn order(&mut self, manager: ManagerId, order: manager_order::Order, agenda: &mut Agenda) {
        if self.managers.contains(&manager) {
            let bytes = order_to_manager(&mut self.figures.meter, order);
            agenda.orders.push(Order::ToManager(manager, bytes));
        }
    }

    /// As the dispatcher does.
    fn deploy(&mut self, deployment: &tidegate_coordinator::Deployment, agenda: &mut Agenda) {
        let (restored, plan) = self.restore.as_ref().expect("an attempt is started");
        let max = self
            .graph
            .operators
            .iter()
            .map(|op| op.max_parallelism.get());
        let max_parallelism: Vec<u32> = max.collect();
        for (&stream, process) in &self.processes {
            let meter = &mut self.figures.meter;
            let order = meter.time(Part::Encode, || {
                let first = process.index * deployment.threads;
                let part = plan.part(first..first + deployment.threads);
                let restore = part.subtasks.into_iter();
                wire::Deployment {
                    job_low: 1,
                    job_high: 0,
                    attempt: deployment.attempt.0,
                    threads: deployment.threads,
                    addresses: deployment.addresses.to_vec(),
                    restored: restored.map(|restored| restored.0),
                    restore: restore
                        .map(|(id, of)| SubtaskRestore::new(id, of))
                        .collect(),
                    max_parallelism: max_parallelism.clone(),
                    parallelism: None,
                    at_most: None,
                }
            });
            let bytes = order_to_process(meter, process_order::Order::Deployment(order));
            agenda.orders.push(Order::ToProcess(stream, bytes));
        }
        let spent = self.figures.meter.spent();
        if let Some(outage) = &mut self.outage {
            outage.deployed.get_or_insert((self.now, spent));
        }
    }

    fn kill(&mut self, manager: ManagerId, process: ProcessId, agenda: &mut Agenda) {
        let kill = Kill {
            attempt: process.attempt.0,
            process: process.index,
        };
        self.order(manager, manager_order::Order::Kill(kill), agenda);
        let stream = self.processes.iter().find(|(_, p)| **p == process);
        let Some((&stream, _)) = stream else { return };
        self.processes.remove(&stream);
        let bytes = order_to_process(&mut self.figures.meter, process_order::Order::Halt(Halt {}));
        agenda.orders.push(Order::ToProcess(stream, bytes));
        let cause = "it was told to end".to_owned();
        agenda
            .fleet
            .push(FleetEvent::ProcessLost { process, cause });
    }

    fn let_job_decide(&mut self, agenda: &mut Agenda) {
        let now = Now {
            monotonic: self.now,
            wall: UnixMillis(self.now.0),
        };
        for event in std::mem::take(&mut agenda.job) {
            let (job, mut actions) = (&mut self.job, Vec::new());
            self.figures.meter.time(Part::Job, || {
                job.step(now, event, &mut actions);
                std::hint::black_box(job.next_deadline());
            });
            for action in actions {
                self.watch.on_action(&action);
                self.perform_for_job(action, agenda);
            }
        }
        let running = self.job.held_back() != Some(TriggerRefusal::NotRunning);
        if running && self.running_since.is_none() {
            self.running_since = Some(self.now);
            self.note_recovery();
        }
    }

    fn perform_for_job(&mut self, action: JobAction, agenda: &mut Agenda) {
        match action {
            JobAction::StartAttempt {
                attempt,
                restore,
                plan,
                // Nobody asks for another one.
                scale: _,
            } => {
                let workers = self.graph.parallelism_max();
                self.restore = Some((restore, *plan));
                self.metrics = AttemptMetrics::new(&self.graph);
                agenda.fleet.push(FleetEvent::Start { attempt, workers });
            }
            JobAction::StopAttempt { attempt } => {
                self.running_since = None;
                agenda.fleet.push(FleetEvent::Stop { attempt });
            }
            JobAction::Notify {
                attempt,
                notice,
                to,
            } => self.notify(attempt, &notice, to, agenda),
            JobAction::End(end) => panic!("nobody has asked for the end: {end:?}"),
            JobAction::Note(note) => self.count(&note),
            storage => agenda
                .orders
                .extend(self.outcome(storage).map(Order::Store)),
        }
    }

    fn notify(
        &mut self,
        attempt: AttemptNumber,
        notice: &message::Notice,
        to: NoticeTarget,
        agenda: &mut Agenda,
    ) {
        for (&stream, process) in &self.processes {
            let concerned = to == NoticeTarget::All || process.index == 0;
            if process.attempt == attempt && concerned {
                let notice = Notice::new(attempt, notice.clone());
                let notice = process_order::Order::Notice(notice);
                let bytes = order_to_process(&mut self.figures.meter, notice);
                agenda.orders.push(Order::ToProcess(stream, bytes));
            }
        }
    }

    /// The store does everything that it is asked to.
    fn outcome(&mut self, action: JobAction) -> Option<JobEvent> {
        let outcome = WriteOutcome::Done;
        Some(match action {
            JobAction::ReserveAttempt => {
                self.attempts = AttemptNumber(self.attempts.0 + 1);
                JobEvent::AttemptReserved {
                    attempt: self.attempts,
                    outcome,
                }
            }
            JobAction::ReserveIds { up_to } => JobEvent::IdsReserved { up_to, outcome },
            JobAction::PublishMetadata(checkpoint) => {
                self.figures.metadata_bytes = metadata_bytes(&checkpoint);
                JobEvent::MetadataPublished {
                    checkpoint: checkpoint.id,
                    outcome,
                }
            }
            JobAction::StorePointer { checkpoint, .. } => JobEvent::PointerStored {
                checkpoint,
                outcome,
            },
            JobAction::DropCompleted { checkpoint, .. } => JobEvent::Deleted {
                checkpoint: checkpoint.id,
            },
            JobAction::DiscardFiles { checkpoint, .. } => JobEvent::Deleted { checkpoint },
            _ => return None,
        })
    }
}

/// What is counted on the way.
impl JobManager {
    fn count(&mut self, note: &tidegate_coordinator::JobNote) {
        match note {
            tidegate_coordinator::JobNote::CheckpointCompleted { .. } => {
                self.figures.completed += 1
            }
            tidegate_coordinator::JobNote::CheckpointAborted { .. } => self.figures.aborted += 1,
            _ => {}
        }
    }

    fn count_turn(&mut self, since: Millis) {
        let after = self.figures.meter.clone();
        let before = &std::mem::replace(&mut self.counted, after.clone());
        let spent = after.spent() - before.spent();
        self.figures.longest_turn = self.figures.longest_turn.max(spent);
        let running = self.outage.is_none() && self.running_since.is_some_and(|r| r <= since);
        if running {
            let (meter, time) = &mut self.figures.running;
            meter.add_between(before, &after);
            *time += self.now.since(since);
        }
    }

    fn note_failure(&mut self) {
        self.outage.get_or_insert(Outage {
            since: self.now,
            spent: self.figures.meter.spent(),
            launched: None,
            deployed: None,
        });
    }

    fn note_launch(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.launched.get_or_insert(self.now);
        }
    }

    fn note_recovery(&mut self) {
        let Some(outage) = self.outage.take() else {
            return;
        };
        let launched = outage.launched.expect("what runs was launched");
        let (deployed, spent) = outage.deployed.expect("what runs was deployed");
        self.figures.recoveries.push(RecoveryTime {
            launched: launched.since(outage.since),
            deployed: deployed.since(outage.since),
            running: self.now.since(outage.since),
            spent: spent - outage.spent,
        });
    }

    pub(super) fn is_running(&self) -> bool {
        self.running_since.is_some()
    }
}

fn order_to_manager(meter: &mut Meter, order: manager_order::Order) -> Vec<u8> {
    let order = ManagerOrder { order: Some(order) };
    let bytes = meter.time(Part::Encode, || order.encode_to_vec());
    meter.said.count(&bytes);
    bytes
}

fn order_to_process(meter: &mut Meter, order: process_order::Order) -> Vec<u8> {
    let order = ProcessOrder { order: Some(order) };
    let bytes = meter.time(Part::Encode, || order.encode_to_vec());
    meter.said.count(&bytes);
    bytes
}

fn launch(process: ProcessId) -> wire::Launch {
    let arguments = [
        "--parallelism",
        "2000",
        "--checkpoint-dir",
        "s3://bucket/prefix",
    ];
    wire::Launch {
        attempt: process.attempt.0,
        process: process.index,
        job: "simulated".to_owned(),
        arguments: arguments
            .map(|argument| argument.as_bytes().to_vec())
            .into(),
        variables: Vec::new(),
    }
}

/// Memory of the process that is in RAM; zero where the system doesn't tell.
pub(super) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    pages.unwrap_or(0) * 4096
}
