//! A fleet by hand, and in a small world in which everything may fail at any moment.

use super::*;

mod world;

/// A fleet, the time, and what it has said since it was last looked at.
struct Hand {
    fleet: Fleet,
    now: Millis,
    actions: Vec<FleetAction>,
}

const ATTEMPT: AttemptNumber = AttemptNumber(1);

fn process(index: u32) -> ProcessId {
    ProcessId {
        attempt: ATTEMPT,
        index,
    }
}

impl Hand {
    /// TaskManagers `tm-0`, `tm-1`, … with one slot each.
    fn with_managers(count: u64) -> Self {
        let mut hand = Hand {
            fleet: Fleet::new(FleetSettings::default()),
            now: Millis(0),
            actions: Vec::new(),
        };
        (0..count).for_each(|id| hand.register(id, &format!("tm-{id}")));
        let welcome = |id| format!("welcome registration-{id}");
        assert_eq!(hand.said(), (0..count).map(welcome).collect::<Vec<_>>());
        hand
    }

    fn tell(&mut self, event: FleetEvent) -> &mut Self {
        self.fleet.step(self.now, event, &mut self.actions);
        self
    }

    fn register(&mut self, id: u64, name: &str) {
        self.register_instance(id, name, 0);
    }

    fn register_instance(&mut self, id: u64, name: &str, instance: u64) {
        let info = ManagerInfo {
            name: name.to_owned(),
            slots: 1,
            instance,
        };
        let manager = ManagerId(id);
        self.tell(FleetEvent::Registered { manager, info });
    }

    /// Lets everybody but the one of this id say that they are there, over this many milliseconds.
    fn pass(&mut self, millis: u64, silent_manager: Option<u64>, silent_process: Option<u32>) {
        let end = self.now.0 + millis;
        while self.now.0 < end {
            self.now.0 = (self.now.0 + 1_000).min(end);
            let managers: Vec<_> = self.fleet.managers().map(|(id, _)| id).collect();
            for id in managers {
                if Some(id.0) != silent_manager {
                    self.tell(FleetEvent::ManagerHeard(id));
                }
            }
            for index in (0..3).filter(|index| Some(*index) != silent_process) {
                self.tell(FleetEvent::ProcessHeard(process(index)));
            }
            self.tell(FleetEvent::Tick);
        }
    }

    fn connect(&mut self, index: u32) -> &mut Self {
        self.tell(FleetEvent::ProcessConnected {
            process: process(index),
            address: format!("host:{index}"),
        })
    }

    /// Three processes on three TaskManagers, all deployed.
    fn running() -> Self {
        let mut hand = Hand::with_managers(3);
        let (attempt, workers) = (ATTEMPT, 3);
        hand.tell(FleetEvent::Start { attempt, workers });
        hand.connect(0).connect(1).connect(2).said();
        hand
    }

    fn ended(&mut self, index: u32) -> &mut Self {
        self.tell(FleetEvent::ProcessEnded {
            manager: ManagerId(u64::from(index)),
            process: process(index),
            how: "was killed by signal 9".to_owned(),
        })
    }

    fn lost(&mut self, index: u32) -> &mut Self {
        self.tell(FleetEvent::ProcessLost {
            process: process(index),
            cause: "its stream was reset".to_owned(),
        })
    }

    fn stop(&mut self) -> &mut Self {
        let attempt = ATTEMPT;
        self.tell(FleetEvent::Stop { attempt })
    }

    /// Everything since the last time, as one line each, but for the number of slots.
    fn said(&mut self) -> Vec<String> {
        let is_told = |action: &FleetAction| !matches!(action, FleetAction::Slots(_));
        let actions = self.actions.drain(..).filter(is_told);
        actions.map(|action| line(&action)).collect()
    }
}

