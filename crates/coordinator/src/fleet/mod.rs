//! The TaskManagers of a cluster, and the processes of the attempt that runs on them.
//!
//! A job runs as a series of attempts; each is one process on each of several TaskManagers. The
//! fleet chooses them, lets them start their processes, waits until all have connected and tells
//! them where their peers are. From then on it watches: the first process that ends, or isn't heard
//! of, fails the attempt. Whether there is a next one is not decided here.
//!
//! An attempt is over when each of its processes has ended: its TaskManager says so, or it can't
//! reach us any more. Then it ends by itself, since whoever hears nothing from its JobManager for
//! the heartbeat timeout exits. What is left of one that can't (a stopped virtual machine, say) can
//! do no harm when it wakes up: its peers refuse it, its files bear its attempt's number, its
//! transactions are committed by their names, and nobody takes its reports.
//!
//! The fleet is sans-IO, as everything in this crate.
//!
//! Most messages say only that somebody is there. They cost the same however many there are: who
//! has been silent for too long is looked for when the first of all could be, which is seldom.
//!
//! Invariants: *one attempt at a time · a TaskManager runs one process at a time · deployed only
//! when all processes have connected · failed once at most, stopped exactly once.*

mod event;
mod launch;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_types::{AttemptNumber, Millis};

pub use event::{
    Deployment, FleetAction, FleetEvent, ManagerId, ManagerInfo, ProcessId, WaitingForSlots,
};
use launch::{EXPLANATION_MILLIS, Launch, Phase, Process, ProcessState, WAITING_MILLIS};
use slots::{Free, capacity, layout};

/// How long others are preferred to a TaskManager that could not reach another one. The network
/// between two may be broken while both are heard here; without one of them there is no need of it.
const ESTRANGED_FOR: Duration = Duration::from_secs(60);

/// How patient a fleet is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Whoever isn't heard of for this long is taken for dead.
    pub heartbeat_timeout: Duration,
    /// A process must have connected this long after it has been asked for.
    pub launch_timeout: Duration,
}

impl Default for FleetSettings {
    fn default() -> Self {
        FleetSettings {
            heartbeat_timeout: Duration::from_secs(5),
            launch_timeout: Duration::from_secs(60),
        }
    }
}

impl FleetSettings {
    /// Whether somebody who was heard of then may be counted on: whoever may have vanished since
    /// hasn't been silent for long enough to be taken for dead.
    fn is_there(&self, now: Millis, heard: Millis) -> bool {
        now.since(heard) <= self.heartbeat_timeout * 2 / 5
    }
}

#[derive(Debug)]
struct Manager {
    info: ManagerInfo,
    heard: Millis,
}

/// The TaskManagers of a cluster that runs one job.
#[derive(Debug)]
pub struct Fleet {
    settings: FleetSettings,
    managers: BTreeMap<ManagerId, Manager>,
    launch: Option<Launch>,
    /// Who ran which process last, by name.
    places: BTreeMap<String, u32>,
    /// Who could not reach another one that was there, by name, and until when others are chosen in
    /// its place.
    estranged: BTreeMap<String, Millis>,
    /// Who last failed to start a process, by name.
    unlucky: BTreeSet<String>,
    /// Who wants a name that another one has, and since when. Names are those of registered ones.
    contenders: BTreeMap<String, (u64, Millis)>,
    told: Option<WaitingForSlots>,
    /// The number of slots that was told last.
    slots: u32,
    /// Nothing is to be done before, as long as nothing but time passes and people are heard of.
    look_at: Option<Millis>,
    /// Whether an attempt that waits for slots may have got them, or be told otherwise of them.
    reconsider: bool,
    /// Whether TaskManagers have come or gone since slots were counted.
    recount: bool,
}

impl Fleet {
    /// Nobody has registered yet.
    pub fn new(settings: FleetSettings) -> Self {
        Fleet {
            settings,
            managers: BTreeMap::new(),
            launch: None,
            places: BTreeMap::new(),
            estranged: BTreeMap::new(),
            unlucky: BTreeSet::new(),
            contenders: BTreeMap::new(),
            told: None,
            slots: 0,
            look_at: None,
            reconsider: false,
            recount: false,
        }
    }

