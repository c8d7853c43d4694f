//! The runtime's only look at a clock.

use std::sync::OnceLock;
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
