//! Counts by key, one table per subtask, and what they come to when the job has ended.
//!
//! The closure of an operator is cloned for each subtask and dropped at its end, and that is when a
//! table adds what it has counted to the [`Tally`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use renoir::operator::ExchangeData;
use tidegate_types::hash_bytes;

/// What is counted.
pub(crate) trait Key: ExchangeData + Eq {
    /// A hash of it.
    fn hash(&self) -> u64;

    /// What renoir makes a hash of, by whose remainder it chooses the subtask.
    #[inline]
    fn spread(&self) -> u64 {
        self.hash()
    }
}

/// The hash that it has on Tidegate.
impl Key for u64 {
    #[inline]
    fn hash(&self) -> u64 {
        hash_bytes(&self.to_le_bytes())
    }

    #[inline]
    fn spread(&self) -> u64 {
        *self
    }
}

/// What all subtasks have counted. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    distinct_keys: Arc<AtomicU64>,
    sum_of_counts: Arc<AtomicU64>,
}

impl Tally {
    /// Different keys, once the job has ended.
    pub(crate) fn distinct_keys(&self) -> u64 {
        self.distinct_keys.load(Ordering::Relaxed)
    }

    /// The last count of each key, together, once the job has ended.
    pub(crate) fn sum_of_counts(&self) -> u64 {
        self.sum_of_counts.load(Ordering::Relaxed)
    }

    /// Counts what is dropped.
    pub(crate) fn dropped(&self) -> Dropped {
        Dropped {
            count: 0,
            tally: self.clone(),
        }
    }

    fn add(&self, distinct_keys: u64, sum_of_counts: u64) {
        self.distinct_keys
            .fetch_add(distinct_keys, Ordering::Relaxed);
        self.sum_of_counts
            .fetch_add(sum_of_counts, Ordering::Relaxed);
    }
}

/// Counts by key.
#[derive(Clone, Debug)]
pub(crate) struct Counts<K> {
    table: HashTable<(K, u64)>,
    tally: Tally,
}

impl<K: Key> Counts<K> {
    /// With room for so many keys.
    pub(crate) fn with_room_for(keys: u64, tally: &Tally) -> Self {
        Counts {
            table: HashTable::with_capacity(keys as usize),
            tally: tally.clone(),
        }
    }

    /// Counts a key, and says how often it has been there.
    #[inline]
    pub(crate) fn add(&mut self, key: &K) -> u64 {
        let hash = key.hash();
        if let Some((_, count)) = self.table.find_mut(hash, |(other, _)| other == key) {
            *count += 1;
            return *count;
        }
        let entry = (key.clone(), 1);
        self.table
            .insert_unique(hash, entry, |(other, _)| other.hash());
        1
    }
}

impl<K> Drop for Counts<K> {
    fn drop(&mut self) {
        let sum = self.table.iter().map(|(_, count)| count).sum();
        self.tally.add(self.table.len() as u64, sum);
    }
}

/// Counts records that nothing else is done with.
#[derive(Clone, Debug)]
pub(crate) struct Dropped {
    count: u64,
    tally: Tally,
}

impl Dropped {
    /// One more, whatever it is.
    #[inline]
    pub(crate) fn add<T>(&mut self, _record: T) {
        self.count += 1;
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.tally.add(0, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_with_its_count_and_all_of_them_with_the_tally() {
        let tally = Tally::default();
        let mut counts = Counts::with_room_for(1, &tally);
        let results: Vec<u64> = [3_u64, 4, 3, 3, 5].map(|key| counts.add(&key)).to_vec();
        assert_eq!(results, [1, 1, 2, 3, 1]);
        let mut other = counts.clone();
        other.table.clear();
        other.add(&9);
        assert_eq!(tally.distinct_keys(), 0);
        drop((counts, other));
        assert_eq!((tally.distinct_keys(), tally.sum_of_counts()), (4, 6));
    }
}
