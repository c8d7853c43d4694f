//! A job, ready to be built as a timely dataflow on every worker, as often as attempts need it.
//!
//! The graph part is plain data that the coordinator sees too; beside it, each operator and each
//! edge has a typed factory. Building is identical and infallible on all workers; whatever can
//! fail happens in the first activation of a subtask.

mod build;
mod edge;
mod node;
mod side;

use std::sync::Arc;

use tidegate_state::Record;
use tidegate_types::graph::{Edge, GraphError, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{OperatorId, OperatorUid, Scale, Scaling};

pub(crate) use build::{BuiltWorker, WorkerHands, build};
use edge::{EdgeFactory, TypedEdge};
use node::{NodeFactory, TypedNode};
use side::PlannedSide;

use crate::error::BoxError;
use crate::logic::{Logic, SubtaskContext};
use crate::output::Route;
use crate::sink::{Plain, Sink, SubmitContext, TwoPhase, TwoPhaseSink};
use crate::source::{Enumerate, Read, Source};

/// Checks the configuration of one operator when the job is submitted.
type Check = Arc<dyn Fn(&OperatorUid, SubmitContext) -> Result<(), BoxError> + Send + Sync>;

/// Which records weigh what on an edge; see [`JobPlan::connect`].
pub use edge::EdgeKind;
pub use side::{Output, SideOutputId};

/// What the router of one subtask and edge is made from.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext {
    /// Index of the sending subtask.
    pub origin: u32,
    /// Parallelism of the receiver.
    pub parallelism: u32,
    /// Number of key groups of the receiver.
    pub max_parallelism: tidegate_types::MaxParallelism,
}

/// The operators and edges of a job, with the code behind them.
#[derive(Clone, Default)]
pub struct JobPlan {
    graph: JobGraph,
    scaling: Scaling,
    nodes: Vec<Arc<dyn NodeFactory>>,
    /// By operator.
    sides: Vec<Vec<PlannedSide>>,
    edges: Vec<PlannedEdge>,
    checks: Vec<(OperatorId, Check)>,
}

#[derive(Clone)]
struct PlannedEdge {
    factory: Arc<dyn EdgeFactory>,
    /// Which side output of the sender it begins at, if it isn't the main one.
    side: Option<u32>,
}

/// An operator can't work as it is configured.
#[derive(Debug, thiserror::Error)]
#[error("operator `{uid}`")]
pub struct CheckError {
    /// The operator.
    pub uid: String,
    /// What is wrong, and what to do.
    #[source]
    pub cause: BoxError,
}

impl JobPlan {
    /// A job without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// The part that is plain data.
    pub fn graph(&self) -> &JobGraph {
        &self.graph
    }

