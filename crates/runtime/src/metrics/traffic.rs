//! What the processes of an attempt send each other, by what it is for.
//!
//! Everything between two processes goes over one connection, message by message, each with the
//! number of its channel. Numbers are given out while dataflow is built, in the same order on every
//! worker; from then on [`TrafficCounters`] knows which are for what. It is told of every message
//! by the thread that writes it, and answers anybody, without a lock on either side.
//!
//! Invariant: what is counted is what the other side is sent, so what one process counts as sent is
//! what the others receive of it. Messages between workers of one process aren't counted.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What a channel that the job graph asks for carries. The rest is timely's own: its accounts of
/// what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelKind {
    /// Batches of records, and what travels among them: barriers, watermarks, ends.
    Items,
    /// Credit for those.
    Credit,
}

/// Some messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// How many.
    pub messages: u64,
    /// Their size, with timely's header of 48 bytes for each, before encryption.
    pub bytes: u64,
}

impl AddAssign for Volume {
    fn add_assign(&mut self, other: Volume) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// What processes have sent to other processes since an attempt began.
///
/// A message to several workers of one process is one, and one to several processes several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Batches of records, and what travels among them: barriers, watermarks, ends.
    pub items: Volume,
    /// Credit for those.
    pub credit: Volume,
    /// Timely's progress messages: one round of them for each checkpoint.
    pub progress: Volume,
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(mut self, other: Traffic) -> Traffic {
        self.items += other.items;
        self.credit += other.credit;
        self.progress += other.progress;
        self
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(all: I) -> Traffic {
        all.fold(Traffic::default(), Add::add)
    }
}

#[derive(Debug, Default)]
struct Counted {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    fn volume(&self) -> Volume {
        Volume {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct TrafficCounters {
    channels: OnceLock<BTreeMap<usize, ChannelKind>>,
    items: Counted,
    credit: Counted,
    progress: Counted,
    /// What other processes have said of themselves, by their index.
    told: Mutex<BTreeMap<u32, Traffic>>,
}

impl TrafficCounters {
    /// Takes note of what the channels are for that a worker has built. All build the same, and do
    /// so before they send anything.
    pub(crate) fn learn(&self, channels: impl IntoIterator<Item = (usize, ChannelKind)>) {
        self.channels.get_or_init(|| channels.into_iter().collect());
    }

    /// A message has been sent to another process, of so many bytes with its header.
    pub(crate) fn on_sent(&self, channel: usize, bytes: u64) {
        let known = self.channels.get().and_then(|known| known.get(&channel));
        let counted = match known {
            Some(ChannelKind::Items) => &self.items,
            Some(ChannelKind::Credit) => &self.credit,
            None => &self.progress,
        };
        counted.messages.fetch_add(1, Ordering::Relaxed);
        counted.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What a process says that it has sent so far.
    pub(super) fn apply(&self, process: u32, sent: Traffic) {
        self.told().insert(process, sent);
    }

    /// What has been sent by this process.
    pub(super) fn own(&self) -> Traffic {
        Traffic {
            items: self.items.volume(),
            credit: self.credit.volume(),
            progress: self.progress.volume(),
        }
    }

    /// What has been sent by all processes that are known of.
    pub(super) fn total(&self) -> Traffic {
        self.own() + self.told().values().copied().sum()
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<u32, Traffic>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(messages: u64, bytes: u64) -> Volume {
        Volume { messages, bytes }
    }

    #[test]
    fn messages_are_told_apart_by_their_channel() {
        let counters = TrafficCounters::default();
        counters.learn([(3, ChannelKind::Items), (4, ChannelKind::Credit)]);
        // Another worker has built the same.
        counters.learn([(3, ChannelKind::Credit)]);
        for (channel, bytes) in [(3, 1000), (4, 60), (3, 500), (9, 100)] {
            counters.on_sent(channel, bytes);
        }
        let sent = Traffic {
            items: volume(2, 1500),
            credit: volume(1, 60),
            progress: volume(1, 100),
        };
        assert_eq!((counters.own(), counters.total()), (sent, sent));
    }

    #[test]
    fn what_others_tell_replaces_what_they_have_told() {
        let counters = TrafficCounters::default();
        let credit = |messages| Traffic {
            credit: volume(messages, messages * 60),
            ..Traffic::default()
        };
        counters.apply(0, credit(1));
        counters.apply(1, credit(10));
        counters.apply(0, credit(5));
        assert_eq!(counters.own(), Traffic::default());
        assert_eq!(counters.total(), credit(15));
    }
}
