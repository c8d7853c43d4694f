//! The entries of one key's map, in the order of their map keys.
//!
//! A small map is a sorted vector. A large one is a list of sorted blocks behind reference counts:
//! a copy for a snapshot counts one reference, and a change clones the one block it is in, as long
//! as a snapshot shares it.
//!
//! Invariants: map keys ascend, within blocks and from one to the next; no block is empty.

use std::borrow::Borrow;
use std::sync::Arc;

use super::chunks::OpenChunk;
use super::content::Content;
use super::entry_key::EntryKey;
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::{decode_value, encode_value};
use crate::key::{KeyError, StateKey};

/// Entries of a block that is full.
const BLOCK_ENTRIES: usize = 64;

type Entry<MK, MV> = (MK, MV);

/// A sorted map.
#[derive(Clone)]
pub(super) struct Sorted<MK, MV>(Repr<MK, MV>);

#[derive(Clone)]
enum Repr<MK, MV> {
    Small(Vec<Entry<MK, MV>>),
    Large(Arc<Blocks<MK, MV>>),
}

#[derive(Clone)]
struct Blocks<MK, MV> {
    blocks: Vec<Arc<Vec<Entry<MK, MV>>>>,
    len: usize,
}

/// Position of a map key: where it is, or where it belongs.
fn find<MK: Borrow<Q>, MV, Q: Ord + ?Sized>(
    entries: &[Entry<MK, MV>],
    map_key: &Q,
) -> Result<usize, usize> {
    entries.binary_search_by(|entry| entry.0.borrow().cmp(map_key))
}

impl<MK, MV> Blocks<MK, MV> {
    /// The block in which a map key is, or belongs.
    fn block<Q: Ord + ?Sized>(&self, map_key: &Q) -> usize
    where
        MK: Borrow<Q>,
    {
        let starts_before = |block: &Arc<Vec<Entry<MK, MV>>>| block[0].0.borrow() <= map_key;
        let after = self.blocks.partition_point(starts_before);
        after.saturating_sub(1)
    }
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
            Repr::Large(map) => map.len,
        }
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, map_key: &Q) -> Option<&MV>
    where
        MK: Borrow<Q>,
    {
        let entries = match &self.0 {
            Repr::Small(entries) => entries,
            Repr::Large(map) => map.blocks.get(map.block(map_key))?,
        };
        let at = find(entries, map_key).ok()?;
        Some(&entries[at].1)
    }

    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, map_key: &Q) -> Option<&mut MV>
    where
        MK: Borrow<Q>,
    {
        let (entries, at) = match &mut self.0 {
            Repr::Small(entries) => {
                let at = find(entries, map_key).ok()?;
                (entries, at)
            }
            Repr::Large(map) => {
                let block = map.block(map_key);
                let at = find(map.blocks.get(block)?, map_key).ok()?;
                (Arc::make_mut(&mut Arc::make_mut(map).blocks[block]), at)
            }
        };
        Some(&mut entries[at].1)
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
            let entries = std::mem::take(entries);
            self.0 = Repr::Large(Arc::new(Blocks {
                len: entries.len(),
                blocks: vec![Arc::new(entries)],
            }));
        }
        match &mut self.0 {
            Repr::Small(entries) => {
                let at = find(entries, &map_key).unwrap_or_else(|at| {
                    entries.insert(at, (map_key, make()));
                    at
                });
                &mut entries[at].1
            }
            Repr::Large(map) => Arc::make_mut(map).entry_or_insert_with(map_key, make),
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
            Repr::Large(map) => {
                let block = map.block(map_key);
                let at = find(map.blocks.get(block)?, map_key).ok()?;
                Some(Arc::make_mut(map).remove(block, at).1)
            }
        }
    }

    /// Keeps the entries for which `keep` says so; it may change the values.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&MK, &mut MV) -> bool) {
        match &mut self.0 {
            Repr::Small(entries) => entries.retain_mut(|(key, value)| keep(key, value)),
            Repr::Large(map) => {
                let map = Arc::make_mut(map);
                for block in &mut map.blocks {
                    Arc::make_mut(block).retain_mut(|(key, value)| keep(key, value));
                }
                map.blocks.retain(|block| !block.is_empty());
                map.len = map.blocks.iter().map(|block| block.len()).sum();
            }
        }
    }

    pub(super) fn iter(&self) -> MapEntries<'_, MK, MV> {
        let (current, blocks): (&[_], &[_]) = match &self.0 {
            Repr::Small(entries) => (entries, &[]),
            Repr::Large(map) => (&[], &map.blocks),
        };
        MapEntries {
            current: current.iter(),
            blocks: blocks.iter(),
            remaining: self.len(),
        }
    }
}

