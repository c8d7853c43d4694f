//! Checkpoint storage: state files and metadata, in the job's namespace and in the folders of
//! savepoints. Everything here is large, immutable and written under a name that nobody else uses;
//! which of it counts is said by the records of the [high-availability contract](crate::ha).

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use object_store::PutMode;
use tidegate_types::{CheckpointId, CompletedCheckpoint, FileHandle, JobId, SnapshotLocation};

use crate::error::StorageError;
use crate::ha::Written;
use crate::location;
use crate::metadata::{self, METADATA_BYTES_MAX};
use crate::names;
use crate::objects::{self, Objects};
use crate::places::Places;

/// Files looked at or deleted at the same time.
pub(crate) const CONCURRENT_MAX: usize = 16;

/// File name of metadata.
pub(crate) const METADATA: &str = "_metadata";

/// The files of one job.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointStorage {
    /// The job's own namespace.
    pub(crate) objects: Objects,
    /// Everywhere else.
    pub(crate) places: Places,
}

/// One file: where it lies, and its name relative to there.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) objects: Objects,
    pub(crate) name: String,
}

impl Located {
    /// Full name, as errors give it.
    pub(crate) fn file(&self) -> String {
        self.objects.file(&self.name)
    }
}

/// What of a checkpoint is to be deleted.
pub(crate) struct Deletion<'a> {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) location: Option<&'a SnapshotLocation>,
    pub(crate) files: Vec<String>,
    pub(crate) metadata: bool,
    /// Files that won't be touched, and why.
    pub(crate) refused: Vec<StorageError>,
}

impl CheckpointStorage {
    /// Where the file called `name` lies.
    ///
    /// # Errors
    /// [`StorageError::Malformed`] if this is no name of a state file; it may come from another
    /// process. [`StorageError::Missing`] if its folder doesn't exist.
    pub(crate) fn locate(&self, name: &str) -> Result<Located, StorageError> {
        if names::is_state_file_name(name) {
            return Ok(Located {
                objects: self.objects.clone(),
                name: name.to_owned(),
            });
        }
        self.places.locate(name)
    }

    /// Where the metadata of a checkpoint lies.
    fn metadata_of(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
    ) -> Result<Located, StorageError> {
        match location {
            Some(location) => self.places.at(location, METADATA),
            None => Ok(Located {
                objects: self.objects.clone(),
                name: names::metadata_name(checkpoint),
            }),
        }
    }