    /// Takes one piece of news and appends what is to be done about it, in order.
    pub fn step(&mut self, now: Millis, event: FleetEvent, actions: &mut Vec<FleetAction>) {
        match event {
            FleetEvent::Tick => {}
            FleetEvent::WeWereAway(gap) => self.excuse(gap),
            FleetEvent::Registered { manager, info } => {
                self.register(now, manager, info, actions);
            }
            FleetEvent::ManagerHeard(manager) => {
                if let Some(manager) = self.managers.get_mut(&manager) {
                    self.reconsider |= !self.settings.is_there(now, manager.heard);
                    manager.heard = now;
                }
            }
            FleetEvent::ManagerLost { manager, cause } => {
                self.lose_manager(manager, &cause, actions);
            }
            FleetEvent::Start { attempt, workers } => {
                assert!(self.launch.is_none(), "one attempt at a time");
                self.launch = Some(Launch::new(now, attempt, workers));
                self.reconsider = true;
                self.look_after(now, Duration::from_millis(WAITING_MILLIS));
            }
            FleetEvent::Stop { attempt } => self.stop(attempt, actions),
            of_process => self.on_process(now, of_process, actions),
        }
        if self.look_at.is_some_and(|due| due <= now) {
            self.tick(now, actions);
            self.reconsider = true;
        }
        self.launch_if_possible(now, actions);
        self.conclude(now, actions);
        self.count_slots(actions);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// When [`FleetEvent::Tick`] is needed at the latest, if nothing else happens.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.look_at
    }

    /// Something may be due after this time.
    fn look_after(&mut self, now: Millis, time: Duration) {
        let due = now.after(time);
        self.look_at = Some(self.look_at.map_or(due, |look_at| look_at.min(due)));
    }

    /// When the first of all that are waited for has been silent for too long.
    fn first_due(&self) -> Option<Millis> {
        let timeout = self.settings.heartbeat_timeout;
        let managers = self.managers.values().map(|m| m.heard.after(timeout));
        let launch = self.launch.as_ref();
        let launch = launch.and_then(|launch| launch.next_deadline(&self.settings, &self.told));
        managers.chain(launch).min()
    }

    /// Registered TaskManagers and their slots, whether they are free or not.
    pub fn managers(&self) -> impl Iterator<Item = (ManagerId, &ManagerInfo)> {
        self.managers
            .iter()
            .map(|(id, manager)| (*id, &manager.info))
    }

    fn register(
        &mut self,
        now: Millis,
        id: ManagerId,
        info: ManagerInfo,
        actions: &mut Vec<FleetAction>,
    ) {
        if self.managers.contains_key(&id) {
            return;
        }
        let former = self.managers.iter().find(|(_, m)| m.info.name == info.name);
        if let Some((&former, known)) = former {
            if known.info.instance != info.instance {
                self.refuse(now, id, former, &info, actions);
                return;
            }
            // It would not come back if it still had the stream that we know.
            actions.push(FleetAction::Disconnect(former));
            self.lose_manager(former, "it has registered anew", actions);
        }
        self.contenders.remove(&info.name);
        self.managers.insert(id, Manager { info, heard: now });
        self.reconsider = true;
        self.recount = true;
        self.look_after(now, self.settings.heartbeat_timeout);
        actions.push(FleetAction::Welcome(id));
    }

    /// Somebody comes under the name of another one. That may have gone without our knowing: the
    /// end of its stream is about to be told, or its machine has vanished. But if it is heard of
    /// long after the newcomer came, there are two of them, and they would take each other's place
    /// for ever.
    fn refuse(
        &mut self,
        now: Millis,
        manager: ManagerId,
        former: ManagerId,
        info: &ManagerInfo,
        actions: &mut Vec<FleetAction>,
    ) {
        let contender = (info.instance, now);
        let contender = self
            .contenders
            .entry(info.name.clone())
            .or_insert(contender);
        if contender.0 != info.instance {
            *contender = (info.instance, now);
        }
        let name = &info.name;
        let heard = self.managers[&former].heard;
        let may_retry = heard < contender.1.after(self.settings.heartbeat_timeout / 5);
        let cause = match may_retry {
            true => format!(
                "a TaskManager called `{name}` is registered, and was heard of {:?} ago; if it has \
                 gone, its name will be free soon",
                now.since(heard)
            ),
            false => format!(
                "another TaskManager called `{name}` is registered, and alive; give each a \
                 `--name` of its own"
            ),
        };
        actions.push(FleetAction::Refuse {
            manager,
            cause,
            may_retry,
        });
    }

    fn stop(&mut self, attempt: AttemptNumber, actions: &mut Vec<FleetAction>) {
        let launch = self.launch.as_mut().filter(|l| l.attempt == attempt);
        let Some(launch) = launch else {
            // Asked for again, or for one that was never started: nothing is left of it.
            actions.push(FleetAction::Stopped(attempt));
            return;
        };
        launch.stopping = true;
        for (index, process) in (0..).zip(&launch.processes) {
            if process.state != ProcessState::Over {
                actions.push(FleetAction::Kill {
                    manager: process.manager,
                    process: ProcessId { attempt, index },
                });
            }
        }
    }

