//! The time that a subtask spends at work, or has work it can't get on with.

use std::time::Duration;

use crate::clock::Ticks;

/// Runs while its subtask works, pauses in the middle of something, or waits for room in its
/// output. Stands still while it has nothing to do.
#[derive(Debug)]
pub(super) struct BusyClock {
    idle: Duration,
    resting_since: Option<Ticks>,
}

impl BusyClock {
    /// A subtask that doesn't work yet.
    pub(super) fn new(now: Ticks) -> Self {
        BusyClock {
            idle: now.0,
            resting_since: Some(now),
        }
    }

    /// An activation begins.
    pub(super) fn begin(&mut self, now: Ticks) {
        if let Some(since) = self.resting_since.take() {
            self.idle += now.since(since);
        }
    }

    /// An activation ends that leaves nothing to do.
    pub(super) fn rest(&mut self, now: Ticks) {
        self.resting_since = Some(now);
    }

    /// What has been counted by now, which is no earlier than the last activation began.
    pub(super) fn time(&self, now: Ticks) -> Duration {
        now.0.saturating_sub(self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_does_not_count() {
        let at = |millis| Ticks(Duration::from_millis(millis));
        let mut clock = BusyClock::new(at(5));
        clock.begin(at(10));
        assert_eq!(clock.time(at(12)), Duration::from_millis(2));
        // A pause: the activation has ended, and something is left.
        clock.begin(at(20));
        assert_eq!(clock.time(at(21)), Duration::from_millis(11));
        clock.rest(at(21));
        clock.begin(at(100));
        assert_eq!(clock.time(at(101)), Duration::from_millis(12));
    }
}
