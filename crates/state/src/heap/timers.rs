//! Timers: instants at which an operator wants to come back to a key.
//!
//! Timers are keyed state. A table of (key, namespace, time) says which are set, so there is no
//! timer twice, and snapshots and rescaling are those of any other state. Beside it, a queue orders
//! them by time ([`timer_queue`](super::timer_queue)). What a restore brings goes into the table
//! alone; the queue is made from it when the timers are bound, before the first record.
//!
//! Invariant: the queue, once it is made, has the timers of the table.

use std::cell::RefCell;
use std::rc::Rc;

use super::backend::HeapKeyedBackend;
use super::bound::Table;
use super::content::Single;
use super::entry_key::Lookup;
use super::shards::Shards;
use super::timer_queue::{Place, TimerQueue};
use crate::descriptor::{StateDescriptor, TimersDescriptor};
use crate::error::StateError;
use crate::format::StateMeta;
use crate::key::{BorrowedKey, StateKey};
use crate::scope::{At, Scope};

/// Timers that are set, by key, namespace and time.
type TimerShards<K, N> = Shards<K, Single<()>, (N, i64)>;

/// The timers of one kind.
struct TimerTable<K, N> {
    shards: TimerShards<K, N>,
    /// `None` after a restore, until they are bound or, if they were before, looked at.
    queue: Option<TimerQueue<K, N>>,
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
    /// The queue, which is made if need be.
    #[inline]
    fn queue(&mut self) -> &mut TimerQueue<K, N> {
        let shards = &self.shards;
        self.queue.get_or_insert_with(|| queue_of(shards))
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
            let timer = at.to_entry_key();
            let place = Place::new(time, at.hash, &namespace.0);
            queue.insert(place, (timer.key, timer.namespace.0));
        }
        true
    }

    fn delete(&mut self, scope: &impl Scope<K, N>, time: i64) -> bool {
        let namespace = (scope.namespace().clone(), time);
        let at = At::hashed(scope.key_hash(), scope.key()).within(&namespace);
        if self.shards.remove(Lookup::scope::<K, _>(&at)).is_none() {
            return false;
        }
        if let Some(queue) = &mut self.queue {
            let (key, namespace) = (scope.key(), scope.namespace());
            let place = Place::new(time, scope.key_hash(), namespace);
            queue.remove(place, |timer| key.is_key(&timer.0) && timer.1 == *namespace);
        }
        true
    }

    fn next_due(&mut self, limit: i64) -> Option<(K, N, i64)> {
        let queue = self.queue();
        let time = queue.first()?.time;
        if time > limit {
            return None;
        }
        let (key, namespace) = queue.pop()?;
        let within = (namespace, time);
        let at = At::key(&key).within(&within);
        let removed = self.shards.remove(Lookup::scope::<K, _>(&at));
        assert!(removed.is_some(), "the next timer is set");
        Some((key, within.0, time))
    }
}

fn queue_of<K: StateKey, N: StateKey>(shards: &TimerShards<K, N>) -> TimerQueue<K, N> {
    let timers = shards.iter().map(|(at, _)| {
        let (namespace, time) = &at.namespace;
        let place = Place::new(*time, at.key.key_hash(), namespace);
        (place, (at.key.clone(), namespace.clone()))
    });
    timers.collect()
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
        let first = self.table.borrow_mut().queue().first()?;
        Some(first.time)
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
        // Here, where nobody waits for it, and not at the first record.
        table.borrow_mut().queue();
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
    use std::io::Cursor;

    use tidegate_types::MaxParallelism;

    use super::*;

    type Live = (HeapKeyedBackend<u64>, Timers<u64, u32>);

    fn backend() -> HeapKeyedBackend<u64> {
        let max = MaxParallelism::derive(1);
        HeapKeyedBackend::new(max, max.range(0, 1).unwrap())
    }

    fn bind(backend: &mut HeapKeyedBackend<u64>) -> Timers<u64, u32> {
        let descriptor = TimersDescriptor::event_time("timers");
        backend.bind_within(&descriptor).unwrap()
    }

    fn timers() -> Live {
        let mut backend = backend();
        let timers = bind(&mut backend);
        (backend, timers)
    }

    fn queued(timers: &Timers<u64, u32>) -> Option<usize> {
        timers.table.borrow().queue.as_ref().map(TimerQueue::len)
    }

    fn save(backend: &mut HeapKeyedBackend<u64>) -> Cursor<Vec<u8>> {
        let frozen = backend.freeze();
        backend.finish_snapshots();
        let mut file = Vec::new();
        frozen.write_to(&mut file).unwrap();
        Cursor::new(file)
    }

    /// A session window: each record moves the timer of its key.
    #[test]
    fn churn_leaves_nothing_behind() {
        let (_backend, timers) = timers();
        for round in 0..1000i64 {
            for key in 0..10 {
                let at = At::key(&key).within(&7);
                timers.register(&at, round + 100).unwrap();
                timers.delete(&at, round + 99).unwrap();
                assert_eq!(queued(&timers), Some(timers.len()));
            }
        }
        assert_eq!((timers.len(), timers.earliest()), (10, Some(1099)));
    }

    #[test]
    fn a_timer_set_again_fires_once() {
        let (_backend, timers) = timers();
        let at = At::key(&1).within(&2);
        for _ in 0..5 {
            assert!(timers.register(&at, 5).unwrap());
            assert!(!timers.register(&at, 5).unwrap());
            assert!(timers.delete(&at, 5).unwrap());
            assert!(!timers.delete(&at, 5).unwrap());
        }
        timers.register(&at, 5).unwrap();
        assert_eq!(queued(&timers), Some(1));
        assert_eq!(timers.next_due(9).unwrap(), Some((1, 2, 5)));
        assert_eq!(timers.next_due(9).unwrap(), None);
        assert_eq!(queued(&timers), Some(0));
    }

    /// What takes long after a restore is done when timers are bound, so before records flow.
    #[test]
    fn restored_timers_are_in_order_once_they_are_bound() {
        let (mut live, timers) = timers();
        for key in 0..100 {
            let at = At::key(&key).within(&1);
            timers.register(&at, 100 - key as i64).unwrap();
        }
        let file = save(&mut live);
        let mut restored = backend();
        restored.restore_file("file", &mut file.clone()).unwrap();
        let timers = bind(&mut restored);
        assert_eq!(queued(&timers), Some(100));
        // Bound before: at the latest when they are bound again, or looked at.
        let (mut restored, bound) = self::timers();
        assert_eq!(queued(&bound), Some(0));
        restored.restore_file("file", &mut file.clone()).unwrap();
        assert_eq!(queued(&bound), None);
        assert!(bound.register(&At::key(&7).within(&1), 0).unwrap());
        assert!(bound.delete(&At::key(&99).within(&1), 1).unwrap());
        assert!(!bound.register(&At::key(&98).within(&1), 2).unwrap());
        bind(&mut restored);
        assert_eq!(queued(&bound), Some(100));
        assert_eq!(bound.next_due(1).unwrap(), Some((7, 1, 0)));
        assert_eq!(bound.next_due(9).unwrap(), Some((98, 1, 2)));
    }
}
