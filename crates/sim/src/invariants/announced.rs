//! No completion without durable metadata: subtasks hear of it only once the pointer is stored.
//!
//! Source: design section 5, "metadata durable → pointer in the completed-checkpoint store →
//! notify"; Flink's `CheckpointCoordinator.completePendingCheckpoint`.

use tidegate_types::CheckpointId;

use super::{Checked, ensure};
use crate::store::Store;

const NAME: &str = "announced";

#[derive(Debug)]
pub(crate) struct Announced {
    latest: CheckpointId,
}

impl Default for Announced {
    fn default() -> Self {
        Announced {
            latest: CheckpointId::NONE,
        }
    }
}

impl Announced {
    pub(crate) fn on_completed(&mut self, checkpoint: CheckpointId, store: &Store) -> Checked {
        ensure(store.pointers.contains(&checkpoint), NAME, || {
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
