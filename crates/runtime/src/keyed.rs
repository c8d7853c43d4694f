//! Operators over keyed state.

use std::io::Cursor;
use std::marker::PhantomData;
use std::vec;

use tidegate_state::{
    HeapKeyedBackend, Record, SnapshotProgress, StateKey, StateValue, ValueState,
    ValueStateDescriptor,
};
use tidegate_types::{CheckpointBarrier, CheckpointId, KeyedPiece, KeyedStateHandle};

use crate::error::BoxError;
use crate::logic::{Flow, Logic, Snapshot, SubtaskContext};
use crate::output::{Collector, KeySelector};

/// Pages of state (about 1 KiB each) that are copied for a pending snapshot between two looks
/// at the input: some tens of microseconds.
pub(crate) const PAGES_PER_STEP: usize = 128;

/// The state that a keyed subtask starts from.
pub(crate) fn open_backend<K: StateKey>(
    context: &SubtaskContext,
) -> Result<HeapKeyedBackend<K>, BoxError> {
    let mut backend = HeapKeyedBackend::new(context.max_parallelism, context.key_groups());
    for handle in &context.restore.keyed {
        for piece in &handle.pieces {
            restore_piece(&mut backend, piece, handle, context)?;
        }
    }
    Ok(backend)
}

/// Adds what a piece holds of the backend's key groups. Pieces of one handle come in order.
fn restore_piece<K: StateKey>(
    backend: &mut HeapKeyedBackend<K>,
    piece: &KeyedPiece,
    of: &KeyedStateHandle,
    context: &SubtaskContext,
) -> Result<(), BoxError> {
    match piece {
        KeyedPiece::File(file) => {
            let mut input = context.files.open(file)?;
            backend.restore_file(&file.name, &mut input)?;
        }
        KeyedPiece::Inline(bytes) => {
            let checkpoint = context.restored.unwrap_or(CheckpointId::NONE);
            let name = format!("_metadata of {checkpoint}, key groups {}", of.key_groups);
            backend.restore_file(&name, &mut Cursor::new(bytes))?;
        }
    }
    Ok(())
}

pub(crate) fn freeze<K: StateKey>(backend: &mut HeapKeyedBackend<K>) -> Snapshot {
    let frozen = backend.freeze();
    Snapshot {
        keyed: frozen.has_states().then_some(frozen),
        ..Snapshot::default()
    }
}

/// A running count per key: emits the key and its new count for each record.
pub struct Count<T, S: KeySelector<T>> {
    selector: S,
    backend: HeapKeyedBackend<S::Key>,
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
        let mut backend = open_backend(context)?;
        let counts = backend.value_state(&ValueStateDescriptor::<u64>::new(Self::STATE))?;
        Ok(Count {
            selector,
            backend,
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
        input: &mut vec::IntoIter<T>,
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

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(freeze(&mut self.backend))
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.backend.advance_snapshots(PAGES_PER_STEP)
    }
}

/// Any function of a record and the state of its key.
pub struct KeyedMap<T, S: KeySelector<T>, V, F> {
    selector: S,
    backend: HeapKeyedBackend<S::Key>,
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
        let mut backend = open_backend(context)?;
        let state = backend.value_state(descriptor)?;
        Ok(KeyedMap {
            selector,
            backend,
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
        input: &mut vec::IntoIter<T>,
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

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(freeze(&mut self.backend))
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.backend.advance_snapshots(PAGES_PER_STEP)
    }
}
