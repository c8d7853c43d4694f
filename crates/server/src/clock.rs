//! The driver's only look at a clock.

use std::time::{Duration, Instant};

use tidegate_coordinator::Now;
use tidegate_runtime::wall_clock;
use tidegate_types::Millis;

/// Milliseconds since the job's driver started, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock {
            origin: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            monotonic: Millis(self.elapsed().as_millis() as u64),
            wall: wall_clock(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// How long until the clock shows `deadline`; zero if it has passed.
    pub(crate) fn until(&self, deadline: Millis) -> Duration {
        Duration::from_millis(deadline.0).saturating_sub(self.elapsed())
    }
}
