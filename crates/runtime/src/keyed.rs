//! Operators over keyed state.

use std::borrow::Borrow;
use std::cell::RefMut;
use std::marker::PhantomData;

use tidegate_state::{
    LikelyPlace, Record, SnapshotProgress, StateKey, StateTable, StateValue, ValueState,
    ValueStateDescriptor,
};
use tidegate_types::{CheckpointBarrier, CheckpointId};

use crate::batch::Batch;
use crate::error::BoxError;
use crate::keyed_state::KeyedState;
use crate::logic::{Flow, Logic, Snapshot, SubtaskContext};
use crate::look_ahead::{Ahead, ByKey, process_by_key};
use crate::output::{Collector, KeySelector};

/// A running count per key: emits the key and its new count for each record.
pub struct Count<T, S: KeySelector<T>> {
    selector: S,
    keyed: KeyedState<S::Key>,
    counts: ValueState<S::Key, u64>,
    record: PhantomData<fn(T)>,
}

impl<T, S: KeySelector<T>> Count<T, S> {
    /// Name of the state.
    pub const STATE: &'static str = "count";

    /// Restores the counts.
    ///
    /// # Errors
    /// If the checkpoint's state doesn't fit or can't be read.
    pub fn open(selector: S, context: &SubtaskContext) -> Result<Self, BoxError> {
        let mut keyed = KeyedState::open(context)?;
        let counts = keyed
            .backend
            .value_state(&ValueStateDescriptor::<u64>::new(Self::STATE))?;
        Ok(Count {
            selector,
            keyed,
            counts,
            record: PhantomData,
        })
    }
}

impl<T, S> Logic<T, (S::Key, u64)> for Count<T, S>
where
    T: 'static,
    S: KeySelector<T>,
    S::Key: Record,
{
    fn process(
        &mut self,
        input: &mut Batch<T>,
        out: &mut Collector<(S::Key, u64)>,
    ) -> Result<Flow, BoxError> {
        let mut counting = Counting {
            selector: &self.selector,
            counts: self.counts.borrow_mut(),
            record: PhantomData,
        };
        process_by_key(&mut counting, input, out)?;
        Ok(Flow::Continue)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(self.keyed.freeze(barrier))
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.keyed.advance_snapshots()
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId) {
        self.keyed.on_aborted(checkpoint);
    }
}

/// A [`Count`] at work on a batch.
struct Counting<'a, T, S: KeySelector<T>> {
    selector: &'a S,
    counts: RefMut<'a, StateTable<S::Key, u64>>,
    record: PhantomData<fn(T)>,
}

impl<T, S> ByKey for Counting<'_, T, S>
where
    T: 'static,
    S: KeySelector<T>,
    S::Key: Record,
{
    type In = T;
    type Out = (S::Key, u64);
    /// The count of its key, with it, if the key is part of it; what is known ahead, if not.
    type Begun = (Option<u64>, Ahead);

    fn outgrows_cache(&self) -> bool {
        self.counts.outgrows_cache()
    }

    #[inline]
    fn key_hash(&self, record: &T) -> u64 {
        self.selector.with_key(record, S::Key::key_hash)
    }

    #[inline]
    fn prefetch(&self, key_hashes: &[u64], places: &mut [LikelyPlace]) {
        self.counts.prefetch(key_hashes, places);
    }

    // Into both loops, with and without a hash at hand: a call per record would cost as much as the
    // count itself.
    #[inline(always)]
    fn begin(&mut self, record: &T, ahead: Ahead) -> Self::Begun {
        // A key that has to be made is made once, when the record is taken.
        if !S::REFERS {
            return (None, ahead);
        }
        let key = self.selector.key(record);
        let count = value_of(&mut self.counts, key.borrow(), ahead, || 0);
        *count += 1;
        (Some(*count), ahead)
    }

    #[inline(always)]
    fn work(
        &mut self,
        record: T,
        (count, ahead): Self::Begun,
        out: &mut Collector<(S::Key, u64)>,
    ) -> Result<(), BoxError> {
        let key = self.selector.take_key(record);
        let count = match count {
            Some(count) => count,
            None => {
                let count = value_of(&mut self.counts, &key, ahead, || 0);
                *count += 1;
                *count
            }
        };
        out.emit((key, count));
        Ok(())
    }
}

