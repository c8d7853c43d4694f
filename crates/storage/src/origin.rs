//! Going on: from the namespace's own checkpoints, or from a snapshot that was given by its path.
//!
//! What a namespace was begun from is recorded before anything else happens, so that every later
//! start goes on right, with the path or without it: until something has completed in the
//! namespace, from the recorded snapshot; after that from the namespace alone. Once the history of
//! the job was discarded, its origin is used up: going back to it would repeat what was committed.

use std::io;
use std::path::Path;

use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, Owner, RestoreMode,
    SnapshotLocation,
};

use crate::checkpoint_storage::expect;
use crate::completed::Found;
use crate::error::StorageError;
use crate::ha::pointer::{CheckpointPointer, Origin};
use crate::job_store::JobStore;
use crate::load::load_at;
use crate::location::location_of;
use crate::objects::blocking;
use crate::places::Place;

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
    /// The parallelism that somebody asked for, if one is recorded.
    pub asked: Option<AskedParallelism>,
}

/// What a job goes on from, and what is to be recorded of it first.
struct Start {
    completed: Vec<CompletedCheckpoint>,
    /// Pointers that lead nowhere, and needn't.
    gone: Vec<CheckpointId>,
    new_origin: Option<Origin>,
    claimed: Option<CompletedCheckpoint>,
    origin: Option<CompletedCheckpoint>,
}

impl JobStore {
    /// Finds what the job goes on from, and records what it is begun from if it is begun now. Call
    /// it once after opening, before the first attempt and any sweep.
    ///
    /// A snapshot that is claimed is checked, then listed as completed: where it really lies, not
    /// the symbolic links that lead there. A crash in between is made good by the next call.
    ///
    /// Once a history of the job was [discarded](Self::discard_history), only what completed after
    /// that counts; if nothing has, the job begins empty. What is left of the pointers is removed
    /// first.
    ///
    /// # Errors
    /// [`StorageError::HistoryDiscarded`] if `from` is given after that, even the same;
    /// [`StorageError::HasCheckpoints`] if `from` is given and the namespace has completed
    /// checkpoints that don't go back to it; [`StorageError::OtherOrigin`] if it was begun from
    /// something else. [`StorageError::UnreadableOrigin`] if the snapshot is needed and can't be
    /// read. What [`recover`](Self::recover) fails with; failing writes.
    pub async fn resume(&self, from: Option<&RestoreFrom>) -> Result<Resumed, StorageError> {
        let records = &self.inner.records;
        let start = self.find_start(from).await?;
        self.forget_what_does_not_count(&start.gone).await?;
        if let Some(origin) = &start.new_origin {
            records.record_origin(origin).await.into_result()?;
        }
        if let Some(claimed) = &start.claimed {
            let pointer = CheckpointPointer::to(claimed);
            records.add_pointer(&pointer).await.into_result()?;
        }
        self.resumed(start).await
    }

    /// What [`resume`](Self::resume) would find, for dry runs: nothing is recorded or claimed.
    ///
    /// # Errors
    /// As that, apart from failing writes.
    pub async fn preview_resume(
        &self,
        from: Option<&RestoreFrom>,
    ) -> Result<Resumed, StorageError> {
        let start = self.find_start(from).await?;
        self.resumed(start).await
    }

    async fn find_start(&self, from: Option<&RestoreFrom>) -> Result<Start, StorageError> {
        let Found { completed, gone } = self.look().await?;
        let discarded = self.inner.records.discarded().await?;
        if let (Some(_), Some(discarded)) = (from, discarded) {
            return Err(StorageError::HistoryDiscarded {
                namespace: self.folder().display().to_string(),
                discarded,
            });
        }
        let recorded = self.inner.records.origin().await?;
        self.refuse_other_origin(from, recorded.as_ref(), &completed)?;
        let mut start = Start {
            completed,
            gone,
            new_origin: None,
            claimed: None,
            origin: None,
        };
        let needed = Self::needed(from, recorded.as_ref(), &start.completed);
        let Some(from) = needed.filter(|_| discarded.is_none()) else {
            return Ok(start);
        };
        let mut snapshot = load_origin(&from).await?;
        match &recorded {
            Some(recorded) => expect_same(recorded, &snapshot)?,
            None => {
                start.new_origin = Some(Origin {
                    checkpoint: snapshot.id,
                    taken_by: snapshot.job,
                    mode: from.mode,
                    location: from.location,
                });
            }
        }
        match from.mode {
            RestoreMode::NoClaim => start.origin = Some(snapshot),
            RestoreMode::Claim => {
                snapshot.owner = Owner::Job;
                start.claimed = Some(snapshot);
            }
        }
        Ok(start)
    }

