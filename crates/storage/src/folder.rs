//! What a local folder needs beyond `object_store`: locking, making folders durable, walking.
//!
//! `object_store`'s file system syncs every file it writes and the folder the file is in. It does
//! not sync after a deletion, and it can't see folders that were created by a process that died
//! before it synced their parents. Hence: the folders of a namespace are synced, with all their
//! ancestors, each time it is opened, and [`sync`] follows deletions whose order matters.
//!
//! Everything here blocks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::StorageError;

fn failed<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> StorageError + use<'a> {
    move |source| StorageError::Io {
        action,
        file: path.display().to_string(),
        source,
    }
}

/// Creates `folder` and its ancestors, and makes all of them durable.
///
/// Syncs what existed before, too: a process that created it may have died before its sync.
pub(crate) fn create_durably(folder: &Path) -> Result<(), StorageError> {
    fs::create_dir_all(folder).map_err(failed("create the folder", folder))?;
    for ancestor in folder.ancestors().filter(|path| *path != Path::new("")) {
        match sync(ancestor) {
            // Above the folders that are ours to create, reading may not be allowed.
            Err(StorageError::Io { source, .. })
                if ancestor != folder && source.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

/// Makes the entries of `folder` durable: additions, renames and deletions. On systems where
/// folders can't be opened this does nothing.
pub(crate) fn sync(folder: &Path) -> Result<(), StorageError> {
    sync_entries(folder).map_err(failed("sync the folder", folder))
}

/// The same, for whoever names the folder in an error of its own.
pub(crate) fn sync_entries(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    File::open(folder)?.sync_all()
}

/// Takes the exclusive lock; it is released when the file is dropped or the process ends, however.
///
/// # Errors
/// [`StorageError::Locked`] if somebody else holds it, in this process or another.
pub(crate) fn lock(path: &Path) -> Result<File, StorageError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed("open the lock file", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let owner = file.read_to_string(&mut text).ok();
            return Err(StorageError::Locked {
                lock: path.to_owned(),
                owner: owner.and_then(|_| text.trim().parse().ok()),
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock", path)(source)),
    }
    // Who holds it is only a hint for people; a full disk must not keep a job from starting.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Deletes an empty folder; one that is gone or not empty is left as it is.
pub(crate) fn remove_if_empty(folder: &Path) -> Result<bool, StorageError> {
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(e) => match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty => Ok(false),
            _ => Err(failed("delete the folder", folder)(e)),
        },
    }
}

/// One entry of a folder.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) is_folder: bool,
    /// Length in bytes, 0 for folders.
    pub(crate) bytes: u64,
}

/// The entries of `folder` in order of their names; none if it doesn't exist.
pub(crate) fn entries(folder: &Path) -> Result<Vec<Entry>, StorageError> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("list", folder)(e)),
    };
    let mut entries = Vec::new();
    for entry in listed {
        let entry = entry.map_err(failed("list", folder))?;
        let path = entry.path();
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(failed("look at", &path)(e)),
        };
        entries.push(Entry {
            name: entry.file_name().to_string_lossy().into_owned(),
            is_folder: metadata.is_dir(),
            bytes: if metadata.is_dir() { 0 } else { metadata.len() },
            path,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
