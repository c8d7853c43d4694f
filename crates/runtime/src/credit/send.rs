//! The sender's end of one channel.

use super::{CreditSettings, Grant, batch_bytes};

/// What one output may still send to one target.
///
/// Check [`is_open`](Self::is_open) before taking *new* input, not within a record: what a record
/// produces is always sent and may overdraw, so neither a record larger than the window nor one
/// that becomes a thousand can get stuck. Nothing blocks a flush either, which must precede any
/// control item.
#[derive(Debug)]
pub struct SendCredit {
    /// Granted − spent; negative when overdrawn.
    available: i64,
    batch_bytes: u32,
}

impl SendCredit {
    /// Starts with the initial window, which the receiver counts as granted.
    pub fn new(initial: &CreditSettings) -> Self {
        Self {
            available: i64::from(initial.window_initial),
            batch_bytes: batch_bytes(initial.window_initial, initial),
        }
    }

    /// Whether another batch may be begun.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.available > 0
    }

    /// Takes off what a batch cost as it is sent, even if that is more than there is.
    ///
    /// # Panics
    /// If 2⁶³ bytes are outstanding.
    #[inline]
    pub fn spend(&mut self, bytes: u64) {
        self.available = i64::try_from(bytes)
            .ok()
            .and_then(|bytes| self.available.checked_sub(bytes))
            .expect("fewer than 2^63 bytes are in flight");
    }

    /// Adds what the receiver granted. The channel is open again afterwards if
    /// [`is_open`](Self::is_open) says so: a grant may be smaller than an overdraft.
    pub fn receive(&mut self, grant: Grant) {
        debug_assert!(grant.batch_bytes > 0, "a batch of nothing");
        let bytes = i64::try_from(grant.bytes).ok();
        self.available = bytes
            .and_then(|bytes| self.available.checked_add(bytes))
            .expect("fewer than 2^63 bytes are granted");
        self.batch_bytes = grant.batch_bytes;
    }

    /// How large a batch should be now, in bytes; at least 1. A batch is full once it holds this
    /// much; its last record may go beyond.
    #[inline]
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes as usize
    }

    /// Granted − spent, in bytes; negative when overdrawn. For metrics and tests.
    pub fn available(&self) -> i64 {
        self.available
    }
}
