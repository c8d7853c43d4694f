//! Snapshots outside of the namespace: their folders as URLs, and the files in them.
//!
//! In memory a file that lies elsewhere is named by its whole URL. On disk a savepoint's metadata
//! names its files relative to its own folder, so that the folder can be moved; a checkpoint's
//! metadata names them relative to the namespace, the parent of `chk-N`.

use std::path::Path;

use tidegate_types::{CompletedCheckpoint, FileHandle, SnapshotLocation};
use url::Url;

use crate::error::StorageError;
use crate::names;

/// The location of a local folder, whose path is absolute.
pub(crate) fn location_of(folder: &Path) -> Result<SnapshotLocation, StorageError> {
    let url = Url::from_file_path(folder).map_err(|()| StorageError::InvalidLocation {
        location: folder.display().to_string(),
        reason: "can't be expressed as a URL".to_owned(),
    })?;
    Ok(SnapshotLocation::new(url.as_str()))
}

/// The folder of a file that is named by its whole URL, and its name in there; `None` if this is
/// no such name.
pub(crate) fn split_url(name: &str) -> Option<(SnapshotLocation, &str)> {
    let (folder, file) = name.rsplit_once('/')?;
    (folder.contains("://") && names::is_plain_state_file(file))
        .then(|| (SnapshotLocation::new(folder), file))
}

/// Names the files of a savepoint as they are named on disk.
///
/// # Errors
/// If a file doesn't lie in the savepoint's own folder.
pub(crate) fn into_relative(
    mut checkpoint: CompletedCheckpoint,
    location: &SnapshotLocation,
) -> Result<CompletedCheckpoint, StorageError> {
    let id = checkpoint.id;
    for file in files_of(&mut checkpoint) {
        let name = split_url(&file.name).filter(|(folder, _)| folder == location);
        let name = name.map(|(_, name)| name.to_owned());
        file.name = name.ok_or_else(|| StorageError::Unencodable {
            checkpoint: id,
            reason: format!("`{}` doesn't lie in `{location}`", file.name),
        })?;
    }
    Ok(checkpoint)
}

/// Names the files of a snapshot at `location`, as it is on disk, by their whole URLs.
pub(crate) fn into_absolute(
    mut checkpoint: CompletedCheckpoint,
    location: &SnapshotLocation,
) -> CompletedCheckpoint {
    // Of a checkpoint: the namespace.
    let url = location.as_str();
    let parent = SnapshotLocation::new(url.rsplit_once('/').map_or(url, |(parent, _)| parent));
    for file in files_of(&mut checkpoint) {
        if names::is_plain_state_file(&file.name) {
            file.name = location.child(&file.name).to_string();
        } else if split_url(&file.name).is_none() {
            file.name = parent.child(&file.name).to_string();
        }
    }
    checkpoint.location = Some(location.clone());
    checkpoint
}

fn files_of(checkpoint: &mut CompletedCheckpoint) -> impl Iterator<Item = &mut FileHandle> {
    let operators = checkpoint.operators.iter_mut();
    let subtasks = operators.flat_map(|operator| &mut operator.subtasks);
    let keyed = subtasks.filter_map(|subtask| subtask.keyed.as_mut());
    keyed.flat_map(|keyed| keyed.files_mut())
}
