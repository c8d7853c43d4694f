//! The elements of one key's list.
//!
//! New elements gather in a short tail; a full tail moves into blocks that are never changed while
//! a snapshot shares them. So appending is pushing to a vector, and a copy for a snapshot clones
//! the tail and counts one reference, however long the list is.
//!
//! Invariants: only the tail may be empty; a list in a table has an element.

use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::content::Content;
use super::entry_key::EntryKey;
use crate::descriptor::StateValue;
use crate::error::LoadError;
use crate::format::{decode_value, encode_entry, encode_short_entry, encode_value};
use crate::key::{FixedEncoding, StateKey};

/// Elements of a block that is not appended to any more.
const BLOCK_ELEMENTS: usize = 256;

/// A run of elements, and all before it.
struct Block<T> {
    before: Option<Arc<Block<T>>>,
    elements: Vec<T>,
}

impl<T> Drop for Block<T> {
    /// Not left to the compiler, which would drop a long list recursively.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut block) = before.and_then(Arc::into_inner) {
            before = block.before.take();
        }
    }
}

/// A list.
#[derive(Clone)]
pub(super) struct Elements<T> {
    blocks: Option<Arc<Block<T>>>,
    tail: Vec<T>,
}

impl<T: Clone> Elements<T> {
    /// Length of the tail, which copies for snapshots clone. Elements that own memory may be large.
    const TAIL_MAX: usize = match (std::mem::needs_drop::<T>(), 256 / (size_of::<T>() + 1)) {
        (true, _) | (false, 0..4) => 4,
        (false, room @ 4..32) => room,
        (false, _) => 32,
    };

    pub(super) fn new() -> Self {
        Elements {
            blocks: None,
            tail: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, element: T) {
        if self.tail.len() == Self::TAIL_MAX {
            self.move_tail();
        }
        self.tail.push(element);
    }

    #[cold]
    fn move_tail(&mut self) {
        if let Some(block) = self.blocks.as_mut().and_then(Arc::get_mut)
            && block.elements.len() + self.tail.len() <= BLOCK_ELEMENTS
        {
            block.elements.append(&mut self.tail);
            return;
        }
        let tail = std::mem::replace(&mut self.tail, Vec::with_capacity(Self::TAIL_MAX));
        self.push_block(tail);
    }

    fn push_block(&mut self, elements: Vec<T>) {
        let before = self.blocks.take();
        self.blocks = Some(Arc::new(Block { before, elements }));
    }

    pub(super) fn iter(&self) -> ListElements<'_, T> {
        let (mut blocks, mut remaining) = (&self.blocks, self.tail.len());
        let (mut first, mut later) = (self.tail.as_slice(), Vec::new());
        while let Some(block) = blocks {
            remaining += block.elements.len();
            later.push(first);
            first = &block.elements;
            blocks = &block.before;
        }
        ListElements {
            current: first.iter(),
            later,
            remaining,
        }
    }

    pub(super) fn len(&self) -> usize {
        let (mut blocks, mut length) = (&self.blocks, self.tail.len());
        while let Some(block) = blocks {
            length += block.elements.len();
            blocks = &block.before;
        }
        length
    }

    /// Appends all elements of `other`.
    pub(super) fn append(&mut self, other: Elements<T>) {
        other.iter().for_each(|element| self.push(element.clone()));
    }
}

impl<T: Clone> From<Vec<T>> for Elements<T> {
    fn from(elements: Vec<T>) -> Self {
        let mut list = Elements::new();
        if elements.len() > Self::TAIL_MAX {
            list.push_block(elements);
        } else {
            list.tail = elements;
        }
        list
    }
}

/// The elements of a list, in order.
#[derive(Clone)]
pub struct ListElements<'a, T> {
    current: std::slice::Iter<'a, T>,
    /// Blocks that follow, the last one first.
    later: Vec<&'a [T]>,
    remaining: usize,
}

impl<'a, T> Default for ListElements<'a, T> {
    fn default() -> Self {
        ListElements {
            current: [].iter(),
            later: Vec::new(),
            remaining: 0,
        }
    }
}

impl<'a, T> Iterator for ListElements<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(element) = self.current.next() {
                self.remaining -= 1;
                return Some(element);
            }
            self.current = self.later.pop()?.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<T> ExactSizeIterator for ListElements<'_, T> {}

impl<T: StateValue> Serialize for Elements<T> {
    /// As a `Vec` of the elements.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let elements = self.iter();
        let mut sequence = serializer.serialize_seq(Some(elements.len()))?;
        for element in elements {
            sequence.serialize_element(element)?;
        }
        sequence.end()
    }
}

impl<T: StateValue> Content for Elements<T> {
    type Part = Vec<T>;

    const IS_ONE_ENTRY: bool = true;

    fn encode_entry<K: StateKey, N: StateKey>(
        &self,
        key: &EntryKey<K, N>,
        out: &mut Vec<u8>,
    ) -> postcard::Result<()> {
        encode_entry(out, |out| key.encode(out), |out| encode_value(self, out))
    }

    fn encode_short_entry(
        &self,
        key: FixedEncoding,
        out: &mut Vec<u8>,
        end: &mut usize,
    ) -> postcard::Result<()> {
        encode_short_entry(out, end, key, self)
    }

    fn decode<K: StateKey, N: StateKey>(
        entry: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<(EntryKey<K, N>, Vec<T>), LoadError> {
        let key = EntryKey::decode(key).map_err(|cause| LoadError::Key { entry, cause })?;
        let elements: Vec<T> = decode_value(entry, value)?;
        if elements.is_empty() {
            return Err(LoadError::EmptyList { entry });
        }
        Ok((key, elements))
    }

    fn from_part(part: Vec<T>) -> Self {
        part.into()
    }

    fn add_part(&mut self, _part: Vec<T>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // KS-14: what a snapshot holds on to stays as it was.
        #[test]
        fn appending_never_changes_a_copy(
            runs in prop::collection::vec((0usize..700, any::<bool>()), 0..8),
        ) {
            let (mut live, mut model) = (Elements::new(), Vec::new());
            let mut copies = Vec::new();
            for (run, copy) in runs {
                for _ in 0..run {
                    let element = model.len().to_string();
                    live.push(element.clone());
                    model.push(element);
                }
                if copy {
                    copies.push((live.clone(), model.len()));
                }
            }
            copies.push((live, model.len()));
            for (list, length) in copies {
                prop_assert_eq!(list.len(), length);
                prop_assert_eq!(list.iter().len(), length);
                prop_assert!(list.iter().eq(&model[..length]));
                let bytes = postcard::to_allocvec(&list).unwrap();
                prop_assert_eq!(bytes, postcard::to_allocvec(&model[..length]).unwrap());
            }
        }
    }

    /// One block per snapshot: the longest chain there is.
    #[test]
    fn long_chains_are_dropped_without_recursion() {
        let (mut list, mut shared) = (Elements::new(), Vec::new());
        for number in 0..400_000u32 {
            list.push(number);
            if number % 8 == 0 {
                shared = vec![list.clone()];
            }
        }
        assert!(list.iter().copied().eq(0..400_000));
        drop(shared);
        drop(list);
    }
}
