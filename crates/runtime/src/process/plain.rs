//! Process functions without keys: operator state, side outputs, event time.

use tidegate_state::{OperatorStateBackend, Record};
use tidegate_types::{CheckpointBarrier, CheckpointId, EventTime, UnixMillis};

use super::broadcast::{BroadcastContext, BroadcastProcessFunction};
use super::context::Times;
use super::open::{OpenContext, open_operator_state};
use crate::batch::Batch;
use crate::clock::Clock;
use crate::either::Either;
use crate::error::BoxError;
use crate::logic::{Flow, Logic, Snapshot, SubtaskContext, WatermarkProgress};
use crate::output::Collector;

/// What a function without keys knows while it works on a record.
pub struct ProcessContext<'a> {
    times: Times<'a>,
}

impl ProcessContext<'_> {
    /// How far event time has come; see
    /// [`KeyedContext::current_watermark`](super::KeyedContext::current_watermark).
    pub fn current_watermark(&self) -> EventTime {
        self.times.watermark
    }

    /// Time on the machine's clock.
    pub fn current_processing_time(&self) -> UnixMillis {
        self.times.clock.wall()
    }
}

/// A function over the records of a stream, with operator state and side outputs.
pub trait ProcessFunction: 'static {
    /// What comes in.
    type In: Record;
    /// What goes out.
    type Out: Record;

    /// Works on one record.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        record: Self::In,
        ctx: &mut ProcessContext<'_>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// All input has ended, and every timer that is due then has fired: emits what is left. Called
    /// once per job; what it emits, it takes out of its state. See
    /// [`Logic::finish`](crate::Logic::finish) for when it may be called again.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn finish(&mut self, _out: &mut Collector<Self::Out>) -> Result<(), BoxError> {
        Ok(())
    }

    /// A checkpoint that holds this function's state has completed.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn notify_checkpoint_complete(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A user's function without keys as the operator sees it.
pub trait UnkeyedFunction: 'static {
    /// What comes in.
    type In: Record;
    /// What goes out.
    type Out: Record;

    /// Works on one record.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        record: Self::In,
        times: Times<'_>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// All input has ended.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn finish(&mut self, out: &mut Collector<Self::Out>) -> Result<(), BoxError>;

    /// A checkpoint with this function's state is durable.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn notify_checkpoint_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError>;
}

/// One input.
pub struct One<F>(pub F);

impl<F: ProcessFunction> UnkeyedFunction for One<F> {
    type In = F::In;
    type Out = F::Out;

    #[inline]
    fn process(
        &mut self,
        record: F::In,
        times: Times<'_>,
        out: &mut Collector<F::Out>,
    ) -> Result<(), BoxError> {
        self.0.process(record, &mut ProcessContext { times }, out)
    }

    fn finish(&mut self, out: &mut Collector<F::Out>) -> Result<(), BoxError> {
        self.0.finish(out)
    }

    fn notify_checkpoint_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.0.notify_checkpoint_complete(checkpoint)
    }
}

/// One input and a broadcast one.
pub struct OneWithBroadcast<F>(pub F);

impl<F: BroadcastProcessFunction> UnkeyedFunction for OneWithBroadcast<F> {
    type In = Either<F::In, F::Broadcast>;
    type Out = F::Out;

    #[inline]
    fn process(
        &mut self,
        record: Self::In,
        times: Times<'_>,
        out: &mut Collector<F::Out>,
    ) -> Result<(), BoxError> {
        match record {
            Either::Left(record) => self.0.process(record, &mut ProcessContext { times }, out),
            Either::Right(record) => {
                let mut ctx = BroadcastContext { times };
                self.0.process_broadcast(record, &mut ctx, out)
            }
        }
    }

    fn finish(&mut self, out: &mut Collector<F::Out>) -> Result<(), BoxError> {
        self.0.finish(out)
    }

    fn notify_checkpoint_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.0.notify_checkpoint_complete(checkpoint)
    }
}

/// Runs an [`UnkeyedFunction`].
pub struct Unkeyed<F> {
    function: F,
    state: OperatorStateBackend,
    watermark: EventTime,
    clock: Clock,
}

impl<F: UnkeyedFunction> Unkeyed<F> {
    /// Restores the operator state and lets `open` make the function, which binds its states.
    ///
    /// # Errors
    /// If the checkpoint's state doesn't fit, or `open` fails.
    pub fn open(
        context: &SubtaskContext,
        open: impl FnOnce(&mut OpenContext<'_>) -> Result<F, BoxError>,
    ) -> Result<Self, BoxError> {
        let mut state = open_operator_state(context)?;
        let function = open(&mut OpenContext {
            context,
            state: &mut state,
        })?;
        Ok(Unkeyed {
            function,
            state,
            watermark: EventTime::MIN,
            clock: context.clock.clone(),
        })
    }
}

impl<F: UnkeyedFunction> Logic<F::In, F::Out> for Unkeyed<F> {
    fn process(
        &mut self,
        input: &mut Batch<F::In>,
        out: &mut Collector<F::Out>,
    ) -> Result<Flow, BoxError> {
        while !out.is_full() {
            let Some(record) = input.next() else { break };
            let times = Times {
                watermark: self.watermark,
                clock: &self.clock,
            };
            self.function.process(record, times, out)?;
        }
        Ok(Flow::Continue)
    }

    fn on_watermark(
        &mut self,
        watermark: EventTime,
        _out: &mut Collector<F::Out>,
    ) -> Result<WatermarkProgress, BoxError> {
        self.watermark = watermark;
        Ok(WatermarkProgress::Done)
    }

    fn finish(&mut self, out: &mut Collector<F::Out>) -> Result<(), BoxError> {
        self.function.finish(out)
    }

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(Snapshot {
            lists: self.state.snapshot()?,
            ..Snapshot::default()
        })
    }

    fn on_completed(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.function.notify_checkpoint_complete(checkpoint)
    }
}
