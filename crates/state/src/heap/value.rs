//! Value state as an operator uses it: by key, or borrowed once per batch.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use super::access::{common_accessors, keys_of_group};
use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::content::Single;
use super::entry_key::Lookup;
use super::shards::{LikelyPlace, Shards};
use crate::descriptor::{StateDescriptor, StateKind, StateValue, ValueStateDescriptor};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::key::{BorrowedKey, StateKey};
use crate::scope::{At, Scope};

/// One value per key (and namespace), in memory.
///
/// Each access takes the key's hash ([`HashedKey::hash_key`](crate::HashedKey::hash_key)), which
/// routing has computed already. A key whose key group belongs to another subtask is a programming
/// error and panics.
pub struct StateTable<K, V, N = ()> {
    shards: Shards<K, Single<V>, N>,
    default: Option<V>,
}

impl<K: 'static, V: 'static, N: 'static> Table<K, Single<V>, N> for StateTable<K, V, N> {
    fn shards(&self) -> &Shards<K, Single<V>, N> {
        &self.shards
    }

    fn shards_mut(&mut self) -> &mut Shards<K, Single<V>, N> {
        &mut self.shards
    }
}

impl<K: StateKey, V: StateValue> StateTable<K, V> {
    /// The key's value, or the default if it has none.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn get<Q: BorrowedKey<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<&V> {
        self.value(Lookup::key(hash, key))
    }

    /// Whether the key has a value of its own.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn contains<Q: BorrowedKey<K> + ?Sized>(&self, hash: u64, key: &Q) -> bool {
        self.shards.get(Lookup::key(hash, key)).is_some()
    }

    /// Changes the key's value in place, starting from the default if it has none. `None`, and
    /// `change` is not called, if there is neither. The key is cloned only when it is new.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn update<Q: BorrowedKey<K> + ?Sized, R>(
        &mut self,
        hash: u64,
        key: &Q,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        self.value_or_default(Lookup::key(hash, key)).map(change)
    }

    /// The key's value, made by `make` if it has none (the default is not used). The key is cloned
    /// only when it is new.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn entry_or_insert_with<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        hash: u64,
        key: &Q,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let at = Lookup::key(hash, key);
        &mut self.shards.entry_or_insert_with(at, || Single(make())).0
    }

    /// Sets the key's value, and returns what it was.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn set<Q: BorrowedKey<K> + ?Sized>(&mut self, hash: u64, key: &Q, value: V) -> Option<V> {
        self.replace(Lookup::key(hash, key), value)
    }

    /// Removes the key's value and returns it. The key has the default again, and is in no later
    /// snapshot.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn remove<Q: BorrowedKey<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<V> {
        let removed = self.shards.remove(Lookup::key(hash, key))?;
        Some(removed.0)
    }

    /// Whether the table is so large that accesses wait for memory, and less so after a
    /// [`prefetch`](Self::prefetch).
    #[inline]
    pub fn outgrows_cache(&self) -> bool {
        self.shards.outgrows_cache()
    }

    /// Asks for the memory where the values of these keys are, given by their hashes: for those
    /// that are accessed next, some tens at a time. Changes nothing; costs about a nanosecond per
    /// key, which pays if the table [outgrows the cache](Self::outgrows_cache). Where they are is
    /// noted in `places`, as far as there is room, for
    /// [`entry_at_or_insert_with`](Self::entry_at_or_insert_with).
    #[inline]
    pub fn prefetch(&self, key_hashes: &[u64], places: &mut [LikelyPlace]) {
        for (hash, place) in key_hashes.iter().zip(places) {
            *place = self.shards.prefetch(*hash);
        }
    }

    /// As [`entry_or_insert_with`](Self::entry_or_insert_with), and faster where `place` is what
    /// [`prefetch`](Self::prefetch) has found for this key. Any place will do: one that is another
    /// key's, or was this key's before the table has changed, is recognised by the key.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline(always)]
    pub fn entry_at_or_insert_with<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        place: LikelyPlace,
        hash: u64,
        key: &Q,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let at = Lookup::key(hash, key);
        let make = || Single(make());
        &mut self.shards.entry_at_or_insert_with(place, at, make).0
    }

    /// All keys with a value of their own, by key group, in no order within one.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries().map(|(key, (), value)| (key, value))
    }
}

impl<K: StateKey, V: StateValue, N: StateKey> StateTable<K, V, N> {
    /// Number of keys (or keys and namespaces) that have a value of their own.
    pub fn len(&self) -> usize {
        self.shards.len
    }

    /// Whether no key has a value of its own.
    pub fn is_empty(&self) -> bool {
        self.shards.len == 0
    }

    /// All keys and namespaces with a value of their own, by key group, in no order within one.
    pub fn entries(&self) -> impl Iterator<Item = (&K, &N, &V)> {
        let entries = self.shards.iter();
        entries.map(|(at, value)| (&at.key, &at.namespace, &value.0))
    }

    #[inline]
    fn value<Q: BorrowedKey<K> + ?Sized>(&self, at: Lookup<'_, Q, N>) -> Option<&V> {
        match self.shards.get(at) {
            Some(value) => Some(&value.0),
            None => self.default.as_ref(),
        }
    }

