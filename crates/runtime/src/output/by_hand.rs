//! An operator's outputs, main and side, whose receivers are in the hands of a test: real channels,
//! on which nothing moves by itself.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tidegate_state::Record;
use timely::Bincode;
use timely::communication::Pull;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::worker::Worker;

use super::side::Side;
use super::{
    Collector, CreditMessage, EdgeOutput, Forward, Link, Route, SideCollector, SideOutputs,
    Targets, Weighing,
};
use crate::alignment::ChannelIndex;
use crate::batch::SpareBuffers;
use crate::credit::{CreditSettings, Grant, ReceiveCredit};
use crate::item::{Item, Packet, Payload};

/// Tag of the side output.
const TAG: &str = "side";

/// Windows that stay as they are, so that it is known how much they let through.
pub(crate) fn fixed_window(window: u32, batch_max: u32) -> CreditSettings {
    CreditSettings {
        window_initial: window,
        window_min: window,
        window_max: window,
        batch_max,
        ..CreditSettings::default()
    }
}

/// Credit on its way back, one message at a time.
#[derive(Clone, Default)]
struct Credits(
    Rc<RefCell<VecDeque<CreditMessage>>>,
    Option<Bincode<CreditMessage>>,
);

impl Pull<Bincode<CreditMessage>> for Credits {
    fn pull(&mut self) -> &mut Option<Bincode<CreditMessage>> {
        self.1 = self.0.borrow_mut().pop_front().map(Bincode::from);
        &mut self.1
    }
}

/// The receiving end of one channel.
pub(crate) struct Receiver<T> {
    credit: ReceiveCredit,
    queue: VecDeque<Payload<T>>,
    sequence: u64,
    /// Weight of the records that have been sent and not yet processed.
    pub(crate) in_flight: u64,
    /// Records that have been processed.
    pub(crate) processed: Vec<T>,
    /// Hashes that came with them.
    pub(crate) key_hashes: Vec<u64>,
    /// Weights of the batches that have arrived, and how many records they held.
    pub(crate) batches: Vec<(u64, usize)>,
}

/// One edge.
struct Wire<T> {
    arrived: Rc<RefCell<Vec<Item<T>>>>,
    credits: Credits,
    receivers: Vec<Receiver<T>>,
}

impl<T: Record> Wire<T> {
    fn new(worker: &mut Worker, settings: &CreditSettings, count: u32) -> (Self, Targets<T>) {
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let credits = Credits::default();
        let link = worker.dataflow::<u64, _, _>(|scope| {
            let mut sender = OperatorBuilder::new("sender".to_owned(), scope);
            let (output, stream) = sender.new_output::<Packet<T>>();
            let mut receiver = OperatorBuilder::new("receiver".to_owned(), scope);
            let mut input = receiver.new_input(stream, Pipeline);
            let arrived = Rc::clone(&arrived);
            receiver.build(move |_capabilities| {
                move |_frontiers| {
                    input.for_each(|_, packet| arrived.borrow_mut().extend(packet.item.take()));
                }
            });
            let mut capability = None;
            sender.build(|mut capabilities| {
                capability = capabilities.pop();
                |_frontiers| {}
            });
            Link {
                wire: super::Wire::Timely { output, capability },
                credit: Box::new(credits.clone()),
                origin: 0,
                spare: SpareBuffers::default(),
            }
        });
        let receiver = |_| Receiver {
            credit: ReceiveCredit::new(settings.clone(), 1, Duration::ZERO),
            queue: VecDeque::new(),
            sequence: 0,
            in_flight: 0,
            processed: Vec::new(),
            key_hashes: Vec::new(),
            batches: Vec::new(),
        };
        let wire = Wire {
            arrived,
            credits,
            receivers: (0..count).map(receiver).collect(),
        };
        let targets = Targets::new(0..count, link, settings, Weighing::Bytes);
        (wire, targets)
    }

