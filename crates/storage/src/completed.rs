//! Completed checkpoints: publishing, recovering and dropping them.
//!
//! A checkpoint is completed by two writes in this order: its `_metadata`, then its pointer in the
//! completed-checkpoint store. Dropping goes the other way round: the pointer is gone for good
//! before anything it leads to is deleted. So whatever the moment of a crash, every pointer leads
//! to a whole checkpoint, and what no pointer leads to is an orphan.
//!
//! A checkpoint may refer to files of earlier ones. Those of its own namespace go with the last
//! that needs them. Those of another one are never deleted: claiming a checkpoint takes over only
//! its folder, since nothing here tells who else there needs its siblings.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CheckpointId, CompletedCheckpoint, FileHandle, Owner, SnapshotLocation};

use crate::checkpoint_storage::{CONCURRENT_MAX, Deletion, METADATA, at, verify_length};
use crate::elsewhere;
use crate::error::StorageError;
use crate::ha::Written;
use crate::ha::pointer::CheckpointPointer;
use crate::job_store::JobStore;
use crate::load;
use crate::location::split_url;
use crate::names;

/// What the pointers lead to.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By ascending id.
    pub(crate) completed: Vec<CompletedCheckpoint>,
    /// Pointers to savepoints that their user has deleted.
    pub(crate) gone: Vec<CheckpointId>,
}

impl JobStore {
    /// Writes `chk-N/_metadata`, or that of a savepoint in its location, which must not exist, and
    /// reads it back. Durable when done. If the future is dropped before it has ended, the outcome
    /// is unknown.
    ///
    /// # Panics
    /// If the checkpoint is of another job, or is a savepoint without a location or the other way
    /// round.
    pub async fn publish_metadata(&self, checkpoint: &CompletedCheckpoint) -> WriteOutcome {
        let id = checkpoint.id;
        assert_eq!(checkpoint.job, self.job(), "job of `{id}`");
        let elsewhere = checkpoint.location.is_some();
        assert_eq!(checkpoint.kind.is_savepoint(), elsewhere, "place of `{id}`");
        let records = &self.inner.records;
        if let Err(error) = records.store().confirm().await {
            return Written::NotDone(error).into();
        }
        let published = self.inner.storage.publish(checkpoint).await;
        if elsewhere && matches!(published, Written::Done) {
            elsewhere::settled(records, id).await;
        }
        published.into()
    }

    /// Writes the pointer that makes a checkpoint a completed one. Its metadata must be durable.
    /// Writing the same again is done. If the future is dropped before it has ended, the outcome
    /// is unknown.
    pub async fn store_pointer(&self, pointer: &CheckpointPointer) -> WriteOutcome {
        self.inner.records.add_pointer(pointer).await.into()
    }

    /// All completed checkpoints, by ascending id, with their metadata read and verified.
    ///
    /// # Errors
    /// [`StorageError::UnreadableCheckpoint`] if any of them can't be read: a newer one is never
    /// skipped silently in favour of an older one. Only a savepoint of the user that isn't the
    /// newest may be gone: it is theirs to delete, and nothing goes on from it.
    pub async fn recover(&self) -> Result<Vec<CompletedCheckpoint>, StorageError> {
        self.look().await.map(|found| found.completed)
    }

    /// As [`recover`](Self::recover), with the savepoints that are gone.
    pub(crate) async fn look(&self) -> Result<Found, StorageError> {
        let ids = self.inner.records.completed_ids().await?;
        let newest = ids.last().copied();
        let read: Vec<_> = stream::iter(ids)
            .map(|id| async move {
                let read = self.read_completed(id, Some(id) == newest).await?;
                Ok((id, read))
            })
            .buffered(CONCURRENT_MAX)
            .try_collect()
            .await?;
        let mut found = Found::default();
        for (id, checkpoint) in read {
            match checkpoint {
                Some(checkpoint) => found.completed.push(checkpoint),
                None => found.gone.push(id),
            }
        }
        Ok(found)
    }