/// The value of a key, made by `make` if it has none.
#[inline(always)]
fn value_of<'a, K: StateKey, V: StateValue>(
    state: &'a mut StateTable<K, V>,
    key: &K,
    ahead: Ahead,
    make: impl FnOnce() -> V,
) -> &'a mut V {
    match ahead {
        None => state.entry_or_insert_with(key.key_hash(), key, make),
        Some((key_hash, place)) => state.entry_at_or_insert_with(place, key_hash, key, make),
    }
}

/// Any function of a record and the state of its key.
pub struct KeyedMap<T, S: KeySelector<T>, V, F> {
    selector: S,
    keyed: KeyedState<S::Key>,
    state: ValueState<S::Key, V>,
    initial: V,
    function: F,
    record: PhantomData<fn(T)>,
}

impl<T, S: KeySelector<T>, V: StateValue, F> KeyedMap<T, S, V, F> {
    /// Restores the state. `initial` is what a key starts with; `function` gets the record, the
    /// state of its key, and the collector.
    ///
    /// # Errors
    /// If the checkpoint's state doesn't fit or can't be read.
    pub fn open(
        selector: S,
        descriptor: &ValueStateDescriptor<V>,
        initial: V,
        function: F,
        context: &SubtaskContext,
    ) -> Result<Self, BoxError> {
        let mut keyed = KeyedState::open(context)?;
        let state = keyed.backend.value_state(descriptor)?;
        Ok(KeyedMap {
            selector,
            keyed,
            state,
            initial,
            function,
            record: PhantomData,
        })
    }
}

impl<T, Out, S, V, F> Logic<T, Out> for KeyedMap<T, S, V, F>
where
    T: 'static,
    Out: Record,
    S: KeySelector<T>,
    V: StateValue,
    F: FnMut(T, &mut V, &mut Collector<Out>) -> Result<(), BoxError> + 'static,
{
    fn process(
        &mut self,
        input: &mut Batch<T>,
        out: &mut Collector<Out>,
    ) -> Result<Flow, BoxError> {
        let mut mapping = Mapping {
            selector: &self.selector,
            state: self.state.borrow_mut(),
            initial: &self.initial,
            function: &mut self.function,
            types: PhantomData,
        };
        process_by_key(&mut mapping, input, out)?;
        Ok(Flow::Continue)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(self.keyed.freeze(barrier))
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.keyed.advance_snapshots()
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId) {
        self.keyed.on_aborted(checkpoint);
    }
}

/// A [`KeyedMap`] at work on a batch.
struct Mapping<'a, T, Out, S: KeySelector<T>, V, F> {
    selector: &'a S,
    state: RefMut<'a, StateTable<S::Key, V>>,
    initial: &'a V,
    function: &'a mut F,
    types: PhantomData<fn(T) -> Out>,
}

impl<T, Out, S, V, F> ByKey for Mapping<'_, T, Out, S, V, F>
where
    Out: Record,
    S: KeySelector<T>,
    V: StateValue,
    F: FnMut(T, &mut V, &mut Collector<Out>) -> Result<(), BoxError>,
{
    type In = T;
    type Out = Out;
    type Begun = Ahead;

    fn outgrows_cache(&self) -> bool {
        self.state.outgrows_cache()
    }

    #[inline]
    fn key_hash(&self, record: &T) -> u64 {
        self.selector.with_key(record, S::Key::key_hash)
    }

    #[inline]
    fn prefetch(&self, key_hashes: &[u64], places: &mut [LikelyPlace]) {
        self.state.prefetch(key_hashes, places);
    }

    #[inline]
    fn begin(&mut self, _record: &T, ahead: Ahead) -> Ahead {
        ahead
    }

    #[inline]
    fn work(&mut self, record: T, ahead: Ahead, out: &mut Collector<Out>) -> Result<(), BoxError> {
        let value = {
            let key = self.selector.key(&record);
            let initial = || self.initial.clone();
            value_of(&mut self.state, key.borrow(), ahead, initial)
        };
        (self.function)(record, value, out)
    }
}