    #[inline]
    fn value_or_default<Q: BorrowedKey<K> + ?Sized>(
        &mut self,
        at: Lookup<'_, Q, N>,
    ) -> Option<&mut V> {
        let value = match &self.default {
            Some(default) => self
                .shards
                .entry_or_insert_with(at, || Single(default.clone())),
            None => self.shards.get_mut(at)?,
        };
        Some(&mut value.0)
    }

    #[inline]
    fn replace<Q: BorrowedKey<K> + ?Sized>(&mut self, at: Lookup<'_, Q, N>, value: V) -> Option<V> {
        let mut value = Some(value);
        let slot = self.shards.entry_or_insert_with(at, || {
            Single(value.take().expect("a value is inserted once"))
        });
        value.map(|value| std::mem::replace(&mut slot.0, value))
    }
}

/// Handle of a value state: one value per key, and per namespace `N` if it has any. Clones refer to
/// the same state.
///
/// An operator calls the accessors with the scope of the record at hand. They return a `Result`,
/// since state may be elsewhere than in memory; here they never fail.
///
/// ```
/// use tidegate_state::{At, HeapKeyedBackend, ValueStateDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let counts = backend.bind(&ValueStateDescriptor::<u64>::new("count"))?;
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     counts.update_or(&At::key(word), 0, |count| *count += 1)?;
/// }
/// assert_eq!(counts.get(&At::key("be"))?, Some(2));
/// assert_eq!(counts.get(&At::key("question"))?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Accessors panic if the key's key group belongs to another subtask, and if they are called for
/// the same state from within a closure given to one of them, or while it is
/// [borrowed](Self::borrow_mut).
pub struct ValueState<K, V, N = ()> {
    table: Rc<RefCell<StateTable<K, V, N>>>,
}

impl<K, V, N> Clone for ValueState<K, V, N> {
    fn clone(&self) -> Self {
        ValueState {
            table: Rc::clone(&self.table),
        }
    }
}

impl<K: StateKey, V: StateValue, N: StateKey> ValueState<K, V, N> {
    /// A copy of the value, or of the default if there is none.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn get(&self, scope: &impl Scope<K, N>) -> Result<Option<V>, StateError> {
        self.with(scope, |value| value.cloned())
    }

    /// Calls `read` with the value, or the default if there is none: [`get`](Self::get) without a
    /// copy.
    ///
    /// # Errors
    /// If the backend fails to read.
    #[inline]
    pub fn with<R>(
        &self,
        scope: &impl Scope<K, N>,
        read: impl FnOnce(Option<&V>) -> R,
    ) -> Result<R, StateError> {
        let table = self.table.borrow();
        Ok(read(table.value(Lookup::scope(scope))))
    }

    /// Sets the value.
    ///
    /// # Errors
    /// If the backend fails to write.
    #[inline]
    pub fn set(&self, scope: &impl Scope<K, N>, value: V) -> Result<(), StateError> {
        self.table.borrow_mut().replace(Lookup::scope(scope), value);
        Ok(())
    }

    /// Changes the value in place, starting from the default if there is none. `None`, and `change`
    /// is not called, if there is neither.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    #[inline]
    pub fn update<R>(
        &self,
        scope: &impl Scope<K, N>,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, StateError> {
        let mut table = self.table.borrow_mut();
        Ok(table.value_or_default(Lookup::scope(scope)).map(change))
    }

    /// Changes the value in place, starting from `initial` if there is none (the default is not
    /// used).
    ///
    /// # Errors
    /// If the backend fails to read or write.
    #[inline]
    pub fn update_or<R>(
        &self,
        scope: &impl Scope<K, N>,
        initial: V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R, StateError> {
        let mut table = self.table.borrow_mut();
        let at = Lookup::scope(scope);
        let value = table.shards.entry_or_insert_with(at, || Single(initial));
        Ok(change(&mut value.0))
    }

    common_accessors!();
}

impl<K, V, N> ValueState<K, V, N> {
    /// Access for reading.
    ///
    /// # Panics
    /// If it is borrowed for writing.
    pub fn borrow(&self) -> Ref<'_, StateTable<K, V, N>> {
        self.table.borrow()
    }

    /// Access for a batch of records. Give it back before the backend freezes or advances
    /// snapshots, which panic otherwise.
    ///
    /// # Panics
    /// If it is borrowed already.
    pub fn borrow_mut(&self) -> RefMut<'_, StateTable<K, V, N>> {
        self.table.borrow_mut()
    }
}

impl<V: StateValue> StateDescriptor for ValueStateDescriptor<V> {
    type Handle<K: StateKey, N: StateKey> = ValueState<K, V, N>;

    fn meta(&self) -> StateMeta {
        StateMeta::new::<V>(&self.name, StateKind::Value, self.version)
    }

    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<ValueState<K, V, N>, StateError> {
        let table = backend.bind_table(self.meta(), |shards| StateTable {
            shards,
            default: self.default.clone(),
        })?;
        Ok(ValueState { table })
    }
}
