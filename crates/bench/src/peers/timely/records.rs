//! Records: plain memory, dealt out by hash, counted.

use std::hint::black_box;

use tidegate_types::hash_bytes;

use super::flow::{Consume, Tally};
use super::parcel::Batch;
use super::table::Counts;
use crate::packed::{PackedKey, PackedWord};

/// Records that a source adds in one step, at most.
pub(super) const STEP: usize = 4096;

/// What is counted.
pub(super) trait Key: Copy + Default + Eq + Send + 'static {
    /// Records of a batch.
    const BATCH: usize;

    /// A hash of it.
    fn hash(&self) -> u64;
}

/// The hash that it has on Tidegate.
impl Key for u64 {
    /// With 1024, 4096, 16384 and this many 14.7, 12.8, 11.9, 11.6 ns of processor time per record
    /// with 1 k keys; 31.6, 28.4, 26.3, 24.7 with 1 M.
    const BATCH: usize = 65_536;

    #[inline]
    fn hash(&self) -> u64 {
        hash_bytes(&self.to_le_bytes())
    }
}

impl Key for PackedKey {
    /// With four times as many 32.9 instead of 31.4 ns (100 k keys).
    const BATCH: usize = 4_096;

    #[inline]
    fn hash(&self) -> u64 {
        PackedKey::hash(self)
    }
}

impl Key for PackedWord {
    /// A quarter or four times as many are as fast.
    const BATCH: usize = 16_384;

    #[inline]
    fn hash(&self) -> u64 {
        PackedWord::hash(self)
    }
}

/// Records, in memory that is written once and then overwritten.
pub(super) struct Records<K> {
    keys: Box<[K]>,
    len: usize,
}

impl<K: Key> Records<K> {
    pub(super) fn as_slice(&self) -> &[K] {
        &self.keys[..self.len]
    }

    /// Adds what these make, no more than a step.
    #[inline]
    pub(super) fn extend(&mut self, keys: impl ExactSizeIterator<Item = K>) {
        let count = keys.len();
        for (slot, key) in self.keys[self.len..].iter_mut().zip(keys) {
            *slot = key;
        }
        self.len += count;
    }
}

impl<K: Key> Batch for Records<K> {
    const RECORDS: usize = K::BATCH;

    fn with_capacity(records: usize) -> Self {
        Records {
            keys: vec![K::default(); records + STEP].into(),
            len: 0,
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

/// The worker that a hash belongs to, by its upper half.
#[inline]
fn owner(hash: u64, peers: usize) -> usize {
    (((hash >> 32) * peers as u64) >> 32) as usize
}

/// Appends each key, of a step, to the batch of its owner.
pub(super) fn deal<K: Key>(keys: &[K], open: &mut [Records<K>]) {
    match open {
        [only] => only.extend(keys.iter().copied()),
        // Writes each key to both and counts it for one: no branch that would be guessed wrong half
        // the time.
        [first, second] => {
            let (to, other) = (&mut *first.keys, &mut *second.keys);
            let (mut at, mut other_at) = (first.len, second.len);
            for &key in keys {
                let is_other = owner(key.hash(), 2);
                to[at] = key;
                other[other_at] = key;
                at += 1 - is_other;
                other_at += is_other;
            }
            (first.len, second.len) = (at, other_at);
        }
        many => {
            let peers = many.len();
            for &key in keys {
                let batch = &mut many[owner(key.hash(), peers)];
                batch.keys[batch.len] = key;
                batch.len += 1;
            }
        }
    }
}

/// Looks at the records and drops them.
#[derive(Default)]
pub(super) struct Dropped(u64);

impl<K: Key> Consume<Records<K>> for Dropped {
    fn consume(&mut self, batch: &Records<K>) {
        black_box(batch.as_slice());
        self.0 += batch.len as u64;
    }

    fn tally(&self) -> Tally {
        Tally {
            distinct_keys: 0,
            sum_of_counts: self.0,
        }
    }
}

/// Counts keys; for each record, the key and its count so far.
pub(super) struct Counted<K> {
    counts: Counts<K>,
    out: Vec<(K, u64)>,
}

impl<K: Key> Counted<K> {
    /// With room for so many keys.
    pub(super) fn new(keys: u64) -> Self {
        Counted {
            counts: Counts::with_room_for(keys as usize),
            out: Vec::new(),
        }
    }
}

impl<K: Key> Consume<Records<K>> for Counted<K> {
    fn consume(&mut self, batch: &Records<K>) {
        self.counts.add(batch.as_slice(), &mut self.out);
        black_box(self.out.as_slice());
        self.out.clear();
    }

    fn tally(&self) -> Tally {
        self.counts.tally()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_dealt_to_owners<K: Key + Ord>(keys: &[K]) {
        for peers in 1..5 {
            let mut open: Vec<_> = (0..peers).map(|_| Records::with_capacity(0)).collect();
            deal(keys, &mut open);
            let mut dealt: Vec<K> = Vec::new();
            for (index, batch) in open.iter().enumerate() {
                let own = batch.as_slice();
                assert!(own.iter().all(|key| owner(key.hash(), peers) == index));
                dealt.extend(own);
            }
            dealt.sort_unstable();
            assert!(dealt == keys, "{peers} peers");
        }
    }

    #[test]
    fn every_key_goes_to_its_owner_once() {
        let numbers: Vec<u64> = (0..STEP as u64).collect();
        assert_dealt_to_owners(&numbers);
        let word = |number: &u64| PackedWord::new(&number.to_string());
        let mut words: Vec<PackedWord> = numbers.iter().map(word).collect();
        words.sort_unstable();
        assert_dealt_to_owners(&words);
    }
}