    /// The snapshot to read, if nothing has completed yet.
    fn needed(
        from: Option<&RestoreFrom>,
        recorded: Option<&Origin>,
        completed: &[CompletedCheckpoint],
    ) -> Option<RestoreFrom> {
        let recorded = recorded.map(|origin| RestoreFrom {
            location: origin.location.clone(),
            mode: origin.mode,
        });
        recorded
            .or_else(|| from.cloned())
            .filter(|_| completed.is_empty())
    }

    async fn resumed(&self, start: Start) -> Result<Resumed, StorageError> {
        let snapshot = start.claimed.iter().chain(&start.origin);
        let ids = snapshot.map(|snapshot| snapshot.id);
        let checkpoint_max = ids.fold(self.reserved_ids().await?, CheckpointId::max);
        let mut completed = start.completed;
        completed.extend(start.claimed);
        Ok(Resumed {
            completed,
            origin: start.origin,
            checkpoint_max,
            attempt_max: self.last_attempt().await?,
            asked: self.asked_parallelism().await?,
        })
    }

    /// The snapshot that the namespace was begun from, if it was from one.
    ///
    /// # Errors
    /// If the record can't be read.
    pub async fn origin(&self) -> Result<Option<Origin>, StorageError> {
        self.inner.records.origin().await
    }

    fn refuse_other_origin(
        &self,
        from: Option<&RestoreFrom>,
        recorded: Option<&Origin>,
        completed: &[CompletedCheckpoint],
    ) -> Result<(), StorageError> {
        let namespace = || self.folder().display().to_string();
        match (from, recorded, completed.last()) {
            (Some(from), Some(origin), _)
                if origin.location != from.location || origin.mode != from.mode =>
            {
                Err(StorageError::OtherOrigin {
                    namespace: namespace(),
                    recorded: origin.to_string(),
                    given: format!("`{}` ({})", from.location, from.mode),
                })
            }
            (Some(_), None, Some(latest)) => Err(StorageError::HasCheckpoints {
                namespace: namespace(),
                latest: latest.id,
            }),
            _ => Ok(()),
        }
    }
}

async fn load_origin(from: &RestoreFrom) -> Result<CompletedCheckpoint, StorageError> {
    let place = Place::of(&from.location)?;
    let load = async {
        let location = match (from.mode, place) {
            // It will be deleted, when links may lead to another one.
            (RestoreMode::Claim, Place::Folder(folder)) => {
                blocking(move || resolve(&folder)).await?
            }
            _ => from.location.clone(),
        };
        load_at(&location).await
    };
    load.await.map_err(|cause| StorageError::UnreadableOrigin {
        location: from.location.clone(),
        cause: Box::new(cause),
    })
}

/// Where the folder of a snapshot really lies.
fn resolve(folder: &Path) -> Result<SnapshotLocation, StorageError> {
    let file = || folder.display().to_string();
    let resolved = folder
        .canonicalize()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StorageError::Missing { file: file() },
            _ => StorageError::Io {
                action: "resolve",
                file: file(),
                source,
            },
        })?;
    location_of(&resolved)
}

/// Refuses a snapshot that was put in the place of the recorded one.
fn expect_same(recorded: &Origin, found: &CompletedCheckpoint) -> Result<(), StorageError> {
    let file = recorded.location.child("_metadata").to_string();
    expect(&file, recorded.taken_by, recorded.checkpoint, found).map_err(|cause| {
        StorageError::UnreadableOrigin {
            location: recorded.location.clone(),
            cause: Box::new(cause),
        }
    })
}
