//! The dataflow: a source and an operator on each worker, and batches that go round.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use timely::CommunicationConfig;
use timely::communication::{Pull, Push};
use timely::dataflow::channels::pact::DistributorPact;
use timely::dataflow::channels::pushers;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::worker::Worker;

use super::parcel::{Batch, Emptied, Parcel, ToTarget};
use crate::error::{Error, Result};
use crate::measure::Arrivals;

/// Batches between one worker and another, on their way or being emptied.
const IN_FLIGHT: usize = 4;

/// Steps of a source before other operators of its worker have their turn.
const STEPS: usize = 32;

/// Fills batches.
pub(super) trait Produce: 'static {
    /// What it fills.
    type Batch: Batch;

    /// Adds some records, far fewer than a batch holds, each to the batch of its target. Returns
    /// whether there are more.
    fn produce(&mut self, open: &mut [Self::Batch]) -> bool;
}

/// Empties batches.
pub(super) trait Consume<B>: 'static {
    /// Works on every record.
    fn consume(&mut self, batch: &B);

    /// What has been counted.
    fn tally(&self) -> Tally;
}

/// What workers have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) distinct_keys: u64,
    pub(super) sum_of_counts: u64,
}

/// Which of how many workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) peers: usize,
}

/// Runs so many workers to the end. `make` makes what each of them runs, and says to which workers
/// it sends.
pub(super) fn run<P, C, F>(workers: usize, arrivals: Arrivals, make: F) -> Result<Tally>
where
    P: Produce,
    C: Consume<P::Batch>,
    F: Fn(Place) -> (P, C, Range<usize>) + Send + Sync + 'static,
{
    let config = timely::Config {
        communication: CommunicationConfig::Process(workers),
        worker: timely::WorkerConfig::default(),
    };
    let failed = |cause: String| Error::Other {
        what: "run timely's workers",
        cause: cause.into(),
    };
    let guards = timely::execute(config, move |worker| {
        let place = Place {
            index: worker.index(),
            peers: worker.peers(),
        };
        let (producer, consumer, targets) = make(place);
        let consumer = Rc::new(RefCell::new(consumer));
        build(
            worker,
            producer,
            targets,
            Rc::clone(&consumer),
            arrivals.clone(),
        );
        while worker.has_dataflows() {
            worker.step_or_park(None);
        }
        consumer.borrow().tally()
    })
    .map_err(failed)?;
    let mut sum = Tally::default();
    for outcome in guards.join() {
        let tally = outcome.map_err(failed)?;
        sum.distinct_keys += tally.distinct_keys;
        sum.sum_of_counts += tally.sum_of_counts;
    }
    Ok(sum)
}

fn build<P: Produce, C: Consume<P::Batch>>(
    worker: &mut Worker,
    producer: P,
    targets: Range<usize>,
    consumer: Rc<RefCell<C>>,
    arrivals: Arrivals,
) {
    let origin = worker.index();
    worker.dataflow::<u64, _, _>(|scope| {
        let mut source = OperatorBuilder::new("source".to_owned(), scope);
        let (output, stream) = source.new_output::<Parcel<P::Batch>>();
        let address = source.operator_info().address;
        let activator = scope.activator_for(Rc::clone(&address));
        let worker = scope.worker();
        let (mut returns, emptied) = worker.allocate(worker.new_identifier(), address);
        source.build(move |mut capabilities| {
            let mut capability = capabilities.pop();
            let mut output = output;
            let mut outbox = Outbox::new(origin, targets, emptied);
            let mut producer = producer;
            move |_| {
                outbox.take_emptied();
                let Some(held) = &capability else { return };
                match outbox.fill(&mut producer, held, &mut output) {
                    Filled::All => capability = None,
                    Filled::Some => activator.activate(),
                    // What comes back wakes it.
                    Filled::Waiting => {}
                }
            }
        });

        let mut count = OperatorBuilder::new("count".to_owned(), scope);
        let mut input = count.new_input(stream, DistributorPact(|_| ToTarget));
        count.build(move |_| {
            move |_| {
                let mut consumer = consumer.borrow_mut();
                input.for_each(|_, parcel: &mut Parcel<P::Batch>| {
                    let Some(mut batch) = parcel.batch.take() else {
                        return;
                    };
                    consumer.consume(&batch);
                    arrivals.add(batch.len());
                    batch.clear();
                    let target = origin;
                    returns[parcel.origin].push(&mut Some(Emptied { target, batch }));
                    returns[parcel.origin].done();
                });
            }
        });
    });
}

/// How far a source has got in one go.
enum Filled {
    /// To the end.
    All,
    /// Not to the end.
    Some,
    /// To where it has no batch left.
    Waiting,
}

/// The batches of a source: one to fill for each target, and those that have come back.
struct Outbox<B> {
    origin: usize,
    targets: Range<usize>,
    open: Vec<B>,
    spare: Vec<Vec<B>>,
    emptied: Box<dyn Pull<Emptied<B>>>,
}

impl<B: Batch> Outbox<B> {
    fn new(origin: usize, targets: Range<usize>, emptied: Box<dyn Pull<Emptied<B>>>) -> Self {
        let batch = || B::with_capacity(B::RECORDS);
        let spare = || (1..IN_FLIGHT).map(|_| batch()).collect();
        Outbox {
            origin,
            open: targets.clone().map(|_| batch()).collect(),
            spare: targets.clone().map(|_| spare()).collect(),
            targets,
            emptied,
        }
    }

    fn take_emptied(&mut self) {
        while let Some(Emptied { target, batch }) = self.emptied.recv() {
            self.spare[target - self.targets.start].push(batch);
        }
    }

    /// Lets the source work for a while, and sends what is full.
    fn fill<P: Produce<Batch = B>>(
        &mut self,
        producer: &mut P,
        capability: &Capability<u64>,
        output: &mut pushers::Output<u64, Parcel<B>>,
    ) -> Filled {
        let mut session = output.activate();
        for _ in 0..STEPS {
            if self.spare.iter().any(Vec::is_empty) {
                return Filled::Waiting;
            }
            let more = producer.produce(&mut self.open);
            let full = if more { B::RECORDS } else { 1 };
            for (at, target) in self.targets.clone().enumerate() {
                if self.open[at].len() >= full {
                    let next = self.spare[at].pop().expect("there is one for each target");
                    let batch = Some(std::mem::replace(&mut self.open[at], next));
                    let origin = self.origin;
                    let mut parcel = Parcel {
                        origin,
                        target,
                        batch,
                    };
                    session.give(capability, &mut parcel);
                }
            }
            if !more {
                return Filled::All;
            }
        }
        Filled::Some
    }
}
