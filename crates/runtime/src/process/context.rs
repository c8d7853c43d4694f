//! What a keyed function knows while it works on a record or a timer: the key, the time, and the
//! timers of the key.

use tidegate_state::{At, Scope, StateError, StateKey, TimerService as Timers};
use tidegate_types::{EventTime, UnixMillis};

use crate::clock::Clock;

/// Which of the two times a timer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeDomain {
    /// The time in the records, as far as watermarks say it has come.
    EventTime,
    /// The time on the machine's clock.
    ProcessingTime,
}

/// A timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timer {
    /// What it went by.
    pub domain: TimeDomain,
    /// The time it was registered for, in milliseconds: since the Unix epoch for processing time,
    /// of whatever the job's records count from for event time.
    pub time: i64,
}

/// The two times as a function sees them.
#[derive(Clone, Copy)]
pub struct Times<'a> {
    pub(super) watermark: EventTime,
    pub(super) clock: &'a Clock,
}

/// The key that a function works for, and what belongs to it.
///
/// Passed to a state handle, it says whose state is meant: `self.total.get(ctx)?`.
pub struct KeyedContext<'a, K: StateKey> {
    pub(super) key: &'a K,
    pub(super) key_hash: u64,
    pub(super) times: Times<'a>,
    pub(super) timers: &'a Timers<K>,
}

impl<K: StateKey> Scope<K> for KeyedContext<'_, K> {
    type Key = K;

    #[inline]
    fn key(&self) -> &K {
        self.key
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        self.key_hash
    }

    #[inline]
    fn namespace(&self) -> &() {
        &()
    }
}

impl<K: StateKey> KeyedContext<'_, K> {
    /// The key of the record or timer.
    #[inline]
    pub fn key(&self) -> &K {
        self.key
    }

    /// The same key in a namespace, for states that have one: windows, say.
    #[inline]
    pub fn within<'n, N: StateKey>(&'n self, namespace: &'n N) -> At<'n, K, N> {
        At::hashed(self.key_hash, self.key).within(namespace)
    }

    /// How far event time has come: no record with this time or an earlier one is expected any
    /// more. [`EventTime::MIN`] until the first watermark of an attempt.
    pub fn current_watermark(&self) -> EventTime {
        self.times.watermark
    }

    /// Time on the machine's clock.
    pub fn current_processing_time(&self) -> UnixMillis {
        self.times.clock.wall()
    }

    /// Registers and deletes timers of the key.
    #[inline]
    pub fn timer_service(&self) -> TimerService<'_, K> {
        TimerService {
            at: At::hashed(self.key_hash, self.key),
            timers: self.timers,
        }
    }
}

/// The timers of one key. There is at most one of each kind per time: registering it again changes
/// nothing.
///
/// Timers are state: they are in checkpoints, move with their key, and fire exactly once, also
/// when the job was down at their time.
pub struct TimerService<'a, K: StateKey> {
    at: At<'a, K>,
    timers: &'a Timers<K>,
}

impl<K: StateKey> TimerService<'_, K> {
    /// Calls `on_timer` once the watermark has reached `time`; at the next watermark if it has
    /// already.
    ///
    /// # Errors
    /// If the state backend fails.
    pub fn register_event_time_timer(&self, time: EventTime) -> Result<(), StateError> {
        self.timers.event_time.register(&self.at, time.0)?;
        Ok(())
    }

    /// Calls `on_timer` once the clock has gone past `time`: when that millisecond is over, so
    /// that whatever happens within it comes before the timer.
    ///
    /// # Errors
    /// If the state backend fails.
    pub fn register_processing_time_timer(&self, time: UnixMillis) -> Result<(), StateError> {
        self.timers
            .processing_time
            .register(&self.at, clamped(time))?;
        Ok(())
    }

    /// Takes an event-time timer back. No-op if there is none at this time.
    ///
    /// # Errors
    /// If the state backend fails.
    pub fn delete_event_time_timer(&self, time: EventTime) -> Result<(), StateError> {
        self.timers.event_time.delete(&self.at, time.0)?;
        Ok(())
    }

    /// Takes a processing-time timer back. No-op if there is none at this time.
    ///
    /// # Errors
    /// If the state backend fails.
    pub fn delete_processing_time_timer(&self, time: UnixMillis) -> Result<(), StateError> {
        self.timers
            .processing_time
            .delete(&self.at, clamped(time))?;
        Ok(())
    }
}

/// A time that far ahead never comes.
pub(super) fn clamped(time: UnixMillis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
