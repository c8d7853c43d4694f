//! Aborts that overtook the barriers of their checkpoint.
//!
//! The coordinator's notice travels apart from the data and may come first. It is kept until the
//! barrier arrives. Ids at or below the newest decided checkpoint are dropped, since barriers of
//! those are ignored anyway; the cap only matters if a source stays behind by hundreds of aborted
//! checkpoints, and then costs a snapshot taken in vain.

use std::collections::BTreeSet;

use tidegate_types::CheckpointId;

/// How many aborts are remembered ahead of their barriers; beyond that the oldest is forgotten.
pub const EARLY_ABORTS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct EarlyAborts(BTreeSet<CheckpointId>);

impl EarlyAborts {
    pub(super) fn insert(&mut self, checkpoint: CheckpointId) {
        self.0.insert(checkpoint);
        if self.0.len() > EARLY_ABORTS_MAX {
            self.0.pop_first();
        }
    }

    pub(super) fn contains(&self, checkpoint: CheckpointId) -> bool {
        self.0.contains(&checkpoint)
    }

    pub(super) fn forget_up_to(&mut self, checkpoint: CheckpointId) {
        while self.0.first().is_some_and(|first| *first <= checkpoint) {
            self.0.pop_first();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn check_invariants(&self, latest: CheckpointId) {
        assert!(self.0.len() <= EARLY_ABORTS_MAX);
        assert!(self.0.first().is_none_or(|first| *first > latest));
    }
}
