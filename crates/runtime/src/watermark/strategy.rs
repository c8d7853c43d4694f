//! How watermarks are made from the times of records.

use std::marker::PhantomData;
use std::time::Duration;

use tidegate_types::EventTime;

/// How often watermarks are sent, unless the strategy says otherwise.
const INTERVAL: Duration = Duration::from_millis(200);

/// Knows how far event time has got, from the records of one subtask.
pub trait WatermarkGenerator<T>: Clone + Send + Sync + 'static {
    /// Looks at a record, before it is passed on. Returns a watermark that is to follow right
    /// behind it, if the record itself is the sign that time has advanced.
    fn on_record(&mut self, record: &T) -> Option<EventTime>;

    /// The watermark for the records so far, if there is anything to say. Called once in each
    /// interval in which records came, and at the end.
    fn on_periodic(&mut self) -> Option<EventTime>;

    /// Whether watermarks advance although no record comes, so that
    /// [`on_periodic`](Self::on_periodic) must be called in every interval. It keeps a quiet job
    /// awake.
    fn advances_by_itself(&self) -> bool {
        false
    }
}

/// Records come at most so much later than others with a later time.
///
/// The watermark is the greatest time seen, less the delay, less a millisecond, since further
/// records of that very time may follow; as Flink's `BoundedOutOfOrdernessWatermarks`.
#[derive(Clone, Debug)]
pub struct BoundedOutOfOrderness<F> {
    time: F,
    delay: Duration,
    max: EventTime,
}

impl<T, F> WatermarkGenerator<T> for BoundedOutOfOrderness<F>
where
    F: Fn(&T) -> EventTime + Clone + Send + Sync + 'static,
{
    #[inline]
    fn on_record(&mut self, record: &T) -> Option<EventTime> {
        self.max = self.max.max((self.time)(record));
        None
    }

    fn on_periodic(&mut self) -> Option<EventTime> {
        let seen = self.max > EventTime::MIN;
        seen.then(|| self.max.before(self.delay).before(Duration::from_millis(1)))
    }
}

/// How a stream gets its watermarks: from what generator, how often, and after what silence it is
/// idle.
///
/// ```
/// # use std::time::Duration;
/// # use tidegate_runtime::WatermarkStrategy;
/// # use tidegate_types::EventTime;
/// # struct Click { time: i64 }
/// let delay = Duration::from_secs(5);
/// WatermarkStrategy::bounded_out_of_orderness(delay, |click: &Click| EventTime(click.time))
///     .idle_after(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct WatermarkStrategy<T, G> {
    pub(super) generator: G,
    pub(super) interval: Duration,
    pub(super) idle_after: Option<Duration>,
    records: PhantomData<fn(T)>,
}

impl<T, F> WatermarkStrategy<T, BoundedOutOfOrderness<F>>
where
    F: Fn(&T) -> EventTime + Clone + Send + Sync + 'static,
{
    /// For records that come in the order of their times, in each subtask. `time` reads a record's
    /// time.
    pub fn monotonous(time: F) -> Self {
        Self::bounded_out_of_orderness(Duration::ZERO, time)
    }

    /// For records that come at most `delay` (rounded down to milliseconds) later than others with
    /// a later time. What comes later than that is late. `time` reads a record's time.
    pub fn bounded_out_of_orderness(delay: Duration, time: F) -> Self {
        Self::generator(BoundedOutOfOrderness {
            time,
            delay,
            max: EventTime::MIN,
        })
    }
}

impl<T, G: WatermarkGenerator<T>> WatermarkStrategy<T, G> {
    /// For what only a generator of one's own knows. Every subtask begins with a clone of it.
    pub fn generator(generator: G) -> Self {
        WatermarkStrategy {
            generator,
            interval: INTERVAL,
            idle_after: None,
            records: PhantomData,
        }
    }

    /// Sends watermarks this often; 200 ms by default. A shorter interval lets windows and timers
    /// fire sooner, and sends more and smaller batches.
    pub fn every(self, interval: Duration) -> Self {
        WatermarkStrategy { interval, ..self }
    }

    /// Lets others go on without a subtask that has seen no record for this long; otherwise they
    /// wait for it. Records that it sees afterwards may be late.
    pub fn idle_after(self, silence: Duration) -> Self {
        WatermarkStrategy {
            idle_after: Some(silence),
            ..self
        }
    }
}
