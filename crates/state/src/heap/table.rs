//! Value state as an operator uses it: a cheap handle, borrowed once per batch.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use super::shards::Shards;
use crate::descriptor::StateValue;
use crate::key::{BorrowedKey, StateKey};

/// One value per key, in memory.
///
/// Each access takes the key's hash ([`BorrowedKey::hash_key`]), which routing has computed
/// already. A key whose key group belongs to another subtask is a programming error and panics.
pub struct StateTable<K, V> {
    pub(super) shards: Shards<K, V>,
    pub(super) default: Option<V>,
}

impl<K: StateKey, V: StateValue> StateTable<K, V> {
    /// The key's value, or the default if it has none.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn get<Q: BorrowedKey<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<&V> {
        check_hash(hash, key);
        self.shards.get(hash, key).or(self.default.as_ref())
    }

    /// Whether the key has a value of its own.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn contains<Q: BorrowedKey<K> + ?Sized>(&self, hash: u64, key: &Q) -> bool {
        check_hash(hash, key);
        self.shards.get(hash, key).is_some()
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
        check_hash(hash, key);
        let value = match &self.default {
            Some(default) => self
                .shards
                .entry_or_insert_with(hash, key, || default.clone()),
            None => self.shards.get_mut(hash, key)?,
        };
        Some(change(value))
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
        check_hash(hash, key);
        self.shards.entry_or_insert_with(hash, key, make)
    }

    /// Sets the key's value, and returns what it was.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn set<Q: BorrowedKey<K> + ?Sized>(&mut self, hash: u64, key: &Q, value: V) -> Option<V> {
        check_hash(hash, key);
        let mut value = Some(value);
        let slot = self.shards.entry_or_insert_with(hash, key, || {
            value.take().expect("a value is inserted once")
        });
        value.map(|value| std::mem::replace(slot, value))
    }

    /// Removes the key's value and returns it. The key has the default again, and is in no later
    /// snapshot.
    ///
    /// # Panics
    /// If the key group isn't the subtask's own.
    #[inline]
    pub fn remove<Q: BorrowedKey<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<V> {
        check_hash(hash, key);
        self.shards.remove(hash, key)
    }

    /// Number of keys that have a value of their own.
    pub fn len(&self) -> usize {
        self.shards.len
    }

    /// Whether no key has a value of its own.
    pub fn is_empty(&self) -> bool {
        self.shards.len == 0
    }

    /// All keys with a value of their own, by key group, in no order within one.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter()
    }
}

#[inline]
fn check_hash<K: StateKey, Q: BorrowedKey<K> + ?Sized>(hash: u64, key: &Q) {
    debug_assert_eq!(hash, key.hash_key(), "the hash is that of the key");
}

/// Handle of a value state. Clones refer to the same state.
///
/// ```
/// use tidegate_state::{BorrowedKey, HeapKeyedBackend, ValueStateDescriptor};
/// use tidegate_types::{KeyGroupRange, MaxParallelism};
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let counts = backend.value_state(&ValueStateDescriptor::<u64>::new("count").with_default(0))?;
/// let mut table = counts.borrow_mut();
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     table.update(word.hash_key(), word, |count| *count += 1);
/// }
/// assert_eq!(table.get("be".hash_key(), "be"), Some(&2));
/// assert_eq!(table.get("question".hash_key(), "question"), Some(&0));
/// assert_eq!(table.len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueState<K, V> {
    pub(super) table: Rc<RefCell<StateTable<K, V>>>,
}

impl<K, V> Clone for ValueState<K, V> {
    fn clone(&self) -> Self {
        ValueState {
            table: Rc::clone(&self.table),
        }
    }
}

impl<K, V> ValueState<K, V> {
    /// Access for reading.
    ///
    /// # Panics
    /// If it is borrowed for writing.
    pub fn borrow(&self) -> Ref<'_, StateTable<K, V>> {
        self.table.borrow()
    }

    /// Access for a batch of records. Give it back before the backend freezes or advances
    /// snapshots, which panic otherwise.
    ///
    /// # Panics
    /// If it is borrowed already.
    pub fn borrow_mut(&self) -> RefMut<'_, StateTable<K, V>> {
        self.table.borrow_mut()
    }
}
