//! One parallel instance of an operator, as timely schedules it: everything around the
//! [`Logic`] that is the same for all operators.
//!
//! Each activation works for about a millisecond: it takes in notices, credit and items, lets the
//! logic work as far as credit reaches, and asks to be activated again if work is left. Nothing
//! polls: a subtask with nothing to do sleeps until data, credit, a timer or a notice wakes it.
//!
//! Invariants: a snapshot of *n* contains exactly what came before barrier *n* on every channel
//! (exactly-once mode); barrier *n* leaves before anything that came after it; a watermark is
//! worked off before anything else is taken from any channel; after a failure the
//! subtask does nothing but drain its inputs; behind the barrier of a stop it emits no data,
//! whatever it has at hand, and still takes part in all else: notices, later barriers, snapshots.

mod barriers;
mod busy_clock;
mod event_time;
mod first_barriers;
#[cfg(test)]
mod interleavings;
mod taken;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_state::{Record, SnapshotProgress};
use tidegate_types::message::{Notice, Report};
use tidegate_types::{AlignmentMode, CheckpointId, SubtaskId};
use timely::scheduling::Activator;

use crate::alignment::{Alignment, AlignmentAction, ChannelIndex};
use crate::alive::{SignOfLife, Stage};
use crate::background::panic_message;
use crate::batch::Batch;
use crate::chaining::Chained;
use crate::clock::Ticks;
use crate::error::{BoxError, chain};
use crate::input::Inputs;
use crate::item::{Marker, Payload};
use crate::logic::{Activity, Flow, Logic, SubtaskContext};
use crate::metrics::SubtaskMetrics;
use crate::output::Collector;
use crate::watermark::WatermarkStatus;

use busy_clock::BusyClock;
use event_time::EventTimeProgress;
use first_barriers::FirstBarriers;
pub(crate) use taken::{SnapshotWrite, TakenSnapshots};

/// How long one activation works before it lets other operators of the worker have a turn.
const ACTIVATION_MAX: Duration = Duration::from_millis(1);

/// Longest timer that is set; a later moment is waited for in several steps.
const TIMER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long to leave a snapshot's writer alone that has enough to do.
const WRITERS_WAIT: Duration = Duration::from_millis(1);

/// Notices for one subtask, put there by its worker.
pub(crate) type Mailbox = Rc<RefCell<VecDeque<Notice>>>;

/// Makes a logic and restores its state. Runs on the worker, in the first activation.
pub(crate) type MakeLogic<L> = Box<dyn FnOnce(&SubtaskContext) -> Result<L, BoxError>>;

/// What a subtask is assembled from.
pub(crate) struct Assembly<In, Out, L> {
    pub(crate) context: SubtaskContext,
    pub(crate) make: MakeLogic<L>,
    pub(crate) inputs: Inputs<In>,
    pub(crate) out: Collector<Out>,
    pub(crate) mailbox: Mailbox,
    pub(crate) activator: Activator,
    pub(crate) sign: Arc<SignOfLife>,
    pub(crate) metrics: SubtaskMetrics,
    pub(crate) mode: AlignmentMode,
    pub(crate) buffer_timeout: Duration,
    /// Whether it reads a source: its end is an end of the source, and a drain ends its data.
    pub(crate) is_reader: bool,
}

enum Phase<L> {
    /// Not yet activated.
    Created(MakeLogic<L>),
    Running(L),
    /// Failed: the attempt is being stopped.
    Dead,
}

/// A data item that the logic has begun to work on.
struct Current<In> {
    channel: ChannelIndex,
    records: Batch<In>,
    bytes: u64,
}

