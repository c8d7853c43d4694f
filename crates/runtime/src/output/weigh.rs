//! What records weigh in a channel's window.
//!
//! Most types own nothing on the heap, so that all their records weigh the same and a run of them
//! is weighed by its length. Whether a type can own anything is known when it is compiled: what
//! owns something has something to do when it is dropped.

use std::mem::needs_drop;

use tidegate_state::Record;

/// What a record weighs in a channel's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weighing {
    /// Its size in memory, with what it owns on the heap.
    Bytes,
    /// One: the window counts records. For splits, which stand for much work each.
    Records,
}

impl Weighing {
    /// The weight of every record of the type, if all weigh the same.
    #[inline]
    pub(super) fn each<T: Record>(self) -> Option<usize> {
        match self {
            Weighing::Bytes => bytes_each::<T>(),
            Weighing::Records => Some(1),
        }
    }

    /// The weight of `record`.
    #[inline]
    pub(super) fn of<T: Record>(self, record: &T) -> usize {
        match self {
            Weighing::Bytes => bytes_of(record),
            Weighing::Records => 1,
        }
    }

    /// The weight of all `records`.
    #[inline]
    pub(super) fn of_all<T: Record>(self, records: &[T]) -> usize {
        match self.each::<T>() {
            Some(each) => each * records.len(),
            None => records.iter().map(|record| self.of(record)).sum(),
        }
    }
}

/// The bytes of every record of the type, if all have the same.
#[inline]
pub(super) const fn bytes_each<T>() -> Option<usize> {
    match (needs_drop::<T>(), size_of::<T>()) {
        (true, _) => None,
        // Even nothing weighs something, or nothing would bound its number.
        (false, 0) => Some(1),
        (false, size) => Some(size),
    }
}

/// The bytes of `record`, at least 1.
#[inline]
pub(super) fn bytes_of<T: Record>(record: &T) -> usize {
    bytes_each::<T>().unwrap_or_else(|| (size_of::<T>() + record.heap_bytes()).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_owns_nothing_weighs_the_same_each_time() {
        assert_eq!(Weighing::Bytes.each::<u64>(), Some(8));
        assert_eq!(Weighing::Bytes.each::<(u64, Option<char>)>(), Some(16));
        assert_eq!(Weighing::Bytes.each::<()>(), Some(1));
        assert_eq!(Weighing::Bytes.each::<String>(), None);
        assert_eq!(Weighing::Bytes.each::<(u64, Option<Vec<u8>>)>(), None);
        assert_eq!(Weighing::Records.each::<String>(), Some(1));
        assert_eq!(Weighing::Bytes.of_all(&[(); 7]), 7);
        assert_eq!(Weighing::Bytes.of_all(&[1u32; 7]), 28);
    }

    #[test]
    fn what_owns_something_is_weighed_one_by_one() {
        let words = ["a", "", "long enough"].map(str::to_owned);
        let weights = words.each_ref().map(|word| Weighing::Bytes.of(word));
        assert_eq!(weights, [25, 24, 35]);
        assert_eq!(Weighing::Bytes.of_all(&words), 84);
        assert_eq!(Weighing::Records.of_all(&words), 3);
    }
}
