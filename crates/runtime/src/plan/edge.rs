//! An edge as timely sees it: an output of one operator, an input of another, and a raw channel
//! that brings credit back.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use tidegate_state::Record;
use tidegate_types::graph::{Edge, Partitioning};
use timely::Bincode;
use timely::communication::Pull;
use timely::dataflow::channels::pact::DistributorPact;
use timely::dataflow::channels::pushers;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;

use super::RouteContext;
use super::build::BuildContext;
use crate::batch::SpareBuffers;
use crate::chaining::{ChainedEdge, ChainedSender};
use crate::credit::CreditSettings;
use crate::input::{InputPort, Puller};
use crate::item::{Item, Packet, ToTarget};
use crate::metrics::ChannelKind;
use crate::output::{CreditMessage, EdgeOutput, Forward, Link, Route, Targets, Weighing, Wire};
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

/// The typed ends of an edge, for the operators to take.
pub(super) struct Connected {
    /// An [`Unlinked`], for the sender.
    pub(super) output: Box<dyn Any>,
    /// An [`InputPort`], for the receiver.
    pub(super) input: Box<dyn Any>,
    /// Whether the edge goes through timely.
    pub(super) is_timely: bool,
}

/// Connects two operators while the dataflow is built.
pub(super) trait EdgeFactory: Send + Sync {
    fn connect<'scope>(
        &self,
        context: &BuildContext<'scope>,
        edge: Edge,
        from: &mut OperatorBuilder<'scope, u64>,
        to: &mut OperatorBuilder<'scope, u64>,
    ) -> Connected;

    fn kind(&self) -> EdgeKind;
}

/// The sending end, until the operator's capability is known.
pub(super) struct Unlinked<T> {
    route: Box<dyn Route<T>>,
    wire: UnlinkedWire<T>,
    credit: Box<dyn Pull<Bincode<CreditMessage>>>,
    origin: u32,
    spare: SpareBuffers<T>,
    targets: Range<u32>,
    kind: EdgeKind,
}

enum UnlinkedWire<T> {
    Timely(pushers::Output<u64, Packet<T>>),
    Chained(ChainedSender<T>),
}

impl<T: Record> Unlinked<T> {
    /// `capability` is that of the timely output, if the edge has one.
    pub(super) fn link(self, capability: Option<Capability<u64>>) -> EdgeOutput<T> {
        let wire = match self.wire {
            UnlinkedWire::Timely(output) => Wire::Timely { output, capability },
            UnlinkedWire::Chained(sender) => Wire::Chained { sender, time: 0 },
        };
        let link = Link {
            wire,
            credit: self.credit,
            origin: self.origin,
            spare: self.spare,
        };
        let (settings, weighing) = self.kind.window();
        EdgeOutput {
            route: self.route,
            targets: Targets::new(self.targets, link, &settings, weighing),
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
    ) -> Connected {
        if edge.partitioning == Partitioning::Forward {
            return self.chain(context, from, to);
        }
        let worker = context.scope.worker();
        let (output, stream) = from.new_output::<Packet<T>>();
        context.note_channel(worker.peek_identifier(), ChannelKind::Items);
        let mut input = to.new_input(stream, DistributorPact(|_| ToTarget));
        let convert = Arc::clone(&self.convert);
        let pull: Puller<In> = Box::new(move |take| {
            input.for_each(|capability, packet| {
                pass_on(capability.least(), packet, &*convert, take);
            });
        });
        // Credit wakes the sending operator, wherever it runs.
        let address = from.operator_info().address;
        let identifier = worker.new_identifier();
        context.note_channel(identifier, ChannelKind::Credit);
        let (credit_out, credit_in) =
            worker.allocate::<Bincode<CreditMessage>>(identifier, address);

        let (sender, receiver) = (context.operator(edge.from), context.operator(edge.to));
        let route = (self.route)(RouteContext {
            origin: context.index,
            parallelism: receiver.parallelism,
            max_parallelism: receiver.max_parallelism,
        });
        let spare = SpareBuffers::default();
        let port = InputPort {
            pull,
            credit: credit_out,
            origins: 0..sender.parallelism,
            chained: None,
            spare: spare.as_received(),
        };
        let unlinked = Unlinked {
            route,
            wire: UnlinkedWire::Timely(output),
            credit: credit_in,
            origin: context.index,
            spare,
            targets: 0..receiver.parallelism,
            kind: self.kind,
        };
        Connected {
            output: Box::new(unlinked),
            input: Box::new(port),
            is_timely: true,
        }
    }

    fn kind(&self) -> EdgeKind {
        self.kind
    }
}

impl<T: Record, In: Record> TypedEdge<T, In> {
    /// From a subtask to the one with the same index, on the same worker.
    fn chain<'scope>(
        &self,
        context: &BuildContext<'scope>,
        from: &OperatorBuilder<'scope, u64>,
        to: &OperatorBuilder<'scope, u64>,
    ) -> Connected {
        let own = context.index;
        let activators = [from, to].map(|operator| {
            let address = operator.operator_info().address;
            context.scope.activator_for(address)
        });
        let convert = Arc::clone(&self.convert);
        let chained = ChainedEdge::new(activators.into(), move |item: Item<T>| {
            item.convert(&*convert)
        });
        let spare = SpareBuffers::default();
        let port = InputPort {
            pull: chained.pull,
            credit: vec![chained.credit_out],
            origins: own..own + 1,
            chained: Some(chained.receiver),
            spare: spare.as_received(),
        };
        let unlinked = Unlinked {
            route: Box::new(Forward),
            wire: UnlinkedWire::Chained(chained.sender),
            credit: chained.credit_in,
            origin: own,
            spare,
            targets: own..own + 1,
            kind: self.kind,
        };
        Connected {
            output: Box::new(unlinked),
            input: Box::new(port),
            is_timely: false,
        }
    }
}

fn pass_on<T, In>(
    time: Option<&u64>,
    packet: &mut Packet<T>,
    convert: &dyn Fn(Vec<T>) -> Vec<In>,
    take: &mut dyn FnMut(u64, Item<In>),
) {
    let time = *time.expect("every packet is sent under a capability");
    if let Some(item) = packet.item.take() {
        take(time, item.convert(convert));
    }
}
