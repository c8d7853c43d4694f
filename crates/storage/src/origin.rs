//! Going on: from the namespace's own checkpoints, or from a snapshot that was given by its path.
//!
//! What a namespace was begun from is recorded before anything else happens, so that every later
//! start goes on right, with the path or without it: until something has completed in the
//! namespace, from the recorded snapshot; after that from the namespace alone.

use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, Owner, RestoreMode, SnapshotLocation,
};
use url::Url;

use crate::error::StorageError;
use crate::ha::pointer::{CheckpointPointer, Origin};
use crate::job_store::JobStore;
use crate::load::load_snapshot;

/// The snapshot that a job is to be begun from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreFrom {
    /// Its folder, see [`parse_snapshot_path`](crate::parse_snapshot_path).
    pub location: SnapshotLocation,
    /// What becomes of it.
    pub mode: RestoreMode,
}

/// Everything that a job goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The completed checkpoints, by ascending id. One that was claimed is among them.
    pub completed: Vec<CompletedCheckpoint>,
    /// The snapshot to restore as long as nothing has completed; it stays the user's.
    pub origin: Option<CompletedCheckpoint>,
    /// The largest checkpoint id that may have been used, that of the origin included.
    pub checkpoint_max: CheckpointId,
    /// The largest attempt number that may have been used.
    pub attempt_max: AttemptNumber,
}

impl JobStore {
    /// Finds what the job goes on from, and records what it is begun from if it is begun now. Call
    /// it once after opening, before the first attempt and any sweep.
    ///
    /// A snapshot that is claimed is checked, then listed as completed. A crash in between is made
    /// good by the next call.
    ///
    /// # Errors
    /// [`StorageError::HasCheckpoints`] if `from` is given and the namespace has completed
    /// checkpoints that don't go back to it; [`StorageError::OtherOrigin`] if it was begun from
    /// something else. [`StorageError::UnreadableOrigin`] if the snapshot is needed and can't be
    /// read. What [`recover`](Self::recover) fails with; failing writes.
    pub async fn resume(&self, from: Option<&RestoreFrom>) -> Result<Resumed, StorageError> {
        let records = &self.inner.records;
        let mut completed = self.recover().await?;
        let (recorded, loaded) = self.settle_origin(from, &completed).await?;
        let mut origin = None;
        if let Some(recorded) = recorded.filter(|_| completed.is_empty()) {
            let mut snapshot = match loaded {
                Some(loaded) => loaded,
                None => load_origin(&recorded.location).await?,
            };
            expect_same(&recorded, &snapshot)?;
            match recorded.mode {
                RestoreMode::NoClaim => origin = Some(snapshot),
                RestoreMode::Claim => {
                    snapshot.owner = Owner::Job;
                    let pointer = CheckpointPointer::to(&snapshot);
                    records.add_pointer(&pointer).await.into_result()?;
                    completed.push(snapshot);
                }
            }
        }
        Ok(Resumed {
            completed,
            origin,
            checkpoint_max: self.reserved_ids().await?,
            attempt_max: self.last_attempt().await?,
        })
    }

    /// The snapshot that the namespace was begun from, if it was from one.
    ///
    /// # Errors
    /// If the record can't be read.
    pub async fn origin(&self) -> Result<Option<Origin>, StorageError> {
        self.inner.records.origin().await
    }

    /// The recorded origin, recorded now if `from` is new; then also the snapshot.
    async fn settle_origin(
        &self,
        from: Option<&RestoreFrom>,
        completed: &[CompletedCheckpoint],
    ) -> Result<(Option<Origin>, Option<CompletedCheckpoint>), StorageError> {
        let records = &self.inner.records;
        let recorded = records.origin().await?;
        let Some(from) = from else {
            return Ok((recorded, None));
        };
        if let Some(origin) = recorded {
            if origin.location == from.location && origin.mode == from.mode {
                return Ok((Some(origin), None));
            }
            return Err(StorageError::OtherOrigin {
                namespace: self.folder().display().to_string(),
                recorded: origin.to_string(),
                given: format!("`{}` ({})", from.location, from.mode),
            });
        }
        if let Some(latest) = completed.last() {
            return Err(StorageError::HasCheckpoints {
                namespace: self.folder().display().to_string(),
                latest: latest.id,
            });
        }
        let snapshot = load_origin(&from.location).await?;
        let origin = Origin {
            checkpoint: snapshot.id,
            taken_by: snapshot.job,
            mode: from.mode,
            location: from.location.clone(),
        };
        records.record_origin(&origin).await.into_result()?;
        Ok((Some(origin), Some(snapshot)))
    }
}

async fn load_origin(location: &SnapshotLocation) -> Result<CompletedCheckpoint, StorageError> {
    let url = Url::parse(location.as_str()).map_err(|e| StorageError::InvalidLocation {
        location: location.to_string(),
        reason: format!("is not a URL: {e}"),
    })?;
    let unreadable = |cause| StorageError::UnreadableOrigin {
        location: location.clone(),
        cause: Box::new(cause),
    };
    load_snapshot(&url).await.map_err(unreadable)
}

/// Refuses a snapshot that was put in the place of the recorded one.
fn expect_same(recorded: &Origin, found: &CompletedCheckpoint) -> Result<(), StorageError> {
    let file = recorded.location.child("_metadata").to_string();
    let cause = if found.job != recorded.taken_by {
        StorageError::OtherJob {
            file,
            expected: recorded.taken_by,
            found: found.job,
        }
    } else if found.id != recorded.checkpoint {
        StorageError::OtherCheckpoint {
            file,
            expected: recorded.checkpoint,
            found: found.id,
        }
    } else {
        return Ok(());
    };
    Err(StorageError::UnreadableOrigin {
        location: recorded.location.clone(),
        cause: Box::new(cause),
    })
}
