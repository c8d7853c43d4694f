//! What befalls machines: a process, a TaskManager or the network is lost.

use std::time::Duration;

use rand::Rng;
use tidegate_coordinator::ProcessId;

use super::{Happens, Heard, Machine, Running, Said, World};

impl World {
    pub(super) fn lose_something(&mut self, heard: &mut Vec<Heard>) {
        let every = self.scale.faults_every.unwrap_or(Duration::MAX).as_millis() as u64;
        let after = self.random.random_range(every / 2..=every * 3 / 2);
        self.after(after, Happens::SomethingIsLost);
        let runs = |machine: &Machine| machine.process.is_some() && !machine.cut_off;
        let running = (0..self.machines.len()).filter(|index| runs(&self.machines[*index]));
        let running: Vec<usize> = running.collect();
        if running.is_empty() || !self.faults {
            return;
        }
        let machine = running[self.random.random_range(0..running.len())];
        let lost = self.machines[machine].process.clone().expect("it runs one");
        match self.random.random_range(0..3) {
            0 => {
                self.end_process(machine, 0);
                self.miss(&lost);
            }
            1 => {
                self.end_process(machine, 0);
                self.machines[machine].life += 1;
                if let Some(manager) = self.machines[machine].registration.take() {
                    self.managers.remove(&manager);
                    heard.push(Heard::ManagerLeft(manager));
                }
                self.miss(&lost);
                self.within(3_000, Happens::Comes { machine });
            }
            // Nobody is told: its connections stay as they are.
            _ => {
                self.machines[machine].cut_off = true;
                self.machines[machine].life += 1;
                self.machines[machine].process = None;
                self.after(12_000, Happens::Comes { machine });
            }
        }
    }

    /// A process is gone: its stream ends, and its supervisor says so.
    pub(super) fn end_process(&mut self, machine: usize, after: u64) {
        let Some(process) = self.machines[machine].process.take() else {
            return;
        };
        self.after(
            after + 1,
            Happens::Exits {
                stream: process.stream,
            },
        );
        let sees = after + self.random.random_range(1..8);
        self.tell_end(machine, process.id, sees);
    }

    /// The stream of a process ends. One that exits by itself is missed by its supervisor.
    pub(super) fn exit(&mut self, stream: u64, heard: &mut Vec<Heard>) {
        let Some(machine) = self.streams.remove(&stream) else {
            return;
        };
        let of_stream = |process: &mut Running| process.stream == stream;
        if let Some(process) = self.machines[machine].process.take_if(of_stream) {
            self.tell_end(machine, process.id, 2);
        }
        if !self.machines[machine].cut_off {
            heard.push(Heard::ProcessLeft(stream));
        }
    }

    pub(super) fn tell_end(&mut self, machine: usize, id: ProcessId, after: u64) {
        let life = self.machines[machine].life;
        let (attempt, index) = (id.attempt.0, id.index);
        self.after(
            after,
            Happens::Ends {
                machine,
                life,
                attempt,
                index,
            },
        );
    }

    /// All its peers notice, say so, and exit.
    fn miss(&mut self, lost: &Running) {
        for machine in 0..self.machines.len() {
            let peer = self.machines[machine].process.as_ref();
            let Some(stream) = peer
                .filter(|p| p.id.attempt == lost.id.attempt)
                .map(|p| p.stream)
            else {
                continue;
            };
            let said = Said::LostPeer(lost.id.index);
            let after = self.random.random_range(2..10);
            self.after(after, Happens::Says { stream, said });
            self.after(after, Happens::Exits { stream });
        }
    }
}