    fn take_in(&mut self) {
        for item in self.arrived.borrow_mut().drain(..) {
            let receiver = &mut self.receivers[item.target as usize];
            assert_eq!(item.sequence, receiver.sequence);
            receiver.sequence += 1;
            if let Payload::Data { records, bytes } = &item.payload {
                receiver.in_flight += bytes;
                receiver.batches.push((*bytes, records.records.len()));
            }
            receiver.queue.push_back(item.payload);
        }
    }

    fn work(&mut self, target: usize) -> bool {
        let receiver = &mut self.receivers[target];
        let Some(payload) = receiver.queue.pop_front() else {
            return false;
        };
        if let Payload::Data { records, bytes } = payload {
            receiver.in_flight -= bytes;
            receiver.processed.extend(records.records);
            receiver.key_hashes.extend(records.key_hashes);
            receiver.credit.on_processed(ChannelIndex(0), bytes);
        }
        let credits = &self.credits.0;
        receiver.credit.take_grants(|_, grant| {
            let target = target as u32;
            credits
                .borrow_mut()
                .push_back(CreditMessage { target, grant });
        });
        true
    }
}

/// The outputs and their receivers.
pub(crate) struct ByHand<'a, T: Record = String> {
    worker: &'a mut Worker,
    pub(crate) out: Collector<T>,
    pub(crate) side: SideCollector<T>,
    /// Of the main output, and of the side output.
    wires: [Wire<T>; 2],
}

impl<T: Record> Drop for ByHand<'_, T> {
    /// The worker doesn't end before its dataflows do.
    fn drop(&mut self) {
        for dataflow in self.worker.installed_dataflows() {
            self.worker.drop_dataflow(dataflow);
        }
    }
}

/// Which of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Main,
    Side,
}

impl<'a, T: Record> ByHand<'a, T> {
    /// The main output leads to `count` receivers by `route`, the side output to one.
    pub(crate) fn new(
        worker: &'a mut Worker,
        settings: &CreditSettings,
        route: Box<dyn Route<T>>,
        count: u32,
    ) -> Self {
        let (main, targets) = Wire::new(worker, settings, count);
        let main_output = Collector::new(vec![EdgeOutput { route, targets }]);
        let (aside, targets) = Wire::new(worker, settings, 1);
        let route = Box::new(Forward);
        let side_output = Collector::new(vec![EdgeOutput { route, targets }]);
        let full_count = Rc::default();
        let (opened, handle) = Side::open(side_output, &full_count);
        let mut side_outputs = SideOutputs::default();
        side_outputs.insert(TAG.to_owned(), handle);
        ByHand {
            worker,
            out: main_output.with_sides(vec![opened], full_count),
            side: side_outputs.take(TAG).expect("of this type"),
            wires: [main, aside],
        }
    }

    /// Lets what has been sent arrive, and the credit that has been returned.
    pub(crate) fn deliver(&mut self) {
        self.worker.step();
        self.wires.iter_mut().for_each(Wire::take_in);
        self.out.receive_credit();
    }

    /// A receiver works off one item. Returns whether it had one.
    pub(crate) fn work(&mut self, which: Which, target: usize) -> bool {
        self.wires[which as usize].work(target)
    }

    /// A receiver of the main output grants credit of its own accord.
    pub(crate) fn grant(&mut self, target: u32, grant: Grant) {
        let credits = &self.wires[Which::Main as usize].credits.0;
        credits
            .borrow_mut()
            .push_back(CreditMessage { target, grant });
        self.deliver();
    }

    pub(crate) fn receivers(&self, which: Which) -> &[Receiver<T>] {
        &self.wires[which as usize].receivers
    }

    /// Everybody works until nothing is left, without further records.
    pub(crate) fn drain(&mut self) {
        loop {
            self.out.flush();
            self.deliver();
            let mut worked = false;
            for which in [Which::Main, Which::Side] {
                for target in 0..self.receivers(which).len() {
                    while self.work(which, target) {
                        worked = true;
                    }
                }
            }
            self.deliver();
            if !worked && !self.out.holds_records() {
                return;
            }
            assert!(worked, "stuck");
        }
    }
}
