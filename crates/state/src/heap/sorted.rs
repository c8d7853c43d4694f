//! The entries of one key's map, in the order of their map keys.
//!
//! A small map is a sorted vector, which a copy for a snapshot clones. A large one is a
//! [tree](super::map_tree), of which it counts one reference; what a change then has to copy
//! doesn't grow with the map, but for a logarithm.
//!
//! Invariant: map keys ascend.

use std::borrow::Borrow;

use super::chunks::OpenChunk;
use super::content::Content;
use super::entry_key::EntryKey;
use super::map_tree::{Entry, MapTree, TreeEntries, find};
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::{decode_value, encode_entry, encode_value};
use crate::key::{FixedEncoding, KeyError, StateKey};

/// A sorted map.
#[derive(Clone)]
pub(super) struct Sorted<MK, MV>(Repr<MK, MV>);

#[derive(Clone)]
enum Repr<MK, MV> {
    Small(Vec<Entry<MK, MV>>),
    Large(MapTree<MK, MV>),
}

impl<MK: Clone + Ord, MV: Clone> Sorted<MK, MV> {
    /// Entries of a small map, which copies for snapshots clone. Those that own memory may be
    /// large.
    const SMALL_MAX: usize = match (
        std::mem::needs_drop::<Entry<MK, MV>>(),
        256 / (size_of::<Entry<MK, MV>>() + 1),
    ) {
        (true, _) | (false, 0..4) => 4,
        (false, room @ 4..16) => room,
        (false, _) => 16,
    };

    pub(super) fn new() -> Self {
        Sorted(Repr::Small(Vec::new()))
    }

    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Repr::Small(entries) => entries.len(),
            Repr::Large(tree) => tree.len(),
        }
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, map_key: &Q) -> Option<&MV>
    where
        MK: Borrow<Q>,
    {
        match &self.0 {
            Repr::Small(entries) => {
                let at = find(entries, map_key).ok()?;
                Some(&entries[at].1)
            }
            Repr::Large(tree) => tree.get(map_key),
        }
    }

    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, map_key: &Q) -> Option<&mut MV>
    where
        MK: Borrow<Q>,
    {
        match &mut self.0 {
            Repr::Small(entries) => {
                let at = find(entries, map_key).ok()?;
                Some(&mut entries[at].1)
            }
            Repr::Large(tree) => tree.get_mut(map_key),
        }
    }

    /// The value of a map key, made by `make` if there is none.
    pub(super) fn entry_or_insert_with(
        &mut self,
        map_key: MK,
        make: impl FnOnce() -> MV,
    ) -> &mut MV {
        if let Repr::Small(entries) = &mut self.0
            && entries.len() >= Self::SMALL_MAX
            && find(entries, &map_key).is_err()
        {
            self.0 = Repr::Large(MapTree::new(std::mem::take(entries)));
        }
        match &mut self.0 {
            Repr::Small(entries) => {
                let at = find(entries, &map_key).unwrap_or_else(|at| {
                    entries.insert(at, (map_key, make()));
                    at
                });
                &mut entries[at].1
            }
            Repr::Large(tree) => tree.entry_or_insert_with(map_key, make),
        }
    }

    /// Sets the value of a map key and returns what it was.
    pub(super) fn insert(&mut self, map_key: MK, value: MV) -> Option<MV> {
        let mut value = Some(value);
        let slot =
            self.entry_or_insert_with(map_key, || value.take().expect("a value is inserted once"));
        value.map(|value| std::mem::replace(slot, value))
    }

    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, map_key: &Q) -> Option<MV>
    where
        MK: Borrow<Q>,
    {
        match &mut self.0 {
            Repr::Small(entries) => {
                let at = find(entries, map_key).ok()?;
                Some(entries.remove(at).1)
            }
            Repr::Large(tree) => tree.remove(map_key),
        }
    }

    pub(super) fn iter(&self) -> MapEntries<'_, MK, MV> {
        let entries = match &self.0 {
            Repr::Small(entries) => TreeEntries::of_slice(entries),
            Repr::Large(tree) => tree.iter(),
        };
        MapEntries {
            entries,
            remaining: self.len(),
        }
    }
}

impl<MK: Clone + Ord, MV: StateValue> Sorted<MK, MV> {
    /// Keeps the entries for which `keep` says so; it may change the values.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&MK, &mut MV) -> bool) {
        match &mut self.0 {
            Repr::Small(entries) => entries.retain_mut(|(key, value)| keep(key, value)),
            Repr::Large(tree) => tree.retain(keep, same_encoding),
        }
    }
}

/// Whether two values are written alike: values need not be comparable otherwise. Those that can't
/// be written are told apart, so that a snapshot reports them.
fn same_encoding<V: StateValue>(left: &V, right: &V) -> bool {
    let encoding = |value: &V| {
        let mut bytes = Vec::new();
        encode_value(value, &mut bytes).map(|()| bytes)
    };
    matches!((encoding(left), encoding(right)), (Ok(left), Ok(right)) if left == right)
}

/// The entries of a map, in the order of their map keys.
#[derive(Clone)]
pub struct MapEntries<'a, MK, MV> {
    entries: TreeEntries<'a, MK, MV>,
    remaining: usize,
}

impl<MK, MV> Default for MapEntries<'_, MK, MV> {
    fn default() -> Self {
        MapEntries {
            entries: TreeEntries::default(),
            remaining: 0,
        }
    }
}