pub(crate) struct Subtask<In, Out, L> {
    context: SubtaskContext,
    phase: Phase<L>,
    inputs: Inputs<In>,
    current: Option<Current<In>>,
    event_time: EventTimeProgress,
    /// Credit that goes back once the output has room: what was made of an item counts as in
    /// flight here until then, or an operator that makes much of little would run far ahead.
    owed: Vec<(ChannelIndex, u64)>,
    out: Collector<Out>,
    alignment: Alignment,
    alignment_actions: Vec<AlignmentAction>,
    /// Newest checkpoint whose barrier has come on every channel.
    passed: CheckpointId,
    first_barriers: FirstBarriers,
    taken: TakenSnapshots,
    /// `finish()` has run, in this attempt or before the checkpoint it was restored from.
    finished: bool,
    end_sent: bool,
    /// The barrier of a stop has been passed on: no data may follow it.
    stopped: bool,
    paused_until: Option<Ticks>,
    /// When the timer that is set will fire.
    timer: Option<Ticks>,
    last_flush: Ticks,
    busy: BusyClock,
    mailbox: Mailbox,
    activator: Activator,
    sign: Arc<SignOfLife>,
    metrics: SubtaskMetrics,
    records_in: u64,
    /// Weight of the records that have been processed, a batch at a time.
    bytes_in: u64,
    mode: AlignmentMode,
    buffer_timeout: Duration,
    is_reader: bool,
    types: PhantomData<fn(In) -> Out>,
}

/// Who lets a subtask work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActivatedBy {
    /// The worker, since there is something to do.
    Worker,
    /// The subtask before it in a chain, which may have more for it at once.
    Caller,
}

/// What is left to do at the end of an activation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Work,
    Nothing,
    Until(Ticks),
}

impl Rest {
    fn sooner(self, other: Rest) -> Rest {
        match (self, other) {
            (Rest::Work, _) | (_, Rest::Work) => Rest::Work,
            (Rest::Nothing, rest) | (rest, Rest::Nothing) => rest,
            (Rest::Until(one), Rest::Until(another)) => Rest::Until(one.min(another)),
        }
    }
}

impl<In: Record, Out: Record, L: Logic<In, Out>> Subtask<In, Out, L> {
    pub(crate) fn new(assembly: Assembly<In, Out, L>) -> Self {
        let Assembly {
            context,
            make,
            inputs,
            out,
            mailbox,
            activator,
            sign,
            metrics,
            mode,
            ..
        } = assembly;
        let alignment = Alignment::new(mode, inputs.channel_count());
        let event_time = EventTimeProgress::new(inputs.channel_count());
        Subtask {
            finished: context.restore.finished,
            context,
            phase: Phase::Created(make),
            inputs,
            current: None,
            event_time,
            owed: Vec::new(),
            out,
            alignment,
            alignment_actions: Vec::new(),
            passed: CheckpointId::NONE,
            first_barriers: FirstBarriers::default(),
            taken: TakenSnapshots::default(),
            end_sent: false,
            stopped: false,
            paused_until: None,
            timer: None,
            last_flush: Ticks::now(),
            busy: BusyClock::new(Ticks::now()),
            mailbox,
            activator,
            sign,
            metrics,
            records_in: 0,
            bytes_in: 0,
            mode,
            buffer_timeout: assembly.buffer_timeout,
            is_reader: assembly.is_reader,
            types: PhantomData,
        }
    }

    /// Runs one activation. Panics and errors of the logic end the attempt, by a report.
    pub(crate) fn activate(&mut self, by: ActivatedBy) {
        if !self.is_alive() {
            self.discard_input();
            return;
        }
        let caller = self.sign.active();
        self.guarded(|subtask| subtask.run(by));
        self.sign.leave(caller);
    }

