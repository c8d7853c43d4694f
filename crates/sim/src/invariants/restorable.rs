//! A completed checkpoint is always restorable: whatever the store lists has its metadata and all
//! its files, complete and unaltered, and fits the job. Only what a job was drained into is no
//! beginning for another one: draining ends it for good. The job itself, if it failed before all
//! was committed, goes on from it to commit the rest.
//!
//! Source: BC-02, BC-11, BC-28.

use tidegate_coordinator::{JobError, RestoreError, refuse_drained};
use tidegate_types::{CheckpointId, CompletedCheckpoint, JobId};

use super::{Checked, Violation, ensure};
use crate::store::{Store, keyed};

const NAME: &str = "restorable";

pub(crate) fn restorable(store: &Store) -> Checked {
    for id in store.pointers.keys() {
        let Some(checkpoint) = store.completed(*id) else {
            return ensure(false, NAME, || {
                format!("{id} is listed, but has no metadata")
            });
        };
        for handle in keyed(checkpoint) {
            for file in handle.files() {
                ensure(store.open(file).is_some(), NAME, || {
                    format!("{id} needs `{}`, which is gone or incomplete", file.name)
                })?;
            }
        }
    }
    Ok(())
}

/// A snapshot that somebody relies on isn't there.
pub(crate) fn not_there(id: CheckpointId) -> Violation {
    Violation {
        invariant: NAME,
        detail: format!("{id} is relied on, but isn't there"),
    }
}

/// Nobody else can go on from what a job was drained into.
pub(crate) fn refused(drained: &CompletedCheckpoint, by: JobId) -> Checked {
    let refusal = refuse_drained(by, drained);
    let expected =
        matches!(refusal, Err(RestoreError::Drained { checkpoint }) if checkpoint == drained.id);
    ensure(expected, NAME, || {
        format!("{by} goes on from {}, which was drained", drained.id)
    })
}

/// A job refused to start from what the store lists.
pub(crate) fn restorable_job(error: &JobError) -> Violation {
    Violation {
        invariant: NAME,
        detail: format!("the job can't start: {error:?}"),
    }
}
