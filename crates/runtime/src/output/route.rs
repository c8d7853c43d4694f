//! How the records of a staged run find their receiving subtask.

use std::any::{Any, TypeId};
use std::borrow::Borrow;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::needs_drop;

use tidegate_state::{Record, StateKey};
use tidegate_types::{KeyGroup, MaxParallelism};

use super::targets::Targets;

/// Distributes records over the receiving subtasks of one edge.
pub trait Route<T>: 'static {
    /// Moves every record of `staged`, of which there is at least one, to its target or targets.
    fn route(&mut self, staged: &mut Vec<T>, targets: &mut Targets<T>);

    /// Whether the next record may have nowhere to go.
    fn is_full(&self, targets: &Targets<T>) -> bool;
}

fn any_full<T: Record>(targets: &Targets<T>) -> bool {
    (0..targets.count()).any(|position| targets.is_full(position))
}

/// To the subtask with the sender's own index.
#[derive(Debug, Default)]
pub struct Forward;

impl<T: Record> Route<T> for Forward {
    fn route(&mut self, staged: &mut Vec<T>, targets: &mut Targets<T>) {
        targets.append(0, staged);
    }

    fn is_full(&self, targets: &Targets<T>) -> bool {
        targets.is_full(0)
    }
}

/// Batch by batch to the subtasks in turn, skipping those that can't keep up.
#[derive(Debug, Default)]
pub struct Rebalance {
    current: usize,
    /// A batch for the current target has been begun.
    begun: bool,
}

impl Rebalance {
    /// Starts with the subtask at this position (modulo their count), so that several senders
    /// don't all start with the first.
    pub fn starting_at(position: usize) -> Self {
        Rebalance {
            current: position,
            begun: false,
        }
    }

    fn advance<T: Record>(&mut self, targets: &Targets<T>) {
        let count = targets.count();
        let next = (1..=count)
            .map(|step| (self.current + step) % count)
            .find(|position| !targets.is_full(*position));
        // With all full, one batch grows until credit comes; `is_full` stops the operator.
        self.current = next.unwrap_or(self.current);
    }
}

impl<T: Record> Route<T> for Rebalance {
    fn route(&mut self, staged: &mut Vec<T>, targets: &mut Targets<T>) {
        self.current %= targets.count();
        // Full, or flushed, or in front of a marker.
        let has_left = self.begun && targets.is_empty(self.current);
        if has_left || targets.is_full(self.current) {
            self.advance(targets);
        }
        self.begun = true;
        targets.append(self.current, staged);
    }

    fn is_full(&self, targets: &Targets<T>) -> bool {
        (0..targets.count()).all(|position| targets.is_full(position))
    }
}

/// Every record to every subtask.
#[derive(Debug, Default)]
pub struct Broadcast;

impl<T: Record> Route<T> for Broadcast {
    fn route(&mut self, staged: &mut Vec<T>, targets: &mut Targets<T>) {
        for position in 1..targets.count() {
            targets.append_clones(position, staged);
        }
        targets.append(0, staged);
    }

    fn is_full(&self, targets: &Targets<T>) -> bool {
        any_full(targets)
    }
}

/// Finds the key of a record.
pub trait KeySelector<T>: Clone + Send + Sync + 'static {
    /// What records are grouped by.
    type Key: StateKey;

    /// Whether keys are part of the record, and cost nothing to find.
    const REFERS: bool;

    /// The record's key, or a reference to it.
    fn key<'a>(&'a self, record: &'a T) -> impl Borrow<Self::Key>;

    /// Calls `use_key` with the record's key.
    fn with_key<R>(&self, record: &T, use_key: impl FnOnce(&Self::Key) -> R) -> R;

    /// Hashes of the keys of many records, as many as there are places for them.
    #[inline]
    fn key_hashes(&self, records: &[T], hashes: &mut [u64]) {
        for (hash, record) in hashes.iter_mut().zip(records) {
            *hash = self.with_key(record, Self::Key::key_hash);
        }
    }

    /// The key of a record that isn't needed any more: a copy, unless it can be had by value.
    #[inline]
    fn take_key(&self, record: T) -> Self::Key
    where
        T: 'static,
    {
        self.with_key(&record, Self::Key::clone)
    }
}

/// Selects a key that is part of the record; nothing is copied.
#[derive(Clone, Debug)]
pub struct ByReference<F, K> {
    select: F,
    key: PhantomData<fn() -> K>,
}

impl<F, K> ByReference<F, K> {
    /// `select` must depend on the record alone.
    pub fn new(select: F) -> Self {
        ByReference {
            select,
            key: PhantomData,
        }
    }
}

impl<T, K, F> KeySelector<T> for ByReference<F, K>
where
    K: StateKey,
    F: for<'a> Fn(&'a T) -> &'a K + Clone + Send + Sync + 'static,
{
    type Key = K;

    const REFERS: bool = true;

    #[inline(always)]
    fn key<'a>(&'a self, record: &'a T) -> impl Borrow<K> {
        (self.select)(record)
    }

    #[inline]
    fn with_key<R>(&self, record: &T, use_key: impl FnOnce(&K) -> R) -> R {
        use_key((self.select)(record))
    }

    #[inline]
    fn key_hashes(&self, records: &[T], hashes: &mut [u64]) {
        K::key_hashes(records, &self.select, hashes);
    }

    /// Where the key is the whole record, it is the record.
    #[inline(always)]
    fn take_key(&self, record: T) -> K
    where
        T: 'static,
    {
        let key = (self.select)(&record);
        if is_same(key, &record) {
            // The cell keeps the `Option` out of the record's own bytes, so that the record is
            // moved in one piece.
            let mut record = Some(Cell::new(record));
            let record: &mut dyn Any = &mut record;
            let key = record.downcast_mut().and_then(Option::<Cell<K>>::take);
            return key
                .expect("what is the same has the same type")
                .into_inner();
        }
        key.clone()
    }
}

