//! What machines do when the JobManager or its store is told to.

use prost::Message;
use rand::Rng;
use tidegate_coordinator::ManagerId;
use tidegate_types::graph::OperatorRole;
use tidegate_types::{AttemptNumber, CheckpointId, SubtaskId};

use super::{Happens, Order, Running, Said, World, subtasks};
use crate::cluster::wire::{
    ManagerOrder, ProcessOrder, manager_order, notice, process_id, process_order,
};

impl World {
    pub(super) fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Store(event) => {
                    self.stored.push(event);
                    let index = self.stored.len() - 1;
                    self.within(15, Happens::Stored(index));
                }
                Order::Disconnect(manager) => {
                    if let Some(machine) = self.managers.remove(&manager) {
                        self.machines[machine].registration = None;
                    }
                }
                Order::ToManager(manager, bytes) => self.tell_manager(manager, &bytes),
                Order::ToProcess(stream, bytes) => self.tell_process(stream, &bytes),
            }
        }
    }

    fn tell_manager(&mut self, manager: ManagerId, bytes: &[u8]) {
        let Some(&machine) = self.managers.get(&manager) else {
            return;
        };
        if self.machines[machine].cut_off {
            return;
        }
        let order = ManagerOrder::decode(bytes).expect("it is one").order;
        match order.expect("it has content") {
            manager_order::Order::Launch(launch) => {
                let id = process_id(launch.attempt, launch.process);
                self.assert_that_nothing_runs(id.attempt);
                self.next += 1;
                let stream = self.next;
                self.streams.insert(stream, machine);
                self.machines[machine].process = Some(Running {
                    id,
                    stream,
                    workers: 0..0,
                    passed: CheckpointId::NONE,
                    told: CheckpointId::NONE,
                    records: 0,
                });
                let after = self.random.random_range(15..80);
                self.after(after, Happens::Connects { stream });
            }
            manager_order::Order::Kill(kill) => {
                let id = process_id(kill.attempt, kill.process);
                if self.machines[machine]
                    .process
                    .as_ref()
                    .is_some_and(|p| p.id == id)
                {
                    self.end_process(machine, 0);
                } else {
                    self.tell_end(machine, id, 1);
                }
            }
            _ => {}
        }
    }

    /// One attempt at a time: whatever can be heard of has ended.
    fn assert_that_nothing_runs(&self, attempt: AttemptNumber) {
        if !cfg!(debug_assertions) {
            return;
        }
        for machine in self.machines.iter().filter(|machine| !machine.cut_off) {
            if let Some(process) = &machine.process {
                assert_eq!(process.id.attempt, attempt, "{} still runs", machine.name);
            }
        }
    }

    fn tell_process(&mut self, stream: u64, bytes: &[u8]) {
        let Some((machine, process)) = self.process(stream) else {
            return;
        };
        let order = ProcessOrder::decode(bytes).expect("it is one").order;
        match order.expect("it has content") {
            process_order::Order::Deployment(deployment) => {
                let first = process.id.index * deployment.threads;
                process.workers = first..first + deployment.threads;
                let after = self.random.random_range(30..200);
                self.after(after, Happens::Runs { stream });
            }
            process_order::Order::Notice(notice) => {
                let attempt = AttemptNumber(notice.attempt);
                match notice.notice {
                    Some(notice::Notice::Trigger(barrier)) => {
                        self.take_snapshots(attempt, barrier.checkpoint);
                    }
                    Some(notice::Notice::Completed(checkpoint)) => self.commit(machine, checkpoint),
                    _ => {}
                }
            }
            process_order::Order::Halt(_) | process_order::Order::Alive(_) => {}
        }
    }

    /// The barrier goes through the job: every subtask acknowledges within 200 ms, unless it is
    /// late or declines.
    fn take_snapshots(&mut self, attempt: AttemptNumber, checkpoint: u64) {
        let late = self.scale.interval.as_millis() as u64 * 5 / 2;
        let (declines, is_late) = match self.faults {
            true => (self.random.random_bool(0.05), self.random.random_bool(0.05)),
            false => (false, false),
        };
        let running: Vec<Running> = self
            .machines
            .iter()
            .filter_map(|m| m.process.clone())
            .collect();
        let mut first = true;
        for process in running
            .iter()
            .filter(|process| process.id.attempt == attempt)
        {
            let stream = process.stream;
            let subtasks: Vec<_> = subtasks(&self.graph, process.workers.clone()).collect();
            for subtask in subtasks {
                let said = match first && declines {
                    true => Said::Declined(checkpoint, subtask),
                    false => Said::Acknowledged(checkpoint, subtask),
                };
                let spread = self.random.random_range(5..200);
                let after = if first && is_late { late } else { spread };
                first = false;
                self.after(after, Happens::Says { stream, said });
            }
        }
    }

    fn commit(&mut self, machine: usize, checkpoint: u64) {
        let Some(process) = self.machines[machine].process.clone() else {
            return;
        };
        let is_sink = |subtask: &SubtaskId| {
            self.graph.operator(subtask.operator).role == OperatorRole::CommittingSink
        };
        let sinks: Vec<_> = subtasks(&self.graph, process.workers)
            .filter(is_sink)
            .collect();
        for subtask in sinks {
            let said = Said::Committed(checkpoint, subtask);
            self.within(
                20,
                Happens::Says {
                    stream: process.stream,
                    said,
                },
            );
        }
    }
}
