//! An edge as timely sees it: an output of one operator, an input of another, and a raw channel
//! that brings credit back.

use std::any::Any;
use std::sync::Arc;

use tidegate_state::Record;
use tidegate_types::graph::{Edge, Partitioning};
use timely::Bincode;
use timely::dataflow::channels::pact::{DistributorPact, Pipeline};
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;

use super::RouteContext;
use super::build::BuildContext;
use crate::batch::SpareBuffers;
use crate::credit::CreditSettings;
use crate::input::{InputPort, Puller};
use crate::item::{Item, Packet, ToTarget};
use crate::output::{CreditMessage, EdgeOutput, Forward, Link, Route, Targets, Weighing};
use crate::source::assignment_window;

/// What travels on an edge, as flow control sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// Records: the window is in bytes and adapts to the receiver's speed.
    Records,
    /// Splits: the window is a small number of them.
    Splits,
}

impl EdgeKind {
    fn window(self) -> (CreditSettings, Weighing) {
        match self {
            EdgeKind::Records => (CreditSettings::default(), Weighing::Bytes),
            EdgeKind::Splits => (assignment_window(), Weighing::Records),
        }
    }

    pub(super) fn settings(self) -> CreditSettings {
        self.window().0
    }
}

type MakeRoute<T> = Arc<dyn Fn(RouteContext) -> Box<dyn Route<T>> + Send + Sync>;

/// Makes what an operator takes of what it is sent, a batch at a time.
pub(super) type ConvertBatch<T, In> = Arc<dyn Fn(Vec<T>) -> Vec<In> + Send + Sync>;

/// Connects two operators while the dataflow is built. What it returns are the typed ends, for
/// the operators to take: an [`Unlinked`] for the sender, an [`InputPort`] for the receiver.
pub(super) trait EdgeFactory: Send + Sync {
    fn connect<'scope>(
        &self,
        context: &BuildContext<'scope>,
        edge: Edge,
        from: &mut OperatorBuilder<'scope, u64>,
        to: &mut OperatorBuilder<'scope, u64>,
    ) -> (Box<dyn Any>, Box<dyn Any>);

    fn kind(&self) -> EdgeKind;
}

/// The sending end, until the operator's capability is known.
pub(super) struct Unlinked<T> {
    route: Box<dyn Route<T>>,
    link: Link<T>,
    targets: std::ops::Range<u32>,
    kind: EdgeKind,
}

impl<T: Record> Unlinked<T> {
    pub(super) fn link(
        mut self,
        capability: Option<timely::dataflow::operators::Capability<u64>>,
    ) -> EdgeOutput<T> {
        self.link.capability = capability;
        let (settings, weighing) = self.kind.window();
        EdgeOutput {
            route: self.route,
            targets: Targets::new(self.targets, self.link, &settings, weighing),
        }
    }
}

/// An edge that carries `T` to an operator that takes `In`.
pub(super) struct TypedEdge<T, In> {
    kind: EdgeKind,
    route: MakeRoute<T>,
    convert: ConvertBatch<T, In>,
}

impl<T, In> TypedEdge<T, In> {
    pub(super) fn new(kind: EdgeKind, route: MakeRoute<T>, convert: ConvertBatch<T, In>) -> Self {
        TypedEdge {
            kind,
            route,
            convert,
        }
    }
}

impl<T: Record, In: Record> EdgeFactory for TypedEdge<T, In> {
    fn connect<'scope>(
        &self,
        context: &BuildContext<'scope>,
        edge: Edge,
        from: &mut OperatorBuilder<'scope, u64>,
        to: &mut OperatorBuilder<'scope, u64>,
    ) -> (Box<dyn Any>, Box<dyn Any>) {
        let (output, stream) = from.new_output::<Packet<T>>();
        let forward = edge.partitioning == Partitioning::Forward;
        let convert = Arc::clone(&self.convert);
        let pull: Puller<In> = if forward {
            let mut input = to.new_input(stream, Pipeline);
            Box::new(move |take| {
                input.for_each(|capability, packet| {
                    pass_on(capability.least(), packet, &*convert, take);
                });
            })
        } else {
            let mut input = to.new_input(stream, DistributorPact(|_| ToTarget));
            Box::new(move |take| {
                input.for_each(|capability, packet| {
                    pass_on(capability.least(), packet, &*convert, take);
                });
            })
        };
        // Credit wakes the sending operator, wherever it runs.
        let worker = context.scope.worker();
        let address = from.operator_info().address;
        let (credit_out, credit_in) =
            worker.allocate::<Bincode<CreditMessage>>(worker.new_identifier(), address);

        let own = context.index;
        let (sender, receiver) = (context.operator(edge.from), context.operator(edge.to));
        let all = |parallelism| {
            if forward {
                own..own + 1
            } else {
                0..parallelism
            }
        };
        let spare = SpareBuffers::default();
        let route = RouteContext {
            origin: own,
            parallelism: receiver.parallelism,
            max_parallelism: receiver.max_parallelism,
        };
        let unlinked = Unlinked {
            route: if forward {
                Box::new(Forward)
            } else {
                (self.route)(route)
            },
            link: Link {
                output,
                capability: None,
                credit: credit_in,
                origin: own,
                spare: spare.clone(),
            },
            targets: all(receiver.parallelism),
            kind: self.kind,
        };
        let port = InputPort {
            pull,
            credit: credit_out,
            origins: all(sender.parallelism),
            spare: spare.as_received(),
        };
        (Box::new(unlinked), Box::new(port))
    }

    fn kind(&self) -> EdgeKind {
        self.kind
    }
}

fn pass_on<T, In>(
    time: Option<&u64>,
    packet: &mut Packet<T>,
    convert: &dyn Fn(Vec<T>) -> Vec<In>,
    take: &mut dyn FnMut(u64, Item<In>),
) {
    let time = *time.expect("every packet is sent under a capability");
    if let Some(item) = packet.0.take() {
        take(time, item.convert(convert));
    }
}
