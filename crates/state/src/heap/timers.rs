//! Timers: instants at which an operator wants to come back to a key.
//!
//! Timers are keyed state. A table of (key, namespace, time) says which are set, so there is no
//! timer twice, and snapshots and rescaling are those of any other state. Beside it, a heap orders
//! them by time. The table has the last word: a timer that is deleted stays in the heap until it
//! comes up, and is then passed over. What a restore brings is in the table alone; the heap is made
//! from it when it is next used.
//!
//! Invariants: every timer of the table is in the heap, once the heap is made; the heap is at most
//! [`SLACK`] entries longer than twice the table.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::content::Single;
use super::entry_key::{EntryKey, Lookup};
use super::shards::Shards;
use crate::descriptor::{StateDescriptor, TimersDescriptor};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::key::StateKey;
use crate::scope::{At, Scope};

/// Deleted timers that the heap may hold, however few are set.
const SLACK: usize = 64;

/// A timer as the heap orders it.
#[derive(Clone)]
struct Queued<K, N> {
    time: i64,
    hash: u64,
    key: K,
    namespace: N,
}

impl<K: StateKey, N: StateKey> Queued<K, N> {
    /// By time; at one time in an order that a restore doesn't change.
    fn order(&self, other: &Self) -> Ordering {
        let earlier = (self.time, self.hash).cmp(&(other.time, other.hash));
        earlier.then_with(|| self.namespace.key_hash().cmp(&other.namespace.key_hash()))
    }
}

impl<K: StateKey, N: StateKey> Ord for Queued<K, N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order(other)
    }
}

impl<K: StateKey, N: StateKey> PartialOrd for Queued<K, N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: StateKey, N: StateKey> PartialEq for Queued<K, N> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: StateKey, N: StateKey> Eq for Queued<K, N> {}

/// Timers that are set, by key, namespace and time.
type TimerShards<K, N> = Shards<K, Single<()>, (N, i64)>;

/// The timers of one kind.
struct TimerTable<K, N> {
    shards: TimerShards<K, N>,
    /// `None` until it is needed, and again after a restore.
    queue: Option<BinaryHeap<Reverse<Queued<K, N>>>>,
}

impl<K: 'static, N: 'static> Table<K, Single<()>, (N, i64)> for TimerTable<K, N> {
    fn shards(&self) -> &TimerShards<K, N> {
        &self.shards
    }

    fn shards_mut(&mut self) -> &mut TimerShards<K, N> {
        &mut self.shards
    }

    fn restored(&mut self) {
        self.queue = None;
    }
}

impl<K: StateKey, N: StateKey> TimerTable<K, N> {
    fn is_set(&self, timer: &Queued<K, N>) -> bool {
        let namespace = (timer.namespace.clone(), timer.time);
        let at = At::hashed(timer.hash, &timer.key).within(&namespace);
        self.shards.get(Lookup::scope::<K, _>(&at)).is_some()
    }

    /// The heap, without timers at its top that are not set any more.
    fn queue(&mut self) -> &mut BinaryHeap<Reverse<Queued<K, N>>> {
        let mut queue = self.queue.take().unwrap_or_else(|| self.make_queue());
        while queue.peek().is_some_and(|next| !self.is_set(&next.0)) {
            queue.pop();
        }
        self.queue.insert(queue)
    }

    fn make_queue(&self) -> BinaryHeap<Reverse<Queued<K, N>>> {
        let timers = self.shards.iter().map(|(at, _)| {
            let EntryKey { key, namespace } = at;
            Reverse(Queued {
                time: namespace.1,
                hash: key.key_hash(),
                key: key.clone(),
                namespace: namespace.0.clone(),
            })
        });
        timers.collect::<Vec<_>>().into()
    }

    fn register(&mut self, scope: &impl Scope<K, N>, time: i64) -> bool {
        let namespace = (scope.namespace().clone(), time);
        let at = At::hashed(scope.key_hash(), scope.key()).within(&namespace);
        let before = self.shards.len;
        let at = Lookup::scope::<K, _>(&at);
        self.shards.entry_or_insert_with(at, || Single(()));
        if self.shards.len == before {
            return false;
        }
        if let Some(queue) = &mut self.queue {
            let EntryKey { key, namespace } = at.to_entry_key();
            queue.push(Reverse(Queued {
                time,
                hash: at.hash,
                key,
                namespace: namespace.0,
            }));
        }
        self.bound_queue();
        true
    }