    /// `None` for a savepoint that the user has deleted and nothing needs.
    async fn read_completed(
        &self,
        id: CheckpointId,
        newest: bool,
    ) -> Result<Option<CompletedCheckpoint>, StorageError> {
        let records = &self.inner.records;
        let read = async {
            let pointer = records.pointer(id).await?;
            let read = match &pointer.location {
                None => self.inner.storage.read_own(self.job(), id).await,
                Some(location) => load::read_at(location, pointer.taken_by, id).await,
            };
            match read {
                Err(StorageError::Missing { .. }) if pointer.owner == Owner::User && !newest => {
                    Ok(None)
                }
                read => read.map(|checkpoint| {
                    Some(CompletedCheckpoint {
                        owner: pointer.owner,
                        ..checkpoint
                    })
                }),
            }
        };
        read.await
            .map_err(|cause| StorageError::UnreadableCheckpoint {
                checkpoint: id,
                pointer: records.store().describe(&names::pointer_name(id)),
                cause: Box::new(cause),
            })
    }

    /// Checks that every file of `checkpoint` exists with its recorded length. Checksums are for
    /// whoever reads the files.
    ///
    /// # Errors
    /// [`StorageError::Missing`] or [`StorageError::WrongLength`] for the first bad file.
    pub async fn verify_files(&self, checkpoint: &CompletedCheckpoint) -> Result<(), StorageError> {
        let storage = &self.inner.storage;
        stream::iter(checkpoint.files().map(Ok))
            .try_for_each_concurrent(CONCURRENT_MAX, |handle| async move {
                verify_length(&storage.locate(&handle.name)?, handle).await
            })
            .await
    }

    /// Deletes a completed checkpoint: its pointer, for good; then, unless the user owns it,
    /// metadata, its files apart from those that are `spared`, and its folder if that is empty
    /// then. What is gone already is fine, so this can be repeated. Spared must be every file that
    /// another checkpoint refers to; if pointers to older ones are left, whatever wasn't written
    /// for this one is, too, since they may refer to it: a sweep finds it.
    ///
    /// Of one that was claimed, only files in its own folder are deleted, and its folder stays
    /// recorded as long as any of those are spared: should nobody drop it again, a sweep does.
    ///
    /// # Errors
    /// If the pointer can't be deleted, nothing else is: [`StorageError::Fenced`] if another leader
    /// has taken over. Otherwise every file is tried, and [`StorageError::Undeletable`] counts
    /// those that are left.
    pub async fn drop_completed(
        &self,
        checkpoint: &CompletedCheckpoint,
        spared: &[FileHandle],
    ) -> Result<(), StorageError> {
        let records = &self.inner.records;
        let owned = checkpoint.owner == Owner::Job;
        if owned {
            let begun =
                elsewhere::begin_deleting(records, &CheckpointPointer::to(checkpoint)).await;
            begun.into_result()?;
        }
        records.remove_pointer(checkpoint.id).await.into_result()?;
        if !owned {
            return Ok(());
        }
        if let Some(location) = &checkpoint.location {
            // Since it was claimed, another snapshot may have been put in its place.
            load::refuse_foreign(location, checkpoint.job, checkpoint.id).await?;
        }
        let files = self.unshared(checkpoint, spared).await?;
        let whole = files.len() == deletable(checkpoint).count();
        let deletion = Deletion {
            checkpoint: checkpoint.id,
            location: checkpoint.location.as_ref(),
            files,
            metadata: true,
            refused: Vec::new(),
        };
        self.inner.storage.delete(deletion).await?;
        // If files are left, it stays recorded: when they aren't dropped later, a sweep finds them.
        if whole && checkpoint.location.is_some() {
            elsewhere::settled(records, checkpoint.id).await;
        }
        Ok(())
    }

    /// The files of a checkpoint, whose pointer is gone, that can go with it.
    async fn unshared(
        &self,
        checkpoint: &CompletedCheckpoint,
        spared: &[FileHandle],
    ) -> Result<Vec<String>, StorageError> {
        let spared: HashSet<&str> = spared.iter().map(|file| file.name.as_str()).collect();
        let files = deletable(checkpoint).filter(|f| !spared.contains(f.name.as_str()));
        let mut files: Vec<&FileHandle> = files.collect();
        let shared = files.iter().filter(|file| !checkpoint.owns(file)).count();
        if shared > 0 && self.has_older(checkpoint.id).await? {
            files.retain(|file| checkpoint.owns(file));
            left_to_a_sweep(checkpoint.id, shared);
        }
        Ok(files.into_iter().map(|file| file.name.clone()).collect())
    }

