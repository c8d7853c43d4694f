//! Map state as an operator uses it.

use std::borrow;
use std::cell::RefCell;
use std::rc::Rc;

use super::access::{common_accessors, keys_of_group};
use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::entry_key::Lookup;
use super::shards::Shards;
use super::sorted::{MapEntries, Sorted};
use crate::descriptor::{MapStateDescriptor, StateDescriptor, StateKind, StateValue};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::key::{StateKey, schema_of};
use crate::scope::{At, Scope};

/// The maps of all keys.
type Maps<K, MK, MV, N> = Shards<K, Sorted<MK, MV>, N>;

/// Handle of a map state: a map per key, and per namespace `N` if it has any. Clones refer to the
/// same state.
///
/// The map is ordered by its own keys. An empty map and no map are the same. See
/// [`ValueState`](super::ValueState) for what accessors have in common, also for when they panic.
///
/// ```
/// use tidegate_state::{At, HeapKeyedBackend, MapStateDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<u64>::new(max, max.range(0, 1)?);
/// let stock = backend.bind(&MapStateDescriptor::<String, u32>::new("stock"))?;
/// let shop = At::key(&7);
/// stock.put(&shop, "tea".to_owned(), 3)?;
/// stock.put(&shop, "coffee".to_owned(), 5)?;
/// stock.update(&shop, "tea", |count| *count -= 1)?;
/// assert_eq!(stock.get(&shop, "tea")?, Some(2));
/// assert_eq!(stock.map_keys(&shop)?, ["coffee", "tea"]);
/// assert_eq!(stock.with_entries(&shop, |all| all.map(|(_, count)| count).sum::<u32>())?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MapState<K, MK, MV, N = ()> {
    table: Rc<RefCell<Maps<K, MK, MV, N>>>,
}

impl<K, MK, MV, N> Clone for MapState<K, MK, MV, N> {
    fn clone(&self) -> Self {
        MapState {
            table: Rc::clone(&self.table),
        }
    }
}

