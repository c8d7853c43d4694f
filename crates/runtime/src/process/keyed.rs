//! Keyed process functions: one input.

use tidegate_state::{Record, StateKey};
use tidegate_types::CheckpointId;

use super::context::{KeyedContext, Timer};
use super::operator::{KeyedCore, KeyedFunction, all_but_records_goes_to_the_function};
use crate::error::BoxError;
use crate::output::{Collector, KeySelector};

/// A function over the records of a keyed stream, with state and timers per key.
///
/// One is made per subtask and attempt, by the `open` function that the job passes; what its fields
/// hold besides handles of state is lost with the attempt.
pub trait KeyedProcessFunction: 'static {
    /// What the stream is keyed by.
    type Key: StateKey;
    /// What comes in.
    type In: Record;
    /// What goes out.
    type Out: Record;

    /// Works on one record: reads and changes the state of its key, registers timers, emits any
    /// number of records.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process(
        &mut self,
        record: Self::In,
        ctx: &mut KeyedContext<'_, Self::Key>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// A timer of the context's key has fired.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn on_timer(
        &mut self,
        _timer: Timer,
        _ctx: &mut KeyedContext<'_, Self::Key>,
        _out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError> {
        Ok(())
    }

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

/// A [`KeyedProcessFunction`] and where the keys of its records are.
pub struct Single<S, F> {
    selector: S,
    function: F,
}

impl<S, F> Single<S, F> {
    /// `selector` finds the key of each record.
    pub fn new(selector: S, function: F) -> Self {
        Single { selector, function }
    }
}

impl<F, S> KeyedFunction for Single<S, F>
where
    F: KeyedProcessFunction,
    S: KeySelector<F::In, Key = F::Key>,
{
    type Key = F::Key;
    type In = F::In;
    type Out = F::Out;

    #[inline]
    fn key_hash(&self, record: &F::In) -> u64 {
        self.selector.with_key(record, F::Key::key_hash)
    }

    #[inline]
    fn process(
        &mut self,
        record: F::In,
        key_hash: Option<u64>,
        keys: &mut KeyedCore<F::Key>,
        out: &mut Collector<F::Out>,
    ) -> Result<(), BoxError> {
        self.selector
            .with_key(&record, |key| keys.set_key(key, key_hash));
        self.function.process(record, &mut keys.context(), out)
    }

    all_but_records_goes_to_the_function!();
}
