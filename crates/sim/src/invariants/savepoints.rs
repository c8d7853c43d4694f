//! What belongs to the user is never changed: a savepoint that was promised, or what a job was
//! restored from without claiming it, stays as it is, restorable and with all its files in one
//! folder. Once claimed it is the job's.
//!
//! Not promised: transactions that a plain savepoint lists. If its attempt dies before the next
//! checkpoint completes, the next attempt removes them and writes their records anew, so that a
//! sink restored from the savepoint misses them.
//!
//! Source: Flink's savepoints (FLIP-193, "Snapshots ownership"); the rule that savepoints are never
//! subsumed; BC-22, a stop whose savepoint is complete names it.

use std::collections::BTreeSet;

use tidegate_coordinator::{Answer, CompletedSummary};
use tidegate_types::{CheckpointId, SnapshotLocation};

use super::{Checked, ensure};
use crate::store::{Store, Target};

const NAME: &str = "savepoints";

/// Folders of the user's.
#[derive(Debug, Default)]
pub(crate) struct Savepoints {
    kept: BTreeSet<SnapshotLocation>,
    /// Snapshots whose folders are removed.
    removed: BTreeSet<CheckpointId>,
}

impl Savepoints {
    /// A savepoint has completed, or a job goes on from a snapshot that it doesn't own.
    pub(crate) fn keep(&mut self, folder: SnapshotLocation, store: &Store) -> Checked {
        intact(&folder, store)?;
        self.kept.insert(folder);
        Ok(())
    }

    /// A job takes a snapshot over.
    pub(crate) fn claim(&mut self, folder: &SnapshotLocation) {
        self.kept.remove(folder);
    }

    /// Somebody is told of a snapshot.
    pub(crate) fn on_answer(&self, answer: &Answer) -> Checked {
        let summary = match answer {
            Answer::Completed(summary) => summary,
            Answer::NotStopped { savepoint, .. } => savepoint,
            _ => return Ok(()),
        };
        let CompletedSummary { kind, location, .. } = summary;
        let kept = location
            .as_ref()
            .is_some_and(|folder| self.kept.contains(folder));
        ensure(kept || !kind.is_savepoint(), NAME, || {
            format!("somebody is told of a savepoint that isn't there: {answer:?}")
        })
    }

    /// A subtask finds no folder to write to.
    pub(crate) fn folder_missing(&self, checkpoint: CheckpointId) -> Checked {
        ensure(self.removed.contains(&checkpoint), NAME, || {
            format!("{checkpoint} is written before its folder is there")
        })
    }

    /// The folder of a savepoint that came to nothing is removed.
    pub(crate) fn on_discard(&mut self, checkpoint: CheckpointId) {
        self.removed.insert(checkpoint);
    }

    /// A subtask writes a state file.
    pub(crate) fn may_write(&self, name: &str) -> Checked {
        self.may_delete(&Target::File(name.to_owned()))
    }

    pub(crate) fn may_delete(&self, target: &Target) -> Checked {
        let folder = match target {
            Target::Metadata(_, Some(folder)) | Target::Folder(folder) => folder.as_str(),
            Target::File(name) => name.rsplit_once('/').map_or("", |(folder, _)| folder),
            Target::Metadata(_, None) | Target::Pointer(_) => return Ok(()),
        };
        let is_kept = self.kept.iter().any(|kept| kept.as_str() == folder);
        ensure(!is_kept, NAME, || {
            format!("{target:?} is touched, but belongs to the user")
        })
    }

    /// All of them are as they were.
    pub(crate) fn are_intact(&self, store: &Store) -> Checked {
        self.kept
            .iter()
            .try_for_each(|folder| intact(folder, store))
    }
}

fn intact(folder: &SnapshotLocation, store: &Store) -> Checked {
    let Some(snapshot) = store.elsewhere.get(folder) else {
        return ensure(false, NAME, || format!("`{folder}` has no metadata"));
    };
    for file in snapshot.files() {
        let inside = file
            .name
            .rsplit_once('/')
            .is_some_and(|(f, _)| f == folder.as_str());
        // A checkpoint may rest on others beside it; a savepoint is whole by itself.
        let inside = inside || !snapshot.kind.is_savepoint();
        ensure(inside && store.open(file).is_some(), NAME, || {
            format!(
                "`{folder}` needs `{}`, which is elsewhere or gone",
                file.name
            )
        })?;
    }
    Ok(())
}
