//! A job that ends keeps its checkpoints or drops them, as the settings say: never before the mark
//! that it has finished is durable, always once it is, never when it is suspended.
//!
//! Source: Flink's `CheckpointRetentionPolicy`; BC-12, suspending is not terminating.

use tidegate_coordinator::{FailureReason, JobEnd, Retention};
use tidegate_types::{CheckpointId, CompletedCheckpoint};

use super::{Checked, ensure};
use crate::store::Store;

const NAME: &str = "retention";

/// Whether the job never goes on, since there is nothing left to do.
pub(crate) fn has_finished(end: &JobEnd) -> bool {
    matches!(
        end,
        JobEnd::Finished | JobEnd::Stopped { drained: true, .. }
    )
}

/// Whether somebody can go on from the job's checkpoints.
pub(crate) fn keeps(end: &JobEnd, retention: Retention) -> bool {
    match end {
        JobEnd::Finished | JobEnd::Stopped { drained: true, .. } => false,
        JobEnd::Stopped { drained: false, .. } | JobEnd::Suspended => true,
        JobEnd::Cancelled => retention == Retention::RetainOnCancellation,
        JobEnd::Failed(failure) => {
            let doesnt_fit = matches!(failure.reason, FailureReason::Restore { .. });
            retention != Retention::NoRetention || doesnt_fit
        }
    }
}

/// What one process has done to the latest checkpoint of its job.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    dropped: Option<CheckpointId>,
}

impl Kept {
    pub(crate) fn on_drop(&mut self, checkpoint: &CompletedCheckpoint, store: &Store) {
        let latest = store.pointers.last_key_value();
        if latest.is_some_and(|(latest, _)| *latest == checkpoint.id) {
            self.dropped = Some(checkpoint.id);
        }
    }

    /// Whether nobody can go on from what is left.
    pub(crate) fn is_given_up(&self) -> bool {
        self.dropped.is_some()
    }

    /// `in_doubt` says whether the store may list what the job doesn't know of.
    pub(crate) fn on_end(
        &self,
        end: &JobEnd,
        retention: Retention,
        in_doubt: bool,
        store: &Store,
    ) -> Checked {
        let unmarked = has_finished(end) && store.finished.is_none();
        ensure(!unmarked, NAME, || {
            format!("{end:?}, but nothing durable says so")
        })?;
        let dropped = self.dropped;
        let holds = match keeps(end, retention) {
            true => dropped.is_none(),
            false => dropped.is_some() || store.pointers.is_empty() || in_doubt,
        };
        ensure(holds, NAME, || {
            format!("{end:?} under {retention:?} drops {dropped:?} as the latest")
        })
    }
}
