//! Streams: what a job is made of.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use tidegate_runtime::sink::{Sink, TwoPhaseSink};
use tidegate_runtime::watermark::{AssignWatermarks, WatermarkGenerator, WatermarkStrategy};
use tidegate_runtime::{
    BoxError, Broadcast, ByKeyGroup, ByReference, ByValue, Collector, Count, EdgeKind, FlatMap,
    JobPlan, KeySelector, KeyedMap, Logic, Rebalance, Route, RouteContext, SubtaskContext,
};
use tidegate_state::{Record, StateKey, StateValue, ValueStateDescriptor};
use tidegate_types::graph::{OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{MaxParallelism, OperatorId, OperatorUid};

/// The job that streams add to.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) plan: JobPlan,
    pub(crate) parallelism: u32,
    /// Edges that become forward edges if both sides turn out to be equally parallel.
    flexible: Vec<usize>,
    /// Operators whose number of key groups was chosen by the user.
    fixed_max: Vec<OperatorId>,
}

impl Draft {
    pub(crate) fn new(parallelism: u32) -> Rc<RefCell<Draft>> {
        Rc::new(RefCell::new(Draft {
            parallelism,
            ..Draft::default()
        }))
    }

    pub(crate) fn spec(&self, name: &str) -> OperatorSpec {
        OperatorSpec {
            uid: OperatorUid(name.to_owned()),
            parallelism: self.parallelism,
            max_parallelism: MaxParallelism::derive(self.parallelism),
            max_parallelism_derived: true,
            role: OperatorRole::Transform,
        }
    }

    /// Settles what depends on every operator's final parallelism.
    pub(crate) fn into_plan(self) -> JobPlan {
        let Draft {
            mut plan,
            flexible,
            fixed_max,
            ..
        } = self;
        for id in plan.graph().operator_ids() {
            let spec = plan.operator_mut(id);
            spec.max_parallelism_derived = !fixed_max.contains(&id);
            if spec.max_parallelism_derived {
                spec.max_parallelism = MaxParallelism::derive(spec.parallelism);
            }
        }
        let parallelism: Vec<u32> = plan
            .graph()
            .operators
            .iter()
            .map(|spec| spec.parallelism)
            .collect();
        for at in flexible {
            let edge = &mut plan.edges_mut()[at];
            if parallelism[edge.from.0 as usize] == parallelism[edge.to.0 as usize] {
                edge.partitioning = Partitioning::Forward;
            }
        }
        plan
    }

    fn connect<T: Record>(
        &mut self,
        upstream: &[OperatorId],
        to: OperatorId,
        partitioning: Partitioning,
        route: impl Fn(RouteContext) -> Box<dyn Route<T>> + Clone + Send + Sync + 'static,
    ) {
        for from in upstream {
            self.plan
                .connect((*from, to), partitioning, EdgeKind::Records, route.clone());
        }
    }
}

fn rebalance<T: Record>(context: RouteContext) -> Box<dyn Route<T>> {
    Box::new(Rebalance::starting_at(context.origin as usize))
}

/// How a stream's records reach the next operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// Subtask to subtask if both sides are equally parallel, else evenly.
    Auto,
    Evenly,
    ToAll,
}

/// Records of one type on their way.
pub struct Stream<T> {
    draft: Rc<RefCell<Draft>>,
    upstream: Vec<OperatorId>,
    spread: Spread,
    records: PhantomData<fn() -> T>,
}

impl<T> Clone for Stream<T> {
    /// The clone carries the same records: both get all of them.
    fn clone(&self) -> Self {
        Stream {
            draft: Rc::clone(&self.draft),
            upstream: self.upstream.clone(),
            spread: self.spread,
            records: PhantomData,
        }
    }
}

impl<T: Record> Stream<T> {
    pub(crate) fn from_operator(draft: Rc<RefCell<Draft>>, operator: OperatorId) -> Self {
        Stream {
            draft,
            upstream: vec![operator],
            spread: Spread::Auto,
            records: PhantomData,
        }
    }

    /// Sets the number of subtasks of the operator that this stream comes from.
    pub fn parallelism(self, parallelism: u32) -> Self {
        for id in &self.upstream {
            self.draft.borrow_mut().plan.operator_mut(*id).parallelism = parallelism;
        }
        self
    }

    /// Sets the number of key groups of the operator that this stream comes from: the most
    /// subtasks it can ever have. It must not change while there is state to restore. Default 128
    /// for up to 85 subtasks.
    pub fn max_parallelism(self, max_parallelism: MaxParallelism) -> Self {
        let mut draft = self.draft.borrow_mut();
        for id in &self.upstream {
            draft.plan.operator_mut(*id).max_parallelism = max_parallelism;
            draft.fixed_max.push(*id);
        }
        drop(draft);
        self
    }

    /// Both streams' records, in no particular order between them.
    pub fn union(mut self, other: Stream<T>) -> Self {
        self.upstream.extend(other.upstream);
        self
    }

