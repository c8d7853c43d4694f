//! A storage that deletes more slowly than checkpoints come slows them down: none is triggered
//! while those of more checkpoints than may be under way are being deleted.
//!
//! Source: Flink's `maxConcurrentCheckpoints` applied to its `CheckpointsCleaner`. Final ones and
//! savepoints are exempt.

use std::collections::BTreeSet;

use tidegate_types::CheckpointId;

use super::{Checked, ensure};

/// A checkpoint is triggered while the files of these are being deleted.
pub(crate) fn deletions_keep_up(deleting: &BTreeSet<CheckpointId>, max_concurrent: u32) -> Checked {
    let holds = deleting.len() <= max_concurrent as usize;
    ensure(holds, "deletions", || {
        format!("a checkpoint is triggered while {deleting:?} are being deleted")
    })
}
