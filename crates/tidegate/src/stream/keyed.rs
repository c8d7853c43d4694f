//! Streams whose records are grouped by key, and what keeps state per key.

use std::sync::Arc;

use tidegate_runtime::process::{
    Keyed, KeyedContext, KeyedOpenContext, KeyedProcessFunction, Single,
};
use tidegate_runtime::{
    BoxError, ByKeyGroup, Collector, Count, KeySelector, KeyedMap, Logic, Route, RouteContext,
    SubtaskContext,
};
use tidegate_state::{
    Aggregate, AggregatingState, Record, StateKey, StateValue, ValueStateDescriptor,
};
use tidegate_types::OperatorId;
use tidegate_types::graph::Partitioning;

use super::draft::RoutedBy;
use super::{ConnectedStreams, KeyedBroadcastStreams, Stream};

/// A stream whose records are grouped by key.
pub struct KeyedStream<T, S> {
    pub(super) stream: Stream<T>,
    pub(super) selector: S,
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

    /// Accumulates the records of each key: for each record, the key and what its records come to
    /// so far. What is kept per key and what comes out may be of types of their own.
    pub fn aggregate<A>(self, name: &str, aggregate: A) -> Stream<(S::Key, A::Out)>
    where
        A: Aggregate<In = T> + Send + Sync,
        A::Out: Record,
        S::Key: Record,
    {
        self.process(name, move |states| {
            let accumulated = states.aggregating("aggregate", aggregate.clone())?;
            Ok(Aggregated { accumulated })
        })
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

    /// Pairs the stream with another that has the same keys, for a
    /// [`KeyedCoProcessFunction`](crate::process::KeyedCoProcessFunction) over the state of both.
    pub fn connect<U, R>(self, other: KeyedStream<U, R>) -> ConnectedStreams<T, S, U, R>
    where
        U: Record,
        R: KeySelector<U, Key = S::Key>,
    {
        ConnectedStreams::new(self, other)
    }

    /// Pairs the stream with one that every subtask of the next operator gets whole, for a
    /// [`KeyedBroadcastProcessFunction`](crate::process::KeyedBroadcastProcessFunction).
    pub fn connect_broadcast<B: Record>(
        self,
        broadcast: Stream<B>,
    ) -> KeyedBroadcastStreams<T, S, B> {
        KeyedBroadcastStreams::new(self, broadcast)
    }

    /// Calls a function of your own that has state and timers per key: any number of states of any
    /// kind, event-time and processing-time timers. `open` makes it, once per subtask and attempt,
    /// and binds its states.
    pub fn process<F, Open>(self, name: &str, open: Open) -> Stream<F::Out>
    where
        F: KeyedProcessFunction<Key = S::Key, In = T>,
        Open: Fn(&mut KeyedOpenContext<'_, S::Key>) -> Result<F, BoxError> + Send + Sync + 'static,
    {
        self.keyed(name, move |selector, context| {
            Keyed::open(context, |states| Ok(Single::new(selector, open(states)?)))
        })
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
        let routed_by = self.routed_by();
        let KeyedStream { stream, selector } = self;
        let id = stream.add(name, move |context| open(selector.clone(), context));
        let mut draft = stream.draft.borrow_mut();
        draft.connect(&stream.upstream, id, routed_by);
        drop(draft);
        Stream::from_operator(stream.draft, id)
    }

    fn routed_by(&self) -> RoutedBy<T> {
        let selector = self.selector.clone();
        let route = move |context: RouteContext| {
            let RouteContext {
                parallelism,
                max_parallelism,
                ..
            } = context;
            let by_key = ByKeyGroup::new(selector.clone(), max_parallelism, parallelism);
            Box::new(by_key) as Box<dyn Route<T>>
        };
        (Partitioning::KeyGroups, Arc::new(route))
    }

    /// Connects to an operator that takes records of another type.
    pub(super) fn connect_as<In: Record>(&self, to: OperatorId, convert: fn(T) -> In) {
        let mut draft = self.stream.draft.borrow_mut();
        draft.connect_as(&self.stream.upstream, to, self.routed_by(), convert);
    }
}

/// What [`KeyedStream::aggregate`] runs.
struct Aggregated<K, A: Aggregate> {
    accumulated: AggregatingState<K, A>,
}

impl<K, A> KeyedProcessFunction for Aggregated<K, A>
where
    K: StateKey + Record,
    A: Aggregate,
    A::In: Record,
    A::Out: Record,
{
    type Key = K;
    type In = A::In;
    type Out = (K, A::Out);

    fn process(
        &mut self,
        record: A::In,
        ctx: &mut KeyedContext<'_, K>,
        out: &mut Collector<(K, A::Out)>,
    ) -> Result<(), BoxError> {
        self.accumulated.add(ctx, record)?;
        if let Some(result) = self.accumulated.get(ctx)? {
            out.emit((ctx.key().clone(), result));
        }
        Ok(())
    }
}