impl<'a, MK, MV> Iterator for MapEntries<'a, MK, MV> {
    type Item = (&'a MK, &'a MV);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.entries.next()?;
        self.remaining -= 1;
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<MK, MV> ExactSizeIterator for MapEntries<'_, MK, MV> {}

impl<MK: StateKey + Ord, MV: StateValue> Content for Sorted<MK, MV> {
    type Part = (MK, MV);

    const IS_ONE_ENTRY: bool = false;

    fn encode_key<K: StateKey, N: StateKey>(key: &EntryKey<K, N>, out: &mut Vec<u8>) {
        key.encode_element(out);
    }

    fn decode_key<K: StateKey, N: StateKey>(mut key: &[u8]) -> Result<EntryKey<K, N>, KeyError> {
        let stream_key = EntryKey::decode_element(&mut key)?;
        match key.len() {
            0 => Ok(stream_key),
            bytes => Err(KeyError::Trailing { bytes }),
        }
    }

    fn encode_entry<K: StateKey, N: StateKey>(
        &self,
        _key: &EntryKey<K, N>,
        _out: &mut Vec<u8>,
    ) -> postcard::Result<()> {
        unreachable!("a map is as many entries as it has keys")
    }

    fn encode_short_entry(
        &self,
        _key: FixedEncoding,
        _out: &mut Vec<u8>,
        _end: &mut usize,
    ) -> postcard::Result<()> {
        unreachable!("a map is as many entries as it has keys")
    }

    fn encode<K: StateKey, N: StateKey>(
        &self,
        key: &EntryKey<K, N>,
        chunk: &mut OpenChunk<'_>,
    ) -> postcard::Result<()> {
        chunk.forget(|out| Self::encode_key(key, out));
        for (map_key, value) in self.iter() {
            let key = |out: &mut Vec<u8>| {
                Self::encode_key(key, out);
                map_key.encode_element(out);
            };
            chunk.append(|out| encode_entry(out, key, |out| encode_value(value, out)))?;
        }
        Ok(())
    }

    fn decode<K: StateKey, N: StateKey>(
        entry: u32,
        mut key: &[u8],
        value: &[u8],
    ) -> Result<(EntryKey<K, N>, (MK, MV)), LoadError> {
        let mut keys = || {
            let stream_key = EntryKey::decode_element(&mut key)?;
            let map_key = MK::decode_element(&mut key)?;
            match key.len() {
                0 => Ok((stream_key, map_key)),
                bytes => Err(KeyError::Trailing { bytes }),
            }
        };
        let (key, map_key) = keys().map_err(|cause| LoadError::Key { entry, cause })?;
        Ok((key, (map_key, decode_value(entry, value)?)))
    }

    fn from_part((map_key, value): (MK, MV)) -> Self {
        Sorted(Repr::Small(vec![(map_key, value)]))
    }

    fn add_part(&mut self, (map_key, value): (MK, MV)) -> bool {
        self.insert(map_key, value).is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        Remove(u16),
        Fill(u16),
        Drain(u16),
        Retain(u16),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u16..1500).prop_map(Step::Insert),
            4 => (0u16..1500).prop_map(Step::Remove),
            3 => (0u16..1500).prop_map(Step::Fill),
            3 => (0u16..1500).prop_map(Step::Drain),
            1 => (1u16..5).prop_map(Step::Retain),
            2 => Just(Step::Copy),
        ]
    }

    fn check(map: &Sorted<String, u32>, model: &BTreeMap<String, u32>) {
        assert_eq!((map.len(), map.iter().len()), (model.len(), model.len()));
        assert!(map.iter().eq(model));
        if let Repr::Large(tree) = &map.0 {
            tree.check();
        }
    }

    fn apply(map: &mut Sorted<String, u32>, model: &mut BTreeMap<String, u32>, step: &Step) {
        let insert = |map: &mut Sorted<_, _>, model: &mut BTreeMap<_, _>, number: u16| {
            let (key, value) = (number.to_string(), model.len() as u32);
            assert_eq!(map.insert(key.clone(), value), model.insert(key, value));
        };
        let remove = |map: &mut Sorted<String, u32>, model: &mut BTreeMap<_, _>, number: u16| {
            let key = number.to_string();
            assert_eq!(map.get(&key), model.get(&key));
            assert_eq!(map.get_mut(&*key), model.get_mut(&key));
            assert_eq!(map.remove(&*key), model.remove(&key));
        };
        match *step {
            Step::Insert(number) => insert(map, model, number),
            Step::Remove(number) => remove(map, model, number),
            Step::Fill(from) => (from..from + 200).for_each(|at| insert(map, model, at)),
            Step::Drain(from) => (from..from + 200).for_each(|at| remove(map, model, at)),
            Step::Retain(every) => {
                // Some are gone, some change, some stay as they are.
                let keep = |_: &String, value: &mut u32| {
                    *value += u32::from(value.is_multiple_of(7));
                    !value.is_multiple_of(every.into())
                };
                map.retain(keep);
                model.retain(keep);
            }
            Step::Copy => {}
        }
    }

    proptest! {
        // KS-08, KS-14: as a `BTreeMap`, and copies stay as they were.
        #[test]
        fn behaves_as_a_tree_map(steps in prop::collection::vec(step(), 0..40)) {
            let (mut map, mut model) = (Sorted::new(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in steps {
                apply(&mut map, &mut model, &step);
                if matches!(step, Step::Copy) {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map, model));
            copies.iter().for_each(|(map, model)| check(map, model));
        }
    }
}
