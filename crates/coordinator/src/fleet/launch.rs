//! One attempt, from the wish to start it until none of its processes is left.

use std::sync::Arc;

use tidegate_types::{AttemptNumber, Millis};

use super::event::{Deployment, FleetAction, ProcessId};
use super::{FleetSettings, ManagerId, WaitingForSlots};

/// How long a process may be gone without its TaskManager saying how it ended, or a connection be
/// lost without a process being gone: the one usually follows within a few milliseconds, and is
/// the better explanation.
pub(super) const EXPLANATION_MILLIS: u64 = 100;

/// Whoever starts a cluster starts one process after the other, which is nothing to tell of.
pub(super) const WAITING_MILLIS: u64 = 1_000;

/// How far an attempt has got.
#[derive(Debug)]
pub(super) enum Phase {
    /// There are too few slots, since then.
    Waiting(Millis),
    /// Its processes have been asked for; not all have connected.
    Launching,
    /// All have been told their part.
    Deployed,
}

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) attempt: AttemptNumber,
    pub(super) workers: u32,
    pub(super) phase: Phase,
    pub(super) threads: u32,
    pub(super) processes: Vec<Process>,
    pub(super) stopping: bool,
    /// Index of a process that could not reach another one, though both were there.
    pub(super) estranged: Option<u32>,
    failure: Failure,
}

/// Why the attempt can't go on.
#[derive(Debug)]
enum Failure {
    None,
    /// Something that follows from a failure; told at `due` unless the failure itself is known.
    Suspected {
        cause: String,
        due: Millis,
        /// The process that has lost another one, if that is what it is.
        bereft: Option<u32>,
    },
    Told,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) manager: ManagerId,
    /// For people: what its TaskManager is called.
    pub(super) on: String,
    pub(super) state: ProcessState,
    /// When it was asked for or last heard of.
    pub(super) heard: Millis,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProcessState {
    /// Asked for.
    Launched,
    /// It has a stream to us.
    Connected { address: String },
    /// Its stream has ended. It ends by itself, and its TaskManager says so.
    Leaving,
    /// It has ended, or it is as good as that: it can't reach us, and ends by itself.
    Over,
}

impl Launch {
    pub(super) fn new(now: Millis, attempt: AttemptNumber, workers: u32) -> Self {
        Launch {
            attempt,
            workers,
            phase: Phase::Waiting(now),
            threads: 0,
            processes: Vec::new(),
            stopping: false,
            estranged: None,
            failure: Failure::None,
        }
    }

