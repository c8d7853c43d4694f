//! The knobs of flow control and their defaults.
//!
//! The defaults of the largest window and batch are measured: generator → `key_by` → count →
//! discard at parallelism 2, nanoseconds of processor time per record; and with 1 k keys the 99th
//! percentile of alignment at an interval of 20 ms. Medians of 4 runs (of 3 with 1 M keys), all
//! sizes in turn.
//!
//! | Window / batch, KiB | 1 k keys | 1 M keys | Alignment | Peak memory |
//! |---|---|---|---|---|
//! | 32 / 4 | 31.0 | 146 | 1.7 ms | 11 MB |
//! | 64 / 16 | 27.8 | 140 | 0.8 ms | 12 MB |
//! | 128 / 16 | 23.3 | 125 | 3.7 ms | 13 MB |
//! | 128 / 32 | 27.3 | 121 | 4.7 ms | 13 MB |
//! | 256 / 32 | 25.3 | 118 | 7.4 ms | 14 MB |
//! | 256 / 64 | 25.0 | 116 | 1.9 ms | 15 MB |
//! | 512 / 64 | 23.3 | 126 | 7.7 ms | 17 MB |
//! | 512 / 128 | 25.5 | 119 | 9.2 ms | 19 MB |
//! | 1024 / 128 | 22.8 | 126 | 17.9 ms | 21 MB |
//! | 1024 / 256 | 24.3 | 124 | 17.9 ms | 22 MB |
//!
//! The two cores had eight times as much to do as they could: a run differs from the next of its
//! kind by up to 25 %, and alignment is mostly waiting for a core. What can be told is that below
//! 128 KiB per channel records cost more, that larger windows than 512 KiB gain nothing, and that
//! barriers wait longer behind those. Whether 256 KiB would do as well takes a quiet machine.

use std::time::Duration;

/// Sizes of credit windows and batches. Sender and receiver must use the same settings, because
/// both start from `window_initial` without a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditSettings {
    /// Window of a channel before anything is known of its receiver, in bytes. Default 1:
    /// one record at a time, doubled every few milliseconds while the receiver keeps up. Raise it
    /// to reach full speed a little sooner; the first data behind a slow receiver then takes
    /// longer to drain.
    pub window_initial: u32,
    /// Smallest window, in bytes; at least 1, the default, which lets one batch (of one record)
    /// through at a time. Raise it if receivers that stall now and then recover too slowly.
    pub window_min: u32,
    /// Largest window, in bytes. Default 512 KiB. Input buffered at a subtask is at most this times
    /// its channels, plus a batch per channel. Raise it for fast links with long round trips.
    pub window_max: u32,
    /// Largest batch, in bytes, except that one record always fits. Default 64 KiB. Larger ones
    /// cost less per record and more memory per channel.
    pub batch_max: u32,
    /// Time in which a slow receiver should get through all that is in flight to it. Default
    /// 100 ms. Lower it for faster barriers, raise it to even out bursts.
    pub drain_target: Duration,
    /// Windows are adapted at most this often. Default 10 ms. Receivers that are called by their
    /// senders adapt more often: what they are measured by is their own work and nothing else.
    pub adapt_period: Duration,
}

impl Default for CreditSettings {
    fn default() -> Self {
        Self {
            window_initial: 1,
            window_min: 1,
            window_max: 512 << 10,
            batch_max: 64 << 10,
            drain_target: Duration::from_millis(100),
            adapt_period: Duration::from_millis(10),
        }
    }
}

/// Settings that can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreditSettingsError {
    /// A channel without credit would never start.
    #[error("the smallest credit window must be at least `1` byte, not `{given}`")]
    WindowMin {
        /// What was asked for.
        given: u32,
    },
    /// The initial window isn't between the smallest and the largest.
    #[error("the initial credit window `{initial}` is not between `{min}` and `{max}` bytes")]
    WindowInitial {
        /// What was asked for.
        initial: u32,
        /// The smallest window.
        min: u32,
        /// The largest window.
        max: u32,
    },
    /// A batch must hold something.
    #[error("the largest batch must be at least `1` byte, not `{given}`")]
    BatchMax {
        /// What was asked for.
        given: u32,
    },
    /// Rates can't be measured over such a time.
    #[error("the drain target `{given:?}` is not between `{min:?}` and `{max:?}`")]
    DrainTarget {
        /// What was asked for.
        given: Duration,
        /// The shortest that works.
        min: Duration,
        /// The longest that makes sense.
        max: Duration,
    },
}

impl CreditSettings {
    /// The shortest drain target: the time a subtask may work in one activation.
    pub const DRAIN_TARGET_MIN: Duration = Duration::from_millis(1);
    /// The longest drain target.
    pub const DRAIN_TARGET_MAX: Duration = Duration::from_secs(60);

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// The first [`CreditSettingsError`] found.
    pub fn validate(&self) -> Result<(), CreditSettingsError> {
        let (min, max) = (self.window_min, self.window_max);
        if min == 0 {
            return Err(CreditSettingsError::WindowMin { given: min });
        }
        let initial = self.window_initial;
        if initial < min || initial > max {
            return Err(CreditSettingsError::WindowInitial { initial, min, max });
        }
        if self.batch_max == 0 {
            return Err(CreditSettingsError::BatchMax { given: 0 });
        }
        let (min, max) = (Self::DRAIN_TARGET_MIN, Self::DRAIN_TARGET_MAX);
        let given = self.drain_target;
        if given < min || given > max {
            return Err(CreditSettingsError::DrainTarget { given, min, max });
        }
        Ok(())
    }
}
