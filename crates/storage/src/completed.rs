//! Completed checkpoints: publishing, recovering and dropping them.
//!
//! A checkpoint is completed by two writes in this order: its `_metadata`, then its pointer in
//! `completed/`. Dropping goes the other way round: the pointer is gone for good before anything
//! it leads to is deleted. So whatever the moment of a crash, every pointer leads to a whole
//! checkpoint, and what no pointer leads to is an orphan.

use futures::{StreamExt, TryStreamExt, stream};
use object_store::PutMode;
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CheckpointId, CompletedCheckpoint, FileHandle};

use crate::error::StorageError;
use crate::folder;
use crate::job_store::{JobStore, parse_checkpoint_record};
use crate::metadata::{self, METADATA_BYTES_MAX};
use crate::names::{self, COMPLETED};
use crate::objects::{self, Put, blocking};
use crate::record::{self, RECORD_BYTES_MAX};

/// Files looked at or deleted at the same time.
const CONCURRENT_MAX: usize = 16;

impl JobStore {
    /// Writes `chk-N/_metadata`, which must not exist, and reads it back. Durable when done. If the
    /// future is dropped before it has ended, the outcome is unknown.
    ///
    /// # Panics
    /// If the checkpoint is of another job.
    pub async fn publish_metadata(&self, checkpoint: &CompletedCheckpoint) -> WriteOutcome {
        assert_eq!(checkpoint.job, self.job(), "job of `{}`", checkpoint.id);
        let bytes = match metadata::encode(checkpoint) {
            Ok(bytes) => bytes,
            Err(error) => return Put::NotDone(error).into(),
        };
        tidegate_fault::point("metadata:before");
        let name = names::metadata_name(checkpoint.id);
        let objects = &self.inner.objects;
        let put = objects.put(&name, bytes, PutMode::Create, &objects::METADATA);
        after("metadata:after", put.await)
    }

    /// Writes the pointer that makes a checkpoint a completed one, and reads it back. Its metadata
    /// must be durable. If the future is dropped before it has ended, the outcome is unknown.
    pub async fn store_pointer(&self, checkpoint: CheckpointId) -> WriteOutcome {
        tidegate_fault::point("pointer:before");
        let bytes = self.checkpoint_record(&record::POINTER, checkpoint);
        let name = names::pointer_name(checkpoint);
        let objects = &self.inner.objects;
        let put = objects.put(&name, bytes, PutMode::Create, &objects::POINTER);
        after("pointer:after", put.await)
    }

    /// All completed checkpoints, by ascending id, with their metadata read and verified.
    ///
    /// # Errors
    /// [`StorageError::UnreadableCheckpoint`] if any of them can't be read: a newer one is never
    /// skipped silently in favour of an older one.
    pub async fn recover(&self) -> Result<Vec<CompletedCheckpoint>, StorageError> {
        let pointers = self.pointers().await?;
        stream::iter(pointers)
            .map(|id| self.read_completed(id))
            .buffered(CONCURRENT_MAX)
            .try_collect()
            .await
    }

    /// The ids that there are pointers to, ascending by number.
    pub(crate) async fn pointers(&self) -> Result<Vec<CheckpointId>, StorageError> {
        let folder = self.folder().join(COMPLETED);
        let entries = blocking(move || folder::entries(&folder)).await?;
        let mut ids = Vec::new();
        // What `object_store` leaves behind when it is killed while writing is no pointer yet.
        for entry in entries
            .iter()
            .filter(|entry| !names::is_staging(&entry.name))
        {
            let id = names::parse_pointer_file_name(&entry.name);
            ids.push(id.ok_or_else(|| StorageError::Malformed {
                file: entry.path.display().to_string(),
                reason: "its name is no checkpoint id of 20 digits".to_owned(),
            })?);
        }
        ids.sort_unstable();
        Ok(ids)
    }

    async fn read_completed(&self, id: CheckpointId) -> Result<CompletedCheckpoint, StorageError> {
        let read = async {
            self.check_pointer(id).await?;
            self.read_metadata(id).await
        };
        read.await
            .map_err(|cause| StorageError::UnreadableCheckpoint {
                checkpoint: id,
                pointer: self.inner.objects.file(&names::pointer_name(id)),
                cause: Box::new(cause),
            })
    }

    async fn check_pointer(&self, id: CheckpointId) -> Result<(), StorageError> {
        let (objects, name) = (&self.inner.objects, names::pointer_name(id));
        let bytes = objects.get(&name, RECORD_BYTES_MAX).await?;
        let file = objects.file(&name);
        let values = record::POINTER.decode(&file, &bytes)?;
        let found = parse_checkpoint_record(&file, self.job(), &values)?;
        if found == id {
            return Ok(());
        }
        let reason = format!("it points to `{found}`");
        Err(StorageError::Malformed { file, reason })
    }