    /// The process of this id, unless it is of another attempt or its end is known.
    pub(super) fn process_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        if id.attempt != self.attempt {
            return None;
        }
        let process = self.processes.get_mut(id.index as usize);
        process.filter(|process| process.state != ProcessState::Over)
    }

    pub(super) fn name(&self, index: u32) -> String {
        let on = &self.processes[index as usize].on;
        format!("process {index} of {} on `{on}`", self.attempt)
    }

    /// Tells all processes their part once the last one has connected.
    pub(super) fn deploy_if_complete(&mut self, actions: &mut Vec<FleetAction>) {
        if !matches!(self.phase, Phase::Launching) || self.stopping {
            return;
        }
        let connected = |p: &Process| matches!(p.state, ProcessState::Connected { .. });
        if !self.processes.iter().all(connected) {
            return;
        }
        let address = |process: &Process| match &process.state {
            ProcessState::Connected { address } => Some(address.clone()),
            _ => None,
        };
        let addresses: Option<Arc<[String]>> = self.processes.iter().map(address).collect();
        let Some(addresses) = addresses else { return };
        self.phase = Phase::Deployed;
        actions.push(FleetAction::Deploy(Deployment {
            attempt: self.attempt,
            threads: self.threads,
            addresses,
        }));
    }

    /// The attempt can't go on, and this is why.
    pub(super) fn fail(&mut self, cause: String, actions: &mut Vec<FleetAction>) {
        if self.stopping || matches!(self.failure, Failure::Told) {
            return;
        }
        self.failure = Failure::Told;
        actions.push(FleetAction::Failed {
            attempt: self.attempt,
            cause,
        });
    }

    /// The attempt can't go on, probably because of something else that will be heard of. `bereft`
    /// is the process that has lost the connection to another one, if that is all that is known.
    pub(super) fn suspect(&mut self, now: Millis, cause: String, bereft: Option<u32>) {
        if matches!(self.failure, Failure::None) && !self.stopping {
            let due = Millis(now.0.saturating_add(EXPLANATION_MILLIS));
            self.failure = Failure::Suspected { cause, due, bereft };
        }
    }

    /// What time does to it. Returns on whom a process has not come up.
    pub(super) fn tick(
        &mut self,
        now: Millis,
        settings: &FleetSettings,
        actions: &mut Vec<FleetAction>,
    ) -> Vec<String> {
        if let Failure::Suspected { cause, due, bereft } = &self.failure
            && *due <= now
        {
            let cause = cause.clone();
            self.estranged = bereft.filter(|_| !self.stopping);
            self.fail(cause, actions);
        }
        let late = |process: &&Process| {
            let due = process.due(settings).is_some_and(|due| due <= now);
            due && process.state == ProcessState::Launched
        };
        let late = self.processes.iter().filter(late);
        let late = late.map(|process| process.on.clone()).collect();
        for index in 0..self.processes.len() {
            self.tick_process(index, now, settings, actions);
        }
        late
    }

    fn tick_process(
        &mut self,
        index: usize,
        now: Millis,
        settings: &FleetSettings,
        actions: &mut Vec<FleetAction>,
    ) {
        let process = &self.processes[index];
        let Some(due) = process.due(settings) else {
            return;
        };
        if due > now {
            return;
        }
        let silent = now.since(process.heard);
        let name = self.name(index as u32);
        let cause = match process.state {
            ProcessState::Launched => format!(
                "{name} has not connected within {silent:?}; what it prints says more, if it \
                 does"
            ),
            _ => format!("{name} has not been heard of for {silent:?}"),
        };
        self.fail(cause, actions);
        if self.stopping {
            // Killing it has been asked for; whoever can't be reached ends by itself.
            self.processes[index].state = ProcessState::Over;
        } else {
            self.processes[index].heard = now;
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn next_deadline(
        &self,
        settings: &FleetSettings,
        told: &Option<WaitingForSlots>,
    ) -> Option<Millis> {
        let suspicion = match &self.failure {
            Failure::Suspected { due, .. } => Some(*due),
            Failure::None | Failure::Told => None,
        };
        let processes = self.processes.iter().filter_map(|p| p.due(settings));
        let waiting = self.waiting_due().filter(|_| told.is_none());
        processes.chain(suspicion).chain(waiting).min()
    }

    /// When people are told that it waits for slots.
    fn waiting_due(&self) -> Option<Millis> {
        match self.phase {
            Phase::Waiting(since) => Some(Millis(since.0.saturating_add(WAITING_MILLIS))),
            Phase::Launching | Phase::Deployed => None,
        }
    }

    pub(super) fn tells_that_it_waits(&self, now: Millis) -> bool {
        self.waiting_due().is_some_and(|due| due <= now)
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        let over = |process: &Process| process.state == ProcessState::Over;
        self.stopping && self.processes.iter().all(over)
    }
}

impl Process {
    /// When its silence means something.
    fn due(&self, settings: &FleetSettings) -> Option<Millis> {
        let patience = match self.state {
            ProcessState::Launched => settings.launch_timeout,
            ProcessState::Connected { .. } | ProcessState::Leaving => settings.heartbeat_timeout,
            ProcessState::Over => return None,
        };
        Some(self.heard.after(patience))
    }
}