impl<K, MK, MV, N> MapState<K, MK, MV, N>
where
    K: StateKey,
    MK: StateKey + Ord,
    MV: StateValue,
    N: StateKey,
{
    /// A copy of the value of a map key.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(
        &self,
        scope: &impl Scope<K, N>,
        map_key: &Q,
    ) -> Result<Option<MV>, StateError>
    where
        MK: borrow::Borrow<Q>,
    {
        self.with(scope, map_key, |value| value.cloned())
    }

    /// Calls `read` with the value of a map key: [`get`](Self::get) without a copy.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn with<Q: Ord + ?Sized, R>(
        &self,
        scope: &impl Scope<K, N>,
        map_key: &Q,
        read: impl FnOnce(Option<&MV>) -> R,
    ) -> Result<R, StateError>
    where
        MK: borrow::Borrow<Q>,
    {
        let table = self.table.borrow();
        let map = table.get(Lookup::scope(scope));
        Ok(read(map.and_then(|map| map.get(map_key))))
    }

    /// Whether a map key has a value.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn contains_key<Q: Ord + ?Sized>(
        &self,
        scope: &impl Scope<K, N>,
        map_key: &Q,
    ) -> Result<bool, StateError>
    where
        MK: borrow::Borrow<Q>,
    {
        self.with(scope, map_key, |value| value.is_some())
    }

    /// Sets the value of a map key.
    ///
    /// # Errors
    /// If the backend fails to write.
    #[inline]
    pub fn put(&self, scope: &impl Scope<K, N>, map_key: MK, value: MV) -> Result<(), StateError> {
        let mut table = self.table.borrow_mut();
        let map = table.entry_or_insert_with(Lookup::scope(scope), Sorted::new);
        map.insert(map_key, value);
        Ok(())
    }

    /// Sets the values of several map keys; without any, nothing changes.
    ///
    /// # Errors
    /// If the backend fails to write.
    pub fn put_all(
        &self,
        scope: &impl Scope<K, N>,
        entries: impl IntoIterator<Item = (MK, MV)>,
    ) -> Result<(), StateError> {
        let mut entries = entries.into_iter().peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        let mut table = self.table.borrow_mut();
        let map = table.entry_or_insert_with(Lookup::scope(scope), Sorted::new);
        entries.for_each(|(map_key, value)| {
            map.insert(map_key, value);
        });
        Ok(())
    }

    /// Changes the value of a map key in place. `None`, and `change` is not called, if it has none.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    #[inline]
    pub fn update<Q: Ord + ?Sized, R>(
        &self,
        scope: &impl Scope<K, N>,
        map_key: &Q,
        change: impl FnOnce(&mut MV) -> R,
    ) -> Result<Option<R>, StateError>
    where
        MK: borrow::Borrow<Q>,
    {
        let mut table = self.table.borrow_mut();
        let map = table.get_mut(Lookup::scope(scope));
        Ok(map.and_then(|map| map.get_mut(map_key)).map(change))
    }

    /// Changes the value of a map key in place, starting from `initial` if it has none.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    #[inline]
    pub fn update_or<R>(
        &self,
        scope: &impl Scope<K, N>,
        map_key: MK,
        initial: MV,
        change: impl FnOnce(&mut MV) -> R,
    ) -> Result<R, StateError> {
        let mut table = self.table.borrow_mut();
        let map = table.entry_or_insert_with(Lookup::scope(scope), Sorted::new);
        Ok(change(map.entry_or_insert_with(map_key, || initial)))
    }

    /// Removes a map key and returns its value.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn remove<Q: Ord + ?Sized>(
        &self,
        scope: &impl Scope<K, N>,
        map_key: &Q,
    ) -> Result<Option<MV>, StateError>
    where
        MK: borrow::Borrow<Q>,
    {
        let mut table = self.table.borrow_mut();
        let Some(map) = table.get_mut(Lookup::scope(scope)) else {
            return Ok(None);
        };
        let removed = map.remove(map_key);
        if map.len() == 0 {
            table.remove(Lookup::scope(scope));
        }
        Ok(removed)
    }

    /// Keeps the map keys for which `keep` says so. It may change the values, of which only what is
    /// written into snapshots counts: another change may be undone.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn retain(
        &self,
        scope: &impl Scope<K, N>,
        keep: impl FnMut(&MK, &mut MV) -> bool,
    ) -> Result<(), StateError> {
        let mut table = self.table.borrow_mut();
        let Some(map) = table.get_mut(Lookup::scope(scope)) else {
            return Ok(());
        };
        map.retain(keep);
        if map.len() == 0 {
            table.remove(Lookup::scope(scope));
        }
        Ok(())
    }

    /// Number of map keys.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn len(&self, scope: &impl Scope<K, N>) -> Result<usize, StateError> {
        let table = self.table.borrow();
        Ok(table.get(Lookup::scope(scope)).map_or(0, Sorted::len))
    }

    /// Whether there are no map keys.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn is_empty(&self, scope: &impl Scope<K, N>) -> Result<bool, StateError> {
        Ok(!self.contains(scope)?)
    }

    /// Calls `read` with all entries, in the order of their map keys.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn with_entries<R>(
        &self,
        scope: &impl Scope<K, N>,
        read: impl FnOnce(MapEntries<'_, MK, MV>) -> R,
    ) -> Result<R, StateError> {
        let table = self.table.borrow();
        let map = table.get(Lookup::scope(scope));
        Ok(read(map.map(Sorted::iter).unwrap_or_default()))
    }

    /// Copies of all entries, in the order of their map keys.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn entries(&self, scope: &impl Scope<K, N>) -> Result<Vec<(MK, MV)>, StateError> {
        let copy = |(map_key, value): (&MK, &MV)| (map_key.clone(), value.clone());
        self.with_entries(scope, |entries| entries.map(copy).collect())
    }

    /// Copies of all map keys, in order.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn map_keys(&self, scope: &impl Scope<K, N>) -> Result<Vec<MK>, StateError> {
        self.with_entries(scope, |entries| {
            entries.map(|(key, _)| key.clone()).collect()
        })
    }

    /// Copies of all values, in the order of their map keys.
    ///
    /// # Errors
    /// If the backend fails to read.
    pub fn values(&self, scope: &impl Scope<K, N>) -> Result<Vec<MV>, StateError> {
        self.with_entries(scope, |entries| {
            entries.map(|(_, value)| value.clone()).collect()
        })
    }

    common_accessors!();
}

impl<MK: StateKey + Ord, MV: StateValue> StateDescriptor for MapStateDescriptor<MK, MV> {
    type Handle<K: StateKey, N: StateKey> = MapState<K, MK, MV, N>;

    fn meta(&self) -> StateMeta {
        StateMeta {
            map_key_schema: schema_of::<MK>(),
            ..StateMeta::new::<MV>(&self.name, StateKind::Map, self.version)
        }
    }

    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<MapState<K, MK, MV, N>, StateError> {
        let table = backend.bind_table(self.meta(), |shards| shards)?;
        Ok(MapState { table })
    }
}