    /// Writes metadata that must not exist, and reads it back.
    pub(crate) async fn publish(&self, checkpoint: &CompletedCheckpoint) -> Written {
        let location = checkpoint.location.as_ref();
        let prepared = relative(checkpoint).and_then(|checkpoint| {
            let bytes = metadata::encode(&checkpoint)?;
            Ok((bytes, self.metadata_of(checkpoint.id, location)?))
        });
        let (bytes, target) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Written::NotDone(error),
        };
        tidegate_fault::point("metadata:before");
        let put = target.objects.put(
            &target.name,
            bytes.into(),
            PutMode::Create,
            &objects::METADATA,
        );
        put.await.passing("metadata:after")
    }

    /// Reads the metadata of a checkpoint in the namespace of `job`.
    pub(crate) async fn read_own(
        &self,
        job: JobId,
        id: CheckpointId,
    ) -> Result<CompletedCheckpoint, StorageError> {
        let target = self.metadata_of(id, None)?;
        let checkpoint = read(&target).await?;
        expect(&target.file(), job, id, &checkpoint)?;
        Ok(checkpoint)
    }

    /// Deletes metadata and files, then the folders they lay in if nothing else is in there. What
    /// is gone already is fine. Of a snapshot elsewhere the metadata goes first, for good: whatever
    /// happens then, nobody takes the rest for a whole one.
    ///
    /// # Errors
    /// [`StorageError::Undeletable`] counts what is left; everything is tried, but that no file
    /// elsewhere is deleted before the metadata.
    pub(crate) async fn delete(&self, deletion: Deletion<'_>) -> Result<(), StorageError> {
        let metadata = self.metadata_of(deletion.checkpoint, deletion.location);
        let mut folders: BTreeMap<String, (Objects, String)> = BTreeMap::new();
        let mut add = |located: &Located| {
            let folder = located
                .name
                .rsplit_once('/')
                .map_or("", |(folder, _)| folder);
            let key = located.objects.file(folder);
            folders.insert(key, (located.objects.clone(), folder.to_owned()));
        };
        let mut targets = Vec::new();
        if let Ok(located) = &metadata {
            add(located);
        }
        if deletion.metadata {
            match (&metadata, deletion.location) {
                (Ok(located), Some(_)) => {
                    let deleted = delete_for_good(located).await;
                    deleted.map_err(|first| StorageError::Undeletable {
                        count: 1 + deletion.files.len() + deletion.refused.len(),
                        first: Box::new(first),
                    })?;
                }
                _ => targets.push(metadata),
            }
        }
        for name in &deletion.files {
            let located = self.locate(name);
            located.iter().for_each(&mut add);
            targets.push(located);
        }
        let failures: Vec<StorageError> = stream::iter(targets)
            .map(|target| async move {
                let target = target?;
                target.objects.delete(&target.name).await
            })
            .buffer_unordered(CONCURRENT_MAX)
            .filter_map(|deleted| std::future::ready(deleted.err()))
            .filter(|error| std::future::ready(!matches!(error, StorageError::Missing { .. })))
            .collect()
            .await;
        let mut left = deletion.refused;
        left.extend(failures);
        for (objects, folder) in folders.into_values() {
            left.extend(objects.remove_if_empty(&folder).await.err());
        }
        let count = left.len();
        match left.into_iter().next() {
            None => Ok(()),
            Some(first) => Err(StorageError::Undeletable {
                count,
                first: Box::new(first),
            }),
        }
    }
}

/// Deletes the metadata of a snapshot elsewhere, so that it stays deleted.
async fn delete_for_good(metadata: &Located) -> Result<(), StorageError> {
    metadata.objects.delete(&metadata.name).await?;
    metadata.objects.sync_folder("").await
}

/// Compares the length of a state file with the recorded one.
pub(crate) async fn verify_length(
    target: &Located,
    handle: &FileHandle,
) -> Result<(), StorageError> {
    let actual = target.objects.bytes_of(&target.name).await?;
    if actual == handle.bytes {
        return Ok(());
    }
    Err(StorageError::WrongLength {
        file: target.file(),
        expected: handle.bytes,
        actual,
    })
}

/// A file in another folder.
pub(crate) fn at(folder: &SnapshotLocation, file: &str) -> Result<Located, StorageError> {
    Places::default().at(folder, file)
}

/// The checkpoint with its files named as on disk.
fn relative(checkpoint: &CompletedCheckpoint) -> Result<CompletedCheckpoint, StorageError> {
    let checkpoint = checkpoint.clone();
    match checkpoint.location.clone() {
        Some(location) => location::into_relative(checkpoint, &location),
        None => Ok(checkpoint),
    }
}

/// Reads metadata as it is on disk.
pub(crate) async fn read(target: &Located) -> Result<CompletedCheckpoint, StorageError> {
    target.objects.injected("metadata:read", &target.name)?;
    let bytes = target.objects.get(&target.name, METADATA_BYTES_MAX).await?;
    metadata::decode(&target.file(), &bytes)
}

/// Refuses the metadata of another checkpoint, or of another job's.
pub(crate) fn expect(
    file: &str,
    job: JobId,
    id: CheckpointId,
    checkpoint: &CompletedCheckpoint,
) -> Result<(), StorageError> {
    if checkpoint.job != job {
        return Err(StorageError::OtherJob {
            file: file.to_owned(),
            expected: job,
            found: checkpoint.job,
        });
    }
    if checkpoint.id == id {
        return Ok(());
    }
    Err(StorageError::OtherCheckpoint {
        file: file.to_owned(),
        expected: id,
        found: checkpoint.id,
    })
}
