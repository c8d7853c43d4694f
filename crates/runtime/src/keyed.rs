//! Operators over keyed state.

use std::marker::PhantomData;

use tidegate_state::{
    Record, SnapshotProgress, StateKey, StateValue, ValueState, ValueStateDescriptor,
};
use tidegate_types::CheckpointBarrier;

use crate::batch::Batch;
use crate::error::BoxError;
use crate::keyed_state::KeyedState;
use crate::logic::{Flow, Logic, Snapshot, SubtaskContext};
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
        let mut counts = self.counts.borrow_mut();
        while !out.is_full() {
            let Some(record) = input.next() else { break };
            let update = self.selector.with_key(&record, |key| {
                let count = counts.entry_or_insert_with(key.key_hash(), key, || 0);
                *count += 1;
                (key.clone(), *count)
            });
            out.emit(update);
        }
        Ok(Flow::Continue)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(self.keyed.freeze(barrier))
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.keyed.advance_snapshots()
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
        let mut state = self.state.borrow_mut();
        while !out.is_full() {
            let Some(record) = input.next() else { break };
            let value = self.selector.with_key(&record, |key| {
                state.entry_or_insert_with(key.key_hash(), key, || self.initial.clone())
            });
            (self.function)(record, value, out)?;
        }
        Ok(Flow::Continue)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(self.keyed.freeze(barrier))
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.keyed.advance_snapshots()
    }
}
