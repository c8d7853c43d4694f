//! Reading a snapshot by its path: a savepoint, or a checkpoint of this or another job.
//!
//! Nothing is known of such a folder but what is in it, so everything is checked before a job goes
//! on from it: the metadata, and that each of its files is there with its recorded length.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::{TryStreamExt, stream};
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, FileHandle, JobId, Owner, SnapshotLocation,
};
use url::Url;

use crate::checkpoint_storage::{CONCURRENT_MAX, METADATA, at, expect, read, verify_length};
use crate::error::StorageError;
use crate::folder::{self, Entry};
use crate::location::{into_absolute, location_of};
use crate::names;
use crate::objects::blocking;
use crate::places::{Place, Places};

/// Reads the snapshot at `place`, on a disk or in a bucket: the folder of a savepoint or of a
/// checkpoint (`chk-N`), or the `_metadata` in it. It comes with the folder as its location, with
/// whole URLs as names of its files, and as the user's. Nobody has to own the namespace it lies in.
/// See also [`parse_snapshot_path`].
///
/// # Errors
/// [`StorageError::Missing`] if nothing is there or a file of it is gone, or
/// [`StorageError::MissingSibling`] if that file lay in another folder;
/// [`StorageError::NotASnapshot`] for folders without metadata, that of a job among them, whose
/// snapshots it names; damage, other versions, [`StorageError::WrongLength`] of a file.
pub async fn load_snapshot(place: &Url) -> Result<CompletedCheckpoint, StorageError> {
    load_at(&SnapshotLocation::new(place.as_str())).await
}

/// As [`load_snapshot`], for a folder.
pub(crate) async fn load_at(
    location: &SnapshotLocation,
) -> Result<CompletedCheckpoint, StorageError> {
    let places = Places::default();
    let location = match Place::of(location)? {
        Place::Folder(path) => location_of(&blocking(move || snapshot_folder(&path)).await?)?,
        #[cfg(feature = "s3")]
        Place::Bucket(_) => in_bucket::snapshot_folder(&places, location).await?,
    };
    let checkpoint = read_folder(&location).await?;
    let (whole, places) = (&checkpoint, &places);
    stream::iter(checkpoint.files().map(Ok))
        .try_for_each_concurrent(CONCURRENT_MAX, |handle| async move {
            let verify = async { verify_length(&places.locate(&handle.name)?, handle).await };
            verify
                .await
                .map_err(|error| in_sibling(error, handle, whole))
        })
        .await?;
    Ok(checkpoint)
}

/// Says why a file should be there at all, if it doesn't lie in the folder that was given.
fn in_sibling(
    error: StorageError,
    handle: &FileHandle,
    checkpoint: &CompletedCheckpoint,
) -> StorageError {
    match (error, &checkpoint.location) {
        (StorageError::Missing { file }, Some(location)) if !checkpoint.owns(handle) => {
            StorageError::MissingSibling {
                file,
                snapshot: location.clone(),
            }
        }
        (error, _) => error,
    }
}

/// Parses what a user gives as a snapshot to go on from: a path (made absolute) or a `file://`
/// URL, of a folder or the `_metadata` in it. Gives its folder; nothing is read.
///
/// # Errors
/// [`StorageError::UnsupportedScheme`] for schemes other than that and, with the feature, `s3://`;
/// [`StorageError::InvalidLocation`] for what is neither.
pub fn parse_snapshot_path(text: &str) -> Result<SnapshotLocation, StorageError> {
    let url = names::parse_checkpoint_dir(text)?;
    #[cfg(feature = "s3")]
    if url.scheme() == "s3" {
        return Ok(in_bucket::without_metadata(&SnapshotLocation::new(
            url.as_str(),
        )));
    }
    let path = names::directory_of(&url)?;
    if path.file_name().is_some_and(|name| name == METADATA)
        && let Some(folder) = path.parent()
    {
        return location_of(folder);
    }
    location_of(&path)
}

/// Reads the metadata of a snapshot that is known to be the one with this id, taken by `job`.
pub(crate) async fn read_at(
    location: &SnapshotLocation,
    job: JobId,
    id: CheckpointId,
) -> Result<CompletedCheckpoint, StorageError> {
    let checkpoint = read_folder(location).await?;
    let file = at(location, METADATA).map_or_else(|_| location.to_string(), |at| at.file());
    expect(&file, job, id, &checkpoint)?;
    Ok(checkpoint)
}

