//! Checkpoint ids only grow and are never reused, not across attempts and not across crashes.
//!
//! Source: design section 5; BC-10, ID-06.

use tidegate_types::{AttemptNumber, CheckpointId};

use super::{Checked, ensure};

#[derive(Debug, Default)]
pub(crate) struct Ids {
    newest: Option<(CheckpointId, AttemptNumber)>,
}

impl Ids {
    /// A new namespace: its ids begin anew, above that of what it goes on from, which attempt 0
    /// stands for.
    pub(crate) fn on_namespace(&mut self, from: CheckpointId) {
        self.newest = Some((from, AttemptNumber(0)));
    }

    pub(crate) fn on_triggered(&mut self, id: CheckpointId, attempt: AttemptNumber) -> Checked {
        if let Some((newest, by)) = self.newest {
            ensure(id > newest, "ids", || {
                format!("{attempt} triggers {id}, but {by} has used {newest} already")
            })?;
        }
        self.newest = Some((id, attempt));
        Ok(())
    }
}
