//! Streams: what a job is made of.

mod connected;
mod draft;
mod keyed;
mod sink;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_runtime::process::{One, OpenContext, OutputTag, ProcessFunction, Unkeyed};
use tidegate_runtime::watermark::{AssignWatermarks, WatermarkGenerator, WatermarkStrategy};
use tidegate_runtime::{
    BoxError, Broadcast, ByReference, ByValue, Collector, FlatMap, KeySelector, Logic, Output,
    Rebalance, Route, RouteContext, SideOutputTypeError, SubtaskContext,
};
use tidegate_state::{Record, StateKey};
use tidegate_types::graph::Partitioning;
use tidegate_types::{MaxParallelism, OperatorId};

pub use connected::{BroadcastStreams, ConnectedStreams, KeyedBroadcastStreams};
pub(crate) use draft::Draft;
use draft::RoutedBy;
pub use keyed::KeyedStream;
pub use sink::{IntoSink, SinkHandle};

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
    upstream: Vec<Output>,
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
            upstream: vec![operator.into()],
            spread: Spread::Auto,
            records: PhantomData,
        }
    }

    /// Sets the number of subtasks of the operator that this stream comes from. It keeps it when
    /// the job is rescaled.
    pub fn parallelism(self, parallelism: u32) -> Self {
        for id in self.upstream.iter().map(|output| output.operator()) {
            let mut draft = self.draft.borrow_mut();
            draft.choose_parallelism(id, parallelism);
        }
        self
    }

    /// Sets the number of key groups of the operator that this stream comes from: the most
    /// subtasks it can ever have. It must not change while there is state to restore. Default 128
    /// for up to 85 subtasks.
    pub fn max_parallelism(self, max_parallelism: MaxParallelism) -> Self {
        let mut draft = self.draft.borrow_mut();
        for id in self.upstream.iter().map(|output| output.operator()) {
            draft.plan.operator_mut(id).max_parallelism = max_parallelism;
            draft.fixed_max.push(id);
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

    /// Calls a function of your own that has operator state and side outputs. `open` makes it, once
    /// per subtask and attempt, and binds its states.
    pub fn process<F: ProcessFunction<In = T>>(
        self,
        name: &str,
        open: impl Fn(&mut OpenContext<'_>) -> Result<F, BoxError> + Send + Sync + 'static,
    ) -> Stream<F::Out> {
        self.operator(name, move |context| {
            Unkeyed::open(context, |states| Ok(One(open(states)?)))
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

    /// What the function that this stream comes from emits to the side output with this tag. It is
    /// an output of that very operator, not of the one that `filter` or `map` puts behind it; of a
    /// union, every operator must have it. If one hasn't, the job fails as it starts.
    ///
    /// # Errors
    /// If the tag's name is taken for records of another type.
    pub fn side_output<S: Record>(
        &self,
        tag: &OutputTag<S>,
    ) -> Result<Stream<S>, SideOutputTypeError> {
        let mut draft = self.draft.borrow_mut();
        let sides = self.upstream.iter().map(|output| {
            let side = draft.plan.side_output::<S>(output.operator(), tag.name())?;
            Ok(Output::from(side))
        });
        let upstream = sides.collect::<Result<Vec<_>, _>>()?;
        Ok(Stream {
            draft: Rc::clone(&self.draft),
            upstream,
            spread: Spread::Auto,
            records: PhantomData,
        })
    }

    /// Pairs the stream with one that every subtask of the next operator gets whole, for a
    /// [`BroadcastProcessFunction`](crate::process::BroadcastProcessFunction).
    pub fn connect_broadcast<B: Record>(self, broadcast: Stream<B>) -> BroadcastStreams<T, B> {
        BroadcastStreams::new(self, broadcast)
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

    fn routed_by(&self) -> RoutedBy<T> {
        match self.spread {
            Spread::Auto | Spread::Evenly => {
                let route = |context: RouteContext| {
                    let origin = context.origin as usize;
                    Box::new(Rebalance::starting_at(origin)) as Box<dyn Route<T>>
                };
                (Partitioning::Rebalance, Arc::new(route))
            }
            Spread::ToAll => {
                let route = |_: RouteContext| Box::new(Broadcast) as Box<dyn Route<T>>;
                (Partitioning::Broadcast, Arc::new(route))
            }
        }
    }

    fn connect_to(&self, to: OperatorId) {
        let mut draft = self.draft.borrow_mut();
        let first = draft.plan.graph().edges.len();
        draft.connect(&self.upstream, to, self.routed_by());
        self.note_flexible(&mut draft, first);
    }

    /// Connects to an operator that takes records of another type.
    fn connect_as<In: Record>(&self, to: OperatorId, convert: fn(T) -> In) {
        let mut draft = self.draft.borrow_mut();
        let first = draft.plan.graph().edges.len();
        draft.connect_as(&self.upstream, to, self.routed_by(), convert);
        self.note_flexible(&mut draft, first);
    }

    /// The edges from `first` on may become forward edges.
    fn note_flexible(&self, draft: &mut Draft, first: usize) {
        if self.spread == Spread::Auto {
            let last = draft.plan.graph().edges.len();
            draft.flexible.extend(first..last);
        }
    }
}
