//! TaskManagers, their processes, and what befalls them, in virtual time.
//!
//! Everything that takes time is an event in a heap. Whatever a machine says takes a millisecond to
//! arrive; one that is cut off says it to nobody.

mod losses;
mod orders;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use prost::Message;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_coordinator::{JobEvent, ManagerId, ManagerInfo, ProcessId};
use tidegate_types::graph::JobGraph;
use tidegate_types::message::{
    AddressedReport, DeclineReason, FailureOrigin, Report, SubtaskFailure,
};
use tidegate_types::{AttemptNumber, CheckpointId, Millis, SubtaskId};

use super::jobmanager::{Heard, JobManager, Order, resident_bytes};
use super::messages::{acknowledged, graph, progress};
use super::{Figures, Scale};
use crate::cluster::wire::{
    Alive, ManagerMessage, ProcessEnded, ProcessHello, ProcessMessage, Progress, VERSION,
    manager_message, process_message,
};

/// How often somebody says that it is there; the fleet's timeout is five times that.
const BEAT: u64 = 1_000;
/// How often a process says how far its subtasks are.
const PROGRESS: u64 = 200;
/// How often clients get a picture.
const PICTURE: u64 = 100;
/// How long a job may take to complete a checkpoint once nothing is lost any more.
const PATIENCE: u64 = 60_000;

/// A machine with a TaskManager.
struct Machine {
    name: String,
    /// Raised when it goes down or is cut off: what it was about to do then, it doesn't.
    life: u32,
    cut_off: bool,
    registration: Option<ManagerId>,
    process: Option<Running>,
}

/// A process of an attempt.
#[derive(Clone)]
struct Running {
    id: ProcessId,
    stream: u64,
    /// Its workers; none before it is told.
    workers: std::ops::Range<u32>,
    passed: CheckpointId,
    /// What was passed when progress was told of last.
    told: CheckpointId,
    records: u64,
}

/// What happens at a moment. What belongs to a life or a stream that is over doesn't.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Registers {
        machine: usize,
        life: u32,
    },
    Beats {
        machine: usize,
        life: u32,
    },
    Connects {
        stream: u64,
    },
    Runs {
        stream: u64,
    },
    TellsProgress {
        stream: u64,
    },
    Says {
        stream: u64,
        said: Said,
    },
    /// A process has ended, and its supervisor says so.
    Ends {
        machine: usize,
        life: u32,
        attempt: u64,
        index: u32,
    },
    Exits {
        stream: u64,
    },
    Stored(usize),
    Comes {
        machine: usize,
    },
    SomethingIsLost,
    JobManagerBeats,
    PictureIsTaken,
    Deadline,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Acknowledged(u64, SubtaskId),
    Declined(u64, SubtaskId),
    Committed(u64, SubtaskId),
    LostPeer(u32),
}

pub(super) struct World {
    scale: Scale,
    random: StdRng,
    graph: JobGraph,
    jobmanager: JobManager,
    machines: Vec<Machine>,
    now: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    /// Of the next event, registration or stream.
    next: u64,
    managers: BTreeMap<ManagerId, usize>,
    streams: BTreeMap<u64, usize>,
    stored: Vec<JobEvent>,
    faults: bool,
}

impl World {
    pub(super) fn new(scale: &Scale) -> Self {
        let graph = graph(scale.taskmanagers * scale.slots);
        let machine = |index| Machine {
            name: format!("taskmanager-{index}"),
            life: 0,
            cut_off: false,
            registration: None,
            process: None,
        };
        let machines = (0..scale.taskmanagers + scale.standbys).map(machine);
        World {
            random: StdRng::seed_from_u64(scale.seed),
            jobmanager: JobManager::new(scale, graph.clone()),
            machines: machines.collect(),
            graph,
            now: 0,
            agenda: BinaryHeap::new(),
            next: 0,
            managers: BTreeMap::new(),
            streams: BTreeMap::new(),
            stored: Vec::new(),
            faults: scale.faults_every.is_some(),
            scale: scale.clone(),
        }
    }