    /// What each operator takes and emits, for people, in the order of the graph. The names are
    /// those of the compiler, and the same wherever the same binary runs.
    pub fn types(&self) -> impl Iterator<Item = String> + '_ {
        self.nodes.iter().map(|node| node.types())
    }

    /// Changes what may be changed of an operator while the job is being put together.
    pub fn operator_mut(&mut self, id: OperatorId) -> &mut OperatorSpec {
        &mut self.graph.operators[id.0 as usize]
    }

    /// Says what depends on how large the job is run, when it has been put together, and settles
    /// that for the scale that it was written with.
    #[must_use]
    pub fn with_scaling(self, scaling: Scaling) -> Self {
        JobPlan { scaling, ..self }.at(Scale::default())
    }

    /// What depends on how large the job is run.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// The same job at another scale. Shares the code behind it.
    #[must_use]
    pub fn at(&self, scale: Scale) -> Self {
        JobPlan {
            graph: self.scaling.apply(&self.graph, scale),
            ..self.clone()
        }
    }

    /// Checks the graph.
    ///
    /// # Errors
    /// See [`JobGraph::validate`].
    pub fn validate(&self) -> Result<(), GraphError> {
        self.graph.validate()
    }

    /// Lets every source and sink check what it is configured with.
    ///
    /// # Errors
    /// The first complaint, with the operator's name.
    pub fn check(&self, context: SubmitContext) -> Result<(), CheckError> {
        for (operator, check) in &self.checks {
            let uid = &self.graph.operator(*operator).uid;
            check(uid, context).map_err(|cause| CheckError {
                uid: uid.0.clone(),
                cause,
            })?;
        }
        Ok(())
    }

    /// Whether any operator commits transactions when a checkpoint completes.
    pub fn commits(&self) -> bool {
        self.graph
            .operators
            .iter()
            .any(|op| op.role == OperatorRole::CommittingSink)
    }

    /// Adds an operator. `make` runs once per subtask and attempt, on the subtask's worker.
    pub fn operator<In, Out, L>(
        &mut self,
        spec: OperatorSpec,
        make: impl Fn(&SubtaskContext) -> Result<L, BoxError> + Send + Sync + 'static,
    ) -> OperatorId
    where
        In: Record,
        Out: Record,
        L: Logic<In, Out>,
    {
        let id = OperatorId(self.graph.operators.len() as u32);
        self.graph.operators.push(spec);
        self.sides.push(Vec::new());
        self.nodes
            .push(Arc::new(TypedNode::<In, Out, L>::new(Arc::new(make))));
        id
    }

    /// Adds a source: its enumerator as `<uid>-splits`, and its readers as `spec` says. Returns
    /// the readers.
    pub fn source<S: Source>(&mut self, spec: OperatorSpec, source: S) -> OperatorId {
        let source = Arc::new(source);
        let splits = OperatorSpec {
            uid: OperatorUid(format!("{}-splits", spec.uid)),
            parallelism: 1,
            role: OperatorRole::Enumerator,
            ..spec.clone()
        };
        let shared = Arc::clone(&source);
        let enumerator = self.operator(splits, move |context| {
            Enumerate::<S>::open(&shared, context)
        });
        let shared = Arc::clone(&source);
        let spec = OperatorSpec {
            role: OperatorRole::Reader,
            ..spec
        };
        let readers = self.operator(spec, move |context| Read::<S>::open(&shared, context));
        self.checks
            .push((readers, Arc::new(move |_, _| source.check())));
        self.connect::<S::Split>(
            (enumerator, readers),
            Partitioning::Rebalance,
            EdgeKind::Splits,
            |_| Box::new(crate::output::Rebalance::default()),
        );
        readers
    }

    /// Adds a plain sink.
    pub fn sink<T: Record, S: Sink<T>>(&mut self, spec: OperatorSpec, sink: S) -> OperatorId {
        let spec = OperatorSpec {
            role: OperatorRole::Sink,
            ..spec
        };
        let sink = Arc::new(sink);
        let shared = Arc::clone(&sink);
        let id = self.operator::<T, (), _>(spec, move |context| Plain::open(&*shared, context));
        self.checks.push((id, Arc::new(move |_, _| sink.check())));
        id
    }

    /// Adds a two-phase sink.
    pub fn two_phase_sink<T: Record, S: TwoPhaseSink<T>>(
        &mut self,
        spec: OperatorSpec,
        sink: S,
    ) -> OperatorId {
        let sink = Arc::new(sink);
        let spec = OperatorSpec {
            role: OperatorRole::CommittingSink,
            ..spec
        };
        let shared = Arc::clone(&sink);
        let id = self.operator::<T, (), _>(spec, move |context| {
            TwoPhase::<T, S>::open(&shared, context)
        });
        self.checks
            .push((id, Arc::new(move |uid, context| sink.check(uid, context))));
        id
    }

    /// Connects an operator, or a side output of one, with an operator. `T` must be what the first
    /// emits and the second takes; `route` makes the router of one sending subtask, and is asked
    /// again for each attempt.
    pub fn connect<T: Record>(
        &mut self,
        (from, to): (impl Into<Output>, OperatorId),
        partitioning: Partitioning,
        kind: EdgeKind,
        route: impl Fn(RouteContext) -> Box<dyn Route<T>> + Send + Sync + 'static,
    ) {
        let edge = TypedEdge::<T, T>::new(kind, Arc::new(route), Arc::new(|records| records));
        self.add_edge((from.into(), to), partitioning, edge);
    }

    /// Connects an operator that emits `T` with one that takes `In`, such as an [`Either`] of what
    /// comes on its several inputs. Records are routed and sent as they are; the receiver makes
    /// `In` of them as they arrive, a batch at a time.
    ///
    /// [`Either`]: crate::Either
    pub fn connect_as<T: Record, In: Record>(
        &mut self,
        (from, to): (impl Into<Output>, OperatorId),
        partitioning: Partitioning,
        kind: EdgeKind,
        route: impl Fn(RouteContext) -> Box<dyn Route<T>> + Send + Sync + 'static,
        convert: impl Fn(T) -> In + Send + Sync + 'static,
    ) {
        let convert = move |records: Vec<T>| records.into_iter().map(&convert).collect();
        let edge = TypedEdge::<T, In>::new(kind, Arc::new(route), Arc::new(convert));
        self.add_edge((from.into(), to), partitioning, edge);
    }

    fn add_edge(
        &mut self,
        (from, to): (Output, OperatorId),
        partitioning: Partitioning,
        factory: impl EdgeFactory + 'static,
    ) {
        self.graph.edges.push(Edge {
            from: from.operator,
            to,
            partitioning,
        });
        self.edges.push(PlannedEdge {
            factory: Arc::new(factory),
            side: from.side,
        });
    }
}
