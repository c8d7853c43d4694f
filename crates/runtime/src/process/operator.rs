//! The operator around every keyed function.

use std::time::Duration;

use tidegate_state::{
    LikelyPlace, OperatorStateBackend, Record, SnapshotProgress, StateError, StateKey, TimerService,
};
use tidegate_types::{CheckpointBarrier, CheckpointId, EventTime, UnixMillis};

use super::context::{KeyedContext, TimeDomain, Timer, Times, clamped};
use super::open::{KeyedOpenContext, OpenContext, open_operator_state};
use crate::batch::Batch;
use crate::clock::Clock;
use crate::error::BoxError;
use crate::keyed_state::KeyedState;
use crate::logic::{Activity, Flow, Logic, Snapshot, SubtaskContext, WatermarkProgress};
use crate::look_ahead::{Ahead, ByKey, process_by_key};
use crate::output::Collector;

/// A user's function as the operator sees it: records of any number of inputs come as one type.
pub trait KeyedFunction: 'static {
    /// What records and state are grouped by.
    type Key: StateKey;
    /// What comes in.
    type In: Record;
    /// What goes out.
    type Out: Record;

    /// Hash of a record's key; any number if it has none.
    fn key_hash(&self, record: &Self::In) -> u64;

    /// Works on one record. `key_hash` is the hash of its key, if that is known already.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        record: Self::In,
        key_hash: Option<u64>,
        keys: &mut KeyedCore<Self::Key>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// Works on a timer that has fired.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn on_timer(
        &mut self,
        timer: Timer,
        ctx: &mut KeyedContext<'_, Self::Key>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// All input has ended and every timer that is due has fired.
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

/// Name of the timers among an operator's states.
const TIMERS: &str = "timers";

/// Timers that fire before the worker looks at whatever else there is to do, such as being told to
/// stop: a watermark may make millions due at once.
const TIMERS_PER_STEP: usize = 512;

/// How far a time has come: which timers are due.
#[derive(Clone, Copy)]
enum Due {
    Watermark(EventTime),
    Clock(UnixMillis),
}

/// What every [`KeyedFunction`] around a user's `function` does alike.
macro_rules! all_but_records_goes_to_the_function {
    () => {
        fn on_timer(
            &mut self,
            timer: Timer,
            ctx: &mut KeyedContext<'_, F::Key>,
            out: &mut Collector<F::Out>,
        ) -> Result<(), BoxError> {
            self.function.on_timer(timer, ctx, out)
        }

        fn finish(&mut self, out: &mut Collector<F::Out>) -> Result<(), BoxError> {
            self.function.finish(out)
        }

        fn notify_checkpoint_complete(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
            self.function.notify_checkpoint_complete(checkpoint)
        }
    };
}
pub(super) use all_but_records_goes_to_the_function;

/// State, timers and times of one keyed subtask.
pub struct KeyedCore<K: StateKey> {
    state: KeyedState<K>,
    operator_state: OperatorStateBackend,
    timers: TimerService<K>,
    /// Of the record that is worked on. Kept, so that a key with heap data reuses its memory.
    key: Option<K>,
    key_hash: u64,
    watermark: EventTime,
    clock: Clock,
}

impl<K: StateKey> KeyedCore<K> {
    /// Notes the key of the record that comes next, and its hash, if that is known.
    #[inline]
    pub(super) fn set_key(&mut self, key: &K, key_hash: Option<u64>) {
        match &mut self.key {
            Some(current) => current.clone_from(key),
            None => self.key = Some(key.clone()),
        }
        self.key_hash = key_hash.unwrap_or_else(|| key.key_hash());
    }

    /// The context of the key that was set last.
    #[inline]
    pub(super) fn context(&mut self) -> KeyedContext<'_, K> {
        let key = self.key.as_ref().expect("a key is set before each record");
        KeyedContext {
            key,
            key_hash: self.key_hash,
            times: self.times(),
            timers: &self.timers,
        }
    }

    #[inline]
    pub(super) fn times(&self) -> Times<'_> {
        Times {
            watermark: self.watermark,
            clock: &self.clock,
        }
    }

    /// Takes the first timer out that is due, and makes its key the current one.
    fn next_due(&mut self, due: Due) -> Result<Option<Timer>, StateError> {
        let (domain, next) = match due {
            Due::Watermark(watermark) => {
                let next = self.timers.next_event_timer(watermark.0)?;
                (TimeDomain::EventTime, next)
            }
            Due::Clock(now) => {
                let next = self.timers.next_processing_timer(clamped(now))?;
                (TimeDomain::ProcessingTime, next)
            }
        };
        let Some((key, (), time)) = next else {
            return Ok(None);
        };
        self.key_hash = key.key_hash();
        self.key = Some(key);
        Ok(Some(Timer { domain, time }))
    }
}

/// Runs a [`KeyedFunction`].
pub struct Keyed<F: KeyedFunction> {
    function: F,
    core: KeyedCore<F::Key>,
    /// It had finished before the checkpoint that it was restored from: whatever timers are left
    /// were too late, and still are.
    had_finished: bool,
}

