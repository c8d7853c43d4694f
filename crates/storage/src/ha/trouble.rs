//! How often the log says that a store can't be reached: when that begins, again after ever longer,
//! with how long it has lasted, and when it is over.

use std::time::Duration;

use tidegate_types::ErrorChain;
use tokio::time::Instant;

use crate::error::StorageError;

/// How long trouble lasts before it is told of again; from then on twice as long each time.
const AGAIN_MIN: Duration = Duration::from_secs(5);
/// Longest time without a word.
const AGAIN_MAX: Duration = Duration::from_mins(10);

/// Whether a store gives trouble, and who has been told.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<Ongoing>);

#[derive(Debug)]
struct Ongoing {
    since: Instant,
    /// How long it lasts when it is told of again.
    again: Duration,
}

impl Trouble {
    /// Something has failed that a later try may mend. `what` says what isn't possible.
    pub(super) fn on_failure(&mut self, what: &'static str, error: &StorageError) {
        if let Some(lasts) = self.told_after(Instant::now()) {
            let error = ErrorChain(error);
            tracing::warn!(%error, ?lasts, "{what}; this is tried until it works");
        }
    }

    /// The store has answered.
    pub(super) fn on_answer(&mut self) {
        if let Some(lasted) = self.ended_after(Instant::now()) {
            tracing::warn!(?lasted, "the store can be reached again");
        }
    }

    /// How long it has lasted, if that is to be told now. Whole seconds.
    fn told_after(&mut self, now: Instant) -> Option<Duration> {
        let Some(ongoing) = &mut self.0 else {
            self.0 = Some(Ongoing {
                since: now,
                again: AGAIN_MIN,
            });
            return Some(Duration::ZERO);
        };
        let lasts = now.duration_since(ongoing.since);
        if lasts < ongoing.again {
            return None;
        }
        ongoing.again = lasts + lasts.min(AGAIN_MAX);
        Some(whole_seconds(lasts))
    }

    fn ended_after(&mut self, now: Instant) -> Option<Duration> {
        let ongoing = self.0.take()?;
        Some(whole_seconds(now.duration_since(ongoing.since)))
    }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which it is told of, of trouble that is met twice a second.
    fn told(trouble: &mut Trouble, begun: Instant, half_seconds: u64) -> Vec<u64> {
        let at = |half: u64| begun + Duration::from_millis(500) * u32::try_from(half).unwrap();
        let told = (0..half_seconds).filter_map(|half| trouble.told_after(at(half)));
        told.map(|lasts| lasts.as_secs()).collect()
    }

    #[test]
    fn trouble_is_told_of_at_once_then_ever_less_often_and_when_it_is_over() {
        let (mut trouble, begun) = (Trouble::default(), Instant::now());
        assert_eq!(trouble.ended_after(begun), None, "there is none");
        let hour = 2 * 3600;
        let expected = [0, 5, 10, 20, 40, 80, 160, 320, 640, 1240, 1840, 2440, 3040];
        assert_eq!(told(&mut trouble, begun, hour), expected);
        let end = begun + Duration::from_secs(3600);
        assert_eq!(trouble.ended_after(end), Some(Duration::from_secs(3600)));
        assert_eq!(trouble.ended_after(end), None);
        // The next is news again.
        assert_eq!(told(&mut trouble, end, 12), [0, 5]);
    }
}
