//! Signs of life: which subtask a worker is busy with, and since when nothing has been heard of it.
//!
//! A worker that hangs in user code can't say so. So it leaves a note before it lets a subtask
//! work, and after each piece of work; another thread reads it and can tell who is stuck. That
//! costs two stores per activation and one per piece of work.
//!
//! What is no sign of being stuck: a worker that sleeps because there is nothing to do, since then
//! no subtask is active.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_types::{OperatorId, SubtaskId};

use crate::clock::Ticks;

/// What a subtask is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its operator is being made, and restores its state, which takes as long as it takes.
    Opening,
    /// It works: records, timers, markers.
    Working,
}

/// A worker that is within a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyWorker {
    /// Its index in the whole attempt.
    pub worker: u32,
    /// The subtask that it lets work; the innermost one if subtasks are chained.
    pub subtask: SubtaskId,
    /// What that is doing.
    pub stage: Stage,
    /// How long ago it began or ended a piece of work. Pieces of work take about a millisecond
    /// unless user code takes longer for a batch of records.
    pub silent: Duration,
}

const OPENING: u64 = 1 << 63;

/// No subtask: operators are numbered from 0 and never that many.
const NOBODY: u64 = u64::MAX;

/// Who is active on a worker, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active(u64);

impl Active {
    fn new(subtask: SubtaskId, stage: Stage) -> Active {
        let opening = if stage == Stage::Opening { OPENING } else { 0 };
        Active(opening | u64::from(subtask.operator.0) << 32 | u64::from(subtask.index))
    }

    fn decode(self) -> Option<(SubtaskId, Stage)> {
        if self.0 == NOBODY {
            return None;
        }
        let stage = match self.0 & OPENING {
            0 => Stage::Working,
            _ => Stage::Opening,
        };
        let subtask = SubtaskId {
            operator: OperatorId(((self.0 & !OPENING) >> 32) as u32),
            index: self.0 as u32,
        };
        Some((subtask, stage))
    }
}

/// The note that one worker leaves. Written by that worker alone.
#[derive(Debug)]
pub(crate) struct SignOfLife {
    active: AtomicU64,
    /// When something was last heard of the active subtask.
    at_nanos: AtomicU64,
}

impl Default for SignOfLife {
    fn default() -> Self {
        SignOfLife {
            active: AtomicU64::new(NOBODY),
            at_nanos: AtomicU64::new(0),
        }
    }
}

impl SignOfLife {
    /// Who is active: whoever is to be named again when what begins now is over.
    pub(crate) fn active(&self) -> Active {
        Active(self.active.load(Ordering::Relaxed))
    }

    /// A subtask begins to work.
    pub(crate) fn enter(&self, subtask: SubtaskId, stage: Stage, now: Ticks) {
        self.touch(now);
        // Ordering: the time first, or a reader might see the subtask with a time long past.
        let active = Active::new(subtask, stage);
        self.active.store(active.0, Ordering::Release);
    }

    /// It goes on working.
    pub(crate) fn touch(&self, now: Ticks) {
        let nanos = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        self.at_nanos.store(nanos, Ordering::Relaxed);
    }

    /// It has done for now.
    pub(crate) fn leave(&self, before: Active) {
        self.active.store(before.0, Ordering::Release);
    }

    /// `None` if no subtask is active.
    fn look(&self, worker: u32, now: Ticks) -> Option<BusyWorker> {
        let active = Active(self.active.load(Ordering::Acquire));
        let (subtask, stage) = active.decode()?;
        let at = Duration::from_nanos(self.at_nanos.load(Ordering::Relaxed));
        Some(BusyWorker {
            worker,
            subtask,
            stage,
            silent: now.since(Ticks(at)),
        })
    }
}

/// The workers of `signs` that are busy at this moment; the first has index `first`.
pub(crate) fn busy_workers(signs: &[Arc<SignOfLife>], first: u32) -> Vec<BusyWorker> {
    let now = Ticks::now();
    let workers = (first..).zip(signs);
    workers
        .filter_map(|(worker, sign)| sign.look(worker, now))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtask(operator: u32, index: u32) -> SubtaskId {
        let operator = OperatorId(operator);
        SubtaskId { operator, index }
    }

    fn at(seconds: u64) -> Ticks {
        Ticks(Duration::from_secs(seconds))
    }

    #[test]
    fn the_innermost_subtask_is_the_one_that_is_named() {
        let sign = SignOfLife::default();
        let look = |now| {
            let busy = sign.look(3, at(now))?;
            assert_eq!(busy.worker, 3);
            Some((busy.subtask, busy.stage, busy.silent.as_secs()))
        };
        assert_eq!(look(100), None);

        let (outer, inner) = (subtask(0, 0), subtask(7, u32::MAX));
        let nobody = sign.active();
        sign.enter(outer, Stage::Opening, at(10));
        assert_eq!(look(15), Some((outer, Stage::Opening, 5)));
        sign.enter(outer, Stage::Working, at(16));
        let caller = sign.active();
        sign.enter(inner, Stage::Working, at(17));
        assert_eq!(look(20), Some((inner, Stage::Working, 3)));
        sign.touch(at(21));
        assert_eq!(look(21), Some((inner, Stage::Working, 0)));
        sign.leave(caller);
        assert_eq!(look(30), Some((outer, Stage::Working, 9)));
        sign.leave(nobody);
        assert_eq!(look(1000), None);
    }
}
