//! Folders outside of the namespace in which the job is making or deleting a snapshot.
//!
//! A sweep finds what a killed process has left behind by looking through the namespace; it can't
//! look through the rest of the world. So a folder elsewhere is recorded while files in it are made
//! (a savepoint) or deleted (a claimed snapshot), and the next sweep settles what is still
//! recorded: it deletes the rest, or finds that nothing is left to do.
//!
//! Invariants: only folders that this job made or claimed are recorded; in them only files with
//! the names of snapshots are deleted, none that a live checkpoint refers to, and none beside the
//! metadata of another snapshot. What lies beside such a folder is nobody's business here.

use std::collections::HashSet;

use tidegate_types::{CheckpointId, CompletedCheckpoint, JobId, SnapshotLocation};

use crate::checkpoint_storage::{METADATA, at};
use crate::error::StorageError;
use crate::folder::Entry;
use crate::ha::Written;
use crate::ha::job_records::JobRecords;
use crate::ha::pointer::CheckpointPointer;
use crate::load;
use crate::names;
use crate::objects::Objects;
use crate::sweep::SweepReport;

/// What is going on in a folder elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A savepoint is being made; it is whole once it has metadata.
    Making,
    /// A snapshot is being deleted, once its pointer is gone.
    Deleting,
}

/// A folder elsewhere that isn't settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) taken_by: JobId,
    pub(crate) work: Work,
    pub(crate) location: SnapshotLocation,
}

/// What a killed process left in a folder elsewhere.
pub(crate) struct Leftover {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) location: SnapshotLocation,
    /// The folder and the files in it to delete, if there are any; or why that can't be known.
    pub(crate) files: Result<Option<(Objects, Vec<Entry>)>, StorageError>,
    /// Whether more files lie there, which a live checkpoint refers to: a later sweep's.
    pub(crate) in_use: bool,
}

impl Leftover {
    /// Deletes the files, and the folder if it is empty then.
    pub(crate) async fn delete(self, report: &mut SweepReport) -> Result<(), StorageError> {
        let Some((objects, entries)) = self.files? else {
            return Ok(());
        };
        for entry in entries {
            objects.delete_entry(&entry.name, entry.path).await?;
            report.files += 1;
            report.bytes += entry.bytes;
        }
        let removed = objects.remove_if_empty("").await?;
        report.folders += u64::from(removed);
        Ok(())
    }
}

/// Records that a savepoint is being made in `location`.
pub(crate) async fn begin_making(
    records: &JobRecords,
    checkpoint: CheckpointId,
    location: &SnapshotLocation,
) -> Written {
    let folder = Elsewhere {
        checkpoint,
        taken_by: records.job(),
        work: Work::Making,
        location: location.clone(),
    };
    records.begin_elsewhere(&folder).await
}

/// Records that `snapshot` is being deleted, if it lies elsewhere.
pub(crate) async fn begin_deleting(records: &JobRecords, snapshot: &CheckpointPointer) -> Written {
    let Some(location) = &snapshot.location else {
        return Written::Done;
    };
    let folder = Elsewhere {
        checkpoint: snapshot.checkpoint,
        taken_by: snapshot.taken_by,
        work: Work::Deleting,
        location: location.clone(),
    };
    records.begin_elsewhere(&folder).await
}

/// Forgets the folder of `checkpoint`. If that fails, the next sweep finds nothing to do there.
pub(crate) async fn settled(records: &JobRecords, checkpoint: CheckpointId) {
    if let Written::NotDone(error) | Written::Unknown(error) =
        records.end_elsewhere(checkpoint).await
    {
        tracing::debug!(%checkpoint, %error, "a settled folder is still recorded");
    }
}

/// What is left in each folder that isn't settled, apart from files of `live` checkpoints.
pub(crate) async fn leftovers(
    records: &JobRecords,
    live: &[CompletedCheckpoint],
) -> Result<Vec<Leftover>, StorageError> {
    let files = live.iter().flat_map(CompletedCheckpoint::files);
    let live: HashSet<String> = files.map(|file| file.name.clone()).collect();
    let completed = records.completed_ids().await?;
    let mut leftovers = Vec::new();
    for folder in records.elsewhere().await? {
        // A deletion that came not even to removing the pointer is begun anew some day.
        let delete = folder.work == Work::Making || !completed.contains(&folder.checkpoint);
        let mut files = match delete {
            true => files_of(&folder).await,
            false => Ok(None),
        };
        let mut in_use = false;
        if let Ok(Some((_, entries))) = &mut files {
            let found = entries.len();
            entries.retain(|entry| !live.contains(folder.location.child(&entry.name).as_str()));
            in_use = entries.len() < found;
        }
        leftovers.push(Leftover {
            checkpoint: folder.checkpoint,
            location: folder.location,
            files,
            in_use,
        });
    }
    Ok(leftovers)
}

async fn files_of(folder: &Elsewhere) -> Result<Option<(Objects, Vec<Entry>)>, StorageError> {
    let found = load::read_at(&folder.location, folder.taken_by, folder.checkpoint).await;
    match (found, folder.work) {
        // A savepoint that was completed, or somebody else's snapshot.
        (Ok(_), Work::Making)
        | (Err(StorageError::OtherJob { .. } | StorageError::OtherCheckpoint { .. }), _) => {
            return Ok(None);
        }
        (Ok(_), Work::Deleting) | (Err(StorageError::Missing { .. }), _) => {}
        (Err(other), _) => return Err(other),
    }
    let objects = match at(&folder.location, METADATA) {
        Ok(located) => located.objects,
        Err(StorageError::Missing { .. }) => return Ok(None),
        Err(other) => return Err(other),
    };
    let mut entries = objects.entries("").await?;
    entries.retain(|entry| !entry.is_folder && is_of_a_snapshot(&entry.name));
    Ok(Some((objects, entries)))
}

fn is_of_a_snapshot(name: &str) -> bool {
    name == METADATA || names::is_plain_state_file(name) || names::is_staging(name)
}
