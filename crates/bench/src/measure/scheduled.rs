//! A source whose records are due at fixed times, whatever becomes of those before (open loop).
//!
//! A record carries the time at which it was due. If the job stands still, records that were due
//! meanwhile come late and their latency counts: none is left out because a slow one held it up
//! (Tene's *coordinated omission*).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::source::{
    NextSplit, ReadStatus, Source, SourceContext, SplitEnumerator, SplitReader,
};
use tidegate::state::Record;
use tidegate::{BoxError, Collector, Ticks};

/// Readers wake up this often at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// When records are due, from the moment at which somebody first asks. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    per_second: f64,
    start: Arc<OnceLock<Ticks>>,
}

impl Schedule {
    /// So many records per second.
    pub(crate) fn new(per_second: f64) -> Self {
        Schedule {
            per_second,
            start: Arc::default(),
        }
    }

    /// When record `index` is due: the first after one interval.
    fn due(&self, index: u64) -> Ticks {
        let seconds = (index + 1) as f64 / self.per_second;
        let after = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.start.get_or_init(Ticks::now).after(after)
    }
}

/// Emits `f(due, index)` for each index below `count` when it is due.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled<F> {
    schedule: Schedule,
    count: u64,
    f: F,
}

impl<F> Scheduled<F> {
    pub(crate) fn new<T>(schedule: Schedule, count: u64, f: F) -> Self
    where
        F: Fn(Ticks, u64) -> T + Clone + Send + Sync + 'static,
    {
        Scheduled { schedule, count, f }
    }
}

/// Every *n*-th index, so that all readers have records due at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stride {
    next: u64,
    step: u64,
}

impl Record for Stride {}

impl<T, F> Source for Scheduled<F>
where
    T: Record,
    F: Fn(Ticks, u64) -> T + Clone + Send + Sync + 'static,
{
    type Item = T;
    type Split = Stride;
    type Enumerator = Strides;
    type Reader = ScheduledReader<F>;

    fn enumerator(&self, context: SourceContext, state: Option<u64>) -> Result<Strides, BoxError> {
        let step = u64::from(context.parallelism);
        let next = state.unwrap_or(0);
        Ok(Strides { next, step })
    }

    fn reader(&self, _context: SourceContext) -> Result<ScheduledReader<F>, BoxError> {
        Ok(ScheduledReader {
            source: self.clone(),
            strides: Vec::new(),
        })
    }
}

/// Hands out as many strides as there are readers.
#[derive(Debug)]
pub(crate) struct Strides {
    next: u64,
    step: u64,
}

impl SplitEnumerator for Strides {
    type Split = Stride;
    type State = u64;

    fn next(&mut self, _now: Ticks) -> Result<NextSplit<Stride>, BoxError> {
        let Strides { next, step } = *self;
        if next >= step {
            return Ok(NextSplit::End);
        }
        self.next += 1;
        Ok(NextSplit::Split(Stride { next, step }))
    }

    fn snapshot(&self) -> u64 {
        self.next
    }
}

/// Emits what is due of its strides.
#[derive(Debug)]
pub(crate) struct ScheduledReader<F> {
    source: Scheduled<F>,
    strides: Vec<Stride>,
}

impl<T, F> SplitReader for ScheduledReader<F>
where
    T: Record,
    F: Fn(Ticks, u64) -> T + Clone + Send + Sync + 'static,
{
    type Split = Stride;
    type Item = T;

    fn assign(&mut self, split: Stride) {
        self.strides.push(split);
    }

    fn poll(&mut self, out: &mut Collector<T>) -> Result<ReadStatus, BoxError> {
        let Scheduled { schedule, count, f } = &self.source;
        let now = Ticks::now();
        let mut earliest: Option<Ticks> = None;
        for stride in &mut self.strides {
            while stride.next < *count && !out.is_full() {
                let due = schedule.due(stride.next);
                if due > now {
                    earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
                    break;
                }
                out.emit(f(due, stride.next));
                stride.next += stride.step;
            }
        }
        self.strides.retain(|stride| stride.next < *count);
        Ok(match earliest {
            _ if self.strides.is_empty() => ReadStatus::Drained,
            Some(due) if !out.is_full() => ReadStatus::At(due.max(now.after(PAUSE_MIN))),
            _ => ReadStatus::More,
        })
    }

    fn unfinished(&self) -> usize {
        self.strides.len()
    }

    fn snapshot(&self) -> Vec<Stride> {
        self.strides.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_due_evenly_from_the_first_look_on() {
        let schedule = Schedule::new(1_000.0);
        let first = schedule.due(0);
        assert_eq!(
            schedule.clone().due(1_000).since(first),
            Duration::from_secs(1)
        );
        assert!(first > *schedule.start.get().unwrap());
    }

    #[test]
    fn strides_cover_every_index_once() {
        let mut strides = Strides { next: 0, step: 3 };
        let mut indexes = Vec::new();
        while let NextSplit::Split(stride) = strides.next(Ticks::now()).unwrap() {
            indexes.extend((stride.next..100).step_by(stride.step as usize));
        }
        indexes.sort_unstable();
        assert_eq!(indexes, (0..100).collect::<Vec<_>>());
    }
}
