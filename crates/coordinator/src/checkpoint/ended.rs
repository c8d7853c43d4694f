//! What became of recent checkpoints, so that messages which arrive late do the right thing.
//!
//! A file must be discarded once and only once: a late acknowledgement brings a file that nobody
//! owns, a repeated one brings a file that has been dealt with. The ledger remembers which
//! subtasks' files were discarded, for the most recent [`REMEMBERED_MAX`] checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{CheckpointId, SubtaskId};

/// How many ended checkpoints are remembered.
const REMEMBERED_MAX: usize = 64;

#[derive(Debug)]
enum Ending {
    /// Aborted; the files of these subtasks have been discarded.
    Aborted(BTreeSet<SubtaskId>),
    /// Completed: its files are owned, or were dropped as a whole.
    Completed,
}

/// Remembers how checkpoints ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    recent: BTreeMap<CheckpointId, Ending>,
    /// Nobody knows whether these are durable: their files are never touched again.
    in_doubt: BTreeSet<CheckpointId>,
}

impl Ended {
    /// Notes that a checkpoint was aborted and the files of `discarded` were.
    pub(crate) fn abort(
        &mut self,
        checkpoint: CheckpointId,
        discarded: impl IntoIterator<Item = SubtaskId>,
    ) {
        let discarded = discarded.into_iter().collect();
        self.remember(checkpoint, Ending::Aborted(discarded));
    }

    /// Notes that a checkpoint completed.
    pub(crate) fn complete(&mut self, checkpoint: CheckpointId) {
        self.remember(checkpoint, Ending::Completed);
    }

    /// Notes that nobody knows whether a checkpoint is durable.
    pub(crate) fn doubt(&mut self, checkpoint: CheckpointId) {
        self.in_doubt.insert(checkpoint);
    }

    /// Whether the files that a late acknowledgement brings are to be discarded: they are nobody's
    /// and have not been discarded before.
    pub(crate) fn claim_late(&mut self, checkpoint: CheckpointId, subtask: SubtaskId) -> bool {
        if self.in_doubt.contains(&checkpoint) {
            return false;
        }
        match self.recent.get_mut(&checkpoint) {
            Some(Ending::Aborted(discarded)) => discarded.insert(subtask),
            Some(Ending::Completed) => false,
            None => true,
        }
    }

    /// Whether the checkpoint is remembered as aborted.
    pub(crate) fn is_aborted(&self, checkpoint: CheckpointId) -> bool {
        matches!(self.recent.get(&checkpoint), Some(Ending::Aborted(_)))
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
    use tidegate_types::OperatorId;

    use super::*;

    const CHECKPOINT: CheckpointId = CheckpointId(1);

    fn subtask(index: u32) -> SubtaskId {
        SubtaskId {
            operator: OperatorId(0),
            index,
        }
    }

    // CC-16, CC-20, F7
    #[test]
    fn late_files_are_claimed_once() {
        let mut ended = Ended::default();
        ended.abort(CHECKPOINT, [subtask(0)]);
        assert!(!ended.claim_late(CHECKPOINT, subtask(0)));
        assert!(ended.claim_late(CHECKPOINT, subtask(1)));
        assert!(!ended.claim_late(CHECKPOINT, subtask(1)));
    }

    #[test]
    fn files_of_completed_and_doubtful_checkpoints_are_never_claimed() {
        let mut ended = Ended::default();
        ended.complete(CHECKPOINT);
        ended.doubt(CheckpointId(2));
        assert!(!ended.claim_late(CHECKPOINT, subtask(0)));
        assert!(!ended.claim_late(CheckpointId(2), subtask(0)));
    }

    // F8, B14
    #[test]
    fn memory_is_bounded_but_doubts_are_kept() {
        let mut ended = Ended::default();
        ended.doubt(CHECKPOINT);
        for id in 2..1000 {
            ended.abort(CheckpointId(id), []);
        }
        assert_eq!(ended.recent.len(), REMEMBERED_MAX);
        assert!(!ended.claim_late(CHECKPOINT, subtask(0)));
        assert!(ended.claim_late(CheckpointId(2), subtask(0)));
        assert!(!ended.is_aborted(CheckpointId(2)) && ended.is_aborted(CheckpointId(999)));
    }
}
