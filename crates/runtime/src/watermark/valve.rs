//! Combines the watermarks of a subtask's channels into its own, and their idleness.
//!
//! The rules are those of Flink's `StatusWatermarkValve`. What has come out is a promise, so the
//! combined watermark never goes back. A channel is *aligned* if it is active and has got at least
//! as far as that; the combined watermark is the least of all aligned channels. So a channel that
//! becomes active again after others have gone on without it holds nobody back until it has caught
//! up. If nobody is active any more, the combined watermark becomes the greatest that any channel
//! has delivered, since nobody is left to wait for, and the subtask itself is idle.
//!
//! [`EventTime::MAX`] says that a channel has come to its end. It then bounds nothing, and is
//! neither active nor idle: of an ended and an idle channel the idle one speaks for the subtask.
//! (In Flink the ended one does, and whatever the idle one still has to say is late.) When all have
//! ended, the combined watermark is `MAX`, and nothing changes any more.
//!
//! Invariants: the combined watermark grows; no aligned channel is behind it. A watermark costs the
//! look at one channel, unless it comes from the last of those that hold the others back.

use tidegate_types::EventTime;

use crate::alignment::ChannelIndex;

/// Whether a stream has something to say about event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkStatus {
    /// Its watermarks count.
    Active,
    /// Nobody should wait for its watermarks.
    Idle,
}

/// What a subtask has to tell its receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValveChange {
    /// A combined watermark that is greater than all before.
    pub watermark: Option<EventTime>,
    /// A status that differs from the one before. [`Active`](WatermarkStatus::Active) goes before
    /// the watermark, [`Idle`](WatermarkStatus::Idle) behind it.
    pub status: Option<WatermarkStatus>,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    watermark: EventTime,
    idle: bool,
}

impl Channel {
    fn has_ended(&self) -> bool {
        self.watermark == EventTime::MAX
    }

    fn is_active(&self) -> bool {
        !self.idle && !self.has_ended()
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct WatermarkValve {
    channels: Vec<Channel>,
    combined: EventTime,
    idle: bool,
    /// Channels that have not ended.
    open: usize,
    /// Channels that are active.
    active: usize,
    /// Active channels that have got exactly as far as the combined watermark. With any of them it
    /// can't advance.
    holding: usize,
}

impl WatermarkValve {
    /// All channels are active and have delivered nothing.
    pub fn new(channels: u32) -> Self {
        let channel = Channel {
            watermark: EventTime::MIN,
            idle: false,
        };
        let count = channels as usize;
        WatermarkValve {
            channels: vec![channel; count],
            combined: EventTime::MIN,
            idle: false,
            open: count,
            active: count,
            holding: count,
        }
    }

    /// The combined watermark so far.
    pub fn combined(&self) -> EventTime {
        self.combined
    }

    /// A watermark has come. One that doesn't advance its channel is ignored, and so is one on an
    /// idle channel, unless it is `MAX`.
    pub fn on_watermark(&mut self, channel: ChannelIndex, watermark: EventTime) -> ValveChange {
        let state = self.channels[channel.as_usize()];
        let ends = watermark == EventTime::MAX;
        if watermark <= state.watermark || (state.idle && !ends) {
            return ValveChange::default();
        }
        self.forget(state);
        let state = Channel { watermark, ..state };
        self.channels[channel.as_usize()] = state;
        self.count(state);
        self.changed()
    }

    /// The channel says that nobody should wait for it.
    pub fn on_idle(&mut self, channel: ChannelIndex) -> ValveChange {
        self.set_idle(channel, true)
    }

    /// The channel says that its watermarks count again.
    pub fn on_active(&mut self, channel: ChannelIndex) -> ValveChange {
        self.set_idle(channel, false)
    }

    /// The channel has delivered its last data. The same as a watermark of `MAX`.
    pub fn on_end(&mut self, channel: ChannelIndex) -> ValveChange {
        self.on_watermark(channel, EventTime::MAX)
    }

    fn set_idle(&mut self, channel: ChannelIndex, idle: bool) -> ValveChange {
        let state = self.channels[channel.as_usize()];
        if state.idle == idle || state.has_ended() {
            return ValveChange::default();
        }
        self.forget(state);
        let state = Channel { idle, ..state };
        self.channels[channel.as_usize()] = state;
        self.count(state);
        self.changed()
    }

    /// Takes a channel out of the counts, before it changes.
    fn forget(&mut self, channel: Channel) {
        self.open -= usize::from(!channel.has_ended());
        self.active -= usize::from(channel.is_active());
        self.holding -= usize::from(channel.is_active() && channel.watermark == self.combined);
    }

    fn count(&mut self, channel: Channel) {
        self.open += usize::from(!channel.has_ended());
        self.active += usize::from(channel.is_active());
        self.holding += usize::from(channel.is_active() && channel.watermark == self.combined);
    }

    fn changed(&mut self) -> ValveChange {
        if self.open == 0 {
            return ValveChange {
                watermark: self.advance_to(EventTime::MAX),
                status: None,
            };
        }
        let watermark = if self.active == 0 {
            let open = self.channels.iter().filter(|channel| !channel.has_ended());
            let furthest = open.map(|channel| channel.watermark).max();
            furthest.and_then(|furthest| self.advance_to(furthest))
        } else if self.holding == 0 {
            self.least_aligned()
                .and_then(|least| self.advance_to(least))
        } else {
            None
        };
        let idle = self.active == 0;
        let status = (idle != self.idle).then_some(match idle {
            true => WatermarkStatus::Idle,
            false => WatermarkStatus::Active,
        });
        self.idle = idle;
        self.debug_check();
        ValveChange { watermark, status }
    }

    fn least_aligned(&self) -> Option<EventTime> {
        let active = self.channels.iter().filter(|channel| channel.is_active());
        let watermarks = active.map(|channel| channel.watermark);
        watermarks
            .filter(|watermark| *watermark >= self.combined)
            .min()
    }

    fn advance_to(&mut self, watermark: EventTime) -> Option<EventTime> {
        if watermark <= self.combined {
            return None;
        }
        self.combined = watermark;
        let holding = |channel: &&Channel| channel.is_active() && channel.watermark == watermark;
        self.holding = self.channels.iter().filter(holding).count();
        Some(watermark)
    }

    fn debug_check(&self) {
        debug_assert!(self.holding <= self.active && self.active <= self.open);
        debug_assert!(
            self.holding > 0 || self.least_aligned().is_none(),
            "nobody holds back what has not advanced: {self:?}"
        );
    }
}

#[cfg(test)]
mod tests;
