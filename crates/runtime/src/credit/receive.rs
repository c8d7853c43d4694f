//! The receiver's end of all input channels of one subtask.

use std::time::Duration;

use super::rate::Rate;
use super::{CreditSettings, Grant, batch_bytes};
use crate::alignment::ChannelIndex;

/// What is known of one channel.
#[derive(Debug)]
struct Channel {
    /// How much credit should circulate, in bytes.
    window: u32,
    /// Granted − processed; above the window only while a shrunk window withholds credit, negative
    /// only while the sender's overdraft hasn't been made up for.
    circulating: i64,
    /// Processed since the current period began.
    period_bytes: u64,
    rate: Rate,
    /// Size of batches that the sender was last told, in bytes.
    batch_bytes: u32,
    /// Whether it is on the list of channels that may have a grant due.
    listed: bool,
}

impl Channel {
    /// Credit to be granted now, if it is worth a message: at least a quarter of the window. It is
    /// also worth one, without credit, that batches ought to be half as large as they are or less:
    /// a sender with much credit of old would not hear of it for long.
    fn due(&self, settings: &CreditSettings) -> Option<u64> {
        let deficit = i64::from(self.window) - self.circulating;
        let worth = i64::from(self.window / 4).max(1);
        if deficit >= worth {
            return Some(deficit.unsigned_abs());
        }
        let shrunk = batch_bytes(self.window, settings) <= self.batch_bytes / 2;
        shrunk.then_some(0)
    }
}

/// The current adaptation period.
#[derive(Debug)]
struct Period {
    start: Duration,
    /// Whether the receiver has been the bottleneck ever since.
    backlogged: bool,
}

/// Returns credit for all input channels of one subtask and adapts their windows; see the
/// [module](super) for the algorithm.
///
/// Per activation: [`on_processed`](Self::on_processed) for each batch or record, then
/// [`adapt`](Self::adapt) and [`take_grants`](Self::take_grants) once each.
#[derive(Debug)]
pub struct ReceiveCredit {
    settings: CreditSettings,
    channels: Vec<Channel>,
    /// Channels on which a grant may be due, so that finding them costs nothing for the others.
    listed: Vec<ChannelIndex>,
    period: Period,
    /// Bytes per second while the receiver is the bottleneck; `None` while it isn't.
    capacity: Option<Rate>,
}

impl ReceiveCredit {
    /// Starts every channel with the initial window, counted as granted. `now` is monotonic since
    /// any fixed origin.
    ///
    /// # Panics
    /// If the settings are not [valid](CreditSettings::validate).
    pub fn new(settings: CreditSettings, channels: u32, now: Duration) -> Self {
        settings.validate().expect("settings are validated first");
        let channel = |_| Channel {
            window: settings.window_initial,
            circulating: i64::from(settings.window_initial),
            period_bytes: 0,
            rate: Rate::default(),
            batch_bytes: batch_bytes(settings.window_initial, &settings),
            listed: false,
        };
        Self {
            channels: (0..channels).map(channel).collect(),
            settings,
            listed: Vec::new(),
            period: Period {
                start: now,
                backlogged: true,
            },
            capacity: None,
        }
    }

    /// Counts bytes of `channel` that have been processed and no longer take up memory.
    ///
    /// Over time this must be exactly what the sender spent on the channel.
    #[inline]
    pub fn on_processed(&mut self, channel: ChannelIndex, bytes: u64) {
        let state = &mut self.channels[channel.as_usize()];
        state.circulating = i64::try_from(bytes)
            .ok()
            .and_then(|bytes| state.circulating.checked_sub(bytes))
            .expect("fewer than 2^63 bytes are in flight");
        state.period_bytes = state.period_bytes.saturating_add(bytes);
        self.list_if_due(channel);
    }

