//! What comes in on streams becomes news for fleet and job, as streams and dispatcher do it.

use prost::Message;
use tidegate_coordinator::{FleetEvent, JobEvent, ManagerId};
use tidegate_types::message::{AddressedReport, FailureOrigin, Report, SubtaskFailure};

use super::{Heard, JobManager, News};
use crate::cluster::simulation::meter::Part;
use crate::cluster::wire::{
    ManagerMessage, ProcessMessage, manager_message, process_id, process_message,
};

impl JobManager {
    pub(super) fn decode(&mut self, heard: Vec<Heard>) -> Vec<News> {
        let mut all = Vec::new();
        for heard in heard {
            match heard {
                Heard::Registered(manager, info) => {
                    self.managers.insert(manager);
                    all.push(News::Fleet(FleetEvent::Registered { manager, info }));
                }
                Heard::FromManager(manager, bytes) => {
                    self.decode_manager(manager, &bytes, &mut all)
                }
                Heard::ManagerLeft(manager) => {
                    self.managers.remove(&manager);
                    let cause = "it closed its stream".to_owned();
                    all.push(News::Fleet(FleetEvent::ManagerLost { manager, cause }));
                }
                Heard::FromNewProcess(stream, bytes) => self.decode_hello(stream, &bytes, &mut all),
                Heard::FromProcess(stream, bytes) => self.decode_process(stream, &bytes, &mut all),
                Heard::ProcessLeft(stream) => {
                    if let Some(process) = self.processes.remove(&stream) {
                        let cause = "it closed its stream".to_owned();
                        all.push(News::Fleet(FleetEvent::ProcessLost { process, cause }));
                    }
                }
                Heard::Stored(event) => all.push(News::Job(event)),
            }
        }
        all
    }

    fn decode_manager(&mut self, manager: ManagerId, bytes: &[u8], all: &mut Vec<News>) {
        let meter = &mut self.figures.meter;
        meter.heard.count(bytes);
        let message = meter.time(Part::Decode, || ManagerMessage::decode(bytes));
        all.push(News::Fleet(FleetEvent::ManagerHeard(manager)));
        let message = message.expect("it is one").message;
        if let Some(manager_message::Message::Ended(ended)) = message {
            let process = process_id(ended.attempt, ended.process);
            let how = ended.how;
            let event = FleetEvent::ProcessEnded {
                manager,
                process,
                how,
            };
            all.push(News::Fleet(event));
        }
    }

    fn decode_hello(&mut self, stream: u64, bytes: &[u8], all: &mut Vec<News>) {
        let meter = &mut self.figures.meter;
        meter.heard.count(bytes);
        let message = meter.time(Part::Decode, || ProcessMessage::decode(bytes));
        let Some(process_message::Message::Hello(hello)) = message.expect("it is one").message
        else {
            panic!("the first message is a hello");
        };
        let process = process_id(hello.attempt, hello.process);
        if process.attempt == self.attempts {
            self.processes.insert(stream, process);
            let address = hello.address;
            all.push(News::Fleet(FleetEvent::ProcessConnected {
                process,
                address,
            }));
        }
    }

    fn decode_process(&mut self, stream: u64, bytes: &[u8], all: &mut Vec<News>) {
        let meter = &mut self.figures.meter;
        meter.heard.count(bytes);
        let Some(&process) = self.processes.get(&stream) else {
            return;
        };
        let message = meter.time(Part::Decode, || {
            match ProcessMessage::decode(bytes).expect("it is one").message {
                Some(process_message::Message::Report(report)) => {
                    Ok(AddressedReport::try_from(report).expect("it is well formed"))
                }
                Some(process_message::Message::Progress(progress)) => Err(progress),
                other => panic!("not said here: {other:?}"),
            }
        });
        let AddressedReport { attempt, report } = match message {
            Ok(addressed) => addressed,
            Err(progress) => return all.push(News::Progress(process, progress)),
        };
        all.push(News::Fleet(FleetEvent::ProcessHeard(process)));
        if let Report::Acknowledged {
            checkpoint,
            subtask,
            ..
        } = &report
        {
            self.watch.on_acknowledged(attempt, *checkpoint, *subtask);
        }
        all.push(match report {
            Report::Failed(SubtaskFailure {
                origin: FailureOrigin::Peer { .. },
                cause,
                ..
            }) => News::Fleet(FleetEvent::PeerLost { process, cause }),
            report => News::Job(JobEvent::Report(AddressedReport { attempt, report })),
        });
    }
}