    /// Spreads records evenly over the subtasks of the next operator, also if there are as many.
    pub fn rebalance(mut self) -> Self {
        self.spread = Spread::Evenly;
        self
    }

    /// Sends every record to every subtask of the next operator.
    pub fn broadcast(mut self) -> Self {
        self.spread = Spread::ToAll;
        self
    }

    /// Any number of records for each.
    pub fn flat_map<Out: Record>(
        self,
        name: &str,
        mut function: impl FnMut(T, &mut Collector<Out>) + Clone + Send + Sync + 'static,
    ) -> Stream<Out> {
        self.try_flat_map(name, move |record, out: &mut Collector<Out>| {
            function(record, out);
            Ok(())
        })
    }

    /// Any number of records for each. An error ends the attempt, and the job restarts from the
    /// latest checkpoint.
    pub fn try_flat_map<Out: Record>(
        self,
        name: &str,
        function: impl FnMut(T, &mut Collector<Out>) -> Result<(), BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Stream<Out> {
        self.operator(name, move |_| Ok(FlatMap::new(function.clone())))
    }

    /// One record for each.
    pub fn map<Out: Record>(
        self,
        name: &str,
        mut function: impl FnMut(T) -> Out + Clone + Send + Sync + 'static,
    ) -> Stream<Out> {
        self.flat_map(name, move |record, out| out.emit(function(record)))
    }

    /// Those records that `keep` accepts.
    pub fn filter(
        self,
        name: &str,
        mut keep: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static,
    ) -> Stream<T> {
        self.flat_map(name, move |record, out| {
            if keep(&record) {
                out.emit(record);
            }
        })
    }

    /// Says how far event time has got in this stream, so that what follows can go by the times
    /// that records carry. Records pass unchanged.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::prelude::*;
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize, Record)]
    /// # struct Click { time: i64 }
    /// # fn clicks(clicks: Stream<Click>) -> Stream<Click> {
    /// clicks.watermarks(
    ///     "click-times",
    ///     WatermarkStrategy::bounded_out_of_orderness(Duration::from_secs(5), |click: &Click| {
    ///         EventTime(click.time)
    ///     })
    ///     .idle_after(Duration::from_secs(60)),
    /// )
    /// # }
    /// ```
    pub fn watermarks<G: WatermarkGenerator<T>>(
        self,
        name: &str,
        strategy: WatermarkStrategy<T, G>,
    ) -> Stream<T> {
        self.operator(name, move |context| {
            Ok(AssignWatermarks::new(
                strategy.clone(),
                context.clock.clone(),
            ))
        })
    }

    /// Groups records by a key that is part of them. State belongs to a key; all records of one
    /// key meet in the same subtask.
    pub fn key_by<K: StateKey>(
        self,
        select: impl for<'a> Fn(&'a T) -> &'a K + Clone + Send + Sync + 'static,
    ) -> KeyedStream<T, impl KeySelector<T, Key = K>> {
        KeyedStream {
            stream: self,
            selector: ByReference::new(select),
        }
    }

    /// Groups records by a key that is computed from each record alone.
    pub fn key_by_value<K: StateKey>(
        self,
        select: impl Fn(&T) -> K + Clone + Send + Sync + 'static,
    ) -> KeyedStream<T, impl KeySelector<T, Key = K>> {
        KeyedStream {
            stream: self,
            selector: ByValue::new(select),
        }
    }

    /// Ends the stream in a sink.
    pub fn sink<Kind>(self, name: &str, sink: impl IntoSink<T, Kind>) -> SinkHandle {
        let id = {
            let mut draft = self.draft.borrow_mut();
            let spec = draft.spec(name);
            sink.add_to(&mut draft.plan, spec)
        };
        self.connect_to(id);
        SinkHandle {
            draft: self.draft,
            operator: id,
        }
    }

    fn operator<Out: Record, L: Logic<T, Out>>(
        self,
        name: &str,
        make: impl Fn(&SubtaskContext) -> Result<L, BoxError> + Send + Sync + 'static,
    ) -> Stream<Out> {
        let id = self.add(name, make);
        self.connect_to(id);
        Stream::from_operator(self.draft, id)
    }

    fn add<Out: Record, L: Logic<T, Out>>(
        &self,
        name: &str,
        make: impl Fn(&SubtaskContext) -> Result<L, BoxError> + Send + Sync + 'static,
    ) -> OperatorId {
        let mut draft = self.draft.borrow_mut();
        let spec = draft.spec(name);
        draft.plan.operator::<T, Out, L>(spec, make)
    }

    fn connect_to(&self, to: OperatorId) {
        let mut draft = self.draft.borrow_mut();
        let first = draft.plan.graph().edges.len();
        match self.spread {
            Spread::Auto | Spread::Evenly => {
                draft.connect(&self.upstream, to, Partitioning::Rebalance, rebalance::<T>);
            }
            Spread::ToAll => {
                let route = |_: RouteContext| Box::new(Broadcast) as Box<dyn Route<T>>;
                draft.connect(&self.upstream, to, Partitioning::Broadcast, route);
            }
        }
        if self.spread == Spread::Auto {
            let last = draft.plan.graph().edges.len();
            draft.flexible.extend(first..last);
        }
    }
}

