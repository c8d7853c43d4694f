//! The runtime's only look at a clock, and the clock that operators are given instead, which a test
//! can set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_types::UnixMillis;

/// Monotonic time since the first look at the clock in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub Duration);

impl Ticks {
    /// Now.
    pub fn now() -> Ticks {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Ticks(ORIGIN.get_or_init(Instant::now).elapsed())
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Ticks) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment plus `duration`.
    pub fn after(self, duration: Duration) -> Ticks {
        Ticks(self.0.saturating_add(duration))
    }
}

/// Wall-clock time; a clock before 1970 counts as 1970.
pub fn wall_clock() -> UnixMillis {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// The clock of an operator: what timers, pauses and watermarks go by. Cheap to read and to clone.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's.
    #[default]
    System,
    /// One that stands still until somebody moves it.
    Manual(ManualClock),
}

impl Clock {
    /// Monotonic time.
    pub fn ticks(&self) -> Ticks {
        match self {
            Clock::System => Ticks::now(),
            Clock::Manual(clock) => Ticks(Duration::from_nanos(
                clock.0.ticks_nanos.load(Ordering::SeqCst),
            )),
        }
    }

    /// Wall-clock time.
    pub fn wall(&self) -> UnixMillis {
        match self {
            Clock::System => wall_clock(),
            Clock::Manual(clock) => {
                UnixMillis(clock.0.wall_nanos.load(Ordering::SeqCst) / NANOS_PER_MILLI)
            }
        }
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The hands of a [`Clock::Manual`]. Clones move the same clock.
///
/// A running job doesn't notice by itself that such a clock has moved: it looks at it whenever
/// something else wakes it, and at the latest when as much real time has gone by as it wanted to
/// wait.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Hands>);

#[derive(Debug, Default)]
struct Hands {
    ticks_nanos: AtomicU64,
    wall_nanos: AtomicU64,
}

impl ManualClock {
    /// A clock at tick zero that shows `wall`.
    pub fn at(wall: UnixMillis) -> ManualClock {
        let clock = ManualClock::default();
        clock.set_wall(wall);
        clock
    }

    /// Lets time go by, monotonic and wall-clock time alike.
    pub fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.ticks_nanos.fetch_add(nanos, Ordering::SeqCst);
        self.0.wall_nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as people and time servers do.
    pub fn set_wall(&self, wall: UnixMillis) {
        let nanos = wall.0.saturating_mul(NANOS_PER_MILLI);
        self.0.wall_nanos.store(nanos, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let hands = ManualClock::at(UnixMillis(1000));
        let clock = Clock::Manual(hands.clone());
        assert_eq!(
            (clock.ticks(), clock.wall()),
            (Ticks(Duration::ZERO), UnixMillis(1000))
        );
        hands.advance(Duration::from_micros(2500));
        assert_eq!(clock.ticks(), Ticks(Duration::from_micros(2500)));
        assert_eq!(clock.wall(), UnixMillis(1002));
        hands.advance(Duration::from_micros(500));
        assert_eq!(
            clock.wall(),
            UnixMillis(1003),
            "parts of milliseconds add up"
        );
        hands.set_wall(UnixMillis(7));
        assert_eq!(clock.ticks(), Ticks(Duration::from_millis(3)));
        assert_eq!(clock.wall(), UnixMillis(7));
    }
}
