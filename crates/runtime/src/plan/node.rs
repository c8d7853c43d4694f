//! An operator as timely sees it: a closure that activates one subtask.

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tidegate_state::Record;
use tidegate_types::{OperatorId, SubtaskId};
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use super::build::BuildContext;
use super::edge::Unlinked;
use super::side::{LinkableEnd, PlannedSide};
use crate::clock::Ticks;
use crate::credit::CreditSettings;
use crate::error::BoxError;
use crate::input::{InputPort, Inputs};
use crate::logic::{Logic, SubtaskContext};
use crate::output::{Collector, SideOutputs};
use crate::subtask::{ActivatedBy, Assembly, Mailbox, Subtask};

type Make<L> = Arc<dyn Fn(&SubtaskContext) -> Result<L, BoxError> + Send + Sync>;

/// The typed ends of an operator's edges, in the order of the graph's edges.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) outputs: Vec<OutputEnd>,
    pub(super) inputs: Vec<Box<dyn Any>>,
    /// How many of the inputs are timely's.
    pub(super) timely_inputs: usize,
    pub(super) input_window: CreditSettings,
}

/// Where an edge begins.
pub(super) struct OutputEnd {
    /// The side output that it begins at, if it isn't the main one.
    pub(super) side: Option<u32>,
    /// An [`Unlinked`].
    pub(super) end: Box<dyn Any>,
    /// Whether it is one of timely's, which takes a capability to send.
    pub(super) is_timely: bool,
}

/// Finishes an operator once all its edges are connected.
pub(super) trait NodeFactory: Send + Sync {
    /// Names of what it takes and emits.
    fn types(&self) -> String;

    /// Returns where notices for the subtask go, unless the operator has no subtask here.
    fn build<'scope>(
        &self,
        context: &BuildContext<'scope>,
        operator: OperatorId,
        builder: OperatorBuilder<'scope, u64>,
        ends: Ends,
    ) -> Option<Mailbox>;
}

pub(super) struct TypedNode<In, Out, L> {
    make: Make<L>,
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out, L> TypedNode<In, Out, L> {
    pub(super) fn new(make: Make<L>) -> Self {
        TypedNode {
            make,
            types: PhantomData,
        }
    }
}

pub(super) fn typed<T: 'static>(end: Box<dyn Any>) -> T {
    *end.downcast()
        .expect("the facade connects only what has the same type")
}

impl<In: Record, Out: Record, L: Logic<In, Out>> NodeFactory for TypedNode<In, Out, L> {
    fn types(&self) -> String {
        format!("{} to {}", type_name::<In>(), type_name::<Out>())
    }

    fn build<'scope>(
        &self,
        context: &BuildContext<'scope>,
        operator: OperatorId,
        mut builder: OperatorBuilder<'scope, u64>,
        ends: Ends,
    ) -> Option<Mailbox> {
        let spec = context.operator(operator);
        for input in 0..ends.timely_inputs {
            // Barriers come in-band; nobody waits for a frontier.
            builder.set_notify_for(input, FrontierInterest::Never);
        }
        let ports: Vec<InputPort<In>> = ends.inputs.into_iter().map(typed).collect();
        let outputs = ends.outputs;
        if context.index >= spec.parallelism {
            builder.build(|_capabilities| {
                // Nothing is ever sent here; the handles are kept so that timely's channels live.
                let _idle = (ports, outputs);
                move |_frontiers| {
                    let _ = &_idle;
                }
            });
            return None;
        }
        let mailbox = Mailbox::default();
        let subtask = SubtaskId {
            operator,
            index: context.index,
        };
        let make = Arc::clone(&self.make);
        let activator = context.scope.activator_for(builder.operator_info().address);
        let notices = mailbox.clone();
        let sides = context.sides(operator);
        let callers = ports.iter().filter_map(|port| port.chained.clone());
        let callers: Vec<_> = callers.collect();
        builder.build_reschedule(move |capabilities| {
            let (out, side_outputs) = open_outputs(outputs, capabilities, sides);
            let inputs = Inputs::new(subtask, ports, &ends.input_window, Ticks::now());
            let assembly = Assembly {
                context: context.subtask_context(subtask, side_outputs),
                make: Box::new(move |context| {
                    let logic = make(context)?;
                    context.side_outputs.check_all_taken(&context.uid)?;
                    Ok(logic)
                }),
                inputs,
                out,
                mailbox: notices,
                activator,
                sign: Arc::clone(&context.hands.sign),
                metrics: context.attempt.metrics.of(subtask),
                mode: context.attempt.mode,
                buffer_timeout: context.attempt.buffer_timeout,
                is_reader: spec.role == tidegate_types::graph::OperatorRole::Reader,
            };
            let subtask = Rc::new(RefCell::new(Subtask::<In, Out, L>::new(assembly)));
            for caller in callers {
                let called: Weak<RefCell<Subtask<In, Out, L>>> = Rc::downgrade(&subtask);
                caller.set(called);
            }
            move |_frontiers| {
                subtask.borrow_mut().activate(ActivatedBy::Worker);
                // Timely would take down an operator of which it sees no open input or output; one
                // within a chain has none at all.
                true
            }
        });
        Some(mailbox)
    }
}

/// Links every outgoing edge to its output: the main one, or one of the side outputs.
fn open_outputs<Out: Record>(
    outputs: Vec<OutputEnd>,
    capabilities: Vec<Capability<u64>>,
    sides: &[PlannedSide],
) -> (Collector<Out>, SideOutputs) {
    let mut main = Vec::new();
    let mut side_edges: Vec<Vec<LinkableEnd>> = sides.iter().map(|_| Vec::new()).collect();
    let mut capabilities = capabilities.into_iter();
    for OutputEnd {
        side,
        end,
        is_timely,
    } in outputs
    {
        let capability = if is_timely { capabilities.next() } else { None };
        match side {
            None => main.push(typed::<Unlinked<Out>>(end).link(capability)),
            Some(side) => side_edges[side as usize].push((end, capability)),
        }
    }
    let full_count = Rc::default();
    let mut opened = Vec::new();
    let mut side_outputs = SideOutputs::default();
    for (side, edges) in sides.iter().zip(side_edges) {
        let (output, handle) = side.factory.open(edges, &full_count);
        opened.push(output);
        side_outputs.insert(side.tag.clone(), handle);
    }
    let out = Collector::new(main).with_sides(opened, full_count);
    (out, side_outputs)
}
