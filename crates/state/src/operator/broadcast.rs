//! Broadcast maps.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::backend::BoundOperatorState;
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::{Entries, decode_value, encode_entry, encode_value};
use crate::key::{KeyError, StateKey};

/// Handle of a broadcast map, of which every subtask holds the same. Clones refer to the same map.
///
/// Only what all subtasks see, in the order in which they see it, may change it: broadcast records.
/// Otherwise subtasks differ, and a restore gives them all what one of them had.
///
/// # Panics
/// Accessors panic if they are called for the same map from within a closure given to one of them.
pub struct BroadcastState<MK, MV> {
    entries: Rc<RefCell<BTreeMap<MK, MV>>>,
}

impl<MK, MV> Clone for BroadcastState<MK, MV> {
    fn clone(&self) -> Self {
        BroadcastState {
            entries: Rc::clone(&self.entries),
        }
    }
}

impl<MK, MV> Default for BroadcastState<MK, MV> {
    fn default() -> Self {
        BroadcastState {
            entries: Rc::default(),
        }
    }
}

impl<MK: StateKey + Ord, MV: StateValue> BroadcastState<MK, MV> {
    /// A copy of the value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, map_key: &Q) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        let entries = RefCell::borrow(&self.entries);
        entries.get(map_key).cloned()
    }

    /// Calls `read` with the whole map, which is ordered by its keys.
    pub fn with<R>(&self, read: impl FnOnce(&BTreeMap<MK, MV>) -> R) -> R {
        read(&RefCell::borrow(&self.entries))
    }

    /// Whether a key has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, map_key: &Q) -> bool
    where
        MK: Borrow<Q>,
    {
        self.with(|entries| entries.contains_key(map_key))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.with(BTreeMap::len)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.with(BTreeMap::is_empty)
    }

    /// Sets the value of a key, and returns what it was.
    pub fn put(&self, map_key: MK, value: MV) -> Option<MV> {
        self.entries.borrow_mut().insert(map_key, value)
    }

    /// Removes a key, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&self, map_key: &Q) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        self.entries.borrow_mut().remove(map_key)
    }

    /// Keeps the entries for which `keep` says so. It may change the values.
    pub fn retain(&self, keep: impl FnMut(&MK, &mut MV) -> bool) {
        self.entries.borrow_mut().retain(keep);
    }

    /// Removes all keys.
    pub fn clear(&self) {
        self.entries.borrow_mut().clear();
    }
}

impl<MK: StateKey + Ord, MV: StateValue> BoundOperatorState for BroadcastState<MK, MV> {
    fn encode(&self) -> postcard::Result<Vec<Vec<u8>>> {
        let encode = |(map_key, value): (&MK, &MV)| {
            let mut out = Vec::new();
            let key = |out: &mut Vec<u8>| map_key.encode_element(out);
            encode_entry(&mut out, key, |out| encode_value(value, out)).map(|()| out)
        };
        self.with(|entries| entries.iter().map(encode).collect())
    }

    fn load(&self, elements: &[Vec<u8>]) -> Result<(), LoadError> {
        let mut entries = BTreeMap::new();
        for (entry, element) in (0..).zip(elements) {
            let mut parts = Entries::new(element, 1);
            let length = LoadError::Length { entry };
            let (_, mut key, value) = parts.next().and_then(Result::ok).ok_or(length)?;
            if parts.next().is_some() {
                return Err(LoadError::Length { entry });
            }
            let map_key = MK::decode_element(&mut key).and_then(|map_key| match key.len() {
                0 => Ok(map_key),
                bytes => Err(KeyError::Trailing { bytes }),
            });
            let map_key = map_key.map_err(|cause| LoadError::Key { entry, cause })?;
            if entries
                .insert(map_key, decode_value(entry, value)?)
                .is_some()
            {
                return Err(LoadError::Duplicate { entry });
            }
        }
        *self.entries.borrow_mut() = entries;
        Ok(())
    }
}
