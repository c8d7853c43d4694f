//! Slows a sink down, without blocking the thread it runs on.
//!
//! A throttled writer passes on as many records as its [rate] allows and leaves the rest
//! where they are; it never keeps any, so that checkpoints are none of its business.

use tidegate_runtime::Batch;
use tidegate_runtime::sink::{
    PreCommitted, Sink, SinkContext, SinkWriter, SubmitContext, TransactionWriter, TwoPhaseSink,
};
use tidegate_runtime::{BoxError, Flow, Ticks};
use tidegate_types::{CheckpointId, OperatorUid};

use crate::file::FileSink;
use crate::memory::{Collect, CollectCommitted, Discard};
use crate::print::Print;
use crate::rate::{self, RateLimit};

/// Sinks that can be slowed down.
pub trait Throttle: Sized {
    /// Takes at most so many records per second in total; each subtask takes an equal part.
    ///
    /// ```
    /// use tidegate_connectors::{Discard, Throttle};
    ///
    /// let slow = Discard.throttle(1_000.0);
    /// ```
    fn throttle(self, per_second: f64) -> Throttled<Self> {
        Throttled {
            sink: self,
            per_second,
        }
    }
}

impl Throttle for Discard {}
impl<T> Throttle for Collect<T> {}
impl<T> Throttle for CollectCommitted<T> {}
impl<F> Throttle for Print<F> {}
impl<F> Throttle for FileSink<F> {}

/// A sink that takes only so many records per second. See [`Throttle`].
#[derive(Clone, Debug)]
pub struct Throttled<S> {
    sink: S,
    per_second: f64,
}

impl<S> Throttled<S> {
    fn limit(&self, context: &SinkContext) -> Result<RateLimit, BoxError> {
        rate::check(self.per_second)?;
        Ok(RateLimit::new(
            self.per_second / f64::from(context.parallelism.max(1)),
        ))
    }
}

impl<T: 'static, S: Sink<T>> Sink<T> for Throttled<S> {
    type Writer = ThrottledWriter<S::Writer>;

    fn check(&self) -> Result<(), BoxError> {
        rate::check(self.per_second)?;
        self.sink.check()
    }

    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError> {
        let limit = self.limit(&context)?;
        Ok(ThrottledWriter {
            writer: self.sink.writer(context)?,
            limit,
        })
    }
}

impl<T: 'static, S: TwoPhaseSink<T>> TwoPhaseSink<T> for Throttled<S> {
    type Transaction = S::Transaction;
    type Writer = ThrottledWriter<S::Writer>;
    type Committer = S::Committer;

    fn check(&self, uid: &OperatorUid, context: SubmitContext) -> Result<(), BoxError> {
        rate::check(self.per_second)?;
        self.sink.check(uid, context)
    }

    fn writer(&self, context: SinkContext) -> Result<Self::Writer, BoxError> {
        let limit = self.limit(&context)?;
        Ok(ThrottledWriter {
            writer: self.sink.writer(context)?,
            limit,
        })
    }

    fn committer(&self, context: SinkContext) -> Result<S::Committer, BoxError> {
        self.sink.committer(context)
    }
}

/// Writes for one subtask of a [`Throttled`] sink.
#[derive(Debug)]
pub struct ThrottledWriter<W> {
    writer: W,
    limit: RateLimit,
}

impl<W> ThrottledWriter<W> {
    fn pass<T>(
        &mut self,
        now: Ticks,
        records: &mut Batch<T>,
        write: impl FnOnce(&mut W, &mut Batch<T>) -> Result<Flow, BoxError>,
    ) -> Result<Flow, BoxError> {
        let allowed = usize::try_from(self.limit.available(now)).unwrap_or(usize::MAX);
        let given = allowed.min(records.len());
        let mut part = records.by_ref().take(given).collect::<Vec<_>>().into();
        let flow = if given == 0 {
            Flow::Continue
        } else {
            write(&mut self.writer, &mut part)?
        };
        self.limit.spend((given - part.len()) as u64);
        if part.len() > 0 {
            *records = part.chain(records.by_ref()).collect::<Vec<_>>().into();
        }
        Ok(match flow {
            Flow::Continue if records.len() > 0 => Flow::PauseUntil(self.limit.next(now)),
            flow => flow,
        })
    }
}

impl<T: 'static, W: SinkWriter<T>> SinkWriter<T> for ThrottledWriter<W> {
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        self.pass(Ticks::now(), records, W::write)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        self.writer.flush()
    }
}

impl<T: 'static, W: TransactionWriter<T>> TransactionWriter<T> for ThrottledWriter<W> {
    type Transaction = W::Transaction;

    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        self.pass(Ticks::now(), records, W::write)
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Vec<PreCommitted<W::Transaction>>, BoxError> {
        self.writer.pre_commit(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Ticks {
        Ticks(Duration::from_millis(millis))
    }

    fn throttled() -> ThrottledWriter<Vec<u32>> {
        ThrottledWriter {
            writer: Vec::new(),
            limit: RateLimit::new(10.0),
        }
    }

    fn take_all(taken: &mut Vec<u32>, records: &mut Batch<u32>) -> Result<Flow, BoxError> {
        taken.extend(records);
        Ok(Flow::Continue)
    }

    #[test]
    fn passes_on_what_the_rate_allows_and_leaves_the_rest() {
        let mut writer = throttled();
        let mut records = Batch::from(vec![1, 2, 3]);
        let flow = writer.pass(at(0), &mut records, take_all).unwrap();
        let Flow::PauseUntil(next) = flow else {
            panic!("not throttled")
        };
        assert!(next >= at(100) && next < at(101), "{next:?}");
        assert_eq!(
            (writer.writer.as_slice(), records.as_slice()),
            (&[1][..], &[2, 3][..])
        );
        // Asked too early, it changes nothing.
        let early = writer.pass(at(50), &mut records, take_all).unwrap();
        assert!(matches!(early, Flow::PauseUntil(next) if next >= at(100) && next < at(101)));
        writer.pass(at(101), &mut records, take_all).unwrap();
        assert_eq!(
            writer.pass(at(300), &mut records, take_all).unwrap(),
            Flow::Continue
        );
        assert_eq!(writer.writer, [1, 2, 3]);
    }

    #[test]
    fn what_the_sink_itself_leaves_stays_in_order_and_costs_nothing() {
        let mut writer = ThrottledWriter {
            writer: Vec::new(),
            limit: RateLimit::new(1_000.0),
        };
        writer.limit.available(at(0));
        let pause = Flow::PauseUntil(at(5_000));
        let take_one = |taken: &mut Vec<u32>, records: &mut Batch<u32>| {
            taken.extend(records.next());
            Ok(pause)
        };
        let mut records = Batch::from((1..=5).collect::<Vec<_>>());
        assert_eq!(writer.pass(at(2), &mut records, take_one).unwrap(), pause);
        assert_eq!(
            (writer.writer.as_slice(), records.as_slice()),
            (&[1][..], &[2, 3, 4, 5][..])
        );
        assert_eq!(writer.limit.available(at(2)), 2);
    }
}
