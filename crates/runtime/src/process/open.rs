//! What a function is opened with: the states it binds, and which subtask it is.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use tidegate_state::{
    Aggregate, AggregatingState, AggregatingStateDescriptor, HeapKeyedBackend, ListState,
    ListStateDescriptor, MapState, MapStateDescriptor, OperatorListState, OperatorStateBackend,
    Record, ReduceFn, ReducingState, ReducingStateDescriptor, StateDescriptor, StateError,
    StateKey, StateValue, ValueState, ValueStateDescriptor,
};
use tidegate_types::CheckpointId;

use super::broadcast::BroadcastState;
use crate::logic::SubtaskContext;
use crate::output::{SideCollector, SideOutputTypeError};

/// Which subtask a function is opened for, and the states that it has as a whole.
pub struct OpenContext<'a> {
    pub(super) context: &'a SubtaskContext,
    pub(super) state: &'a mut OperatorStateBackend,
}

/// Names a side output of an operator and says what it carries. Written once, as a constant, and
/// used by the function and by the job.
#[derive(Debug)]
pub struct OutputTag<T> {
    name: &'static str,
    records: PhantomData<fn() -> T>,
}

impl<T> OutputTag<T> {
    /// The side output with this name, which is unique within the operator.
    pub const fn new(name: &'static str) -> Self {
        OutputTag {
            name,
            records: PhantomData,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// The operator state that a subtask starts from.
pub(super) fn open_operator_state(
    context: &SubtaskContext,
) -> Result<OperatorStateBackend, StateError> {
    OperatorStateBackend::restore(context.subtask.index, &context.restore.lists)
}

impl OpenContext<'_> {
    /// Binds a list of the whole operator, of which each subtask has a part; at a restore each
    /// element goes to one subtask. It travels in every acknowledgement, so it is for what is
    /// small: positions, open transactions.
    ///
    /// # Errors
    /// [`StateError`] if another state has the name, or the checkpoint holds it with another mode
    /// or type.
    pub fn split_list<T: StateValue>(
        &mut self,
        name: &str,
    ) -> Result<OperatorListState<T>, StateError> {
        self.state.split_list(&ListStateDescriptor::new(name))
    }

    /// As [`split_list`](Self::split_list), but at a restore every subtask gets all elements of all
    /// subtasks. Drop what isn't this subtask's, or the list grows with every restore.
    ///
    /// # Errors
    /// As for [`split_list`](Self::split_list).
    pub fn union_list<T: StateValue>(
        &mut self,
        name: &str,
    ) -> Result<OperatorListState<T>, StateError> {
        self.state.union_list(&ListStateDescriptor::new(name))
    }

    /// Binds a map that all subtasks hold alike, for functions with a broadcast input.
    ///
    /// # Errors
    /// As for [`split_list`](Self::split_list).
    pub fn broadcast_state<MK: StateKey + Ord, MV: StateValue>(
        &mut self,
        name: &str,
    ) -> Result<BroadcastState<MK, MV>, StateError> {
        let state = self.state.broadcast_map(&MapStateDescriptor::new(name))?;
        Ok(BroadcastState { state })
    }

    /// A side output, to emit to. What the job doesn't take from it goes nowhere.
    ///
    /// # Errors
    /// If the job takes records of another type from it.
    pub fn side_output<T: Record>(
        &self,
        tag: &OutputTag<T>,
    ) -> Result<SideCollector<T>, SideOutputTypeError> {
        self.context.side_output(tag.name())
    }

    /// Index of the subtask, from 0.
    pub fn subtask_index(&self) -> u32 {
        self.context.subtask.index
    }

    /// Number of subtasks of the operator.
    pub fn parallelism(&self) -> u32 {
        self.context.parallelism
    }

    /// Name of the subtask for people, as `count[1]`.
    pub fn subtask_name(&self) -> &str {
        &self.context.name
    }

    /// The checkpoint whose state the function starts with; `None` if the job starts afresh.
    pub fn restored_checkpoint(&self) -> Option<CheckpointId> {
        self.context.restored
    }
}

/// As [`OpenContext`], and the states that each key has.
pub struct KeyedOpenContext<'a, K: StateKey> {
    pub(super) backend: &'a mut HeapKeyedBackend<K>,
    pub(super) operator: OpenContext<'a>,
}

impl<'a, K: StateKey> Deref for KeyedOpenContext<'a, K> {
    type Target = OpenContext<'a>;

    fn deref(&self) -> &OpenContext<'a> {
        &self.operator
    }
}

impl<'a, K: StateKey> DerefMut for KeyedOpenContext<'a, K> {
    fn deref_mut(&mut self) -> &mut OpenContext<'a> {
        &mut self.operator
    }
}

impl<K: StateKey> KeyedOpenContext<'_, K> {
    /// Binds a keyed state, with what was restored of it. Binding the same again gives a handle of
    /// the same state.
    ///
    /// # Errors
    /// [`StateError`] if another state has the name, or the checkpoint holds it with another type.
    pub fn bind<D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, ()>, StateError> {
        self.backend.bind(descriptor)
    }

    /// Binds a keyed state of which each key has one per namespace.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_within<N: StateKey, D: StateDescriptor>(
        &mut self,
        descriptor: &D,
    ) -> Result<D::Handle<K, N>, StateError> {
        self.backend.bind_within::<N, D>(descriptor)
    }

    /// Binds one value per key, without a default.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn value<V: StateValue>(&mut self, name: &str) -> Result<ValueState<K, V>, StateError> {
        self.bind(&ValueStateDescriptor::new(name))
    }

    /// Binds a list per key.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn list<T: StateValue>(&mut self, name: &str) -> Result<ListState<K, T>, StateError> {
        self.bind(&ListStateDescriptor::new(name))
    }

    /// Binds a map per key.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn map<MK: StateKey + Ord + Sync, MV: StateValue>(
        &mut self,
        name: &str,
    ) -> Result<MapState<K, MK, MV>, StateError> {
        self.bind(&MapStateDescriptor::new(name))
    }

    /// Binds a value per key into which others are combined by `reduce`.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn reducing<T: StateValue>(
        &mut self,
        name: &str,
        reduce: ReduceFn<T>,
    ) -> Result<ReducingState<K, T>, StateError> {
        self.bind(&ReducingStateDescriptor::new(name, reduce))
    }

    /// Binds an accumulator per key.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn aggregating<A: Aggregate>(
        &mut self,
        name: &str,
        aggregate: A,
    ) -> Result<AggregatingState<K, A>, StateError> {
        self.bind(&AggregatingStateDescriptor::new(name, aggregate))
    }
}