    /// Runs for as long as it is to, and then until nothing is lost any more and a checkpoint has
    /// completed.
    pub(super) fn run(mut self) -> Figures {
        let resident = resident_bytes();
        for machine in 0..self.machines.len() {
            self.within(2_000, Happens::Comes { machine });
        }
        self.after(0, Happens::JobManagerBeats);
        self.after(0, Happens::PictureIsTaken);
        if let Some(every) = self.scale.faults_every {
            self.after(every.as_millis() as u64 + 5_000, Happens::SomethingIsLost);
        }
        let orders = self.jobmanager.start();
        self.carry_out(orders);
        let end = self.scale.lasts.as_millis() as u64;
        while self.now < end {
            self.pass();
        }
        self.faults = false;
        let completed = self.jobmanager.figures.completed;
        while self.jobmanager.figures.completed == completed || !self.jobmanager.is_running() {
            assert!(
                self.now < end + PATIENCE,
                "nothing is lost, and nothing completes"
            );
            self.pass();
        }
        let mut figures = self.jobmanager.figures;
        figures.resident_bytes = resident_bytes().saturating_sub(resident);
        figures
    }

    fn after(&mut self, millis: u64, happens: Happens) {
        self.next += 1;
        self.agenda
            .push(Reverse((self.now + millis, self.next, happens)));
    }

    fn within(&mut self, millis: u64, happens: Happens) {
        let after = self.random.random_range(1..=millis);
        self.after(after, happens);
    }

    /// Lets everything happen that does at the next moment, and the JobManager react.
    fn pass(&mut self) {
        let Some(Reverse((at, _, _))) = self.agenda.peek() else {
            panic!("the JobManager beats for ever");
        };
        self.now = *at;
        let mut heard = Vec::new();
        while let Some(Reverse((at, _, _))) = self.agenda.peek()
            && *at == self.now
            && let Some(Reverse((_, _, happens))) = self.agenda.pop()
        {
            self.let_happen(happens, &mut heard);
        }
        let orders = self.jobmanager.turn(Millis(self.now), heard);
        self.carry_out(orders);
        if let Some(deadline) = self.jobmanager.next_deadline() {
            let sooner = self
                .agenda
                .peek()
                .is_none_or(|Reverse((at, _, _))| *at > deadline.0);
            if sooner {
                self.after(
                    deadline.0.saturating_sub(self.now).max(1),
                    Happens::Deadline,
                );
            }
        }
    }

    fn let_happen(&mut self, happens: Happens, heard: &mut Vec<Heard>) {
        match happens {
            Happens::Comes { machine } => {
                self.machines[machine].cut_off = false;
                let life = self.machines[machine].life;
                self.after(1, Happens::Registers { machine, life });
            }
            Happens::Registers { machine, life } => self.register(machine, life, heard),
            Happens::Beats { machine, life } => self.beat(machine, life, heard),
            Happens::Connects { stream } => self.connect(stream, heard),
            Happens::Runs { stream } => self.run_subtasks(stream, heard),
            Happens::TellsProgress { stream } => self.tell_progress(stream, heard),
            Happens::Says { stream, said } => self.say(stream, &said, heard),
            Happens::Ends {
                machine,
                life,
                attempt,
                index,
            } => {
                let ended = ProcessEnded {
                    attempt,
                    process: index,
                    how: "was killed by signal 9 (SIGKILL)".to_owned(),
                };
                if self.machines[machine].life == life {
                    let ended = manager_message::Message::Ended(ended);
                    self.say_as_manager(machine, ended, heard);
                }
            }
            Happens::Exits { stream } => self.exit(stream, heard),
            Happens::Stored(index) => heard.push(Heard::Stored(self.stored[index].clone())),
            Happens::SomethingIsLost => self.lose_something(heard),
            Happens::JobManagerBeats => {
                let orders = self.jobmanager.beat();
                self.carry_out(orders);
                self.after(BEAT, Happens::JobManagerBeats);
            }
            Happens::PictureIsTaken => {
                self.jobmanager.take_picture();
                self.after(PICTURE, Happens::PictureIsTaken);
            }
            Happens::Deadline => {}
        }
    }
}

/// What machines do.
impl World {
    fn register(&mut self, machine: usize, life: u32, heard: &mut Vec<Heard>) {
        if self.machines[machine].life != life {
            return;
        }
        self.next += 1;
        let manager = ManagerId(self.next);
        self.managers.insert(manager, machine);
        self.machines[machine].registration = Some(manager);
        let info = ManagerInfo {
            name: self.machines[machine].name.clone(),
            slots: self.scale.slots,
            // No two machines have the same name, so one that comes is always itself.
            instance: machine as u64,
        };
        heard.push(Heard::Registered(manager, info));
        self.within(BEAT, Happens::Beats { machine, life });
    }

    fn beat(&mut self, machine: usize, life: u32, heard: &mut Vec<Heard>) {
        if self.machines[machine].life == life {
            self.say_as_manager(machine, manager_message::Message::Alive(Alive {}), heard);
            self.after(BEAT, Happens::Beats { machine, life });
        }
    }

