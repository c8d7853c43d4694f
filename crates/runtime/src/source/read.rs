//! A reader as an operator: splits as input, records as output.

use tidegate_types::{CheckpointBarrier, ListState, Redistribution};

use super::enumerate::decode_list;
use super::{ReadStatus, Source, SourceContext, SplitReader};
use crate::batch::Batch;
use crate::error::BoxError;
use crate::logic::{Activity, Flow, Logic, Snapshot, SubtaskContext};
use crate::output::Collector;

/// Name of the list state that holds the unfinished splits, one an element.
const STATE: &str = "splits";

pub(crate) struct Read<S: Source> {
    reader: S::Reader,
    /// Splits that were assigned in this attempt and not yet given credit for.
    assigned: u64,
    /// Splits that came from the checkpoint; the enumerator of this attempt knows nothing of them.
    restored: u64,
    worked_off: u64,
}

impl<S: Source> Read<S> {
    pub(crate) fn open(source: &S, context: &SubtaskContext) -> Result<Self, BoxError> {
        let place = SourceContext {
            subtask: context.subtask,
            parallelism: context.parallelism,
        };
        let mut reader = source.reader(place)?;
        let splits: Vec<S::Split> = decode_list(context, STATE)?;
        let restored = splits.len() as u64;
        splits.into_iter().for_each(|split| reader.assign(split));
        Ok(Read {
            reader,
            assigned: 0,
            restored,
            worked_off: 0,
        })
    }

    /// Readers work through their splits in order, so what has been finished is what is missing;
    /// restored splits come first and were never paid for.
    fn account(&mut self, unfinished: u64) {
        let finished = (self.restored + self.assigned).saturating_sub(unfinished);
        let restored = finished.min(self.restored);
        self.restored -= restored;
        let assigned = finished - restored;
        self.assigned -= assigned;
        self.worked_off += assigned;
    }
}

impl<S: Source> Logic<S::Split, S::Item> for Read<S> {
    fn process(
        &mut self,
        input: &mut Batch<S::Split>,
        _out: &mut Collector<S::Item>,
    ) -> Result<Flow, BoxError> {
        for split in input {
            self.assigned += 1;
            self.reader.assign(split);
        }
        Ok(Flow::Continue)
    }

    fn poll(
        &mut self,
        inputs_ended: bool,
        out: &mut Collector<S::Item>,
    ) -> Result<Activity, BoxError> {
        let status = self.reader.poll(out)?;
        self.account(self.reader.unfinished() as u64);
        Ok(match status {
            ReadStatus::More => Activity::Busy,
            ReadStatus::At(at) => Activity::At(at),
            ReadStatus::Drained if inputs_ended => Activity::Ended,
            ReadStatus::Drained => Activity::Idle,
        })
    }

    fn snapshot(&mut self, _barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        let splits = self.reader.snapshot();
        let elements = splits
            .iter()
            .map(postcard::to_stdvec)
            .collect::<Result<Vec<_>, _>>()?;
        let list = ListState {
            name: STATE.to_owned(),
            redistribution: Redistribution::Split,
            elements,
        };
        Ok(Snapshot {
            lists: vec![list],
            ..Snapshot::default()
        })
    }

    fn take_worked_off(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.worked_off))
    }
}