    /// Nobody can be blamed for what was not heard while nobody listened.
    fn excuse(&mut self, gap: Duration) {
        for manager in self.managers.values_mut() {
            manager.heard = manager.heard.after(gap);
        }
        for process in self
            .launch
            .iter_mut()
            .flat_map(|launch| &mut launch.processes)
        {
            process.heard = process.heard.after(gap);
        }
        for (_, since) in self.contenders.values_mut() {
            *since = since.after(gap);
        }
    }

    fn lose_manager(&mut self, id: ManagerId, cause: &str, actions: &mut Vec<FleetAction>) {
        let Some(manager) = self.managers.remove(&id) else {
            return;
        };
        self.reconsider = true;
        self.recount = true;
        self.contenders.remove(&manager.info.name);
        let Some(launch) = &mut self.launch else {
            return;
        };
        let name = &manager.info.name;
        for process in launch.processes.iter_mut().filter(|p| p.manager == id) {
            // One with a stream is waited for: it ends by itself, and its stream with it.
            if !matches!(process.state, ProcessState::Connected { .. }) {
                process.state = ProcessState::Over;
            }
        }
        if launch.processes.iter().any(|process| process.manager == id) {
            launch.fail(format!("TaskManager `{name}` was lost: {cause}"), actions);
        }
    }

    fn on_process(&mut self, now: Millis, event: FleetEvent, actions: &mut Vec<FleetAction>) {
        self.look_sooner(now, &event);
        let Some(launch) = &mut self.launch else {
            return;
        };
        let stopping = launch.stopping;
        match event {
            FleetEvent::ProcessEnded {
                manager,
                process: id,
                how,
            } => {
                let process = launch.process_mut(id).filter(|p| p.manager == manager);
                let Some(process) = process else { return };
                if process.state == ProcessState::Launched && !stopping {
                    self.unlucky.insert(process.on.clone());
                }
                process.state = ProcessState::Over;
                launch.fail(format!("{} {how}", launch.name(id.index)), actions);
            }
            FleetEvent::ProcessConnected {
                process: id,
                address,
            } => {
                let process = launch.process_mut(id);
                let launched = |process: &&mut Process| process.state == ProcessState::Launched;
                let Some(process) = process.filter(launched) else {
                    return;
                };
                self.unlucky.remove(&process.on);
                process.state = ProcessState::Connected { address };
                process.heard = now;
                launch.deploy_if_complete(actions);
            }
            FleetEvent::ProcessHeard(id) => {
                if let Some(process) = launch.process_mut(id) {
                    process.heard = now;
                }
            }
            FleetEvent::ProcessLost { process: id, cause } => {
                let registered = |manager| self.managers.contains_key(&manager);
                let Some(process) = launch.process_mut(id) else {
                    return;
                };
                process.state = match registered(process.manager) {
                    true => ProcessState::Leaving,
                    false => ProcessState::Over,
                };
                let name = launch.name(id.index);
                launch.suspect(now, format!("{name} was lost: {cause}"), None);
            }
            FleetEvent::ProcessUnfit { process: id, cause } => {
                if launch.process_mut(id).is_some() {
                    launch.fail(format!("{}: {cause}", launch.name(id.index)), actions);
                }
            }
            FleetEvent::PeerLost { process: id, cause } => {
                if launch.process_mut(id).is_some() {
                    let cause = format!("{}: {cause}", launch.name(id.index));
                    launch.suspect(now, cause, Some(id.index));
                }
            }
            other => unreachable!("not about a process: {other:?}"),
        }
    }