    fn delete(&mut self, scope: &impl Scope<K, N>, time: i64) -> bool {
        let namespace = (scope.namespace().clone(), time);
        let at = At::hashed(scope.key_hash(), scope.key()).within(&namespace);
        let removed = self.shards.remove(Lookup::scope::<K, _>(&at)).is_some();
        self.bound_queue();
        removed
    }

    /// Makes the heap anew once most of it is deleted timers. What that costs was saved before: an
    /// entry that is dropped here was registered and deleted since the last time.
    fn bound_queue(&mut self) {
        let length = self.queue.as_ref().map_or(0, BinaryHeap::len);
        if length > 2 * self.shards.len + SLACK {
            self.queue = Some(self.make_queue());
        }
    }

    fn next_due(&mut self, limit: i64) -> Option<(K, N, i64)> {
        let queue = self.queue();
        if queue.peek()?.0.time > limit {
            return None;
        }
        let Queued {
            time,
            hash,
            key,
            namespace,
        } = queue.pop()?.0;
        let within = (namespace, time);
        let at = At::hashed(hash, &key).within(&within);
        let removed = self.shards.remove(Lookup::scope::<K, _>(&at));
        assert!(removed.is_some(), "the next timer is set");
        Some((key, within.0, time))
    }
}

/// Handle of the timers of one kind, event or processing time. Clones refer to the same timers.
///
/// Times are milliseconds: event time, or since the Unix epoch. A key has at most one timer per
/// namespace and time. See [`ValueState`](super::ValueState) for when accessors panic.
///
/// ```
/// use tidegate_state::{At, HeapKeyedBackend, TimersDescriptor};
/// use tidegate_types::MaxParallelism;
///
/// let max = MaxParallelism::derive(1);
/// let mut backend = HeapKeyedBackend::<String>::new(max, max.range(0, 1)?);
/// let timers = backend.bind(&TimersDescriptor::event_time("timers"))?;
/// timers.register(&At::key("tea"), 2000)?;
/// timers.register(&At::key("coffee"), 1000)?;
/// timers.register(&At::key("coffee"), 1000)?;
/// assert_eq!(timers.earliest(), Some(1000));
/// let due = timers.next_due(1500)?;
/// assert_eq!(due, Some(("coffee".to_owned(), (), 1000)));
/// assert_eq!(timers.next_due(1500)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Timers<K, N = ()> {
    table: Rc<RefCell<TimerTable<K, N>>>,
}

impl<K, N> Clone for Timers<K, N> {
    fn clone(&self) -> Self {
        Timers {
            table: Rc::clone(&self.table),
        }
    }
}

impl<K: StateKey, N: StateKey> Timers<K, N> {
    /// Sets a timer; `false` if it is set already.
    ///
    /// # Errors
    /// If the backend fails to write.
    pub fn register(&self, scope: &impl Scope<K, N>, time: i64) -> Result<bool, StateError> {
        Ok(self.table.borrow_mut().register(scope, time))
    }

    /// Deletes a timer; `false` if it is not set.
    ///
    /// # Errors
    /// If the backend fails to write.
    pub fn delete(&self, scope: &impl Scope<K, N>, time: i64) -> Result<bool, StateError> {
        Ok(self.table.borrow_mut().delete(scope, time))
    }

