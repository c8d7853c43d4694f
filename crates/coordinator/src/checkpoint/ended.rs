//! What became of recent checkpoints, so that messages which arrive late do the right thing.
//!
//! A file must be discarded once and only once: a late acknowledgement brings a file that nobody
//! owns, a repeated one brings a file that has been dealt with. The ledger remembers which
//! subtasks' files were discarded, for the most recent [`REMEMBERED_MAX`] checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{CheckpointId, SnapshotLocation, SubtaskId};

use crate::subtasks::SubtaskSet;

/// How many ended checkpoints are remembered.
const REMEMBERED_MAX: usize = 64;

/// Whose files of an aborted checkpoint have been discarded.
#[derive(Debug)]
pub(crate) enum Discarded {
    Of(SubtaskSet),
    All,
}

/// What is remembered of a checkpoint that was aborted.
#[derive(Debug)]
pub(crate) struct Aborted {
    pub(crate) discarded: Discarded,
    /// The folder of a savepoint; `None` for checkpoints.
    pub(crate) location: Option<SnapshotLocation>,
}

#[derive(Debug)]
enum Ending {
    Aborted(Aborted),
    /// Its files are owned, or were dropped as a whole.
    Completed,
}

/// What is to be done about the files that a late acknowledgement brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// They are owned, have been discarded before, or may be part of something durable.
    Leave,
    /// They are nobody's, and were written to this folder; `None` is the job's own namespace.
    Discard(Option<SnapshotLocation>),
    /// The checkpoint is not remembered. What lies in the job's own namespace is nobody's; what
    /// lies elsewhere may be a savepoint of the user, long completed.
    DiscardOwn,
}

/// Remembers how checkpoints ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    recent: BTreeMap<CheckpointId, Ending>,
    /// Nobody knows whether these are durable: their files are never touched again.
    in_doubt: BTreeSet<CheckpointId>,
}

impl Ended {
    /// Notes that a checkpoint was aborted.
    pub(crate) fn abort(&mut self, checkpoint: CheckpointId, aborted: Aborted) {
        self.remember(checkpoint, Ending::Aborted(aborted));
    }

    /// Notes that a checkpoint completed.
    pub(crate) fn complete(&mut self, checkpoint: CheckpointId) {
        self.remember(checkpoint, Ending::Completed);
    }

    /// Notes that nobody knows whether a checkpoint is durable.
    pub(crate) fn doubt(&mut self, checkpoint: CheckpointId) {
        self.in_doubt.insert(checkpoint);
    }

    /// Says what to do about the files that a late acknowledgement brings, and notes that it is
    /// done: asked again, it leaves them alone.
    pub(crate) fn claim_late(&mut self, checkpoint: CheckpointId, subtask: SubtaskId) -> Late {
        if self.in_doubt.contains(&checkpoint) {
            return Late::Leave;
        }
        match self.recent.get_mut(&checkpoint) {
            Some(Ending::Aborted(aborted)) => match &mut aborted.discarded {
                Discarded::Of(subtasks) => match subtasks.insert(subtask) {
                    true => Late::Discard(aborted.location.clone()),
                    false => Late::Leave,
                },
                Discarded::All => Late::Leave,
            },
            Some(Ending::Completed) => Late::Leave,
            None => Late::DiscardOwn,
        }
    }

    /// Whether it is remembered as an aborted checkpoint that wasn't a savepoint.
    pub(crate) fn is_aborted_checkpoint(&self, checkpoint: CheckpointId) -> bool {
        match self.recent.get(&checkpoint) {
            Some(Ending::Aborted(aborted)) => aborted.location.is_none(),
            _ => false,
        }
    }

    fn remember(&mut self, checkpoint: CheckpointId, ending: Ending) {
        self.recent.insert(checkpoint, ending);
        if self.recent.len() > REMEMBERED_MAX {
            self.recent.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_types::OperatorId;
    use tidegate_types::graph::JobGraph;

    use super::*;
    use crate::subtasks::SubtaskTable;

    const CHECKPOINT: CheckpointId = CheckpointId(1);

    fn subtask(index: u32) -> SubtaskId {
        SubtaskId {
            operator: OperatorId(0),
            index,
        }
    }

    fn none() -> Discarded {
        let table = SubtaskTable::new(&JobGraph::default());
        Discarded::Of(SubtaskSet::new(Arc::new(table)))
    }

    fn aborted(discarded: Discarded) -> Aborted {
        Aborted {
            discarded,
            location: None,
        }
    }

    // CC-16, CC-20, F7
    #[test]
    fn late_files_are_claimed_once() {
        let mut ended = Ended::default();
        ended.abort(CHECKPOINT, aborted(none()));
        assert_eq!(
            ended.claim_late(CHECKPOINT, subtask(0)),
            Late::Discard(None)
        );
        assert_eq!(ended.claim_late(CHECKPOINT, subtask(0)), Late::Leave);
        assert_eq!(
            ended.claim_late(CHECKPOINT, subtask(1)),
            Late::Discard(None)
        );
        assert_eq!(ended.claim_late(CHECKPOINT, subtask(1)), Late::Leave);
    }

    #[test]
    fn late_files_of_a_savepoint_are_claimed_with_its_folder() {
        let mut ended = Ended::default();
        let location = Some(SnapshotLocation::new("file:///savepoints/s-1"));
        let aborted = Aborted {
            discarded: none(),
            location: location.clone(),
        };
        ended.abort(CHECKPOINT, aborted);
        let late = Late::Discard(location);
        assert_eq!(ended.claim_late(CHECKPOINT, subtask(0)), late);
        assert!(!ended.is_aborted_checkpoint(CHECKPOINT));
    }

    #[test]
    fn files_of_completed_discarded_and_doubtful_checkpoints_are_never_claimed() {
        let mut ended = Ended::default();
        ended.complete(CHECKPOINT);
        ended.doubt(CheckpointId(2));
        ended.abort(CheckpointId(3), aborted(Discarded::All));
        for id in 1..=3 {
            let late = ended.claim_late(CheckpointId(id), subtask(0));
            assert_eq!(late, Late::Leave);
        }
    }

    // F8, B14
    #[test]
    fn memory_is_bounded_but_doubts_are_kept() {
        let mut ended = Ended::default();
        ended.doubt(CHECKPOINT);
        for id in 2..1000 {
            ended.abort(CheckpointId(id), aborted(none()));
        }
        assert_eq!(ended.recent.len(), REMEMBERED_MAX);
        assert_eq!(ended.claim_late(CHECKPOINT, subtask(0)), Late::Leave);
        let forgotten = ended.claim_late(CheckpointId(2), subtask(0));
        assert_eq!(forgotten, Late::DiscardOwn);
        assert!(!ended.is_aborted_checkpoint(CheckpointId(2)));
        assert!(ended.is_aborted_checkpoint(CheckpointId(999)));
    }
}