    /// What is said of a process may shorten the time for which its silence is accepted, or that
    /// for which something is only suspected.
    fn look_sooner(&mut self, now: Millis, event: &FleetEvent) {
        let patience = self.settings.heartbeat_timeout;
        match event {
            FleetEvent::ProcessConnected { .. } => self.look_after(now, patience),
            FleetEvent::PeerLost { .. } => {
                self.look_after(now, Duration::from_millis(EXPLANATION_MILLIS));
            }
            FleetEvent::ProcessLost { process, .. } => {
                self.look_after(now, Duration::from_millis(EXPLANATION_MILLIS));
                let launch = self.launch.as_mut();
                let process = launch.and_then(|launch| launch.process_mut(*process));
                if let Some(heard) = process.map(|process| process.heard) {
                    self.look_after(heard, patience);
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Millis, actions: &mut Vec<FleetAction>) {
        let timeout = self.settings.heartbeat_timeout;
        let silent = |manager: &Manager| manager.heard.after(timeout) <= now;
        let lost = self.managers.iter().filter(|(_, manager)| silent(manager));
        let lost: Vec<_> = lost.map(|(id, m)| (*id, now.since(m.heard))).collect();
        for (manager, silence) in lost {
            actions.push(FleetAction::Disconnect(manager));
            let cause = format!("it has not been heard of for {silence:?}");
            self.lose_manager(manager, &cause, actions);
        }
        if let Some(launch) = &mut self.launch {
            self.unlucky
                .extend(launch.tick(now, &self.settings, actions));
        }
        self.look_at = self.first_due();
    }

    fn launch_if_possible(&mut self, now: Millis, actions: &mut Vec<FleetAction>) {
        let Some(launch) = &mut self.launch else {
            return;
        };
        let waits = matches!(launch.phase, Phase::Waiting(_)) && !launch.stopping;
        if !waits || !std::mem::take(&mut self.reconsider) {
            return;
        }
        // Nothing runs, so everybody is free; but for whoever may have vanished along with the
        // attempt before, and hasn't been silent for long enough to be taken for dead.
        let there = |manager: &Manager| self.settings.is_there(now, manager.heard);
        self.estranged.retain(|_, until| *until > now);
        let free: Vec<Free> = (self.managers.iter())
            .filter(|(_, manager)| there(manager))
            .map(|(&manager, Manager { info, .. })| Free {
                manager,
                slots: info.slots,
                estranged: self.estranged.get(&info.name).copied(),
                index_before: self.places.get(&info.name).copied(),
                is_unlucky: self.unlucky.contains(&info.name),
            })
            .collect();
        let Some(layout) = layout(launch.workers, &free) else {
            let waiting = WaitingForSlots {
                workers: launch.workers,
                slots: free
                    .iter()
                    .fold(0, |sum, free| sum.saturating_add(free.slots)),
                managers: free.len() as u32,
            };
            if launch.tells_that_it_waits(now) && self.told.replace(waiting) != Some(waiting) {
                actions.push(FleetAction::Waiting(waiting));
            }
            return;
        };
        self.told = None;
        self.places.clear();
        launch.phase = Phase::Launching;
        launch.threads = layout.threads;
        for (index, manager) in (0..).zip(layout.managers) {
            let name = self.managers[&manager].info.name.clone();
            self.places.insert(name.clone(), index);
            launch.processes.push(Process {
                manager,
                on: name,
                state: ProcessState::Launched,
                heard: now,
            });
            let attempt = launch.attempt;
            let process = ProcessId { attempt, index };
            actions.push(FleetAction::Launch { manager, process });
        }
        self.look_after(now, self.settings.launch_timeout);
    }

    fn count_slots(&mut self, actions: &mut Vec<FleetAction>) {
        if !std::mem::take(&mut self.recount) {
            return;
        }
        let slots = self.managers.values().map(|manager| manager.info.slots);
        let slots = capacity(&slots.collect::<Vec<_>>());
        if std::mem::replace(&mut self.slots, slots) != slots {
            actions.push(FleetAction::Slots(slots));
        }
    }

    fn conclude(&mut self, now: Millis, actions: &mut Vec<FleetAction>) {
        if let Some(launch) = self.launch.take_if(|launch| launch.is_over()) {
            if let Some(index) = launch.estranged {
                let name = launch.processes[index as usize].on.clone();
                self.estranged.insert(name, now.after(ESTRANGED_FOR));
            }
            self.told = None;
            actions.push(FleetAction::Stopped(launch.attempt));
        }
    }

    /// Checks what holds between any two steps.
    ///
    /// # Panics
    /// If it doesn't: that is a bug.
    fn check_invariants(&self) {
        if let Some(due) = self.first_due() {
            let looks = self.look_at.is_some_and(|look_at| look_at <= due);
            assert!(looks, "whoever falls silent is noticed in time");
        }
        let Some(launch) = &self.launch else { return };
        let mut running: Vec<ManagerId> = launch.processes.iter().map(|p| p.manager).collect();
        running.sort_unstable();
        running.dedup();
        assert_eq!(
            running.len(),
            launch.processes.len(),
            "a TaskManager runs one process at a time"
        );
        let threads = launch.threads as usize * launch.processes.len();
        match launch.phase {
            Phase::Waiting(_) => assert_eq!(threads, 0, "nothing runs while it waits"),
            Phase::Launching | Phase::Deployed => {
                assert!(
                    threads >= launch.workers as usize,
                    "every worker has a thread"
                );
            }
        }
    }
}