impl<MK: Clone + Ord, MV: Clone> Blocks<MK, MV> {
    fn entry_or_insert_with(&mut self, map_key: MK, make: impl FnOnce() -> MV) -> &mut MV {
        if self.blocks.is_empty() {
            self.blocks.push(Arc::default());
            self.len = 1;
            let first = Arc::make_mut(&mut self.blocks[0]);
            first.push((map_key, make()));
            return &mut first[0].1;
        }
        let mut block = self.block(&map_key);
        let mut place = find(&self.blocks[block], &map_key);
        if let Err(at) = place {
            if self.blocks[block].len() >= BLOCK_ENTRIES {
                (block, place) = self.split(block, at);
            }
            self.len += 1;
        }
        let entries = Arc::make_mut(&mut self.blocks[block]);
        let at = place.unwrap_or_else(|at| {
            entries.insert(at, (map_key, make()));
            at
        });
        &mut entries[at].1
    }

    /// Divides a full block to make room at `at`, and says where that is now. One that is full at
    /// the end of the map stays as it is, so that maps filled in order have full blocks.
    fn split(&mut self, block: usize, at: usize) -> (usize, Result<usize, usize>) {
        let length = self.blocks[block].len();
        let last = block + 1 == self.blocks.len();
        let middle = if last && at == length {
            length
        } else {
            length / 2
        };
        let upper = Arc::make_mut(&mut self.blocks[block]).split_off(middle);
        self.blocks.insert(block + 1, Arc::new(upper));
        match at > middle || at == length {
            true => (block + 1, Err(at - middle)),
            false => (block, Err(at)),
        }
    }

    /// Removes an entry. A block that shrinks joins its neighbour if both fit in half a block.
    fn remove(&mut self, block: usize, at: usize) -> Entry<MK, MV> {
        let removed = Arc::make_mut(&mut self.blocks[block]).remove(at);
        self.len -= 1;
        if self.blocks[block].is_empty() {
            self.blocks.remove(block);
            return removed;
        }
        let first = block.saturating_sub(1);
        if let Some([left, right]) = self.blocks.get(first..first + 2)
            && left.len() + right.len() <= BLOCK_ENTRIES / 2
        {
            let right = Arc::unwrap_or_clone(self.blocks.remove(first + 1));
            Arc::make_mut(&mut self.blocks[first]).extend(right);
        }
        removed
    }
}

/// The entries of a map, in the order of their map keys.
#[derive(Clone)]
pub struct MapEntries<'a, MK, MV> {
    current: std::slice::Iter<'a, Entry<MK, MV>>,
    blocks: std::slice::Iter<'a, Arc<Vec<Entry<MK, MV>>>>,
    remaining: usize,
}

impl<MK, MV> Default for MapEntries<'_, MK, MV> {
    fn default() -> Self {
        MapEntries {
            current: [].iter(),
            blocks: [].iter(),
            remaining: 0,
        }
    }
}

impl<'a, MK, MV> Iterator for MapEntries<'a, MK, MV> {
    type Item = (&'a MK, &'a MV);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.current.next() {
                self.remaining -= 1;
                return Some((key, value));
            }
            self.current = self.blocks.next()?.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<MK, MV> ExactSizeIterator for MapEntries<'_, MK, MV> {}

impl<MK: StateKey + Ord, MV: StateValue> Content for Sorted<MK, MV> {
    type Part = (MK, MV);

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
            chunk.append(key, |out| encode_value(value, out))?;
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
        if let Repr::Large(large) = &map.0 {
            assert!(large.blocks.iter().all(|block| !block.is_empty()));
            assert!(
                large
                    .blocks
                    .iter()
                    .all(|block| block.len() <= BLOCK_ENTRIES)
            );
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
                let keep = |_: &String, value: &mut u32| {
                    *value += 1;
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

    #[test]
    fn maps_filled_in_order_have_full_blocks() {
        let mut map = Sorted::new();
        for number in 0..6400u32 {
            map.insert(number, ());
        }
        let Repr::Large(large) = &map.0 else {
            panic!("6400 entries are not few");
        };
        assert!(large.blocks.len() <= 101, "{}", large.blocks.len());
    }
}