    /// Takes the earliest timer that is due at or before `limit`: it is not set any more. Timers of
    /// one time come in the same order whatever was restored in between. One by one, so that the
    /// caller can stop when its output is full; a timer that is registered meanwhile takes its
    /// place among the others.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn next_due(&self, limit: i64) -> Result<Option<(K, N, i64)>, StateError> {
        Ok(self.table.borrow_mut().next_due(limit))
    }

    /// The time of the earliest timer.
    pub fn earliest(&self) -> Option<i64> {
        let mut table = self.table.borrow_mut();
        let next = table.queue().peek()?;
        Some(next.0.time)
    }

    /// Number of timers that are set. Exact.
    pub fn len(&self) -> usize {
        self.table.borrow().shards.len
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl StateDescriptor for TimersDescriptor {
    type Handle<K: StateKey, N: StateKey> = Timers<K, N>;

    fn meta(&self) -> StateMeta {
        StateMeta::new::<()>(&self.name, self.kind, 1)
    }

    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<Timers<K, N>, StateError> {
        let table = backend.bind_table(self.meta(), |shards| TimerTable {
            shards,
            queue: None,
        })?;
        Ok(Timers { table })
    }
}

/// The event-time and processing-time timers of an operator.
pub struct TimerService<K, N = ()> {
    /// Timers in event time, due when the watermark reaches them.
    pub event_time: Timers<K, N>,
    /// Timers in processing time, due when the clock has passed them.
    pub processing_time: Timers<K, N>,
}

impl<K, N> Clone for TimerService<K, N> {
    fn clone(&self) -> Self {
        TimerService {
            event_time: self.event_time.clone(),
            processing_time: self.processing_time.clone(),
        }
    }
}

impl<K: StateKey, N: StateKey> TimerService<K, N> {
    /// Binds the timers called `name`, as two states: `name` followed by the kind of time.
    ///
    /// # Errors
    /// As [`HeapKeyedBackend::bind`].
    pub fn bind(backend: &mut HeapKeyedBackend<K>, name: &str) -> Result<Self, StateError> {
        let event_time = TimersDescriptor::event_time(format!("{name}/event-time"));
        let processing_time = TimersDescriptor::processing_time(format!("{name}/processing-time"));
        Ok(TimerService {
            event_time: backend.bind_within(&event_time)?,
            processing_time: backend.bind_within(&processing_time)?,
        })
    }

    /// Takes the earliest event-time timer at or before `watermark`.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn next_event_timer(&self, watermark: i64) -> Result<Option<(K, N, i64)>, StateError> {
        self.event_time.next_due(watermark)
    }

    /// Takes the earliest processing-time timer that the clock, at `now`, has passed. A timer is
    /// due when its millisecond is over: until then more records may come that belong to it.
    ///
    /// # Errors
    /// If the backend fails to read or write.
    pub fn next_processing_timer(&self, now: i64) -> Result<Option<(K, N, i64)>, StateError> {
        match now.checked_sub(1) {
            Some(passed) => self.processing_time.next_due(passed),
            None => Ok(None),
        }
    }

    /// When the earliest processing-time timer is due.
    pub fn next_processing_wakeup(&self) -> Option<i64> {
        let earliest = self.processing_time.earliest()?;
        Some(earliest.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::MaxParallelism;

    use super::*;

    fn timers() -> Timers<u64, u32> {
        let max = MaxParallelism::derive(1);
        let mut backend = HeapKeyedBackend::new(max, max.range(0, 1).unwrap());
        backend
            .bind_within(&TimersDescriptor::event_time("timers"))
            .unwrap()
    }

    fn queued(timers: &Timers<u64, u32>) -> usize {
        let table = timers.table.borrow();
        table.queue.as_ref().map_or(0, BinaryHeap::len)
    }

    /// A session window: each record moves the timer of its key.
    #[test]
    fn churn_leaves_the_heap_bounded() {
        let timers = timers();
        assert_eq!(timers.earliest(), None);
        for round in 0..1000i64 {
            for key in 0..10 {
                let at = At::key(&key).within(&7);
                timers.register(&at, round + 100).unwrap();
                timers.delete(&at, round + 99).unwrap();
                assert!(queued(&timers) <= 2 * timers.len() + SLACK);
            }
        }
        assert_eq!((timers.len(), timers.earliest()), (10, Some(1099)));
    }

    /// One timer set, deleted and set again is in the heap twice, and fires once.
    #[test]
    fn a_timer_set_again_fires_once() {
        let timers = timers();
        assert_eq!(timers.earliest(), None);
        let at = At::key(&1).within(&2);
        for _ in 0..5 {
            assert!(timers.register(&at, 5).unwrap());
            assert!(!timers.register(&at, 5).unwrap());
            assert!(timers.delete(&at, 5).unwrap());
            assert!(!timers.delete(&at, 5).unwrap());
        }
        timers.register(&at, 5).unwrap();
        assert_eq!(queued(&timers), 6);
        assert_eq!(timers.next_due(9).unwrap(), Some((1, 2, 5)));
        assert_eq!(timers.next_due(9).unwrap(), None);
        assert_eq!(queued(&timers), 0);
    }
}