impl<F: KeyedFunction> Keyed<F> {
    /// Restores the state and lets `open` make the function, which binds its states.
    ///
    /// # Errors
    /// If the checkpoint's state can't be read or doesn't fit, or `open` fails.
    pub fn open(
        context: &SubtaskContext,
        open: impl FnOnce(&mut KeyedOpenContext<'_, F::Key>) -> Result<F, BoxError>,
    ) -> Result<Self, BoxError> {
        let mut state = KeyedState::open(context)?;
        let mut operator_state = open_operator_state(context)?;
        let timers = TimerService::bind(&mut state.backend, TIMERS)?;
        let mut states = KeyedOpenContext {
            backend: &mut state.backend,
            operator: OpenContext {
                context,
                state: &mut operator_state,
            },
        };
        let function = open(&mut states)?;
        let core = KeyedCore {
            state,
            operator_state,
            timers,
            key: None,
            key_hash: 0,
            watermark: EventTime::MIN,
            clock: context.clock.clone(),
        };
        let had_finished = context.restore.finished;
        Ok(Keyed {
            function,
            core,
            had_finished,
        })
    }

    /// Fires what is due, as far as the output has room and for a limited time. Returns whether all
    /// of it has fired.
    fn fire(&mut self, due: Due, out: &mut Collector<F::Out>) -> Result<bool, BoxError> {
        for _ in 0..TIMERS_PER_STEP {
            if out.is_full() {
                break;
            }
            let Some(timer) = self.core.next_due(due)? else {
                return Ok(true);
            };
            self.function
                .on_timer(timer, &mut self.core.context(), out)?;
        }
        Ok(false)
    }
}

impl<F: KeyedFunction> ByKey for Keyed<F> {
    type In = F::In;
    type Out = F::Out;
    /// The hash of its key, if it is known.
    type Begun = Option<u64>;

    fn outgrows_cache(&self) -> bool {
        self.core.state.backend.outgrows_cache()
    }

    #[inline]
    fn key_hash(&self, record: &F::In) -> u64 {
        self.function.key_hash(record)
    }

    fn prefetch(&self, key_hashes: &[u64], _places: &mut [LikelyPlace]) {
        self.core.state.backend.prefetch(key_hashes);
    }

    #[inline]
    fn begin(&mut self, _record: &F::In, ahead: Ahead) -> Option<u64> {
        ahead.map(|(key_hash, _)| key_hash)
    }

    #[inline]
    fn work(
        &mut self,
        record: F::In,
        key_hash: Option<u64>,
        out: &mut Collector<F::Out>,
    ) -> Result<(), BoxError> {
        self.function.process(record, key_hash, &mut self.core, out)
    }
}

impl<F: KeyedFunction> Logic<F::In, F::Out> for Keyed<F> {
    fn process(
        &mut self,
        input: &mut Batch<F::In>,
        out: &mut Collector<F::Out>,
    ) -> Result<Flow, BoxError> {
        process_by_key(self, input, out)?;
        Ok(Flow::Continue)
    }

    /// Processing-time timers. Those that are still to come when the input has ended never fire:
    /// waiting for them could take for ever.
    fn poll(
        &mut self,
        inputs_ended: bool,
        out: &mut Collector<F::Out>,
    ) -> Result<Activity, BoxError> {
        if self.had_finished {
            return Ok(if inputs_ended {
                Activity::Ended
            } else {
                Activity::Idle
            });
        }
        let now = self.core.clock.wall();
        if !self.fire(Due::Clock(now), out)? {
            return Ok(Activity::Busy);
        }
        if inputs_ended {
            // Event-time timers that those have registered: there is no next watermark.
            let watermark = self.core.watermark;
            let all = self.fire(Due::Watermark(watermark), out)?;
            return Ok(if all { Activity::Ended } else { Activity::Busy });
        }
        Ok(match self.core.timers.next_processing_wakeup() {
            None => Activity::Idle,
            Some(at) => {
                let wait = at.saturating_sub(clamped(now)).unsigned_abs();
                let wait = Duration::from_millis(wait);
                Activity::At(self.core.clock.ticks().after(wait))
            }
        })
    }

    fn on_watermark(
        &mut self,
        watermark: EventTime,
        out: &mut Collector<F::Out>,
    ) -> Result<WatermarkProgress, BoxError> {
        if self.had_finished {
            return Ok(WatermarkProgress::Done);
        }
        self.core.watermark = watermark;
        let all = self.fire(Due::Watermark(watermark), out)?;
        Ok(if all {
            WatermarkProgress::Done
        } else {
            WatermarkProgress::More
        })
    }

    fn finish(&mut self, out: &mut Collector<F::Out>) -> Result<(), BoxError> {
        self.function.finish(out)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        Ok(Snapshot {
            lists: self.core.operator_state.snapshot()?,
            ..self.core.state.freeze(barrier)
        })
    }

    fn advance_snapshots(&mut self) -> SnapshotProgress {
        self.core.state.advance_snapshots()
    }

    fn on_aborted(&mut self, checkpoint: CheckpointId) {
        self.core.state.on_aborted(checkpoint);
    }

    fn on_completed(&mut self, checkpoint: CheckpointId) -> Result<(), BoxError> {
        self.function.notify_checkpoint_complete(checkpoint)
    }
}
