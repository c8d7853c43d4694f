//! The job that is stepped: two sources that do nothing without fuel, an operator that says when it
//! finishes, and a sink that keeps what arrives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_types::graph::{OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{
    CheckpointId, EventTime, FileHandle, MaxParallelism, OperatorUid, SnapshotLocation,
};

use crate::batch::Batch;
use crate::clock::Ticks;
use crate::error::BoxError;
use crate::logic::{Flow, Logic, WatermarkProgress};
use crate::output::{Collector, Rebalance};
use crate::plan::{EdgeKind, JobPlan};
use crate::snapshot::{StateFileRead, StateFileWrite, StateFiles};
use crate::source::{NextSplit, ReadStatus, Source, SourceContext, SplitEnumerator, SplitReader};

/// What `finish()` emits.
pub(super) const FINISHED: u64 = u64::MAX;
/// What the sink keeps when event time comes to its end.
pub(super) const END_OF_TIME: u64 = u64::MAX - 1;

/// How often a subtask may still do something by itself.
#[derive(Clone, Default)]
pub(super) struct Fuel(Arc<AtomicU64>);

impl Fuel {
    pub(super) fn set(&self, units: u64) {
        self.0.store(units, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.is_ok()
    }
}

/// The numbers from `first` on, in splits of these sizes. Nothing happens without fuel.
#[derive(Clone)]
pub(super) struct Numbers {
    pub(super) first: u64,
    pub(super) sizes: Vec<u64>,
    pub(super) enumerating: Fuel,
    pub(super) reading: Fuel,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Range {
    pub(super) next: u64,
    pub(super) end: u64,
}

impl tidegate_state::Record for Range {}

impl Numbers {
    pub(super) fn splits(&self) -> Vec<Range> {
        let mut next = self.first;
        let split = |size: &u64| {
            let range = Range {
                next,
                end: next + size,
            };
            next = range.end;
            range
        };
        self.sizes.iter().map(split).collect()
    }
}

pub(super) struct Splits {
    source: Numbers,
    assigned: usize,
}

impl SplitEnumerator for Splits {
    type Split = Range;
    type State = usize;

    fn next(&mut self, now: Ticks) -> Result<NextSplit<Range>, BoxError> {
        if !self.source.enumerating.take() {
            return Ok(NextSplit::At(now.after(Duration::from_secs(3600))));
        }
        let split = self.source.splits().into_iter().nth(self.assigned);
        self.assigned += usize::from(split.is_some());
        Ok(split.map_or(NextSplit::End, NextSplit::Split))
    }

    fn snapshot(&self) -> usize {
        self.assigned
    }
}

pub(super) struct Reader {
    ranges: Vec<Range>,
    reading: Fuel,
}

impl SplitReader for Reader {
    type Split = Range;
    type Item = u64;

    fn assign(&mut self, split: Range) {
        self.ranges.push(split);
    }

    fn poll(&mut self, out: &mut Collector<u64>) -> Result<ReadStatus, BoxError> {
        if !self.reading.take() {
            let later = Ticks::now().after(Duration::from_secs(3600));
            return Ok(ReadStatus::At(later));
        }
        if let Some(range) = self.ranges.first_mut() {
            if range.next < range.end {
                out.emit(range.next);
                range.next += 1;
            }
            if range.next == range.end {
                self.ranges.remove(0);
            }
        }
        Ok(match self.ranges.is_empty() {
            true => ReadStatus::Drained,
            false => ReadStatus::More,
        })
    }

    fn unfinished(&self) -> usize {
        self.ranges.len()
    }

    fn snapshot(&self) -> Vec<Range> {
        self.ranges.clone()
    }
}

impl Source for Numbers {
    type Item = u64;
    type Split = Range;
    type Enumerator = Splits;
    type Reader = Reader;

    fn enumerator(
        &self,
        _context: SourceContext,
        restored: Option<usize>,
    ) -> Result<Splits, BoxError> {
        Ok(Splits {
            source: self.clone(),
            assigned: restored.unwrap_or(0),
        })
    }

    fn reader(&self, _context: SourceContext) -> Result<Reader, BoxError> {
        Ok(Reader {
            ranges: Vec::new(),
            reading: self.reading.clone(),
        })
    }
}

/// Passes numbers on, and says when it finishes.
pub(super) struct Middle;

impl Logic<u64, u64> for Middle {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        input.for_each(|number| out.emit(number));
        Ok(Flow::Continue)
    }

    fn finish(&mut self, out: &mut Collector<u64>) -> Result<(), BoxError> {
        out.emit(FINISHED);
        Ok(())
    }
}

/// Keeps what arrives.
struct Keeper(Shared<u64>);

impl Logic<u64, ()> for Keeper {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        _out: &mut Collector<()>,
    ) -> Result<Flow, BoxError> {
        self.0.lock().unwrap().extend(input);
        Ok(Flow::Continue)
    }

    fn on_watermark(
        &mut self,
        watermark: EventTime,
        _out: &mut Collector<()>,
    ) -> Result<WatermarkProgress, BoxError> {
        assert_eq!(watermark, EventTime::MAX, "nobody makes others");
        self.0.lock().unwrap().push(END_OF_TIME);
        Ok(WatermarkProgress::Done)
    }
}

/// Nothing in this job has keyed state.
pub(super) struct NoFiles;

impl StateFiles for NoFiles {
    fn create(
        &self,
        _checkpoint: CheckpointId,
        _location: Option<&SnapshotLocation>,
        _subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        Err("no files".into())
    }

    fn open(&self, _file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        Err("no files".into())
    }

    fn discard(&self, _checkpoint: CheckpointId, _file: &FileHandle) {}
}

pub(super) fn operator(uid: &str, role: OperatorRole) -> OperatorSpec {
    OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism: 1,
        max_parallelism: MaxParallelism::derive(1),
        max_parallelism_derived: true,
        role,
    }
}

/// What several may add to.
pub(super) type Shared<T> = Arc<Mutex<Vec<T>>>;

/// Both sources → middle → sink. Operators in order: splits and reader of each source, then those.
pub(super) fn job(
    sources: &[Numbers; 2],
    arrived: &Shared<u64>,
    partitioning: Partitioning,
) -> JobPlan {
    let mut plan = JobPlan::new();
    let add = |(index, source): (usize, &Numbers)| {
        let spec = operator(&format!("numbers{index}"), OperatorRole::Reader);
        plan.source(spec, source.clone())
    };
    let readers: Vec<_> = sources.iter().enumerate().map(add).collect();
    let middle =
        plan.operator::<u64, u64, _>(operator("middle", OperatorRole::Transform), |_| Ok(Middle));
    let arrived = Arc::clone(arrived);
    let sink = plan.operator::<u64, (), _>(operator("sink", OperatorRole::Sink), move |_| {
        Ok(Keeper(Arc::clone(&arrived)))
    });
    for edge in [(readers[0], middle), (readers[1], middle), (middle, sink)] {
        plan.connect::<u64>(edge, partitioning, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    plan
}

pub(super) const ENUMERATORS: [usize; 2] = [0, 2];
pub(super) const READERS: [usize; 2] = [1, 3];
pub(super) const MIDDLE: usize = 4;
pub(super) const SUBTASKS: usize = 6;
