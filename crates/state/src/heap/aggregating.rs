//! Aggregating and folding state as an operator uses it.

use std::cell::RefCell;
use std::rc::Rc;

use super::access::{common_accessors, keys_of_group};
use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::content::Single;
use super::entry_key::Lookup;
use super::shards::Shards;
use crate::descriptor::{AggregatingStateDescriptor, StateDescriptor, StateKind};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::function::{Aggregate, MergeAggregate};
use crate::key::StateKey;
use crate::scope::{At, Scope};

/// The accumulators of an aggregate.
type Accumulators<K, A, N> = Shards<K, Single<<A as Aggregate>::Acc>, N>;

/// Handle of an aggregating state: an accumulator per key, to which values are added. Clones refer
/// to the same state. See [`ValueState`](super::ValueState) for what accessors have in common.
///
/// ```
/// use tidegate_state::{AggregatingStateDescriptor, At, HeapKeyedBackend};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let text = AggregatingStateDescriptor::folding("text", String::from("#"), |text, n: u32| {
///     text.push_str(&n.to_string());
/// });
/// let text = backend.bind(&text)?;
/// text.add(&At::key("tea"), 3)?;
/// text.add(&At::key("tea"), 4)?;
/// assert_eq!(text.get(&At::key("tea"))?.as_deref(), Some("#34"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// As [`ValueState`](super::ValueState); also if the aggregate's functions use the same state.
pub struct AggregatingState<K, A: Aggregate, N = ()> {
    table: Rc<RefCell<Accumulators<K, A, N>>>,
    aggregate: A,
}

impl<K, A: Aggregate, N> Clone for AggregatingState<K, A, N> {
    fn clone(&self) -> Self {
        AggregatingState {
            table: Rc::clone(&self.table),
            aggregate: self.aggregate.clone(),
        }
    }
}

impl<K: StateKey, A: Aggregate, N: StateKey> AggregatingState<K, A, N> {
    /// What the values come to; `None` if there were none.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn get(&self, scope: &impl Scope<K, N>) -> Result<Option<A::Out>, StateError> {
        let table = self.table.borrow();
        let accumulator = table.get(Lookup::scope(scope));
        Ok(accumulator.map(|accumulator| self.aggregate.get_result(&accumulator.0)))
    }

    /// Adds a value, to an accumulator of its own if it is the first.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    #[inline]
    pub fn add(&self, scope: &impl Scope<K, N>, value: A::In) -> Result<(), StateError> {
        let mut table = self.table.borrow_mut();
        let create = || Single(self.aggregate.create());
        let accumulator = table.entry_or_insert_with(Lookup::scope(scope), create);
        self.aggregate.add(&mut accumulator.0, value);
        Ok(())
    }

    /// Merges what is in the key's namespaces `sources` into the one in scope, in their order. The
    /// sources are gone afterwards; if all are empty, nothing else changes.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn merge_namespaces<'a>(
        &self,
        target: &impl Scope<K, N>,
        sources: impl IntoIterator<Item = &'a N>,
    ) -> Result<(), StateError>
    where
        A: MergeAggregate,
    {
        let mut table = self.table.borrow_mut();
        let at = Lookup::scope(target);
        table.merge(at, sources, |into, other| {
            self.aggregate.merge(&mut into.0, other.0);
        });
        Ok(())
    }

    common_accessors!();
}

impl<A: Aggregate> StateDescriptor for AggregatingStateDescriptor<A> {
    type Handle<K: StateKey, N: StateKey> = AggregatingState<K, A, N>;

    fn meta(&self) -> StateMeta {
        StateMeta::new::<A::Acc>(&self.name, StateKind::Aggregating, self.version)
    }

    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<AggregatingState<K, A, N>, StateError> {
        let table = backend.bind_table(self.meta(), |shards| shards)?;
        let aggregate = self.aggregate.clone();
        Ok(AggregatingState { table, aggregate })
    }
}
