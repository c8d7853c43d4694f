//! No completion without durable metadata: subtasks hear of it only once the pointer is stored.
//!
//! Source: design section 5, "metadata durable → pointer in the completed-checkpoint store →
//! notify"; Flink's `CheckpointCoordinator.completePendingCheckpoint`. What an attempt hears of was
//! triggered in it, and ids increase: IT-03, BC-24.

use std::collections::BTreeMap;

use tidegate_types::{AttemptNumber, CheckpointId};

use super::{Checked, ensure};
use crate::store::Store;

const NAME: &str = "announced";

#[derive(Debug)]
pub(crate) struct Announced {
    latest: CheckpointId,
    /// Which attempt takes what has been triggered since.
    triggered: BTreeMap<CheckpointId, AttemptNumber>,
}

impl Default for Announced {
    fn default() -> Self {
        Announced {
            latest: CheckpointId::NONE,
            triggered: BTreeMap::new(),
        }
    }
}

impl Announced {
    pub(crate) fn on_triggered(&mut self, checkpoint: CheckpointId, attempt: AttemptNumber) {
        self.triggered.insert(checkpoint, attempt);
    }

    pub(crate) fn on_completed(
        &mut self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        store: &Store,
    ) -> Checked {
        let by = self.triggered.get(&checkpoint);
        ensure(by == Some(&attempt), NAME, || {
            format!("{attempt} is told of {checkpoint}, which was triggered in {by:?}")
        })?;
        self.triggered = self.triggered.split_off(&checkpoint);
        ensure(store.pointers.contains_key(&checkpoint), NAME, || {
            format!("{checkpoint} is announced, but its pointer isn't stored")
        })?;
        let latest = self.latest;
        ensure(checkpoint > latest, NAME, || {
            format!("{checkpoint} is announced after {latest}: completed ids only grow")
        })?;
        self.latest = checkpoint;
        Ok(())
    }

    /// What an attempt starts from is at least as new as what was announced: commits that were
    /// made on the strength of that can't be undone.
    pub(crate) fn on_restore(&self, restored: Option<CheckpointId>) -> Checked {
        let latest = self.latest;
        ensure(
            restored.unwrap_or(CheckpointId::NONE) >= latest,
            NAME,
            || format!("{restored:?} is restored, but {latest} had completed"),
        )
    }
}