/// Refuses to go on if there is metadata in `location` that isn't of this snapshot.
pub(crate) async fn refuse_foreign(
    location: &SnapshotLocation,
    job: JobId,
    id: CheckpointId,
) -> Result<(), StorageError> {
    match read_at(location, job, id).await {
        Err(error @ (StorageError::OtherJob { .. } | StorageError::OtherCheckpoint { .. })) => {
            Err(error)
        }
        // What can't be read is what was left of it, or nothing.
        _ => Ok(()),
    }
}

async fn read_folder(location: &SnapshotLocation) -> Result<CompletedCheckpoint, StorageError> {
    let checkpoint = read(&at(location, METADATA)?).await?;
    let mut checkpoint = into_absolute(checkpoint, location);
    checkpoint.owner = Owner::User;
    Ok(checkpoint)
}

/// The folder of the snapshot at `path`.
fn snapshot_folder(path: &Path) -> Result<PathBuf, StorageError> {
    let file = || path.display().to_string();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(StorageError::Missing { file: file() });
        }
        Err(source) => {
            return Err(StorageError::Io {
                action: "look at",
                file: file(),
                source,
            });
        }
    };
    match path.parent() {
        Some(folder) if path.ends_with(METADATA) && found.is_file() => Ok(folder.to_owned()),
        _ if found.is_file() => Err(StorageError::NotASnapshot {
            path: file(),
            reason: "it is a file; a snapshot is a folder with a `_metadata`".to_owned(),
        }),
        _ if path.join(METADATA).is_file() => Ok(path.to_owned()),
        _ => Err(StorageError::NotASnapshot {
            path: file(),
            reason: why_not(path)?,
        }),
    }
}

/// Why a folder without metadata is no snapshot, and what may have been meant.
fn why_not(path: &Path) -> Result<String, StorageError> {
    let entries = folder::entries(path)?;
    let inside = entries
        .iter()
        .filter(|entry| entry.is_folder && entry.path.join(METADATA).is_file());
    Ok(reason(&entries, inside.map(|entry| entry.name.as_str())))
}

/// Why what is in `entries` is no snapshot, of which `inside` are some.
fn reason<'a>(entries: &[Entry], inside: impl Iterator<Item = &'a str>) -> String {
    let mut inside: Vec<_> = inside
        .map(|name| (names::parse_checkpoint_folder(name), name))
        .collect();
    inside.sort();
    let inside: Vec<String> = inside.iter().map(|(_, name)| format!("`{name}`")).collect();
    if !inside.is_empty() {
        return format!(
            "it has no `_metadata`, but snapshots are in it; give one of them: {}",
            inside.join(", ")
        );
    }
    if entries.iter().any(|entry| entry.name == names::IDENTITY) {
        return "it is the folder of a job in which nothing has completed".to_owned();
    }
    "it has no `_metadata`: it is something else, or did not complete".to_owned()
}

#[cfg(feature = "s3")]
mod in_bucket {
    //! The same where there are no folders, but only names with slashes in them.

    use super::*;

    /// The folder of the snapshot at `location`.
    pub(super) async fn snapshot_folder(
        places: &Places,
        location: &SnapshotLocation,
    ) -> Result<SnapshotLocation, StorageError> {
        let folder = without_metadata(location);
        let metadata = places.at(&folder, METADATA)?;
        match metadata.objects.bytes_of(METADATA).await {
            Ok(_) => return Ok(folder),
            Err(StorageError::Missing { .. }) => {}
            Err(other) => return Err(other),
        }
        let entries = metadata.objects.entries("").await?;
        let path = folder.to_string();
        if entries.is_empty() {
            return Err(StorageError::Missing { file: path });
        }
        let mut inside = Vec::new();
        for entry in entries.iter().filter(|entry| entry.is_folder) {
            let name = format!("{}/{METADATA}", entry.name);
            if metadata.objects.bytes_of(&name).await.is_ok() {
                inside.push(entry.name.as_str());
            }
        }
        let reason = reason(&entries, inside.into_iter());
        Err(StorageError::NotASnapshot { path, reason })
    }

    /// Of a snapshot that is given by its metadata: its folder.
    pub(super) fn without_metadata(location: &SnapshotLocation) -> SnapshotLocation {
        match location.as_str().rsplit_once('/') {
            Some((folder, METADATA)) => SnapshotLocation::new(folder),
            _ => location.clone(),
        }
    }
}