    /// Adapts the windows if a period has passed; call it once per activation.
    ///
    /// `backlogged` says whether some input that may be read (its channel not blocked by
    /// alignment) was queued all the time since the last call: then the receiver is the
    /// bottleneck. A subtask that waits for credit of its own outputs counts as backlogged too.
    pub fn adapt(&mut self, now: Duration, backlogged: bool) {
        self.period.backlogged &= backlogged;
        let elapsed = now.saturating_sub(self.period.start);
        if elapsed < self.settings.adapt_period {
            return;
        }
        let bytes = self.channels.iter().map(|state| state.period_bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        if bytes == 0 && self.period.backlogged {
            // Stuck: there is no rate to see until it moves. The sample then spans the whole time.
            return;
        }
        self.measure_channels(elapsed);
        if self.period.backlogged {
            self.fit_to_capacity(bytes, elapsed);
        } else {
            self.capacity = None;
            self.grow_with_demand();
        }
        self.period = Period {
            start: now,
            backlogged: true,
        };
        self.check_windows();
    }

    /// Hands out the grants that are due, at most one per channel.
    ///
    /// Credit is held back until it is worth a message: a quarter of the window. The sender
    /// doesn't starve meanwhile: it has, or this subtask has queued, the other three.
    pub fn take_grants(&mut self, mut send: impl FnMut(ChannelIndex, Grant)) {
        for channel in self.listed.drain(..) {
            let state = &mut self.channels[channel.as_usize()];
            state.listed = false;
            let Some(bytes) = state.due(&self.settings) else {
                continue; // The window has shrunk since.
            };
            state.circulating += i64::try_from(bytes).expect("a deficit fits");
            assert!(
                bytes == 0 || state.circulating == i64::from(state.window),
                "a grant restores the window of `{channel}`"
            );
            state.batch_bytes = batch_bytes(state.window, &self.settings);
            let batch_bytes = state.batch_bytes;
            send(channel, Grant { bytes, batch_bytes });
        }
    }

    /// Current window of `channel`, in bytes.
    pub fn window(&self, channel: ChannelIndex) -> u32 {
        self.channels[channel.as_usize()].window
    }

    /// Granted − processed on `channel`, in bytes; negative while an overdraft is made up for.
    pub fn circulating(&self, channel: ChannelIndex) -> i64 {
        self.channels[channel.as_usize()].circulating
    }

    fn measure_channels(&mut self, elapsed: Duration) {
        let constant = self.settings.drain_target;
        for state in &mut self.channels {
            state.rate = state.rate.smoothed(state.period_bytes, elapsed, constant);
            state.period_bytes = 0;
        }
    }

    /// Divides capacity × drain target evenly among the channels that carry data.
    fn fit_to_capacity(&mut self, bytes: u64, elapsed: Duration) {
        let target = self.settings.drain_target;
        let capacity = match self.capacity {
            // What was measured while input was short says little: start afresh.
            None => Rate::of(bytes, elapsed),
            Some(rate) => rate.smoothed(bytes, elapsed, target),
        };
        self.capacity = Some(capacity);
        let active = |state: &&Channel| !state.rate.is_zero();
        let active_count = self.channels.iter().filter(active).count().max(1);
        let share = capacity.bytes_within(target) / active_count as u64;
        let (min, max) = (self.settings.window_min, self.settings.window_max);
        let share = u32::try_from(share).unwrap_or(u32::MAX).clamp(min, max);
        for index in 0..self.channels.len() {
            let state = &mut self.channels[index];
            let grows_to = match state.rate.is_zero() {
                true => state.window,
                false => state.window.saturating_mul(2),
            };
            state.window = share.min(grows_to);
            self.list_if_due(ChannelIndex(index as u32));
        }
    }

    /// Doubles each window, up to twice what its channel carries within the drain target.
    fn grow_with_demand(&mut self) {
        let target = self.settings.drain_target;
        for index in 0..self.channels.len() {
            let state = &mut self.channels[index];
            let useful = state.rate.bytes_within(target).saturating_mul(2);
            let useful = u32::try_from(useful).unwrap_or(u32::MAX);
            let grown = state.window.saturating_mul(2).min(useful);
            state.window = grown.clamp(state.window, self.settings.window_max);
            self.list_if_due(ChannelIndex(index as u32));
        }
    }

    #[inline]
    fn list_if_due(&mut self, channel: ChannelIndex) {
        let state = &mut self.channels[channel.as_usize()];
        if !state.listed && state.due(&self.settings).is_some() {
            state.listed = true;
            self.listed.push(channel);
        }
    }

    fn check_windows(&self) {
        let (min, max) = (self.settings.window_min, self.settings.window_max);
        for state in &self.channels {
            assert!((min..=max).contains(&state.window));
            assert!(state.circulating <= i64::from(max));
        }
    }
}
