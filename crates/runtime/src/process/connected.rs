//! Co-process functions: two inputs of different types over the same keyed state.

use tidegate_state::{Record, StateKey};
use tidegate_types::CheckpointId;

use super::context::{KeyedContext, Timer};
use super::operator::{KeyedCore, KeyedFunction, all_but_records_goes_to_the_function};
use crate::either::Either;
use crate::error::BoxError;
use crate::output::{Collector, KeySelector};

/// A function over two keyed streams that share their keys: what one stream leaves in a key's
/// state, the other finds there.
pub trait KeyedCoProcessFunction: 'static {
    /// What both streams are keyed by.
    type Key: StateKey;
    /// What comes in on the first stream.
    type Left: Record;
    /// What comes in on the second stream.
    type Right: Record;
    /// What goes out.
    type Out: Record;

    /// Works on a record of the first stream. Between the two streams there is no order.
    ///
    /// # Errors
    /// An error ends the attempt; the job restarts from the latest checkpoint.
    fn process_left(
        &mut self,
        record: Self::Left,
        ctx: &mut KeyedContext<'_, Self::Key>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// Works on a record of the second stream.
    ///
    /// # Errors
    /// As for [`process_left`](Self::process_left).
    fn process_right(
        &mut self,
        record: Self::Right,
        ctx: &mut KeyedContext<'_, Self::Key>,
        out: &mut Collector<Self::Out>,
    ) -> Result<(), BoxError>;

    /// A timer of the context's key has fired. Event time is that of the stream that lags behind.
    ///
    /// # Errors
    /// As for [`process_left`](Self::process_left).
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
    /// As for [`process_left`](Self::process_left).
    fn finish(&mut self, _out: &mut Collector<Self::Out>) -> Result<(), BoxError> {
        Ok(())
    }

    /// A checkpoint that holds this function's state has completed.
    ///
    /// # Errors
    /// As for [`process_left`](Self::process_left).
    fn notify_checkpoint_complete(&mut self, _checkpoint: CheckpointId) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A [`KeyedCoProcessFunction`] and where the keys of both kinds of records are.
pub struct Connected<L, R, F> {
    left: L,
    right: R,
    function: F,
}

impl<L, R, F> Connected<L, R, F> {
    /// `left` and `right` find the keys.
    pub fn new(left: L, right: R, function: F) -> Self {
        Connected {
            left,
            right,
            function,
        }
    }
}

impl<L, R, F> KeyedFunction for Connected<L, R, F>
where
    F: KeyedCoProcessFunction,
    L: KeySelector<F::Left, Key = F::Key>,
    R: KeySelector<F::Right, Key = F::Key>,
{
    type Key = F::Key;
    type In = Either<F::Left, F::Right>;
    type Out = F::Out;

    #[inline]
    fn key_hash(&self, record: &Self::In) -> u64 {
        match record {
            Either::Left(record) => self.left.with_key(record, F::Key::key_hash),
            Either::Right(record) => self.right.with_key(record, F::Key::key_hash),
        }
    }

    #[inline]
    fn process(
        &mut self,
        record: Self::In,
        key_hash: Option<u64>,
        keys: &mut KeyedCore<F::Key>,
        out: &mut Collector<F::Out>,
    ) -> Result<(), BoxError> {
        match record {
            Either::Left(record) => {
                self.left
                    .with_key(&record, |key| keys.set_key(key, key_hash));
                self.function.process_left(record, &mut keys.context(), out)
            }
            Either::Right(record) => {
                self.right
                    .with_key(&record, |key| keys.set_key(key, key_hash));
                self.function
                    .process_right(record, &mut keys.context(), out)
            }
        }
    }

    all_but_records_goes_to_the_function!();
}
