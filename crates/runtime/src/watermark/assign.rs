//! The operator that gives a stream its watermarks.
//!
//! Records pass unchanged. Watermarks are sent at an interval, by the clock, behind the records
//! that they speak about: between two batches while there is much to do, by a timer otherwise. A
//! subtask that sees nothing sets no timer. Watermarks from further up end here, but for the last.

use std::marker::PhantomData;
use std::time::Duration;

use tidegate_state::Record;
use tidegate_types::EventTime;

use super::strategy::{WatermarkGenerator, WatermarkStrategy};
use crate::batch::Batch;
use crate::clock::{Clock, Ticks};
use crate::error::BoxError;
use crate::logic::{Activity, Flow, Logic, WatermarkProgress};
use crate::output::Collector;

/// See the [module](self).
pub struct AssignWatermarks<T, G> {
    generator: G,
    interval: Duration,
    idle_after: Option<Duration>,
    clock: Clock,
    /// When the next watermark is to be sent, if there is reason for one.
    due: Option<Ticks>,
    last_record: Ticks,
    idle: bool,
    records: PhantomData<fn(T)>,
}

impl<T, G: WatermarkGenerator<T>> AssignWatermarks<T, G> {
    /// Starts as if nothing had been seen before; a subtask that sees nothing is idle as long
    /// after this as the strategy says.
    pub fn new(strategy: WatermarkStrategy<T, G>, clock: Clock) -> Self {
        let now = clock.ticks();
        let WatermarkStrategy {
            generator,
            interval,
            idle_after,
            ..
        } = strategy;
        AssignWatermarks {
            due: generator.advances_by_itself().then(|| now.after(interval)),
            generator,
            interval,
            idle_after,
            clock,
            last_record: now,
            idle: false,
            records: PhantomData,
        }
    }

    fn emit_if_due(&mut self, now: Ticks, out: &mut Collector<T>)
    where
        T: Record,
    {
        if self.due.is_some_and(|due| due <= now) {
            let again = self.generator.advances_by_itself();
            self.due = again.then(|| now.after(self.interval));
            if !self.idle {
                self.emit(out);
            }
        }
    }

    fn emit(&mut self, out: &mut Collector<T>)
    where
        T: Record,
    {
        if let Some(watermark) = self.generator.on_periodic() {
            out.emit_watermark(watermark);
        }
    }

    /// Nobody is to wait for the watermark of a record that came just before the silence, so it
    /// goes first.
    fn become_idle(&mut self, out: &mut Collector<T>)
    where
        T: Record,
    {
        self.emit(out);
        out.emit_idle();
        self.idle = true;
    }

    fn idle_at(&self) -> Option<Ticks> {
        let silence = self.idle_after.filter(|_| !self.idle)?;
        Some(self.last_record.after(silence))
    }
}

impl<T: Record, G: WatermarkGenerator<T>> Logic<T, T> for AssignWatermarks<T, G> {
    fn process(&mut self, input: &mut Batch<T>, out: &mut Collector<T>) -> Result<Flow, BoxError> {
        let now = self.clock.ticks();
        self.last_record = now;
        if std::mem::take(&mut self.idle) {
            out.emit_active();
        }
        while !out.is_full() {
            let Some(record) = input.next() else { break };
            let watermark = self.generator.on_record(&record);
            out.emit(record);
            if let Some(watermark) = watermark {
                out.emit_watermark(watermark);
            }
        }
        self.due.get_or_insert(now.after(self.interval));
        self.emit_if_due(now, out);
        Ok(Flow::Continue)
    }

    fn poll(&mut self, inputs_ended: bool, out: &mut Collector<T>) -> Result<Activity, BoxError> {
        if inputs_ended {
            return Ok(Activity::Ended);
        }
        let now = self.clock.ticks();
        self.emit_if_due(now, out);
        if self.idle_at().is_some_and(|at| at <= now) {
            self.become_idle(out);
        }
        let next = [self.due, self.idle_at()].into_iter().flatten().min();
        Ok(next.map_or(Activity::Idle, Activity::At))
    }

    /// Only the end is heard of here. The last watermark of its own goes before it.
    fn on_watermark(
        &mut self,
        watermark: EventTime,
        out: &mut Collector<T>,
    ) -> Result<WatermarkProgress, BoxError> {
        if watermark == EventTime::MAX {
            self.emit(out);
        }
        Ok(WatermarkProgress::Done)
    }

    /// Its input is not silent; whoever went on without it would be ahead of these records.
    fn on_records_waiting(&mut self) {
        self.last_record = self.clock.ticks();
    }

    fn generates_watermarks(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
