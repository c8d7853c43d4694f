//! When a job has been stopped with a savepoint, everything up to it is published and nothing that
//! comes after it was emitted.
//!
//! Source: design section 4, stop with savepoint; BC-21, BC-22, BC-60; Flink's
//! `StopWithSavepointTerminationHandler`. That nothing is published twice, and that the savepoint
//! is a consistent cut, are promises of their own.

use tidegate_types::CompletedCheckpoint;

use super::transactions::listed;
use super::{Checked, ensure};
use crate::external::{External, State};

pub(crate) fn published(savepoint: &CompletedCheckpoint, external: &External) -> Checked {
    let open = listed(savepoint).find(|id| external.state(*id) != Some(State::Committed));
    ensure(open.is_none(), "stopped", || {
        format!(
            "the job has ended with {}, but {open:?} is not published",
            savepoint.id
        )
    })
}
