//! No periodic checkpoint is triggered before the minimum pause since the last completion is over.
//!
//! Source: BC-07, where a stale time of completion shortened the pause; Flink's
//! `CheckpointRequestDecider`.

use std::time::Duration;

use tidegate_types::Millis;

use super::{Checked, ensure};

/// When the last checkpoint of a process completed.
#[derive(Debug, Default)]
pub(crate) struct MinPause {
    completed: Option<Millis>,
}

impl MinPause {
    pub(crate) fn on_completed(&mut self, now: Millis) {
        self.completed = Some(now);
    }

    pub(crate) fn on_periodic(&self, now: Millis, min_pause: Duration) -> Checked {
        let completed = self.completed;
        let holds = completed.is_none_or(|at| now >= at.after(min_pause));
        ensure(holds, "min_pause", || {
            format!("a trigger at {now:?}, less than {min_pause:?} after {completed:?}")
        })
    }
}