/// A stream whose records are grouped by key.
pub struct KeyedStream<T, S> {
    stream: Stream<T>,
    selector: S,
}

impl<T: Record, S: KeySelector<T>> KeyedStream<T, S> {
    /// Counts records per key: for each record, the key and its count so far.
    pub fn count(self, name: &str) -> Stream<(S::Key, u64)>
    where
        S::Key: Record,
    {
        self.keyed(name, |selector, context| Count::open(selector, context))
    }

    /// Combines the records of each key into one: for each record, what they come to so far.
    /// `combine` folds the new record into what there was.
    pub fn reduce(
        self,
        name: &str,
        mut combine: impl FnMut(&mut T, T) + Clone + Send + Sync + 'static,
    ) -> Stream<T> {
        let function = move |record, state: &mut Option<T>, out: &mut Collector<T>| {
            match state {
                Some(reduced) => combine(reduced, record),
                None => *state = Some(record),
            }
            out.emit(state.clone().expect("set above"));
            Ok(())
        };
        self.with_state(name, || None, function)
    }

    /// Calls `function` with each record and the state of its key, which starts as `initial`.
    pub fn map_with_state<V: StateValue + Sync, Out: Record>(
        self,
        name: &str,
        initial: V,
        mut function: impl FnMut(T, &mut V, &mut Collector<Out>) + Clone + Send + Sync + 'static,
    ) -> Stream<Out> {
        self.try_map_with_state(name, initial, move |record, state: &mut V, out| {
            function(record, state, out);
            Ok(())
        })
    }

    /// As [`map_with_state`](Self::map_with_state). An error ends the attempt, and the job restarts
    /// from the latest checkpoint.
    pub fn try_map_with_state<V: StateValue + Sync, Out: Record>(
        self,
        name: &str,
        initial: V,
        function: impl FnMut(T, &mut V, &mut Collector<Out>) -> Result<(), BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Stream<Out> {
        self.with_state(name, move || initial.clone(), function)
    }

    fn with_state<V: StateValue, Out: Record>(
        self,
        name: &str,
        initial: impl Fn() -> V + Send + Sync + 'static,
        function: impl FnMut(T, &mut V, &mut Collector<Out>) -> Result<(), BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Stream<Out> {
        self.keyed(name, move |selector, context| {
            let descriptor = ValueStateDescriptor::<V>::new("state");
            KeyedMap::open(selector, &descriptor, initial(), function.clone(), context)
        })
    }

    fn keyed<Out: Record, L: Logic<T, Out>>(
        self,
        name: &str,
        open: impl Fn(S, &SubtaskContext) -> Result<L, BoxError> + Send + Sync + 'static,
    ) -> Stream<Out> {
        let KeyedStream { stream, selector } = self;
        let at_receiver = selector.clone();
        let id = stream.add(name, move |context| open(at_receiver.clone(), context));
        let route = move |context: RouteContext| {
            let RouteContext {
                parallelism,
                max_parallelism,
                ..
            } = context;
            let by_key = ByKeyGroup::new(selector.clone(), max_parallelism, parallelism);
            Box::new(by_key) as Box<dyn Route<T>>
        };
        stream
            .draft
            .borrow_mut()
            .connect(&stream.upstream, id, Partitioning::KeyGroups, route);
        Stream::from_operator(stream.draft, id)
    }
}

/// A sink that has been added to the job.
pub struct SinkHandle {
    draft: Rc<RefCell<Draft>>,
    operator: OperatorId,
}

impl SinkHandle {
    /// Sets the sink's number of subtasks.
    pub fn parallelism(self, parallelism: u32) -> Self {
        self.draft
            .borrow_mut()
            .plan
            .operator_mut(self.operator)
            .parallelism = parallelism;
        self
    }
}

/// Marks sinks that write as they go.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// Marks sinks that commit with checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct Committing;

/// What a stream can end in: any [`Sink`] and any [`TwoPhaseSink`]. `Kind` tells which of the two;
/// it is inferred.
pub trait IntoSink<T, Kind> {
    /// Adds the sink as an operator of a plan.
    fn add_to(self, plan: &mut JobPlan, spec: OperatorSpec) -> OperatorId;
}

impl<T: Record, S: Sink<T>> IntoSink<T, Plain> for S {
    fn add_to(self, plan: &mut JobPlan, spec: OperatorSpec) -> OperatorId {
        plan.sink(spec, self)
    }
}

impl<T: Record, S: TwoPhaseSink<T>> IntoSink<T, Committing> for S {
    fn add_to(self, plan: &mut JobPlan, spec: OperatorSpec) -> OperatorId {
        plan.two_phase_sink(spec, self)
    }
}
