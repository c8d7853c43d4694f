//! Time that has passed while the driver stood still is not made up for: of any three periodic
//! triggers of an attempt, the last comes more than an interval after the first.
//!
//! Source: BC-57. Two may come close to each other: one that is late, and one on the beat.

use std::time::Duration;

use tidegate_types::Millis;

use super::{Checked, ensure};

/// The last two periodic triggers of the running attempt.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    recent: [Option<Millis>; 2],
}

impl Bursts {
    pub(crate) fn on_attempt(&mut self) {
        self.recent = [None; 2];
    }

    pub(crate) fn on_periodic(&mut self, now: Millis, interval: Duration) -> Checked {
        let [first, second] = self.recent;
        self.recent = [second, Some(now)];
        ensure(
            first.is_none_or(|first| now.since(first) >= interval),
            "bursts",
            || format!("triggers at {first:?}, {second:?} and {now:?}, every {interval:?}"),
        )
    }
}
