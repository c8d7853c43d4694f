//! List state as an operator uses it.

use std::cell::RefCell;
use std::rc::Rc;

use super::access::{common_accessors, keys_of_group};
use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::elements::{Elements, ListElements};
use super::entry_key::Lookup;
use super::shards::Shards;
use crate::descriptor::{ListStateDescriptor, StateDescriptor, StateKind, StateValue};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::key::StateKey;
use crate::scope::{At, Scope};

/// Handle of a list state: a list per key, and per namespace `N` if it has any. Clones refer to the
/// same state.
///
/// A list without elements and no list are the same. See [`ValueState`](super::ValueState) for what
/// accessors have in common, also for when they panic.
///
/// ```
/// use tidegate_state::{At, HeapKeyedBackend, ListStateDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let prices = backend.bind(&ListStateDescriptor::<u32>::new("prices"))?;
/// prices.add(&At::key("tea"), 3)?;
/// prices.add_all(&At::key("tea"), [4, 5])?;
/// assert_eq!(prices.get(&At::key("tea"))?, [3, 4, 5]);
/// assert_eq!(prices.with(&At::key("tea"), |prices| prices.sum::<u32>())?, 12);
/// assert_eq!(prices.get(&At::key("coffee"))?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListState<K, T, N = ()> {
    table: Rc<RefCell<Shards<K, Elements<T>, N>>>,
}

impl<K, T, N> Clone for ListState<K, T, N> {
    fn clone(&self) -> Self {
        ListState {
            table: Rc::clone(&self.table),
        }
    }
}

impl<K: StateKey, T: StateValue, N: StateKey> ListState<K, T, N> {
    /// A copy of all elements, in the order in which they were added.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn get(&self, scope: &impl Scope<K, N>) -> Result<Vec<T>, StateError> {
        self.with(scope, |elements| elements.cloned().collect())
    }

    /// Calls `read` with the elements: [`get`](Self::get) without a copy.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn with<R>(
        &self,
        scope: &impl Scope<K, N>,
        read: impl FnOnce(ListElements<'_, T>) -> R,
    ) -> Result<R, StateError> {
        let table = self.table.borrow();
        let list = table.get(Lookup::scope(scope));
        Ok(read(list.map(Elements::iter).unwrap_or_default()))
    }

    /// Number of elements.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn len(&self, scope: &impl Scope<K, N>) -> Result<usize, StateError> {
        let table = self.table.borrow();
        Ok(table.get(Lookup::scope(scope)).map_or(0, Elements::len))
    }

    /// Whether there are no elements.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn is_empty(&self, scope: &impl Scope<K, N>) -> Result<bool, StateError> {
        Ok(!self.contains(scope)?)
    }

    /// Appends an element. Takes the same time whatever the length of the list.
    ///
    /// # Errors
    /// If the backend fails to write.
    #[inline]
    pub fn add(&self, scope: &impl Scope<K, N>, element: T) -> Result<(), StateError> {
        let mut table = self.table.borrow_mut();
        let list = table.entry_or_insert_with(Lookup::scope(scope), Elements::new);
        list.push(element);
        Ok(())
    }

    /// Appends elements; without any, nothing changes.
    ///
    /// # Errors
    /// If the backend fails to write.
    pub fn add_all(
        &self,
        scope: &impl Scope<K, N>,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), StateError> {
        let mut elements = elements.into_iter();
        let Some(first) = elements.next() else {
            return Ok(());
        };
        let mut table = self.table.borrow_mut();
        let list = table.entry_or_insert_with(Lookup::scope(scope), Elements::new);
        list.push(first);
        elements.for_each(|element| list.push(element));
        Ok(())
    }

    /// Replaces the list; without elements, clears it.
    ///
    /// # Errors
    /// If the backend fails to write.
    pub fn update(&self, scope: &impl Scope<K, N>, elements: Vec<T>) -> Result<(), StateError> {
        if elements.is_empty() {
            return self.clear(scope);
        }
        let mut table = self.table.borrow_mut();
        let list = table.entry_or_insert_with(Lookup::scope(scope), Elements::new);
        *list = elements.into();
        Ok(())
    }

    /// Moves the lists of the key's namespaces `sources` to the end of the one in scope, in their
    /// order. The sources are gone afterwards; without elements in any, nothing else changes.
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
        table.merge(at, sources, Elements::append);
        Ok(())
    }

    common_accessors!();
}

impl<T: StateValue> StateDescriptor for ListStateDescriptor<T> {
    type Handle<K: StateKey, N: StateKey> = ListState<K, T, N>;

    fn meta(&self) -> StateMeta {
        StateMeta::new::<Vec<T>>(&self.name, StateKind::List, self.version)
    }

    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<ListState<K, T, N>, StateError> {
        let table = backend.bind_table(self.meta(), |shards| shards)?;
        Ok(ListState { table })
    }
}