fn line(action: &FleetAction) -> String {
    match action {
        FleetAction::Welcome(manager) => format!("welcome {manager}"),
        FleetAction::Refuse {
            manager,
            cause,
            may_retry,
        } => format!("refuse {manager} (retry: {may_retry}): {cause}"),
        FleetAction::Launch { manager, process } => format!("launch {process} at {manager}"),
        FleetAction::Deploy(deployment) => format!(
            "deploy {} × {} at {}",
            deployment.attempt,
            deployment.threads,
            deployment.addresses.join(" ")
        ),
        FleetAction::Kill { manager, process } => format!("kill {process} at {manager}"),
        FleetAction::Disconnect(manager) => format!("disconnect {manager}"),
        FleetAction::Failed { attempt, cause } => format!("{attempt} failed: {cause}"),
        FleetAction::Stopped(attempt) => format!("{attempt} stopped"),
        FleetAction::Waiting(waiting) => waiting.to_string(),
        FleetAction::Slots(slots) => format!("{slots} slots"),
    }
}

#[test]
fn the_number_of_slots_is_told_when_it_changes() {
    let mut hand = Hand::with_managers(0);
    hand.register(0, "tm-0");
    hand.register(1, "tm-1");
    let told = |hand: &mut Hand| {
        let lines: Vec<String> = hand.actions.drain(..).map(|action| line(&action)).collect();
        lines
    };
    let welcome = ["welcome registration-0", "welcome registration-1"];
    assert_eq!(
        told(&mut hand),
        [welcome[0], "1 slots", welcome[1], "2 slots"]
    );
    let manager = ManagerId(1);
    hand.tell(FleetEvent::ManagerHeard(manager));
    let cause = "gone".to_owned();
    hand.tell(FleetEvent::ManagerLost { manager, cause });
    assert_eq!(told(&mut hand), ["1 slots"]);
}

#[test]
fn an_attempt_waits_for_slots_then_for_all_processes() {
    let mut hand = Hand::with_managers(1);
    let (attempt, workers) = (ATTEMPT, 2);
    hand.tell(FleetEvent::Start { attempt, workers });
    assert!(hand.said().is_empty(), "others may be about to register");
    hand.now = hand.fleet.next_deadline().unwrap();
    assert_eq!(hand.now, Millis(launch::WAITING_MILLIS));
    hand.tell(FleetEvent::Tick);
    let waiting = "waiting for TaskManagers: the job needs 2 slots in processes of equal size, \
                   and 1 are free on 1 TaskManagers";
    assert_eq!(hand.said(), [waiting]);
    hand.tell(FleetEvent::Tick);
    assert!(hand.said().is_empty(), "told once");
    hand.register(1, "tm-1");
    assert_eq!(
        hand.said(),
        [
            "welcome registration-1",
            "launch process 0 of attempt-1 at registration-0",
            "launch process 1 of attempt-1 at registration-1"
        ]
    );
    hand.connect(1);
    assert!(hand.said().is_empty());
    hand.connect(0);
    assert_eq!(hand.said(), ["deploy attempt-1 × 1 at host:0 host:1"]);
    hand.connect(0);
    assert!(hand.said().is_empty(), "once");
}

#[test]
fn a_process_that_ends_fails_the_attempt_and_the_others_are_killed() {
    let mut hand = Hand::running();
    // The streams of the killed one and the connections of its peers may break first.
    hand.lost(1);
    hand.tell(FleetEvent::PeerLost {
        process: process(0),
        cause: "lost the connection to process 1".to_owned(),
    });
    assert!(hand.said().is_empty());
    hand.ended(1);
    let cause = "attempt-1 failed: process 1 of attempt-1 on `tm-1` was killed by signal 9";
    assert_eq!(hand.said(), [cause]);
    hand.stop();
    assert_eq!(
        hand.said(),
        [
            "kill process 0 of attempt-1 at registration-0",
            "kill process 2 of attempt-1 at registration-2"
        ]
    );
    hand.ended(0);
    assert!(hand.said().is_empty());
    hand.ended(2);
    assert_eq!(hand.said(), ["attempt-1 stopped"]);
}

#[test]
fn of_two_that_cannot_reach_each_other_one_is_replaced_by_a_standby() {
    let mut hand = Hand::running();
    hand.register(3, "tm-3");
    hand.tell(FleetEvent::PeerLost {
        process: process(1),
        cause: "lost the connection to process 2".to_owned(),
    });
    hand.now = hand.fleet.next_deadline().unwrap();
    hand.tell(FleetEvent::Tick).stop();
    hand.ended(0).ended(1).ended(2);
    hand.said();
    let (attempt, workers) = (AttemptNumber(2), 3);
    hand.tell(FleetEvent::Start { attempt, workers });
    assert_eq!(
        hand.said(),
        [
            "launch process 0 of attempt-2 at registration-0",
            "launch process 1 of attempt-2 at registration-3",
            "launch process 2 of attempt-2 at registration-2"
        ]
    );
}

