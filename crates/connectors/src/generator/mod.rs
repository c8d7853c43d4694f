//! A source whose records are computed from their index.
//!
//! The enumerator cuts the indexes 0, 1, 2, … into ranges; a reader computes the records of its
//! ranges in order. What is kept in a checkpoint is the first index that has not been handed out,
//! and the unfinished ranges: after a restore every index is still emitted exactly once, at any
//! parallelism.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tidegate_runtime::source::{
    NextSplit, ReadStatus, Source, SourceContext, SplitEnumerator, SplitReader,
};
use tidegate_runtime::{BoxError, Collector, Ticks};
use tidegate_state::Record;

use crate::budget::Budget;
use crate::rate::{self, RateLimit};

/// Indexes in a range: some milliseconds of work, so that handing them out costs nothing.
const RANGE_MAX: u64 = 1 << 20;
/// A bounded source is cut into at least this many ranges per reader, to share it evenly,
const RANGES_PER_READER: u64 = 16;
/// and one with a rate into ranges of this many seconds, for the same reason.
const RANGE_SECONDS: f64 = 0.1;
/// The clock is read at least every so many records, and much more often when they are slow.
const CHUNK_MAX: u64 = 1024;

/// Emits `f(0), f(1), f(2), …`.
///
/// `f` must depend on the index alone: after a failure, indexes since the last checkpoint are
/// computed again. Records come in order of their index if there is one reader; several readers
/// work on ranges of indexes at the same time.
///
/// ```
/// use tidegate_connectors::Generator;
///
/// let readings = Generator::new(Some(1_000_000), |i| (i % 100, i as f64 * 0.5)).rate(50_000.0);
/// ```
#[derive(Clone, Debug)]
pub struct Generator<F> {
    count: Option<u64>,
    per_second: Option<f64>,
    f: F,
}

impl<F> Generator<F> {
    /// Emits `count` records, or goes on until the job is stopped.
    pub fn new<T>(count: Option<u64>, f: F) -> Self
    where
        F: Fn(u64) -> T + Clone + Send + Sync + 'static,
    {
        Generator {
            count,
            per_second: None,
            f,
        }
    }

    /// Emits at most so many records per second in total; each reader gets an equal part.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Self {
        self.per_second = Some(per_second);
        self
    }

    fn range(&self, readers: u32) -> u64 {
        let readers = u64::from(readers.max(1));
        let fair = self
            .count
            .map_or(RANGE_MAX, |count| count / (readers * RANGES_PER_READER));
        let paced = self.per_second.map_or(RANGE_MAX, |per_second| {
            (per_second / readers as f64 * RANGE_SECONDS) as u64
        });
        fair.min(paced).clamp(1, RANGE_MAX)
    }
}

/// Indexes that are still to be emitted; a split of a [`Generator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRange {
    /// The next to emit.
    pub next: u64,
    /// The first that is not part of the range any more.
    pub end: u64,
}

impl Record for IndexRange {}

impl<T, F> Source for Generator<F>
where
    T: Record,
    F: Fn(u64) -> T + Clone + Send + Sync + 'static,
{
    type Item = T;
    type Split = IndexRange;
    type Enumerator = GeneratorEnumerator;
    type Reader = GeneratorReader<F>;

    fn check(&self) -> Result<(), BoxError> {
        Ok(self.per_second.map_or(Ok(()), rate::check)?)
    }

    fn enumerator(
        &self,
        context: SourceContext,
        restored: Option<u64>,
    ) -> Result<GeneratorEnumerator, BoxError> {
        Ok(GeneratorEnumerator {
            next: restored.unwrap_or(0),
            end: self.count.unwrap_or(u64::MAX),
            range: self.range(context.parallelism),
        })
    }

    fn reader(&self, context: SourceContext) -> Result<GeneratorReader<F>, BoxError> {
        let readers = f64::from(context.parallelism.max(1));
        Ok(GeneratorReader {
            f: self.f.clone(),
            limit: self
                .per_second
                .map(|per_second| RateLimit::new(per_second / readers)),
            ranges: VecDeque::new(),
        })
    }
}

/// Hands out ranges of indexes.
#[derive(Debug)]
pub struct GeneratorEnumerator {
    next: u64,
    end: u64,
    range: u64,
}

impl SplitEnumerator for GeneratorEnumerator {
    type Split = IndexRange;
    /// The first index that has not been handed out.
    type State = u64;

    fn next(&mut self, _now: Ticks) -> Result<NextSplit<IndexRange>, BoxError> {
        if self.next >= self.end {
            return Ok(NextSplit::End);
        }
        let end = self.next.saturating_add(self.range).min(self.end);
        let range = IndexRange {
            next: self.next,
            end,
        };
        self.next = end;
        Ok(NextSplit::Split(range))
    }

    fn snapshot(&self) -> u64 {
        self.next
    }
}

/// Computes the records of its ranges.
#[derive(Debug)]
pub struct GeneratorReader<F> {
    f: F,
    limit: Option<RateLimit>,
    /// None of them empty, except on arrival.
    ranges: VecDeque<IndexRange>,
}

impl<F> GeneratorReader<F> {
    /// Emits up to `count` records of the first range. A tight loop: no clock, no dynamic call.
    fn emit<T>(&mut self, count: u64, out: &mut Collector<T>) -> u64
    where
        T: Record,
        F: Fn(u64) -> T,
    {
        let Some(range) = self.ranges.front_mut() else {
            return 0;
        };
        let start = range.next;
        let end = range.end.min(start.saturating_add(count));
        let emitted = out.emit_while_room((start..end).map(&self.f));
        range.next = start + emitted;
        if range.next >= range.end {
            self.ranges.pop_front();
        }
        emitted
    }
}

impl<T, F> SplitReader for GeneratorReader<F>
where
    T: Record,
    F: Fn(u64) -> T + 'static,
{
    type Split = IndexRange;
    type Item = T;

    fn assign(&mut self, split: IndexRange) {
        self.ranges.push_back(split);
    }

    fn poll(&mut self, out: &mut Collector<T>) -> Result<ReadStatus, BoxError> {
        let budget = Budget::start();
        let mut allowed = match &mut self.limit {
            Some(limit) => limit.available(budget.began()),
            None => u64::MAX,
        };
        let mut chunk = 1;
        while !self.ranges.is_empty() {
            if let Some(limit) = self.limit.as_ref().filter(|_| allowed == 0) {
                return Ok(ReadStatus::At(limit.next(budget.began())));
            }
            let emitted = self.emit(chunk.min(allowed), out);
            if let Some(limit) = &mut self.limit {
                allowed -= emitted;
                limit.spend(emitted);
            }
            if out.is_full() || budget.is_spent() {
                break;
            }
            chunk = CHUNK_MAX.min(chunk * 2);
        }
        Ok(if self.ranges.is_empty() {
            ReadStatus::Drained
        } else {
            ReadStatus::More
        })
    }

    fn unfinished(&self) -> usize {
        self.ranges.len()
    }

    fn snapshot(&self) -> Vec<IndexRange> {
        self.ranges.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests;