    /// Whether an older checkpoint is still listed: what could not be dropped stays so until the
    /// next start.
    async fn has_older(&self, id: CheckpointId) -> Result<bool, StorageError> {
        let listed = self.inner.records.completed_ids().await?;
        Ok(listed.into_iter().any(|other| other < id))
    }

    /// Deletes files of a checkpoint that will never complete, or that was dropped while they were
    /// spared, its metadata if `metadata` is set, and its folder if nothing is left in it. What is
    /// gone already is fine. `location` is the folder of a savepoint; all files must lie in there.
    ///
    /// # Errors
    /// [`StorageError::StillReferenced`], and nothing is deleted, if the checkpoint has a pointer
    /// after all, [`StorageError::Fenced`] if another leader has taken over;
    /// [`StorageError::Undeletable`] if some files are left.
    pub async fn discard_files(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        files: &[FileHandle],
        metadata: bool,
    ) -> Result<(), StorageError> {
        let records = &self.inner.records;
        records.store().confirm().await?;
        records.refuse_completed(checkpoint).await?;
        if metadata && let Some(location) = location {
            load::refuse_foreign(location, self.job(), checkpoint).await?;
            // A whole one is no longer recorded, and without its metadata it could not be found.
            if load::read_at(location, self.job(), checkpoint)
                .await
                .is_ok()
            {
                let begun = elsewhere::begin_making(records, checkpoint, location);
                begun.await.into_result()?;
            }
        }
        let shared = location.is_none() && files.iter().any(|f| !f.is_of(checkpoint, None));
        if shared && self.has_older(checkpoint).await? {
            // They may be needed after all; a sweep tells.
            left_to_a_sweep(checkpoint, files.len());
            return Ok(());
        }
        let names = files.iter().map(|file| file.name.clone());
        let (files, others) = names.partition(|name: &String| lies_in(name, location));
        let deletion = Deletion {
            checkpoint,
            location,
            files,
            metadata,
            refused: refusals(others),
        };
        self.inner.storage.delete(deletion).await?;
        if let Some(location) = location
            && is_gone(location)
        {
            elsewhere::settled(records, checkpoint).await;
        }
        Ok(())
    }
}

impl JobStore {
    /// Deletes one file of a checkpoint that will never complete, wherever it was created. See
    /// [`discard_files`](Self::discard_files).
    ///
    /// # Errors
    /// As there.
    pub async fn discard_state_file(
        &self,
        checkpoint: CheckpointId,
        file: &FileHandle,
    ) -> Result<(), StorageError> {
        let location = split_url(&file.name).map(|(folder, _)| folder);
        let files = std::slice::from_ref(file);
        self.discard_files(checkpoint, location.as_ref(), files, false)
            .await
    }
}

/// The files of a checkpoint that the job may delete with it, once nothing else needs them: those
/// in the claimed folder, or in the job's own namespace.
fn deletable(checkpoint: &CompletedCheckpoint) -> impl Iterator<Item = &FileHandle> {
    checkpoint
        .files()
        .filter(|file| match &checkpoint.location {
            Some(_) => checkpoint.owns(file),
            None => split_url(&file.name).is_none(),
        })
}

fn left_to_a_sweep(checkpoint: CheckpointId, files: usize) {
    tracing::debug!(
        %checkpoint,
        files,
        "an older checkpoint is still listed and may need files: they are left to a sweep"
    );
}

/// Whether this names a state file in the right place. Handles may come from another process.
fn lies_in(name: &str, location: Option<&SnapshotLocation>) -> bool {
    match location {
        None => names::is_state_file_name(name),
        Some(location) => split_url(name).is_some_and(|(folder, _)| folder == *location),
    }
}

/// Whether nothing is left of a folder, not even late files that are still to be discarded.
fn is_gone(location: &SnapshotLocation) -> bool {
    matches!(at(location, METADATA), Err(StorageError::Missing { .. }))
}

fn refusals(names: Vec<String>) -> Vec<StorageError> {
    let refusal = |file| StorageError::Malformed {
        file,
        reason: "this is no name of a state file of the checkpoint".to_owned(),
    };
    names.into_iter().map(refusal).collect()
}