#[test]
fn a_lost_connection_is_the_cause_if_nothing_better_is_heard_of() {
    let mut hand = Hand::running();
    hand.tell(FleetEvent::PeerLost {
        process: process(0),
        cause: "lost the connection to process 1".to_owned(),
    });
    hand.now = hand.fleet.next_deadline().unwrap();
    assert_eq!(hand.now, Millis(launch::EXPLANATION_MILLIS));
    hand.tell(FleetEvent::Tick);
    let cause = "attempt-1 failed: process 0 of attempt-1 on `tm-0`: lost the connection to \
                 process 1";
    assert_eq!(hand.said(), [cause]);
}

#[test]
fn a_lost_machine_is_found_by_its_silence_and_not_waited_for() {
    let mut hand = Hand::running();
    hand.pass(5_000, Some(1), Some(1));
    let cause = "attempt-1 failed: TaskManager `tm-1` was lost: it has not been heard of for 5s";
    assert_eq!(hand.said(), ["disconnect registration-1", cause]);
    hand.stop();
    hand.ended(0).ended(2);
    hand.pass(5_000, None, Some(1));
    assert_eq!(hand.said().last().unwrap(), "attempt-1 stopped");
}

#[test]
fn a_process_without_its_task_manager_is_waited_for_while_it_is_heard_of() {
    let mut hand = Hand::running();
    let cause = "its stream was reset".to_owned();
    let manager = ManagerId(1);
    hand.tell(FleetEvent::ManagerLost { manager, cause });
    hand.stop().ended(0).ended(2);
    hand.pass(60_000, None, None);
    assert!(!hand.said().contains(&"attempt-1 stopped".to_owned()));
    hand.lost(1);
    assert_eq!(hand.said(), ["attempt-1 stopped"]);
}

#[test]
fn a_process_that_does_not_come_up_is_told_of() {
    let mut hand = Hand::with_managers(1);
    let (attempt, workers) = (ATTEMPT, 1);
    hand.tell(FleetEvent::Start { attempt, workers }).said();
    hand.pass(60_000, None, Some(0));
    let cause = "attempt-1 failed: process 0 of attempt-1 on `tm-0` has not connected within 1m";
    assert!(hand.said()[0].starts_with(&cause.replace("1m", "60s")));
}

#[test]
fn a_stop_while_waiting_for_slots_ends_at_once() {
    let mut hand = Hand::with_managers(0);
    let (attempt, workers) = (ATTEMPT, 1);
    hand.tell(FleetEvent::Start { attempt, workers }).said();
    hand.stop();
    assert_eq!(hand.said(), ["attempt-1 stopped"]);
    hand.stop();
    assert_eq!(
        hand.said(),
        ["attempt-1 stopped"],
        "asked again, answered again"
    );
}

#[test]
fn one_that_comes_back_takes_the_place_of_its_former_self() {
    let mut hand = Hand::running();
    hand.register(7, "tm-1");
    let cause = "attempt-1 failed: TaskManager `tm-1` was lost: it has registered anew";
    assert_eq!(
        hand.said(),
        ["disconnect registration-1", cause, "welcome registration-7"]
    );
    hand.lost(1).stop().ended(0).ended(2).said();
    let (attempt, workers) = (AttemptNumber(2), 3);
    hand.tell(FleetEvent::Start { attempt, workers });
    assert_eq!(
        hand.said()[1],
        "launch process 1 of attempt-2 at registration-7"
    );
}

