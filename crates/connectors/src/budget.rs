//! How long one poll of a reader may take.

use std::time::Duration;

use tidegate_runtime::Ticks;

/// A reader works for about this long, then lets its operator look after markers and timers.
const POLL_MAX: Duration = Duration::from_micros(250);

/// The time one poll has, from its start.
pub(crate) struct Budget {
    start: Ticks,
}

impl Budget {
    pub(crate) fn start() -> Self {
        Budget {
            start: Ticks::now(),
        }
    }

    /// When the poll began.
    pub(crate) fn began(&self) -> Ticks {
        self.start
    }

    /// Reads the clock: call it every few hundred records.
    pub(crate) fn is_spent(&self) -> bool {
        Ticks::now().since(self.start) >= POLL_MAX
    }
}
