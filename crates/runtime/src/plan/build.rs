//! Builds a job's dataflow on one worker.

use std::cell::RefCell;
use std::sync::Arc;

use tidegate_types::graph::OperatorSpec;
use tidegate_types::{SubtaskId, SubtaskRestore};
use timely::dataflow::Scope;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::worker::Worker;

use super::JobPlan;
use super::node::{Ends, OutputEnd};
use super::side::PlannedSide;
use crate::alive::SignOfLife;
use crate::attempt::AttemptContext;
use crate::background::Background;
use crate::logic::SubtaskContext;
use crate::metrics::ChannelKind;
use crate::output::SideOutputs;
use crate::report::Reporter;
use crate::subtask::Mailbox;

/// What building needs to know, on one worker.
pub(crate) struct BuildContext<'scope> {
    pub(crate) scope: Scope<'scope, u64>,
    /// Index of this worker over all processes, and so of every subtask on it.
    pub(crate) index: u32,
    pub(crate) plan: &'scope JobPlan,
    pub(crate) attempt: &'scope AttemptContext,
    pub(crate) hands: WorkerHands,
    /// What timely's channels are for, by their identifiers.
    channels: RefCell<Vec<(usize, ChannelKind)>>,
}

/// What the subtasks of one worker share.
pub(crate) struct WorkerHands {
    /// Writes snapshots.
    pub(crate) snapshots: Background,
    /// Commits transactions.
    pub(crate) commits: Background,
    pub(crate) reports: Reporter,
    /// Where the worker leaves signs of life.
    pub(crate) sign: Arc<SignOfLife>,
}

impl<'scope> BuildContext<'scope> {
    pub(super) fn operator(&self, id: tidegate_types::OperatorId) -> &'scope OperatorSpec {
        self.plan.graph.operator(id)
    }

    /// The channel with this identifier carries something of this kind. What nothing is noted of is
    /// timely's own.
    pub(super) fn note_channel(&self, identifier: usize, kind: ChannelKind) {
        self.channels.borrow_mut().push((identifier, kind));
    }

    pub(super) fn sides(&self, id: tidegate_types::OperatorId) -> &'scope [PlannedSide] {
        &self.plan.sides[id.0 as usize]
    }

    pub(super) fn subtask_context(
        &self,
        subtask: SubtaskId,
        side_outputs: SideOutputs,
    ) -> SubtaskContext {
        let spec = self.operator(subtask.operator);
        SubtaskContext {
            subtask,
            name: self.plan.graph.display(subtask).to_string(),
            uid: spec.uid.0.clone(),
            parallelism: spec.parallelism,
            max_parallelism: spec.max_parallelism,
            attempt: self.attempt.number,
            restored: self.attempt.restored,
            restore: self.restore(subtask).clone(),
            files: Arc::clone(&self.attempt.files),
            clock: self.attempt.clock.clone(),
            placement: self.attempt.placement,
            side_outputs,
            background: self.hands.snapshots.clone(),
            commits: self.hands.commits.clone(),
            reports: self.hands.reports.clone(),
        }
    }

    fn restore(&self, subtask: SubtaskId) -> &'scope SubtaskRestore {
        let restore = self.attempt.restore.subtasks.get(&subtask);
        restore.expect("checked for every subtask of this process before workers start")
    }
}

/// What the worker loop needs of a built dataflow.
pub(crate) struct BuiltWorker {
    /// One per subtask on this worker, with what wakes it.
    pub(crate) mailboxes: Vec<SubtaskMailbox>,
}

pub(crate) struct SubtaskMailbox {
    pub(crate) notices: Mailbox,
    pub(crate) activator: timely::scheduling::Activator,
    /// Only enumerators take triggers.
    pub(crate) takes_triggers: bool,
}

/// Builds every operator and every edge of `plan`. The order is the same on all workers.
pub(crate) fn build(
    worker: &mut Worker,
    plan: &JobPlan,
    attempt: &AttemptContext,
    hands: WorkerHands,
) -> BuiltWorker {
    let index = worker.index() as u32;
    worker.dataflow::<u64, _, _>(|scope| {
        let context = BuildContext {
            scope,
            index,
            plan,
            attempt,
            hands,
            channels: RefCell::default(),
        };
        let built = build_in(&context);
        let traffic = attempt.metrics.traffic_counters();
        traffic.learn(context.channels.take());
        built
    })
}

fn build_in<'scope>(context: &BuildContext<'scope>) -> BuiltWorker {
    let plan = context.plan;
    let mut builders: Vec<Option<OperatorBuilder<'scope, u64>>> = plan
        .graph
        .operators
        .iter()
        .map(|spec| Some(OperatorBuilder::new(spec.uid.0.clone(), context.scope)))
        .collect();
    let mut ends: Vec<Ends> = plan
        .graph
        .operators
        .iter()
        .map(|_| Ends::default())
        .collect();
    for (edge, planned) in plan.graph.edges.iter().zip(&plan.edges) {
        let factory = &planned.factory;
        let (from, to) = (edge.from.0 as usize, edge.to.0 as usize);
        let mut sender = builders[from].take().expect("taken only within this loop");
        let mut receiver = builders[to]
            .take()
            .expect("a graph without cycles has no self-loops");
        let connected = factory.connect(context, *edge, &mut sender, &mut receiver);
        builders[from] = Some(sender);
        builders[to] = Some(receiver);
        ends[from].outputs.push(OutputEnd {
            side: planned.side,
            end: connected.output,
            is_timely: connected.is_timely,
        });
        ends[to].inputs.push(connected.input);
        ends[to].timely_inputs += usize::from(connected.is_timely);
        ends[to].input_window = factory.kind().settings();
    }
    let mut mailboxes = Vec::new();
    for ((id, builder), ends) in plan.graph.operator_ids().zip(builders).zip(ends) {
        let builder = builder.expect("put back after each edge");
        let address = builder.operator_info().address;
        let activator = context.scope.activator_for(address);
        let node = &plan.nodes[id.0 as usize];
        let takes_triggers = ends.inputs.is_empty();
        if let Some(notices) = node.build(context, id, builder, ends) {
            mailboxes.push(SubtaskMailbox {
                notices,
                activator,
                takes_triggers,
            });
        }
    }
    BuiltWorker { mailboxes }
}
