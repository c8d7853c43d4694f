//! The folders of savepoints: made before anything is triggered, so that a place that can't be
//! written to fails the request and not the snapshot of every subtask.

use std::fs;
use std::io;
use std::path::Path;

use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, CheckpointId, SnapshotLocation};

#[cfg(feature = "s3")]
use crate::checkpoint_storage::METADATA;
use crate::error::StorageError;
use crate::ha::Written;
use crate::job_store::JobStore;
use crate::objects::{blocking, injected};
use crate::places::Place;
use crate::{elsewhere, folder, names};

impl JobStore {
    /// Makes the folder of a savepoint, with those above it. It must not exist: whatever is in a
    /// folder of this name may be somebody's only copy. Durable when done. In a bucket there is
    /// nothing to make; it is only made sure that it can be read, and that nothing is there.
    ///
    /// Whoever prepares one publishes metadata there or [discards](Self::discard_files) it. Until
    /// then the folder is recorded, from before it exists, so that a [sweep](Self::sweep_orphans)
    /// removes what a killed process leaves there.
    pub async fn prepare_savepoint(
        &self,
        checkpoint: CheckpointId,
        location: &SnapshotLocation,
    ) -> WriteOutcome {
        self.prepare(checkpoint, location).await.into()
    }

    async fn prepare(&self, checkpoint: CheckpointId, location: &SnapshotLocation) -> Written {
        let place = match self.unused(location).await {
            Ok(place) => place,
            Err(error) => return Written::NotDone(error),
        };
        // Ordering: recorded before it is made, so that a process that dies in between leaves
        // nothing; and only if there is none, since what is recorded is cleaned up.
        let records = &self.inner.records;
        let recorded = elsewhere::begin_making(records, checkpoint, location).await;
        if let Err(error) = recorded.into_result() {
            return Written::NotDone(error);
        }
        let made = match place {
            Place::Folder(folder) => {
                let made = blocking(move || Ok(make(&folder))).await;
                made.unwrap_or_else(Written::Unknown)
            }
            // There are no folders: what is to be written to one will find out whether it can be.
            #[cfg(feature = "s3")]
            Place::Bucket(location) => {
                match injected("savepoint:prepare", || location.to_string()) {
                    Ok(()) => Written::Done,
                    Err(error) => Written::NotDone(error),
                }
            }
        };
        if matches!(made, Written::NotDone(_)) {
            elsewhere::settled(records, checkpoint).await;
        }
        made
    }

    /// The place of a savepoint, where nothing must be yet.
    async fn unused(&self, location: &SnapshotLocation) -> Result<Place, StorageError> {
        let place = Place::of(location)?;
        match &place {
            Place::Folder(folder) => {
                let path = folder.clone();
                blocking(move || refuse_existing(&path)).await?;
            }
            #[cfg(feature = "s3")]
            Place::Bucket(_) => {
                let located = self.inner.storage.places.at(location, METADATA)?;
                if !located.objects.entries("").await?.is_empty() {
                    let folder = location.to_string();
                    return Err(StorageError::SavepointExists { folder });
                }
            }
        }
        Ok(place)
    }

    /// A name for a state file of `subtask_name` (`count[1]`) in the savepoint at `location`: its
    /// whole URL. Every call gives another one.
    pub fn savepoint_file_name(
        &self,
        location: &SnapshotLocation,
        attempt: AttemptNumber,
        subtask_name: &str,
    ) -> String {
        let name = names::plain_state_file_name(attempt, subtask_name);
        location.child(&name).to_string()
    }
}

/// What can't be looked at can't be made either; making it says why.
fn refuse_existing(path: &Path) -> Result<(), StorageError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(StorageError::SavepointExists {
            folder: path.display().to_string(),
        }),
        Err(_) => Ok(()),
    }
}

fn make(path: &Path) -> Written {
    let file = || path.display().to_string();
    let made = injected("savepoint:prepare", file)
        .and_then(|()| path.parent().map_or(Ok(()), folder::create_durably))
        .and_then(|()| {
            fs::create_dir(path).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => StorageError::SavepointExists { folder: file() },
                _ => StorageError::Io {
                    action: "create the savepoint folder",
                    file: file(),
                    source,
                },
            })
        });
    if let Err(error) = made {
        return Written::NotDone(error);
    }
    let synced = [Some(path), path.parent()].into_iter().flatten();
    match synced.map(folder::sync).find_map(Result::err) {
        None => Written::Done,
        Some(error) => match folder::remove_if_empty(path) {
            Ok(true) => Written::NotDone(error),
            _ => Written::Unknown(error),
        },
    }
}
