//! The two clocks of a run. The wall clock may be set to anything; the monotonic one may stand
//! still or leap ahead, as it does when a machine is suspended, but never goes back.

use crate::rng::Rng;

const HOUR: u64 = 3_600_000;

/// In milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: u64,
    pub(crate) wall: u64,
    /// Steps for which the monotonic clock stands still.
    stuck: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            now: 0,
            wall: 1_700_000_000_000,
            stuck: 0,
        }
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.wall = self.wall.saturating_add(millis);
        match self.stuck {
            0 => self.now += millis,
            _ => self.stuck -= 1,
        }
    }

    /// Nothing happens before this moment.
    pub(crate) fn wait_until(&mut self, moment: u64) {
        let millis = moment.saturating_sub(self.now);
        self.stuck = 0;
        self.pass(millis);
    }

    /// Something is wrong with one of them.
    pub(crate) fn disturb(&mut self, leap_max: u64, rng: &mut Rng) {
        match rng.below(4) {
            0 => self.wall = self.wall.saturating_sub(rng.between(0, 12 * HOUR)),
            1 => self.wall = self.wall.saturating_add(rng.between(0, 12 * HOUR)),
            2 => self.stuck = rng.between(1, 300),
            _ => self.now += rng.between(0, leap_max),
        }
    }

    /// Runs as it should again.
    pub(crate) fn heal(&mut self) {
        self.stuck = 0;
    }
}
