//! Two streams of different types that meet in one operator.

use tidegate_runtime::process::{
    BroadcastProcessFunction, Connected, Keyed, KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction, KeyedOpenContext, OneWithBroadcast, OpenContext, Unkeyed,
    WithBroadcast,
};
use tidegate_runtime::{BoxError, Either, KeySelector, Logic, SubtaskContext};
use tidegate_state::Record;
use tidegate_types::OperatorId;

use super::{KeyedStream, Stream};

/// Adds an operator with two inputs; the caller connects them.
fn add_operator<T, L, R, Out, Op>(
    stream: &Stream<T>,
    name: &str,
    open: impl Fn(&SubtaskContext) -> Result<Op, BoxError> + Send + Sync + 'static,
) -> OperatorId
where
    L: Record,
    R: Record,
    Out: Record,
    Op: Logic<Either<L, R>, Out>,
{
    let mut draft = stream.draft.borrow_mut();
    let spec = draft.spec(name);
    draft.plan.operator::<Either<L, R>, Out, Op>(spec, open)
}

/// Two keyed streams with keys of one type: made by [`KeyedStream::connect`].
pub struct ConnectedStreams<T, S, U, R> {
    left: KeyedStream<T, S>,
    right: KeyedStream<U, R>,
}

impl<T, S, U, R> ConnectedStreams<T, S, U, R>
where
    T: Record,
    S: KeySelector<T>,
    U: Record,
    R: KeySelector<U, Key = S::Key>,
{
    pub(super) fn new(left: KeyedStream<T, S>, right: KeyedStream<U, R>) -> Self {
        ConnectedStreams { left, right }
    }

    /// Calls a function of your own over the records of both streams and the state of their keys.
    /// `open` makes it, once per subtask and attempt, and binds its states.
    pub fn process<F, Open>(self, name: &str, open: Open) -> Stream<F::Out>
    where
        F: KeyedCoProcessFunction<Key = S::Key, Left = T, Right = U>,
        Open: Fn(&mut KeyedOpenContext<'_, S::Key>) -> Result<F, BoxError> + Send + Sync + 'static,
    {
        let ConnectedStreams { left, right } = self;
        let selectors = (left.selector.clone(), right.selector.clone());
        let id = add_operator(&left.stream, name, move |context| {
            let (left, right) = selectors.clone();
            Keyed::open(context, |states| {
                Ok(Connected::new(left, right, open(states)?))
            })
        });
        left.connect_as::<Either<T, U>>(id, Either::Left);
        right.connect_as::<Either<T, U>>(id, Either::Right);
        Stream::from_operator(left.stream.draft, id)
    }
}

/// A keyed stream and a broadcast one: made by [`KeyedStream::connect_broadcast`].
pub struct KeyedBroadcastStreams<T, S, B> {
    keyed: KeyedStream<T, S>,
    broadcast: Stream<B>,
}

impl<T, S, B> KeyedBroadcastStreams<T, S, B>
where
    T: Record,
    S: KeySelector<T>,
    B: Record,
{
    pub(super) fn new(keyed: KeyedStream<T, S>, broadcast: Stream<B>) -> Self {
        let broadcast = broadcast.broadcast();
        KeyedBroadcastStreams { keyed, broadcast }
    }

    /// Calls a function of your own over the records of both streams. `open` makes it, once per
    /// subtask and attempt, and binds its states.
    pub fn process<F, Open>(self, name: &str, open: Open) -> Stream<F::Out>
    where
        F: KeyedBroadcastProcessFunction<Key = S::Key, In = T, Broadcast = B>,
        Open: Fn(&mut KeyedOpenContext<'_, S::Key>) -> Result<F, BoxError> + Send + Sync + 'static,
    {
        let KeyedBroadcastStreams { keyed, broadcast } = self;
        let selector = keyed.selector.clone();
        let id = add_operator(&keyed.stream, name, move |context| {
            let selector = selector.clone();
            Keyed::open(context, |states| {
                Ok(WithBroadcast::new(selector, open(states)?))
            })
        });
        keyed.connect_as::<Either<T, B>>(id, Either::Left);
        broadcast.connect_as::<Either<T, B>>(id, Either::Right);
        Stream::from_operator(keyed.stream.draft, id)
    }
}

/// A stream without keys and a broadcast one: made by [`Stream::connect_broadcast`].
pub struct BroadcastStreams<T, B> {
    stream: Stream<T>,
    broadcast: Stream<B>,
}

impl<T: Record, B: Record> BroadcastStreams<T, B> {
    pub(super) fn new(stream: Stream<T>, broadcast: Stream<B>) -> Self {
        let broadcast = broadcast.broadcast();
        BroadcastStreams { stream, broadcast }
    }

    /// Calls a function of your own over the records of both streams. `open` makes it, once per
    /// subtask and attempt, and binds its states.
    pub fn process<F, Open>(self, name: &str, open: Open) -> Stream<F::Out>
    where
        F: BroadcastProcessFunction<In = T, Broadcast = B>,
        Open: Fn(&mut OpenContext<'_>) -> Result<F, BoxError> + Send + Sync + 'static,
    {
        let BroadcastStreams { stream, broadcast } = self;
        let id = add_operator(&stream, name, move |context| {
            Unkeyed::open(context, |states| Ok(OneWithBroadcast(open(states)?)))
        });
        stream.connect_as::<Either<T, B>>(id, Either::Left);
        broadcast.connect_as::<Either<T, B>>(id, Either::Right);
        Stream::from_operator(stream.draft, id)
    }
}
