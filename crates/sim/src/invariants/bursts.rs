//! Time that has passed while the driver stood still is not made up for: no burst of checkpoints.
//!
//! Source: BC-57.

use tidegate_coordinator::JobAction;
use tidegate_types::SnapshotKind;
use tidegate_types::message::Notice;

use super::{Checked, ensure};

/// One for the interval, and one that somebody asked for.
const AT_ONCE_MAX: usize = 2;

pub(crate) fn no_burst(actions: &[JobAction]) -> Checked {
    let is_periodic = |action: &&JobAction| {
        matches!(action, JobAction::Notify { notice: Notice::Trigger(barrier), .. }
            if barrier.kind == SnapshotKind::Checkpoint)
    };
    let count = actions.iter().filter(is_periodic).count();
    ensure(count <= AT_ONCE_MAX, "bursts", || {
        format!("{count} checkpoints are triggered at once")
    })
}
