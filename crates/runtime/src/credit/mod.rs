//! Flow control: how much a sender may put into a channel that its receiver hasn't processed yet.
//!
//! Timely has no backpressure, so every channel has a *window* of credit in bytes. The sender
//! ([`SendCredit`]) spends credit as it sends batches and stops producing when none is left; the
//! receiver ([`ReceiveCredit`]) returns it as it *processes*, not as it queues. Control items need
//! none. Both sides count the same bytes: the size the sender puts on a batch travels with it.
//!
//! Credit in circulation = granted (the initial window included) − processed. Invariants, per
//! channel, with everything counted once it is under way:
//! - conservation: the sender's available credit + grants in transit + bytes sent but not
//!   processed = credit in circulation;
//! - a grant raises the credit in circulation to the channel's current window, never above it;
//!   hence bytes in flight ≤ the largest window so far + what the sender overdrew;
//! - liveness: once all that was sent has been processed, either a grant is due or more than three
//!   quarters of the window is at the sender. Windows are ≥ 1 byte, and a sender with any credit
//!   may send a whole batch, so no record is too large for any window.
//!
//! # How windows adapt
//!
//! After Flink's buffer debloating (FLIP-183; `BufferDebloater`): what is in flight should drain
//! within [`drain_target`](CreditSettings::drain_target), whatever the speed of the receiver, since
//! that is the time a barrier spends behind it. At the end of each period of at least
//! [`adapt_period`](CreditSettings::adapt_period):
//!
//! - *The receiver was the bottleneck* (backlogged throughout): bytes per second processed,
//!   smoothed over one drain target, are its capacity. Capacity × target is divided evenly among
//!   the channels that carry data. Evenly rather than by traffic, because a large window attracts
//!   traffic and would keep its share for ever. Shrinking is immediate, growing at most doubles.
//! - *It was not*: its capacity is unknown but at least what it just processed. A channel's window
//!   doubles, as far as twice what the channel carries in one drain target. An idle or trickling
//!   channel doesn't grow, so that a burst onto a slow receiver finds a small window; a channel
//!   that is held back by its window carries one window per round trip, and grows as long as the
//!   round trip is shorter than two drain targets.
//!
//! A window shrinks by withholding credit that processing frees, since credit once granted can't
//! be called back; it grows by granting extra. Batches are a quarter of the window, so that
//! returning credit and spending it overlap. That they are to be smaller is said at once, in a
//! grant of no bytes.
//!
//! A receiver that is called by its sender has nothing queued, however slow it is: it has worked
//! off all that it was given when the call returns. It is always the bottleneck, and its time is
//! that of its work.
//!
//! No clock and no IO: times come in as arguments. All arithmetic is in integers.

mod rate;
mod receive;
mod send;
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use receive::ReceiveCredit;
pub use send::SendCredit;
pub use settings::{CreditSettings, CreditSettingsError};

/// Credit that a receiver hands to the sender of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Bytes the sender may send on top of what it was granted before. May be 0.
    pub bytes: u64,
    /// How many bytes a batch should hold from now on; at least 1.
    pub batch_bytes: u32,
}

/// A quarter of the window, so that a channel holds about four batches.
fn batch_bytes(window: u32, settings: &CreditSettings) -> u32 {
    (window / 4).clamp(1, settings.batch_max)
}
