//! A subtask's part in event time: watermarks from its channels are combined, worked off by the
//! logic, and passed on.

use tidegate_state::Record;
use tidegate_types::EventTime;

use super::{Rest, Subtask};
use crate::alignment::ChannelIndex;
use crate::error::BoxError;
use crate::logic::{Logic, WatermarkProgress};
use crate::watermark::{ValveChange, WatermarkStatus, WatermarkValve};

/// How far the channels of a subtask have got, and what of it the logic doesn't know yet.
pub(super) struct EventTimeProgress {
    valve: WatermarkValve,
    /// What the logic has begun with, or is about to.
    working_off: Option<EventTime>,
    /// Behind that, receivers are to be told that there is nothing to wait for.
    then_idle: bool,
}

impl EventTimeProgress {
    pub(super) fn new(channels: u32) -> Self {
        EventTimeProgress {
            valve: WatermarkValve::new(channels),
            working_off: None,
            then_idle: false,
        }
    }

    /// Whether nothing else may be taken from the channels.
    pub(super) fn is_working_off(&self) -> bool {
        self.working_off.is_some()
    }
}

impl<In: Record, Out: Record, L: Logic<In, Out>> Subtask<In, Out, L> {
    pub(super) fn on_watermark(&mut self, channel: ChannelIndex, watermark: EventTime) {
        let change = self.event_time.valve.on_watermark(channel, watermark);
        self.on_change(change);
    }

    pub(super) fn on_status(&mut self, channel: ChannelIndex, status: WatermarkStatus) {
        let valve = &mut self.event_time.valve;
        let change = match status {
            WatermarkStatus::Idle => valve.on_idle(channel),
            WatermarkStatus::Active => valve.on_active(channel),
        };
        self.on_change(change);
    }

    fn on_change(&mut self, change: ValveChange) {
        if self.is_reader {
            // What comes on its edge is about splits; records have times of their own.
            return;
        }
        let ValveChange { watermark, status } = change;
        let status = status.filter(|_| !self.logic().generates_watermarks());
        if status == Some(WatermarkStatus::Active) {
            self.out.emit_active();
        }
        let idle = status == Some(WatermarkStatus::Idle);
        match watermark {
            Some(_) => (self.event_time.working_off, self.event_time.then_idle) = (watermark, idle),
            None if idle => self.out.emit_idle(),
            None => {}
        }
    }

    /// Lets the logic do some of what is due. It goes on when there is room again.
    pub(super) fn work_off_watermark(&mut self) -> Result<Rest, BoxError> {
        let Some(watermark) = self.event_time.working_off else {
            return Ok(Rest::Work);
        };
        if self.out.is_full() {
            return Ok(Rest::Nothing);
        }
        let Subtask { phase, out, .. } = self;
        let super::Phase::Running(logic) = phase else {
            return Ok(Rest::Nothing);
        };
        if logic.on_watermark(watermark, out)? == WatermarkProgress::More {
            return Ok(Rest::Work);
        }
        self.event_time.working_off = None;
        if watermark == EventTime::MAX || !self.logic().generates_watermarks() {
            self.out.emit_watermark(watermark);
        }
        if std::mem::take(&mut self.event_time.then_idle) {
            self.out.emit_idle();
        }
        Ok(Rest::Work)
    }
}
