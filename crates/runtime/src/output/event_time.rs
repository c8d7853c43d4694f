//! What an operator says about event time: watermarks, and whether it has any to send.
//!
//! Each goes out at once, on every channel, behind all that was emitted before. What says nothing
//! new isn't sent.

use tidegate_state::Record;
use tidegate_types::EventTime;

use super::Collector;
use crate::item::Marker;

/// What has been said so far.
#[derive(Debug)]
pub(super) struct Said {
    watermark: EventTime,
    idle: bool,
}

impl Default for Said {
    fn default() -> Self {
        Said {
            watermark: EventTime::MIN,
            idle: false,
        }
    }
}

impl<T: Record> Collector<T> {
    /// Says that no record with a time up to `watermark` will follow. Ignored if it is not greater
    /// than the one before. After [`EventTime::MAX`] nothing more is said about event time.
    ///
    /// For operators that [generate watermarks](crate::Logic::generates_watermarks); those of
    /// others are passed on as they come.
    pub fn emit_watermark(&mut self, watermark: EventTime) {
        if watermark <= self.said.watermark {
            return;
        }
        // The end needs nobody to listen; any other watermark would be ignored.
        if watermark < EventTime::MAX {
            self.emit_active();
        }
        self.said.watermark = watermark;
        self.send_marker(&Marker::Watermark(watermark));
    }

    /// Says that nobody should wait for watermarks from here until there are some again. As for
    /// [`emit_watermark`](Self::emit_watermark), for operators that generate them.
    pub fn emit_idle(&mut self) {
        self.set_idle(true);
    }

    /// Says that watermarks from here are to be waited for again, as they were in the beginning;
    /// records are about to follow. As for [`emit_watermark`](Self::emit_watermark), for operators
    /// that generate them.
    pub fn emit_active(&mut self) {
        self.set_idle(false);
    }

    fn set_idle(&mut self, idle: bool) {
        if idle == self.said.idle || self.said.watermark == EventTime::MAX {
            return;
        }
        self.said.idle = idle;
        self.send_marker(match idle {
            true => &Marker::Idle,
            false => &Marker::Active,
        });
    }

    /// The greatest watermark that has been sent from here; [`EventTime::MIN`] before the first.
    pub fn watermark(&self) -> EventTime {
        self.said.watermark
    }

    /// Whether the last that was said is that nobody should wait for watermarks from here.
    pub fn is_idle(&self) -> bool {
        self.said.idle
    }
}
