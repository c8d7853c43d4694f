//! Many seeded worlds in which messages are late, TaskManagers vanish and come back, and processes
//! end when they like. Whatever happens, an attempt that is stopped ends, and one that nothing
//! disturbs runs.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Act {
    /// Deliver the next message that is under way.
    Deliver,
    /// As the one before, but the one behind it: streams overtake each other.
    DeliverLater,
    Time(u64),
    Join,
    /// A TaskManager and its process lose their power.
    Vanish(usize),
    /// A process is killed.
    Kill(usize),
    Stop,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Deliver),
        3 => Just(Act::DeliverLater),
        3 => (1u64..3_000).prop_map(Act::Time),
        2 => Just(Act::Join),
        1 => (0usize..8).prop_map(Act::Vanish),
        2 => (0usize..8).prop_map(Act::Kill),
        1 => Just(Act::Stop),
    ]
}

#[derive(Default)]
struct World {
    now: u64,
    managers_ever: u64,
    /// Those that have power, and the process that each runs.
    managers: BTreeMap<ManagerId, Option<ProcessId>>,
    under_way: Vec<FleetEvent>,
    attempt: u64,
    workers: u32,
    stopped: bool,
    failed: bool,
    deployed: bool,
    connected: BTreeSet<u32>,
}

impl World {
    fn act(&mut self, fleet: &mut Fleet, act: Act) {
        match act {
            Act::Deliver => self.deliver(fleet, 0),
            Act::DeliverLater => self.deliver(fleet, 1),
            Act::Time(millis) => self.pass(fleet, millis),
            Act::Join => self.join(fleet),
            Act::Vanish(which) => {
                if let Some(&id) = self.managers.keys().nth(which) {
                    self.managers.remove(&id);
                }
            }
            Act::Kill(which) => {
                if let Some(&id) = self.managers.keys().nth(which) {
                    self.end_process(id);
                }
            }
            Act::Stop => self.stop(fleet),
        }
    }

    fn stop(&mut self, fleet: &mut Fleet) {
        let attempt = AttemptNumber(self.attempt);
        self.tell(fleet, FleetEvent::Stop { attempt });
    }

    fn join(&mut self, fleet: &mut Fleet) {
        let manager = ManagerId(self.managers_ever);
        self.managers_ever += 1;
        self.managers.insert(manager, None);
        let info = ManagerInfo {
            name: format!("tm-{}", manager.0),
            slots: 1,
            instance: manager.0,
        };
        self.tell(fleet, FleetEvent::Registered { manager, info });
    }

    fn end_process(&mut self, id: ManagerId) {
        if let Some(process) = self.managers.get_mut(&id).and_then(Option::take) {
            let cause = String::new();
            self.under_way
                .push(FleetEvent::ProcessLost { process, cause });
            self.under_way.push(FleetEvent::ProcessEnded {
                manager: id,
                process,
                how: "ended".to_owned(),
            });
        }
    }

    fn deliver(&mut self, fleet: &mut Fleet, behind: usize) {
        if behind < self.under_way.len() {
            let event = self.under_way.remove(behind);
            if let FleetEvent::ProcessConnected { process, .. } = &event
                && process.attempt.0 == self.attempt
            {
                self.connected.insert(process.index);
            }
            self.tell(fleet, event);
        }
    }

    fn pass(&mut self, fleet: &mut Fleet, millis: u64) {
        let end = self.now + millis;
        while self.now < end {
            self.now = end.min(self.now + 500);
            let there: Vec<_> = self.managers.iter().map(|(id, run)| (*id, *run)).collect();
            for (id, run) in there {
                self.tell(fleet, FleetEvent::ManagerHeard(id));
                if let Some(process) = run {
                    self.tell(fleet, FleetEvent::ProcessHeard(process));
                }
            }
            self.tell(fleet, FleetEvent::Tick);
        }
    }

    fn tell(&mut self, fleet: &mut Fleet, event: FleetEvent) {
        let mut actions = Vec::new();
        fleet.step(Millis(self.now), event, &mut actions);
        for action in actions {
            self.perform(action);
        }
        if self.stopped {
            self.begin_next(fleet);
        }
    }

    fn begin_next(&mut self, fleet: &mut Fleet) {
        self.stopped = false;
        self.failed = false;
        self.deployed = false;
        self.connected.clear();
        self.attempt += 1;
        let (attempt, workers) = (AttemptNumber(self.attempt), self.workers);
        self.tell(fleet, FleetEvent::Start { attempt, workers });
    }

    fn perform(&mut self, action: FleetAction) {
        match action {
            FleetAction::Launch { manager, process } => {
                assert_eq!(process.attempt.0, self.attempt);
                let Some(run) = self.managers.get_mut(&manager) else {
                    return;
                };
                // A supervisor ends the former process before it starts one.
                *run = Some(process);
                let address = format!("{manager}");
                self.under_way
                    .push(FleetEvent::ProcessConnected { process, address });
            }
            FleetAction::Deploy(deployment) => {
                assert_eq!(deployment.attempt.0, self.attempt);
                assert!(!self.deployed, "deployed once");
                assert_eq!(self.connected.len(), deployment.addresses.len());
                self.deployed = true;
            }
            FleetAction::Kill { manager, process } => {
                if self.managers.get(&manager) == Some(&Some(process)) {
                    self.end_process(manager);
                }
            }
            FleetAction::Failed { attempt, .. } => {
                assert_eq!(attempt.0, self.attempt);
                assert!(!self.failed, "failed once");
                self.failed = true;
                // The driver asks for a stop in an event of its own.
                self.under_way.push(FleetEvent::Stop { attempt });
            }
            FleetAction::Stopped(attempt) => {
                if attempt.0 == self.attempt {
                    assert!(!self.stopped, "stopped once");
                    self.stopped = true;
                }
            }
            FleetAction::Refuse { .. } => unreachable!("no two have the same name"),
            FleetAction::Welcome(_)
            | FleetAction::Disconnect(_)
            | FleetAction::Waiting(_)
            | FleetAction::Slots(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_attempt_ends_when_it_is_to_and_runs_when_nothing_disturbs_it(
        workers in 1u32..5,
        acts in prop::collection::vec(act(), 0..120),
    ) {
        let mut fleet = Fleet::new(FleetSettings::default());
        let mut world = World { workers, ..World::default() };
        world.begin_next(&mut fleet);
        for act in acts {
            world.act(&mut fleet, act);
        }
        // Healing: enough TaskManagers, every message arrives, time passes.
        for _ in 0..workers {
            world.join(&mut fleet);
        }
        for _ in 0..40 {
            while !world.under_way.is_empty() {
                world.deliver(&mut fleet, 0);
            }
            world.pass(&mut fleet, 5_000);
        }
        prop_assert!(world.deployed && !world.failed, "attempt {} runs", world.attempt);
        // And it can be stopped.
        let last = world.attempt;
        world.stop(&mut fleet);
        while !world.under_way.is_empty() {
            world.deliver(&mut fleet, 0);
        }
        prop_assert!(world.attempt > last);
    }
}
