//! Broadcast process functions: a stream and, beside it, a second one that every subtask gets
//! whole: rules, prices, configuration.
//!
//! What the broadcast records come to is *broadcast state*: every subtask holds the same. So only
//! the broadcast side may change it, and must do so by the record alone; the other side reads it.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use tidegate_state::{Record, StateKey, StateValue};
use tidegate_types::{CheckpointId, EventTime, UnixMillis};

use super::context::{KeyedContext, Timer, Times};
use super::operator::{KeyedCore, KeyedFunction, all_but_records_goes_to_the_function};
use super::plain::ProcessContext;
use crate::either::Either;
use crate::error::BoxError;
use crate::output::{Collector, KeySelector};

/// What a function knows while it works on a broadcast record, and what allows it to change
/// broadcast state.
pub struct BroadcastContext<'a> {
    pub(super) times: Times<'a>,
}

impl BroadcastContext<'_> {
    /// How far event time has come; see
    /// [`KeyedContext::current_watermark`](super::KeyedContext::current_watermark).
    pub fn current_watermark(&self) -> EventTime {
        self.times.watermark
    }

    /// Time on the machine's clock. What it leads to differs from subtask to subtask, so it is not
    /// for what goes into broadcast state.
    pub fn current_processing_time(&self) -> UnixMillis {
        self.times.clock.wall()
    }
}

/// A map that all subtasks of an operator hold alike.
///
/// Everybody may read it; changing it takes the context of a broadcast record, since only those
/// reach every subtask, in one order if they come from one.
#[derive(Clone)]
pub struct BroadcastState<MK, MV> {
    pub(super) state: tidegate_state::BroadcastState<MK, MV>,
}

impl<MK: StateKey + Ord, MV: StateValue> BroadcastState<MK, MV> {
    /// A copy of the value of `map_key`.
    pub fn get<Q: Ord + ?Sized>(&self, map_key: &Q) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        self.state.get(map_key)
    }

    /// Calls `read` with the whole map.
    pub fn with<R>(&self, read: impl FnOnce(&BTreeMap<MK, MV>) -> R) -> R {
        self.state.with(read)
    }

    /// Whether `map_key` has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, map_key: &Q) -> bool
    where
        MK: Borrow<Q>,
    {
        self.state.contains_key(map_key)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// Sets the value of `map_key`, and returns what it was.
    pub fn put(&self, _ctx: &mut BroadcastContext<'_>, map_key: MK, value: MV) -> Option<MV> {
        self.state.put(map_key, value)
    }

    /// Removes the value of `map_key`, and returns it.
    pub fn remove<Q: Ord + ?Sized>(
        &self,
        _ctx: &mut BroadcastContext<'_>,
        map_key: &Q,
    ) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        self.state.remove(map_key)
    }

    /// Keeps the entries that `keep` accepts, and may change their values.
    pub fn retain(&self, _ctx: &mut BroadcastContext<'_>, keep: impl FnMut(&MK, &mut MV) -> bool) {
        self.state.retain(keep);
    }

    /// Removes all entries.
    pub fn clear(&self, _ctx: &mut BroadcastContext<'_>) {
        self.state.clear();
    }
}

/// A function over a keyed stream and a broadcast one.
pub trait KeyedBroadcastProcessFunction: 'static {
    /// What the stream is keyed by.
    type Key: StateKey;
    /// What comes in on the keyed stream.
    type In: Record;
    /// What is broadcast.
    type Broadcast: Record;
    /// What goes out.
    type Out: Record;

    /// Works on a record of the keyed stream.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        record: Self::In,
        ctx: &mut KeyedContext<'_, Self::Key>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// Works on a broadcast record. Every subtask gets every one, and what it leaves in broadcast
    /// state must be the same on all of them. What it emits is emitted once per subtask.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn process_broadcast(
        &mut self,
        record: Self::Broadcast,
        ctx: &mut BroadcastContext<'_>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// A timer of the context's key has fired.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn on_timer(
        &mut self,
        _timer: Timer,
        _ctx: &mut KeyedContext<'_, Self::Key>,
        _out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError> {
        Ok(())
    }

    /// All input has ended, and every timer that is due then has fired: emits what is left. Called
    /// once per job; what it emits, it takes out of its state. See
    /// [`Logic::finish`](crate::Logic::finish) for when it may be called again.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn finish(&mut self, _out: &mut Collector<Self::Out>) -> Result<(), BoxError> {
        Ok(())
    }

    /// A checkpoint that holds this function's state has completed.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn notify_checkpoint_complete(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A [`KeyedBroadcastProcessFunction`] and where the keys of its records are.
pub struct WithBroadcast<S, F> {
    selector: S,
    function: F,
}

impl<S, F> WithBroadcast<S, F> {
    /// `selector` finds the key of each record that isn't broadcast.
    pub fn new(selector: S, function: F) -> Self {
        WithBroadcast { selector, function }
    }
}

impl<S, F> KeyedFunction for WithBroadcast<S, F>
where
    F: KeyedBroadcastProcessFunction,
    S: KeySelector<F::In, Key = F::Key>,
{
    type Key = F::Key;
    type In = Either<F::In, F::Broadcast>;
    type Out = F::Out;

    #[inline]
    fn key_hash(&self, record: &Self::In) -> u64 {
        match record {
            Either::Left(record) => self.selector.with_key(record, F::Key::key_hash),
            Either::Right(_) => 0,
        }
    }

    #[inline]
    fn process(
        &mut self,
        record: Self::In,
        key_hash: Option<u64>,
        keys: &mut KeyedCore<F::Key>,
        out: &mut Collector<F::Out>,
    ) -> Result<(), BoxError> {
        match record {
            Either::Left(record) => {
                self.selector
                    .with_key(&record, |key| keys.set_key(key, key_hash));
                self.function.process(record, &mut keys.context(), out)
            }
            Either::Right(record) => {
                let times = keys.times();
                let mut ctx = BroadcastContext { times };
                self.function.process_broadcast(record, &mut ctx, out)
            }
        }
    }

    all_but_records_goes_to_the_function!();
}

/// A function over a stream without keys and a broadcast one.
pub trait BroadcastProcessFunction: 'static {
    /// What comes in.
    type In: Record;
    /// What is broadcast.
    type Broadcast: Record;
    /// What goes out.
    type Out: Record;

    /// Works on a record.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        record: Self::In,
        ctx: &mut ProcessContext<'_>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// Works on a broadcast record; see
    /// [`KeyedBroadcastProcessFunction::process_broadcast`].
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn process_broadcast(
        &mut self,
        record: Self::Broadcast,
        ctx: &mut BroadcastContext<'_>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// All input has ended, and every timer that is due then has fired: emits what is left. Called
    /// once per job; what it emits, it takes out of its state. See
    /// [`Logic::finish`](crate::Logic::finish) for when it may be called again.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn finish(&mut self, _out: &mut Collector<Self::Out>) -> Result<(), BoxError> {
        Ok(())
    }

    /// A checkpoint that holds this function's state has completed.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn notify_checkpoint_complete(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }
}
