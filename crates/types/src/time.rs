//! Time as the cores see it: numbers that somebody else read off a clock or found in a record.

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

impl UnixMillis {
    /// This moment plus `duration`, rounded down to whole milliseconds; at most the end of time.
    pub fn after(self, duration: Duration) -> UnixMillis {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        UnixMillis(self.0.saturating_add(millis))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Event time, in milliseconds since the Unix epoch: when something happened according to the
/// record that tells of it. Negative before 1970.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct EventTime(pub i64);

impl EventTime {
    /// Before everything: where a watermark begins.
    pub const MIN: EventTime = EventTime(i64::MIN);
    /// After everything: the watermark behind the last record of a stream.
    pub const MAX: EventTime = EventTime(i64::MAX);

    /// This moment plus `duration`, rounded down to whole milliseconds; at most
    /// [`MAX`](Self::MAX).
    pub fn after(self, duration: Duration) -> EventTime {
        EventTime(self.0.saturating_add(whole_millis(duration)))
    }

    /// This moment minus `duration`, rounded down to whole milliseconds; at least
    /// [`MIN`](Self::MIN).
    pub fn before(self, duration: Duration) -> EventTime {
        EventTime(self.0.saturating_sub(whole_millis(duration)))
    }
}

fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EventTime::MIN => f.write_str("the beginning of time"),
            EventTime::MAX => f.write_str("the end of time"),
            EventTime(millis) => write!(f, "{millis}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_time_ends_where_it_ends() {
        let hour = Duration::from_secs(3600);
        assert_eq!(EventTime(-1).after(hour), EventTime(3_599_999));
        assert_eq!(EventTime(1).before(hour), EventTime(-3_599_999));
        assert_eq!(EventTime(i64::MAX - 1).after(hour), EventTime::MAX);
        assert_eq!(EventTime(i64::MIN + 1).before(hour), EventTime::MIN);
        assert_eq!(EventTime(0).after(Duration::MAX), EventTime::MAX);
        assert_eq!(EventTime(-2).before(Duration::MAX), EventTime::MIN);
    }
}
