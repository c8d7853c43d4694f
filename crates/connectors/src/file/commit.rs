//! Publishes staged files, exactly once.
//!
//! Ordering: link to the final name → sync the output folder → remove the staged name. Until the
//! final name is durable the staged one must stay: after a power failure one of them is there.
//! After a crash between any two steps, doing all of them again is right; what has been done is
//! recognised by the file under the final name, by its length and checksum.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use tidegate_runtime::BoxError;
use tidegate_runtime::sink::Committer;
use tidegate_types::AttemptNumber;

use super::error::FileSinkError;
use super::layout::{Layout, attempt_of, list, sync_folder};
use super::owner::{Owner, owner_of};
use super::writer::FileTransaction;

/// Publishes the files of one subtask.
#[derive(Debug)]
pub struct FileCommitter {
    layout: Layout,
    /// Whom the folder belongs to.
    owner: Owner,
}

impl FileCommitter {
    pub(super) fn new(layout: Layout, owner: Owner) -> Self {
        FileCommitter { layout, owner }
    }

    /// The output folder that a transaction belongs to: this one, wherever it has been moved to; or
    /// the one that it was written to, if this sink had another folder then, or if that was the
    /// sink of the job whose snapshot this job was begun from.
    fn layout_of(&self, transaction: &FileTransaction) -> Result<Layout, FileSinkError> {
        let written = Layout::new(Path::new(&transaction.dir));
        if transaction.job.is_some_and(|job| job != self.owner.job.0) {
            return Ok(written);
        }
        // What lies there counts only as long as the folder is this sink's: names of files are
        // unique in one folder.
        match !holds(&self.layout, transaction)? && self.has_owned(&written)? {
            true => Ok(written),
            false => Ok(self.layout.clone()),
        }
    }

    fn has_owned(&self, other: &Layout) -> Result<bool, FileSinkError> {
        Ok(owner_of(other)?.as_ref() == Some(&self.owner))
    }

    fn publish(&self, transaction: &FileTransaction) -> Result<(), FileSinkError> {
        let layout = self.layout_of(transaction)?;
        let staged = layout.staged(&transaction.staged);
        let target = layout.published(&transaction.published);
        let error = |cause| FileSinkError::Publish {
            path: target.clone(),
            cause,
        };
        if let Some(injected) = tidegate_fault::fail("commit:write") {
            return Err(error(injected));
        }
        if !is_staged(&staged, transaction)? {
            return match matches(&target, transaction).map_err(error)? {
                Some(true) => Ok(()),
                Some(false) => Err(conflict(&target, transaction)),
                None => Err(FileSinkError::Lost {
                    target,
                    staged,
                    bytes: transaction.bytes,
                }),
            };
        }
        tidegate_fault::point("commit-link:before");
        if let Err(refused) = fs::hard_link(&staged, &target) {
            // Another commit was first: before a crash, or just now by another job, if one of the
            // two was begun from the other's snapshot.
            match matches(&target, transaction).map_err(error)? {
                Some(true) => {}
                Some(false) => return Err(conflict(&target, transaction)),
                None => return Err(error(refused)),
            }
        }
        tidegate_fault::point("commit-link:after");
        sync(layout.dir())?;
        tidegate_fault::point("commit-unlink:before");
        remove(&staged)?;
        tidegate_fault::point("commit-unlink:after");
        Ok(())
    }
}

/// Whether the file of a transaction is in an output folder, staged or published.
fn holds(layout: &Layout, transaction: &FileTransaction) -> Result<bool, FileSinkError> {
    // Ordering: a commit under way makes the final name before it removes the staged one.
    for path in [
        layout.staged(&transaction.staged),
        layout.published(&transaction.published),
    ] {
        match path.try_exists() {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(cause) => return Err(FileSinkError::Publish { path, cause }),
        }
    }
    Ok(false)
}

/// Makes what was published in an output folder durable.
fn sync(dir: &Path) -> Result<(), FileSinkError> {
    tidegate_fault::point("commit-sync:before");
    sync_folder(dir).map_err(|cause| FileSinkError::Sync {
        path: dir.to_owned(),
        cause,
    })?;
    tidegate_fault::point("commit-sync:after");
    Ok(())
}

/// Whether the staged file is there.
///
/// # Errors
/// If it is, but not with the length that was recorded.
fn is_staged(path: &Path, transaction: &FileTransaction) -> Result<bool, FileSinkError> {
    let path = path.to_owned();
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() == transaction.bytes => Ok(true),
        Ok(metadata) => Err(FileSinkError::StagedDamaged {
            path,
            expected: transaction.bytes,
            found: metadata.len(),
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(FileSinkError::Publish { path, cause }),
    }
}

/// Whether the file at `path` is the one of the transaction; `None` if there is none.
fn matches(path: &Path, transaction: &FileTransaction) -> io::Result<Option<bool>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if file.metadata()?.len() != transaction.bytes {
        return Ok(Some(false));
    }
    let (mut piece, mut found) = (vec![0; 64 << 10], 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Some(found == transaction.crc32c)),
            Ok(read) => found = crc32c::crc32c_append(found, &piece[..read]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn conflict(target: &Path, transaction: &FileTransaction) -> FileSinkError {
    let FileTransaction { bytes, crc32c, .. } = *transaction;
    FileSinkError::Conflict {
        path: target.to_owned(),
        bytes,
        crc32c,
    }
}

/// Removes a file; fine if it isn't there.
fn remove(path: &Path) -> Result<(), FileSinkError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(FileSinkError::Remove {
            path: path.to_owned(),
            cause,
        }),
        _ => Ok(()),
    }
}

impl Committer for FileCommitter {
    type Transaction = FileTransaction;

    fn commit(&mut self, transaction: &FileTransaction) -> Result<(), BoxError> {
        Ok(self.publish(transaction)?)
    }

    /// Removes the staged files of former attempts: those in the restored checkpoint have been
    /// published, the others are of checkpoints that never completed.
    fn clean_up(&mut self, attempt: AttemptNumber) -> Result<(), BoxError> {
        let staging = self.layout.staging();
        let error = |cause| FileSinkError::Remove {
            path: staging.clone(),
            cause,
        };
        let mut removed = 0_u64;
        for name in list(&staging).map_err(error)? {
            if attempt_of(&name).is_some_and(|writer| writer < attempt) {
                remove(&self.layout.staged(&name))?;
                removed += 1;
            }
        }
        if removed > 0 {
            sync_folder(&staging).map_err(error)?;
            tracing::debug!(dir = %self.layout.dir().display(), removed, "removed staged files");
        }
        Ok(())
    }
}
