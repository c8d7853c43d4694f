//! Records on their way into an operator, and the memory they came in.
//!
//! A batch is taken record by record, and an operator may look ahead at what is left: whoever knows
//! the next keys can have their state fetched while it still works on the first. What is left over
//! in the end is an empty buffer, which the next batch can be put together in.
//!
//! Where keys own memory, as texts do, the hash by which a record was routed comes with it: it
//! takes longer to compute than to bring along. Invariant: there is one for each record, or none at
//! all.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::IntoIter;

use serde::{Deserialize, Serialize};

/// What a batch is put together in.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BatchBuffer<T> {
    pub(crate) records: Vec<T>,
    /// Hashes of their keys, if those were found out on the way. They stay within the process.
    #[serde(skip)]
    pub(crate) key_hashes: Vec<u64>,
}

impl<T> From<Vec<T>> for BatchBuffer<T> {
    fn from(records: Vec<T>) -> Self {
        BatchBuffer {
            records,
            key_hashes: Vec::new(),
        }
    }
}

impl<T> Default for BatchBuffer<T> {
    fn default() -> Self {
        BatchBuffer::from(Vec::new())
    }
}

/// The buffer that records came in, without those that have not been taken.
#[inline]
pub(crate) fn emptied<T>(records: IntoIter<T>) -> Vec<T> {
    // The standard library collects in place here: a test says whether it still does, and else each
    // batch would merely ask for memory.
    records.take(0).collect()
}

/// Records in the order in which they were sent.
#[derive(Debug)]
pub struct Batch<T> {
    records: IntoIter<T>,
    key_hashes: Vec<u64>,
}

impl<T> Batch<T> {
    /// The records that have not been taken yet, in order.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        self.records.as_slice()
    }

    /// Hashes of the keys of what has not been taken yet, in the same order, if they are known.
    #[inline]
    pub(crate) fn key_hashes(&self) -> Option<&[u64]> {
        let taken = self.key_hashes.len().checked_sub(self.records.len())?;
        (!self.key_hashes.is_empty()).then(|| &self.key_hashes[taken..])
    }

    /// Gives up what has not been taken, and returns the empty buffer.
    pub(crate) fn into_buffer(mut self) -> BatchBuffer<T> {
        self.key_hashes.clear();
        BatchBuffer {
            records: emptied(self.records),
            key_hashes: self.key_hashes,
        }
    }
}

impl<T> From<Vec<T>> for Batch<T> {
    fn from(records: Vec<T>) -> Self {
        BatchBuffer::from(records).into()
    }
}

impl<T> From<BatchBuffer<T>> for Batch<T> {
    fn from(buffer: BatchBuffer<T>) -> Self {
        let BatchBuffer {
            records,
            key_hashes,
        } = buffer;
        debug_assert!(
            key_hashes.is_empty() || key_hashes.len() == records.len(),
            "one for each record, or none"
        );
        Batch {
            records: records.into_iter(),
            key_hashes,
        }
    }
}

impl<T> Iterator for Batch<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.records.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl<T> ExactSizeIterator for Batch<T> {}

/// Buffers kept per edge and worker: as many as are on their way at a time, mostly.
const SPARE_MAX: usize = 8;

/// Larger buffers are given back: batches are smaller, unless an operator makes much of one record.
const SPARE_BYTES_MAX: usize = 256 << 10;

/// Emptied buffers of an edge's batches, from where the edge ends on a worker to where it begins on
/// the same worker. Data flows both ways alike, so what other workers' batches came in is used for
/// the batches that go to them, and memory need not be asked for, nor given back, per batch.
pub(crate) struct SpareBuffers<T>(Option<Stock<T>>);

type Stock<T> = Rc<RefCell<Vec<BatchBuffer<T>>>>;

impl<T> SpareBuffers<T> {
    /// An empty buffer, from the stock if there is one.
    pub(crate) fn take(&self, capacity: usize) -> BatchBuffer<T> {
        let spare = self.0.as_ref().and_then(|stock| stock.borrow_mut().pop());
        spare.unwrap_or_else(|| Vec::with_capacity(capacity).into())
    }

