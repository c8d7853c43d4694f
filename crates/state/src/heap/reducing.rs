//! Reducing state as an operator uses it.

use std::cell::RefCell;
use std::rc::Rc;

use super::access::{common_accessors, keys_of_group};
use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::content::Single;
use super::entry_key::Lookup;
use super::shards::Shards;
use crate::descriptor::{ReducingStateDescriptor, StateDescriptor, StateKind, StateValue};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::function::{Reduce, ReduceFn};
use crate::key::StateKey;
use crate::scope::{At, Scope};

/// Handle of a reducing state: what the values added for a key come to. Clones refer to the same
/// state. See [`ValueState`](super::ValueState) for what accessors have in common.
///
/// ```
/// use tidegate_state::{At, HeapKeyedBackend, ReducingStateDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let sums = backend.bind(&ReducingStateDescriptor::<u64>::new("sum", |sum, n| *sum += n))?;
/// sums.add(&At::key("tea"), 3)?;
/// sums.add(&At::key("tea"), 4)?;
/// assert_eq!(sums.get(&At::key("tea"))?, Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// As [`ValueState`](super::ValueState); also if the reducing function uses the same state.
pub struct ReducingState<K, T, N = (), R = ReduceFn<T>> {
    table: Rc<RefCell<Shards<K, Single<T>, N>>>,
    reduce: R,
}

impl<K, T, N, R: Clone> Clone for ReducingState<K, T, N, R> {
    fn clone(&self) -> Self {
        ReducingState {
            table: Rc::clone(&self.table),
            reduce: self.reduce.clone(),
        }
    }
}

impl<K: StateKey, T: StateValue, N: StateKey, R: Reduce<T>> ReducingState<K, T, N, R> {
    /// A copy of what the values come to; `None` if there were none.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn get(&self, scope: &impl Scope<K, N>) -> Result<Option<T>, StateError> {
        self.with(scope, |value| value.cloned())
    }

    /// Calls `read` with what the values come to: [`get`](Self::get) without a copy.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn with<O>(
        &self,
        scope: &impl Scope<K, N>,
        read: impl FnOnce(Option<&T>) -> O,
    ) -> Result<O, StateError> {
        let table = self.table.borrow();
        let reduced = table.get(Lookup::scope(scope));
        Ok(read(reduced.map(|reduced| &reduced.0)))
    }

    /// Adds a value. The first is taken as it is.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    #[inline]
    pub fn add(&self, scope: &impl Scope<K, N>, value: T) -> Result<(), StateError> {
        let mut table = self.table.borrow_mut();
        let mut value = Some(value);
        let reduced = table.entry_or_insert_with(Lookup::scope(scope), || {
            Single(value.take().expect("a value is inserted once"))
        });
        if let Some(value) = value {
            self.reduce.reduce(&mut reduced.0, value);
        }
        Ok(())
    }

    /// Combines what is in the key's namespaces `sources` into the one in scope, in their order.
    /// The sources are gone afterwards; if all are empty, nothing else changes.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn merge_namespaces<'a>(
        &self,
        target: &impl Scope<K, N>,
        sources: impl IntoIterator<Item = &'a N>,
    ) -> Result<(), StateError> {
        let mut table = self.table.borrow_mut();
        let at = Lookup::scope(target);
        table.merge(at, sources, |into, other| {
            self.reduce.reduce(&mut into.0, other.0);
        });
        Ok(())
    }

    common_accessors!();
}

impl<T: StateValue, R: Reduce<T>> StateDescriptor for ReducingStateDescriptor<T, R> {
    type Handle<K: StateKey, N: StateKey> = ReducingState<K, T, N, R>;

    fn meta(&self) -> StateMeta {
        StateMeta::new::<T>(&self.name, StateKind::Reducing, self.version)
    }

    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<ReducingState<K, T, N, R>, StateError> {
        let table = backend.bind_table(self.meta(), |shards| shards)?;
        let reduce = self.reduce.clone();
        Ok(ReducingState { table, reduce })
    }
}