    async fn read_metadata(&self, id: CheckpointId) -> Result<CompletedCheckpoint, StorageError> {
        let (objects, name) = (&self.inner.objects, names::metadata_name(id));
        let bytes = objects.get(&name, METADATA_BYTES_MAX).await?;
        let file = objects.file(&name);
        let checkpoint = metadata::decode(&file, &bytes)?;
        if checkpoint.job != self.job() {
            return Err(StorageError::OtherJob {
                file,
                expected: self.job(),
                found: checkpoint.job,
            });
        }
        if checkpoint.id != id {
            let reason = format!("it is the metadata of `{}`", checkpoint.id);
            return Err(StorageError::Malformed { file, reason });
        }
        Ok(checkpoint)
    }

    /// Checks that every file of `checkpoint` exists with its recorded length. Checksums are for
    /// whoever reads the files.
    ///
    /// # Errors
    /// [`StorageError::Missing`] or [`StorageError::WrongLength`] for the first bad file.
    pub async fn verify_files(&self, checkpoint: &CompletedCheckpoint) -> Result<(), StorageError> {
        stream::iter(checkpoint.files().map(Ok))
            .try_for_each_concurrent(CONCURRENT_MAX, |handle| self.verify_length(handle))
            .await
    }

    pub(crate) async fn verify_length(&self, handle: &FileHandle) -> Result<(), StorageError> {
        let objects = &self.inner.objects;
        let actual = objects.bytes_of(&handle.name).await?;
        if actual == handle.bytes {
            return Ok(());
        }
        Err(StorageError::WrongLength {
            file: objects.file(&handle.name),
            expected: handle.bytes,
            actual,
        })
    }

    /// Deletes a completed checkpoint: its pointer, for good; then metadata, files and folder.
    /// What is gone already is fine, so this can be repeated. No other checkpoint may refer to its
    /// files.
    ///
    /// # Errors
    /// If the pointer can't be deleted, nothing else is. Otherwise every file is tried, and
    /// [`StorageError::Undeletable`] counts those that are left.
    pub async fn drop_completed(
        &self,
        checkpoint: &CompletedCheckpoint,
    ) -> Result<(), StorageError> {
        let objects = &self.inner.objects;
        objects.delete(&names::pointer_name(checkpoint.id)).await?;
        // Ordering: after a power failure the pointer must not be back while its files are gone.
        objects.sync_folder(COMPLETED).await?;
        let files = checkpoint.files().map(|file| file.name.clone());
        let all = std::iter::once(names::metadata_name(checkpoint.id)).chain(files);
        self.delete_all(checkpoint.id, all.collect()).await
    }

    /// Deletes files of a checkpoint that will never complete, and its metadata if `metadata` is
    /// set. What is gone already is fine.
    ///
    /// # Errors
    /// [`StorageError::StillReferenced`], and nothing is deleted, if the checkpoint has a pointer
    /// after all; [`StorageError::Undeletable`] if some files are left.
    pub async fn discard_files(
        &self,
        checkpoint: CheckpointId,
        files: &[FileHandle],
        metadata: bool,
    ) -> Result<(), StorageError> {
        let objects = &self.inner.objects;
        let pointer = names::pointer_name(checkpoint);
        match objects.bytes_of(&pointer).await {
            Err(StorageError::Missing { .. }) => {}
            Err(other) => return Err(other),
            Ok(_) => {
                return Err(StorageError::StillReferenced {
                    checkpoint,
                    pointer: objects.file(&pointer),
                });
            }
        }
        let mut all: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        if metadata {
            all.push(names::metadata_name(checkpoint));
        }
        self.delete_all(checkpoint, all).await
    }

    /// Deletes one file of a checkpoint. Handles may come from another process: what isn't the name
    /// of such a file is refused.
    async fn delete_file(&self, name: String, metadata: &str) -> Result<(), StorageError> {
        if name != metadata && !names::is_state_file_name(&name) {
            return Err(StorageError::Malformed {
                file: name,
                reason: "this is no name of a state file".to_owned(),
            });
        }
        self.inner.objects.delete(&name).await
    }

    /// Deletes each of `all`, then the checkpoint's folder if nothing is left in it.
    async fn delete_all(
        &self,
        checkpoint: CheckpointId,
        all: Vec<String>,
    ) -> Result<(), StorageError> {
        let metadata = names::metadata_name(checkpoint);
        let failures: Vec<StorageError> = stream::iter(all)
            .map(|name| self.delete_file(name, &metadata))
            .buffer_unordered(CONCURRENT_MAX)
            .filter_map(|deleted| std::future::ready(deleted.err()))
            .collect()
            .await;
        let folder = self.folder().join(names::checkpoint_folder(checkpoint));
        let removed = blocking(move || folder::remove_if_empty(&folder)).await;
        let mut failures = failures.into_iter().chain(removed.err());
        match failures.next() {
            None => Ok(()),
            Some(first) => Err(StorageError::Undeletable {
                count: 1 + failures.count(),
                first: Box::new(first),
            }),
        }
    }
}

/// Passes a crash point if the write before it is done.
fn after(point: &'static str, put: Put) -> WriteOutcome {
    if matches!(put, Put::Done) {
        tidegate_fault::point(point);
    }
    put.into()
}