    /// Takes back a buffer that nothing is in any more.
    pub(crate) fn put(&self, buffer: BatchBuffer<T>) {
        let BatchBuffer {
            records,
            key_hashes,
        } = &buffer;
        debug_assert!(
            records.is_empty() && key_hashes.is_empty(),
            "only memory is kept"
        );
        let Some(stock) = &self.0 else { return };
        let mut stock = stock.borrow_mut();
        let bytes = records.capacity() * size_of::<T>();
        if stock.len() < SPARE_MAX && (1..=SPARE_BYTES_MAX).contains(&bytes) {
            stock.push(buffer);
        }
    }

    /// The same stock where records arrive as `U`; if that is another type, one that keeps nothing.
    pub(crate) fn as_received<U>(&self) -> SpareBuffers<U>
    where
        T: 'static,
        U: 'static,
    {
        let same: Option<&SpareBuffers<U>> = (self as &dyn Any).downcast_ref();
        same.cloned().unwrap_or(SpareBuffers(None))
    }
}

impl<T> Clone for SpareBuffers<T> {
    fn clone(&self) -> Self {
        SpareBuffers(self.0.clone())
    }
}

impl<T> Default for SpareBuffers<T> {
    fn default() -> Self {
        SpareBuffers(Some(Rc::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_seen_and_taken_in_order() {
        let mut batch = Batch::from((0..100).collect::<Vec<u32>>());
        for taken in 0..100 {
            assert_eq!(batch.as_slice(), (taken..100).collect::<Vec<_>>());
            assert_eq!(batch.len(), 100 - taken as usize);
            assert_eq!(batch.next(), Some(taken));
        }
        assert_eq!(batch.next(), None);
    }

    #[test]
    fn its_memory_stays_the_same() {
        let records = Vec::from_iter((0..10).map(|n| n.to_string()));
        let (address, capacity) = (records.as_ptr(), records.capacity());
        let mut batch = Batch::from(records);
        assert_eq!(batch.by_ref().take(7).count(), 7);
        let buffer = batch.into_buffer().records;
        assert!(buffer.is_empty());
        assert_eq!((buffer.as_ptr(), buffer.capacity()), (address, capacity));
    }

    #[test]
    fn hashes_are_those_of_what_is_left() {
        let mut batch = Batch::from(BatchBuffer {
            records: vec!["a", "b", "c"],
            key_hashes: vec![1, 2, 3],
        });
        for hashes in [&[1, 2, 3][..], &[2, 3], &[3], &[]] {
            assert_eq!(batch.key_hashes(), Some(hashes));
            batch.next();
        }
        let buffer = batch.into_buffer();
        assert!(buffer.key_hashes.is_empty() && buffer.key_hashes.capacity() >= 3);
        assert_eq!(Batch::from(vec![1, 2]).key_hashes(), None);
        assert_eq!(Batch::from(Vec::<u8>::new()).key_hashes(), None);
    }

    // Between processes: the other side computes them if it needs them.
    #[test]
    fn hashes_are_not_written() {
        let with = BatchBuffer {
            records: vec![7_u8, 8],
            key_hashes: vec![1, 2],
        };
        let bytes = postcard::to_stdvec(&with).unwrap();
        assert_eq!(bytes, postcard::to_stdvec(&with.records).unwrap());
        let read: BatchBuffer<u8> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((read.records, read.key_hashes), (vec![7, 8], vec![]));
    }

    #[test]
    fn buffers_go_round() {
        let sender = SpareBuffers::<u64>::default();
        let receiver = sender.as_received::<u64>();
        let first = sender.take(10);
        let address = first.records.as_ptr();
        receiver.put(first);
        let again = sender.take(5);
        assert_eq!(again.records.as_ptr(), address);

        let kept = || sender.0.as_ref().map(|stock| stock.borrow().len());
        receiver.put(Vec::with_capacity(SPARE_BYTES_MAX).into());
        let other = sender.as_received::<String>();
        other.put(Vec::with_capacity(1).into());
        assert_eq!(kept(), Some(0));
        (0..100).for_each(|_| receiver.put(Vec::with_capacity(1).into()));
        assert_eq!(kept(), Some(SPARE_MAX));
    }
}