    /// Whatever goes wrong ends the attempt, as a failure of this subtask and not of its caller.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<(), BoxError>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.die(chain(&error)),
            Err(panic) => self.die(format!("panicked: {}", panic_message(&*panic))),
        }
    }

    fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::Dead)
    }

    fn id(&self) -> SubtaskId {
        self.context.subtask
    }

    fn die(&mut self, cause: String) {
        self.phase = Phase::Dead;
        self.current = None;
        self.context.reports.fail(Some(self.id()), cause);
        self.discard_input();
    }

    fn discard_input(&mut self) {
        // Draining keeps timely's progress going; what was drained is of no use to anybody, and
        // so is what may be wrong with it.
        let _ = self.inputs.pull(CheckpointId::NONE);
        let nothing_blocked = Alignment::new(self.mode, self.inputs.channel_count());
        while self.inputs.next(&nothing_blocked, false, None).is_some() {}
        self.decline_triggers();
    }

    fn run(&mut self, by: ActivatedBy) -> Result<(), BoxError> {
        let began = Ticks::now();
        self.busy.begin(began);
        self.sign.enter(self.id(), Stage::Working, began);
        self.open_once(began)?;
        self.timer = self.timer.filter(|timer| *timer > began);
        self.out.receive_credit();
        self.inputs.pull(self.passed)?;
        self.handle_notices()?;
        let rest = self.work(began)?;
        self.settle(rest, by);
        Ok(())
    }

    fn open_once(&mut self, began: Ticks) -> Result<(), BoxError> {
        if let Phase::Created(_) = &self.phase {
            self.sign.enter(self.id(), Stage::Opening, began);
            let Phase::Created(make) = std::mem::replace(&mut self.phase, Phase::Dead) else {
                unreachable!("matched above")
            };
            self.phase = Phase::Running(make(&self.context)?);
            self.sign.enter(self.id(), Stage::Working, Ticks::now());
            self.context
                .reports
                .send(Report::Running { subtask: self.id() });
        }
        Ok(())
    }

    fn logic(&mut self) -> &mut L {
        match &mut self.phase {
            Phase::Running(logic) => logic,
            Phase::Created(_) | Phase::Dead => unreachable!("only running subtasks do work"),
        }
    }

    /// Works until nothing is left that can be done now, or the time is up.
    fn work(&mut self, began: Ticks) -> Result<Rest, BoxError> {
        loop {
            // Between batches, so that a snapshot gets on however much there is to do.
            let rest = self.step()?.sooner(self.copy_for_snapshots());
            if rest != Rest::Work {
                return Ok(rest);
            }
            let now = Ticks::now();
            self.sign.touch(now);
            if now.since(began) >= ACTIVATION_MAX {
                self.poll_beside_input()?;
                return Ok(Rest::Work);
            }
        }
    }

    /// An operator that always has something to take from its channels gets to its timers, too.
    /// Behind the input and not in front of it, so that records which wait are no silence.
    fn poll_beside_input(&mut self) -> Result<(), BoxError> {
        let has_other_input = self.inputs.channel_count() > 0 && !self.is_reader;
        if has_other_input && !self.out.is_full() && !self.event_time.is_working_off() {
            self.poll_logic()?;
        }
        Ok(())
    }

    /// One piece of work: an item, a part of a watermark, or a poll of the logic.
    fn step(&mut self) -> Result<Rest, BoxError> {
        let paused = self.paused();
        if self.current.is_some() && !self.out.is_full() && !paused {
            self.process_current()?;
            return Ok(Rest::Work);
        }
        if self.event_time.is_working_off() {
            return self.work_off_watermark();
        }
        if self.is_working_off_end() {
            if self.out.is_full() {
                return Ok(Rest::Nothing);
            }
            if self.poll_logic()? == Rest::Work {
                return Ok(Rest::Work);
            }
        }
        let markers_only = self.current.is_some() || self.out.is_full() || paused;
        if let Some((channel, payload)) = self.next_item(markers_only) {
            self.take(channel, payload)?;
            return Ok(Rest::Work);
        }
        let polled = if self.out.is_full() {
            Rest::Nothing
        } else {
            self.poll_logic()?
        };
        let paused = self.paused_until.map_or(Rest::Nothing, Rest::Until);
        Ok(polled.sooner(paused))
    }

    fn copy_for_snapshots(&mut self) -> Rest {
        match self.logic().advance_snapshots() {
            SnapshotProgress::Done => Rest::Nothing,
            SnapshotProgress::More => Rest::Work,
            SnapshotProgress::WritersBehind => Rest::Until(self.clock_now().after(WRITERS_WAIT)),
        }
    }

    fn paused(&mut self) -> bool {
        if let Some(until) = self.paused_until
            && until <= self.clock_now()
        {
            self.paused_until = None;
        }
        self.paused_until.is_some()
    }

    /// While an item is half done, the rest of its channel is behind it.
    fn next_item(&mut self, markers_only: bool) -> Option<(ChannelIndex, Payload<In>)> {
        let busy = self.current.as_ref().map(|current| current.channel);
        self.inputs.next(&self.alignment, markers_only, busy)
    }

    fn take(&mut self, channel: ChannelIndex, payload: Payload<In>) -> Result<(), BoxError> {
        match payload {
            Payload::Data { records, bytes } => {
                self.current = Some(Current {
                    channel,
                    records: records.into(),
                    bytes,
                });
            }
            Payload::Marker(marker) => self.take_marker(channel, marker)?,
        }
        Ok(())
    }

    fn take_marker(&mut self, channel: ChannelIndex, marker: Marker) -> Result<(), BoxError> {
        match marker {
            Marker::Barrier(barrier) => self.on_barrier(channel, barrier)?,
            Marker::Cancel(checkpoint) => self.on_cancel(channel, checkpoint)?,
            Marker::Watermark(watermark) => self.on_watermark(channel, watermark),
            Marker::Idle => self.on_status(channel, WatermarkStatus::Idle),
            Marker::Active => self.on_status(channel, WatermarkStatus::Active),
            // Its channel has noted it, and whoever takes records works the end off next.
            Marker::EndOfData if self.is_reader && !self.out.is_full() => {
                self.poll_logic()?;
            }
            Marker::EndOfData => {}
        }
        Ok(())
    }

    /// All input has ended, and what is due then has not all been done: timers that fire,
    /// `finish()`. No marker is taken until it has, however long it takes the output to have room,
    /// so that what comes of it is in front of the final barrier, which may be right behind. For a
    /// reader the end of its input only means that there are no more splits.
    fn is_working_off_end(&self) -> bool {
        let takes_records = self.inputs.channel_count() > 0 && !self.is_reader;
        let more_to_do = !self.end_sent && !self.stopped;
        takes_records && more_to_do && self.current.is_none() && self.inputs.all_ended()
    }

    fn process_current(&mut self) -> Result<(), BoxError> {
        let Phase::Running(logic) = &mut self.phase else {
            return Ok(());
        };
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let before = current.records.len();
        let flow = logic.process(&mut current.records, &mut self.out)?;
        self.records_in += (before - current.records.len()) as u64;
        if let Flow::PauseUntil(until) = flow {
            self.paused_until = Some(until);
        }
        if current.records.len() == 0 {
            let (channel, bytes) = (current.channel, current.bytes);
            if let Some(emptied) = self.current.take() {
                self.inputs.recycle(channel, emptied.records);
            }
            self.bytes_in += bytes;
            let worked_off = self.logic().take_worked_off().unwrap_or(bytes);
            self.owed.push((channel, worked_off));
        }
        Ok(())
    }

    fn poll_logic(&mut self) -> Result<Rest, BoxError> {
        if self.end_sent || self.stopped {
            return Ok(Rest::Nothing);
        }
        if self.is_restored_at_its_end() {
            self.end()?;
            return Ok(Rest::Nothing);
        }
        let ended = self.current.is_none() && self.inputs.all_ended();
        let Phase::Running(logic) = &mut self.phase else {
            return Ok(Rest::Nothing);
        };
        if self.inputs.has_blocked(&self.alignment) {
            logic.on_records_waiting();
        }
        let activity = logic.poll(ended, &mut self.out)?;
        if let Some(bytes) = logic.take_worked_off()
            && bytes > 0
        {
            self.owed.push((ChannelIndex(0), bytes));
        }
        Ok(match activity {
            Activity::Busy => Rest::Work,
            Activity::Idle => Rest::Nothing,
            Activity::At(at) => Rest::Until(at),
            Activity::Ended => {
                self.end()?;
                Rest::Nothing
            }
        })
    }

    /// A source whose data had come to its end before the checkpoint, by itself or because the job
    /// was being drained: it reads nothing any more, whatever is left in its state.
    fn is_restored_at_its_end(&self) -> bool {
        let is_source = self.is_reader || self.inputs.channel_count() == 0;
        is_source && self.context.restore.finished
    }

    /// All input has ended and the logic has nothing more to do.
    fn end(&mut self) -> Result<(), BoxError> {
        if !self.finished {
            let Phase::Running(logic) = &mut self.phase else {
                return Ok(());
            };
            logic.finish(&mut self.out)?;
            self.finished = true;
        }
        self.out.send_end_of_data();
        self.end_sent = true;
        if self.is_reader {
            self.context
                .reports
                .send(Report::SourceEnded { subtask: self.id() });
        }
        Ok(())
    }

    /// Flushes, returns credit, and arranges for the next activation.
    fn settle(&mut self, rest: Rest, by: ActivatedBy) {
        let now = Ticks::now();
        let overdue = now.since(self.last_flush) >= self.buffer_timeout;
        let at_rest = rest != Rest::Work && by == ActivatedBy::Worker;
        if (at_rest || overdue) && self.out.holds_records() {
            self.out.flush();
            self.last_flush = now;
        }
        if !self.out.is_full() {
            for (channel, bytes) in self.owed.drain(..) {
                self.inputs.processed(channel, bytes);
            }
        }
        let backlogged =
            self.current.is_some() || self.out.is_full() || self.inputs.has_ready(&self.alignment);
        if !backlogged {
            self.busy.rest(now);
        }
        if self.inputs.is_called() {
            // Whoever calls waits for it all the time that it works, though nothing may be left in
            // the end: what it can do is to be seen from that time alone.
            self.inputs.return_credit(self.busy.time(now), true);
        } else {
            self.inputs.return_credit(now.0, backlogged);
        }
        self.metrics.update(self.records_in, self.out.emitted());
        match rest {
            Rest::Work => self.activator.activate(),
            Rest::Nothing => {}
            Rest::Until(at) => self.set_timer(now, at.since(self.clock_now())),
        }
    }

    /// What the operator's pauses and timers go by. Everything else goes by real time.
    fn clock_now(&self) -> Ticks {
        self.context.clock.ticks()
    }

    fn set_timer(&mut self, now: Ticks, wait: Duration) {
        // Every activate_after stays in timely's heap until it fires: set none that is no sooner.
        let at = now.after(wait.min(TIMER_MAX));
        if self.timer.is_none_or(|timer| at < timer) {
            self.timer = Some(at);
            self.activator.activate_after(at.since(now));
        }
    }
}

impl<In: Record, Out: Record, L: Logic<In, Out>> Chained for RefCell<Subtask<In, Out, L>> {
    fn call(&self) {
        self.borrow_mut().activate(ActivatedBy::Caller);
    }

    fn flush(&self) {
        let subtask = &mut *self.borrow_mut();
        if subtask.is_alive() {
            subtask.guarded(|subtask| {
                subtask.out.flush();
                Ok(())
            });
        }
    }

    fn holds_records(&self) -> bool {
        let subtask = self.borrow();
        subtask.is_alive() && subtask.out.holds_records()
    }
}

impl<In, Out, L> Drop for Subtask<In, Out, L> {
    /// What this subtask has not acknowledged by now belongs to no checkpoint any more.
    fn drop(&mut self) {
        self.taken.cancel_all();
    }
}
