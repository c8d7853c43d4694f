//! At most as many checkpoints are under way as the settings allow. Final ones and savepoints are
//! exempt.
//!
//! Source: Flink's `maxConcurrentCheckpoints`; the B group of its coordinator's tests.

use tidegate_types::SnapshotKind;

use super::outcomes::Outcomes;
use super::{Checked, ensure};

/// Something has been triggered.
pub(crate) fn within_concurrency(outcomes: &Outcomes, max_concurrent: u32) -> Checked {
    let limited = |kind: &SnapshotKind| *kind == SnapshotKind::Checkpoint;
    let count = outcomes.under_way().filter(limited).count();
    ensure(count <= max_concurrent as usize, "concurrency", || {
        format!("{count} checkpoints are under way, and {max_concurrent} may be")
    })
}