/// Whether `a` and `b` are the same value: of the same type, at the same address, and not of no
/// size. No value contains another one of its type in its own place.
#[inline]
fn is_same<A: 'static, B: 'static>(a: &A, b: &B) -> bool {
    TypeId::of::<A>() == TypeId::of::<B>() && size_of::<A>() > 0 && std::ptr::addr_eq(a, b)
}

/// Computes a key from the record.
#[derive(Clone, Debug)]
pub struct ByValue<F, K> {
    select: F,
    key: PhantomData<fn() -> K>,
}

impl<F, K> ByValue<F, K> {
    /// `select` must depend on the record alone.
    pub fn new(select: F) -> Self {
        ByValue {
            select,
            key: PhantomData,
        }
    }
}

impl<T, K, F> KeySelector<T> for ByValue<F, K>
where
    K: StateKey,
    F: Fn(&T) -> K + Clone + Send + Sync + 'static,
{
    type Key = K;

    const REFERS: bool = false;

    #[inline(always)]
    fn key<'a>(&'a self, record: &'a T) -> impl Borrow<K> {
        (self.select)(record)
    }

    #[inline]
    fn with_key<R>(&self, record: &T, use_key: impl FnOnce(&K) -> R) -> R {
        use_key(&(self.select)(record))
    }

    #[inline]
    fn take_key(&self, record: T) -> K
    where
        T: 'static,
    {
        (self.select)(&record)
    }
}

/// To the subtask that owns the key group of the record's key.
///
/// Where keys own memory, their hashes go with the records, for the receiver to use: its keys are
/// those of the same selector.
#[derive(Debug)]
pub struct ByKeyGroup<S> {
    selector: S,
    max_parallelism: MaxParallelism,
    /// Receiving subtask by key group.
    owners: Vec<u16>,
    /// Of the staged run.
    hashes: Vec<u64>,
}

impl<S> ByKeyGroup<S> {
    /// Key groups are those of the receiving operator, which has `parallelism` subtasks.
    pub fn new(selector: S, max_parallelism: MaxParallelism, parallelism: u32) -> Self {
        let owners = (0..max_parallelism.get())
            .map(|group| max_parallelism.owner(KeyGroup(group as u16), parallelism) as u16)
            .collect();
        ByKeyGroup {
            selector,
            max_parallelism,
            owners,
            hashes: Vec::new(),
        }
    }
}

impl<T: Record, S: KeySelector<T>> Route<T> for ByKeyGroup<S> {
    fn route(&mut self, staged: &mut Vec<T>, targets: &mut Targets<T>) {
        if targets.count() == 1 {
            return Forward.route(staged, targets);
        }
        let (max_parallelism, owners) = (self.max_parallelism, &self.owners);
        let position_of =
            |hash| usize::from(owners[usize::from(max_parallelism.key_group(hash).0)]);
        // What owns nothing is small, mostly, and hashed sooner than its hash could be read.
        if needs_drop::<S::Key>() {
            self.hashes.resize(staged.len(), 0);
            self.selector.key_hashes(staged, &mut self.hashes);
            targets.scatter_hashed(staged, &self.hashes, position_of);
        } else {
            let hash_of = |record: &T| self.selector.with_key(record, S::Key::key_hash);
            targets.scatter(staged, |record| position_of(hash_of(record)));
        }
    }

    fn is_full(&self, targets: &Targets<T>) -> bool {
        any_full(targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_reference<T, K>(select: fn(&T) -> &K) -> ByReference<fn(&T) -> &K, K> {
        ByReference::new(select)
    }

    fn address(text: &str) -> *const u8 {
        text.as_ptr()
    }

    #[test]
    fn a_key_that_is_the_record_is_moved_and_others_are_copied() {
        let record = "a key of its own".to_owned();
        let at = address(&record);
        let moved = by_reference(|record: &String| record).take_key(record);
        assert_eq!((address(&moved), &*moved), (at, "a key of its own"));

        let record = ("a key beside".to_owned(), 7);
        let at = address(&record.0);
        let copied = by_reference(|record: &(String, u32)| &record.0).take_key(record);
        assert_eq!(copied, "a key beside");
        assert_ne!(
            address(&copied),
            at,
            "the record was dropped after the copy"
        );

        let selector = ByValue::new(|record: &String| record.to_uppercase());
        assert_eq!(selector.take_key("made".to_owned()), "MADE");
    }

    // Of the same type, and yet not the record: it lies beside it.
    #[test]
    fn a_key_of_the_records_type_need_not_be_the_record() {
        static OTHER: u64 = 7;
        assert_eq!(by_reference(|_: &u64| &OTHER).take_key(8_u64), 7);
        let nothing = by_reference(|record: &[u8; 0]| record).take_key([]);
        assert_eq!(nothing, []);
    }
}