// Two of one name would take each other's place for ever.
#[test]
fn one_under_the_name_of_another_that_is_alive_is_refused() {
    let mut hand = Hand::running();
    hand.register_instance(7, "tm-1", 70);
    let told = hand.said();
    assert!(told[0].starts_with("refuse registration-7 (retry: true)"));
    assert_eq!(told.len(), 1, "the job isn't disturbed: {told:?}");
    // It is heard of on and on, so it can't have been started again.
    hand.pass(2_000, None, None);
    hand.register_instance(8, "tm-1", 70);
    let told = hand.said();
    let alive = "refuse registration-8 (retry: false): another TaskManager called `tm-1` is \
                 registered, and alive; give each a `--name` of its own";
    assert_eq!(told, [alive]);
    // A third one is not blamed for what the second was.
    hand.register_instance(9, "tm-1", 90);
    assert!(hand.said()[0].starts_with("refuse registration-9 (retry: true)"));
}

#[test]
fn one_that_was_started_again_gets_its_name_as_soon_as_the_former_is_known_to_be_gone() {
    let mut hand = Hand::running();
    hand.register_instance(7, "tm-1", 70);
    assert!(hand.said()[0].starts_with("refuse registration-7 (retry: true)"));
    let cause = "its stream was reset".to_owned();
    let manager = ManagerId(1);
    hand.tell(FleetEvent::ManagerLost { manager, cause }).said();
    hand.register_instance(8, "tm-1", 70);
    assert_eq!(hand.said(), ["welcome registration-8"]);

    // Nobody says that a machine has vanished: its silence does.
    let mut hand = Hand::running();
    hand.pass(4_000, Some(1), Some(1));
    hand.register_instance(7, "tm-1", 70);
    assert!(hand.said()[0].starts_with("refuse registration-7 (retry: true)"));
    hand.pass(1_000, Some(1), Some(1));
    hand.said();
    hand.register_instance(8, "tm-1", 70);
    assert_eq!(hand.said(), ["welcome registration-8"]);
}

#[test]
fn a_standby_is_tried_before_one_on_which_nothing_came_up() {
    let start = |hand: &mut Hand, attempt: u64| {
        let (attempt, workers) = (AttemptNumber(attempt), 1);
        hand.tell(FleetEvent::Start { attempt, workers });
        hand.said()
    };
    let mut hand = Hand::with_managers(2);
    assert!(start(&mut hand, 1)[0].ends_with("at registration-0"));
    hand.ended(0).stop().said();
    assert!(start(&mut hand, 2)[0].ends_with("at registration-1"));
    // With nobody else it gets another try, which counts.
    let mut hand = Hand::with_managers(1);
    assert!(start(&mut hand, 1)[0].ends_with("at registration-0"));
    hand.ended(0).stop().said();
    assert!(start(&mut hand, 2)[0].ends_with("at registration-0"));
}

#[test]
fn news_of_another_attempt_is_ignored() {
    let mut hand = Hand::running();
    let stale = ProcessId {
        attempt: AttemptNumber(0),
        index: 1,
    };
    hand.tell(FleetEvent::ProcessEnded {
        manager: ManagerId(1),
        process: stale,
        how: "exited with 1".to_owned(),
    });
    hand.tell(FleetEvent::ProcessLost {
        process: stale,
        cause: String::new(),
    });
    hand.now.0 += 1_000;
    hand.tell(FleetEvent::Tick);
    assert!(hand.said().is_empty());
}

#[test]
fn being_heard_of_moves_no_deadline_and_silence_is_noticed_all_the_same() {
    let mut hand = Hand::with_managers(2);
    assert_eq!(hand.fleet.next_deadline(), Some(Millis(5_000)));
    hand.now = Millis(1_000);
    hand.tell(FleetEvent::ManagerHeard(ManagerId(0)));
    hand.now = Millis(3_000);
    hand.tell(FleetEvent::ManagerHeard(ManagerId(1)));
    assert_eq!(hand.fleet.next_deadline(), Some(Millis(5_000)));
    // Now it is looked who has been heard of when.
    hand.now = Millis(5_000);
    hand.tell(FleetEvent::Tick);
    assert!(hand.said().is_empty());
    assert_eq!(hand.fleet.next_deadline(), Some(Millis(6_000)));
    hand.now = Millis(6_000);
    hand.tell(FleetEvent::ManagerHeard(ManagerId(1)));
    assert_eq!(hand.said(), ["disconnect registration-0"]);
    assert_eq!(hand.fleet.next_deadline(), Some(Millis(11_000)));
}
