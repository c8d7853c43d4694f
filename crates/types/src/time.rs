//! Time as the cores see it: numbers that somebody else read off a clock.

use std::fmt;
use std::time::Duration;

/// Monotonic milliseconds since an origin of the caller's choosing (the start of the process, or
/// the virtual clock of a simulation). Never wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// This moment plus `duration`, rounded down to whole milliseconds, saturating at the end of
    /// time so that a huge configured pause cannot wrap.
    pub fn after(self, duration: Duration) -> Millis {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Millis(self.0.saturating_add(millis))
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Millis) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Wall-clock milliseconds since the Unix epoch, for people to read. May jump; nothing is ever
/// ordered by it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct UnixMillis(pub u64);

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