    fn say_as_manager(
        &self,
        machine: usize,
        message: manager_message::Message,
        heard: &mut Vec<Heard>,
    ) {
        let Machine {
            registration,
            cut_off,
            ..
        } = &self.machines[machine];
        if let (Some(manager), false) = (registration, cut_off) {
            let message = ManagerMessage {
                message: Some(message),
            };
            heard.push(Heard::FromManager(*manager, message.encode_to_vec()));
        }
    }

    /// The process of a stream, if it is there and can be heard of.
    fn process(&mut self, stream: u64) -> Option<(usize, &mut Running)> {
        let machine = *self.streams.get(&stream)?;
        let Machine {
            process, cut_off, ..
        } = &mut self.machines[machine];
        let process = process
            .as_mut()
            .filter(|process| process.stream == stream && !*cut_off);
        process.map(|process| (machine, process))
    }

    fn connect(&mut self, stream: u64, heard: &mut Vec<Heard>) {
        let Some((machine, process)) = self.process(stream) else {
            return;
        };
        let hello = process_message::Message::Hello(ProcessHello {
            version: VERSION,
            attempt: process.id.attempt.0,
            process: process.id.index,
            epoch: 1,
            // As long as that of a job of five operators.
            graph: "operator events: Reader, parallelism 2000, max parallelism 32768\n".repeat(9),
            address: format!("10.0.{}.{}:40123", machine / 256, machine % 256),
        });
        let message = ProcessMessage {
            message: Some(hello),
        };
        heard.push(Heard::FromNewProcess(stream, message.encode_to_vec()));
    }

    fn run_subtasks(&mut self, stream: u64, heard: &mut Vec<Heard>) {
        let Some((_, process)) = self.process(stream) else {
            return;
        };
        let (attempt, workers) = (process.id.attempt, process.workers.clone());
        for subtask in subtasks(&self.graph, workers) {
            heard.push(report(stream, attempt, Report::Running { subtask }));
        }
        self.within(PROGRESS, Happens::TellsProgress { stream });
    }

    fn tell_progress(&mut self, stream: u64, heard: &mut Vec<Heard>) {
        let Some((_, process)) = self.process(stream) else {
            return;
        };
        process.records += 200_000;
        let Running {
            records,
            passed,
            told,
            workers,
            ..
        } = process.clone();
        process.told = passed;
        let subtasks = subtasks(&self.graph, workers);
        let told = subtasks.map(|of| progress(&self.graph, of, records, (passed, told)));
        let told = process_message::Message::Progress(Progress {
            subtasks: told.collect(),
            stuck: Vec::new(),
            traffic: None,
        });
        let message = ProcessMessage {
            message: Some(told),
        };
        heard.push(Heard::FromProcess(stream, message.encode_to_vec()));
        self.after(PROGRESS, Happens::TellsProgress { stream });
    }

    fn say(&mut self, stream: u64, said: &Said, heard: &mut Vec<Heard>) {
        let Some((_, process)) = self.process(stream) else {
            return;
        };
        let attempt = process.id.attempt;
        let said = match *said {
            Said::Acknowledged(checkpoint, subtask) => {
                process.passed = process.passed.max(CheckpointId(checkpoint));
                acknowledged(&self.graph, CheckpointId(checkpoint), subtask)
            }
            Said::Declined(checkpoint, subtask) => Report::Declined {
                checkpoint: CheckpointId(checkpoint),
                subtask,
                reason: DeclineReason::WriteFailed {
                    cause: "No space left on device (os error 28)".to_owned(),
                },
            },
            Said::Committed(checkpoint, subtask) => Report::Committed {
                checkpoint: CheckpointId(checkpoint),
                subtask,
            },
            Said::LostPeer(process) => Report::Failed(SubtaskFailure {
                subtask: None,
                origin: FailureOrigin::Peer { process },
                cause: format!("lost the connection to process {process}"),
            }),
        };
        heard.push(report(stream, attempt, said));
    }
}

/// The subtasks on these workers.
fn subtasks(graph: &JobGraph, workers: std::ops::Range<u32>) -> impl Iterator<Item = SubtaskId> {
    let operators = graph.operator_ids();
    operators.flat_map(move |operator| {
        let own = workers.start..workers.end.min(graph.operator(operator).parallelism);
        own.map(move |index| SubtaskId { operator, index })
    })
}

fn report(stream: u64, attempt: AttemptNumber, report: Report) -> Heard {
    let report = AddressedReport { attempt, report };
    let message = process_message::Message::Report(report.into());
    let message = ProcessMessage {
        message: Some(message),
    };
    Heard::FromProcess(stream, message.encode_to_vec())
}
