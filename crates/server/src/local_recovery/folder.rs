//! The folder of a TaskManager's copies, and that nobody else uses it.
//!
//! ```text
//! <local-dir>/<job>/<TaskManager>/        rwx for its owner only
//!     lock                                held by the TaskManager as long as it lives
//!     <job id>/                           copies, of the process that it runs
//! ```
//!
//! The TaskManager holds the lock, not the process: between two attempts the folder is what counts.
//! Whoever can't have its folder goes without copies. A folder is found again by the name of the
//! TaskManager. One whose name was made up is found by nobody once it has died; the lock file says
//! so, and the next TaskManager of the job on this machine removes it.
//!
//! Copies are believed by their checksums, which anybody can compute. So folders that others may
//! write to are refused.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tidegate_storage::path_safe;
use tidegate_types::JobId;

const LOCK: &str = "lock";

/// What the lock file of a folder says that nobody will look for again.
const TEMPORARY: &str = "temporary\n";
const KEPT: &str = "kept\n";

/// How often a folder that is removed at this very moment is made anew.
const ATTEMPTS_MAX: u32 = 5;

/// Where a TaskManager keeps copies of state files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRecovery {
    /// On a disk of this machine. Several TaskManagers, of several jobs, may share it.
    pub directory: PathBuf,
    /// Whether a TaskManager that is started again will have the same name.
    pub keep: bool,
}

impl LocalRecovery {
    /// Where copies go if nobody says otherwise: a folder of this user's among the temporary files
    /// of this machine.
    pub fn default_directory() -> PathBuf {
        std::env::temp_dir().join(format!("tidegate-{}", geteuid().as_raw()))
    }

    /// Makes the folder, if need be, and writes to it.
    ///
    /// # Errors
    /// If it can't be used.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.directory == Self::default_directory() {
            own_folder(&self.directory)?;
        } else {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(&self.directory)?;
        }
        let probe = self.directory.join(format!(".{}", std::process::id()));
        fs::write(&probe, "")?;
        fs::remove_file(probe)
    }
}

/// A folder that is this TaskManager's until it is dropped.
#[derive(Debug)]
pub(crate) struct Claimed {
    job: String,
    path: PathBuf,
    _lock: File,
}

impl Claimed {
    /// Where the processes of `job` keep their copies; `None` if it is another job's.
    pub(crate) fn of(&self, job: &str) -> Option<&Path> {
        (self.job == job).then_some(&self.path)
    }

    /// Removes it, since there is no attempt left to restore. What can't be removed is found later.
    pub(crate) fn remove(self) {
        remove_folder(&self.path);
    }
}

/// Where in the folder of a TaskManager the copies of a job are. Removes what is there of jobs of
/// the same name that were before.
pub(crate) fn of_job(folder: &Path, job: JobId) -> PathBuf {
    let own = job.to_string();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if *name != *LOCK && *name != *own {
            remove_folder(&entry.path());
        }
    }
    folder.join(own)
}

/// Takes the folder of the TaskManager called `name` for the job called `job`, and removes folders
/// that nobody will look for again.
///
/// # Errors
/// If another process has it, or the disk refuses.
pub(crate) fn claim(recovery: &LocalRecovery, job: &str, name: &str) -> io::Result<Claimed> {
    recovery.check()?;
    let of_job = recovery.directory.join(path_safe(job));
    own_folder(&of_job)?;
    let path = of_job.join(path_safe(name));
    let mut lock = lock(&path)?;
    let word = if recovery.keep { KEPT } else { TEMPORARY };
    lock.set_len(0)?;
    lock.write_all(word.as_bytes())?;
    remove_abandoned(&of_job, &path);
    Ok(Claimed {
        job: job.to_owned(),
        path,
        _lock: lock,
    })
}

/// Makes the folder and locks it, also if another TaskManager is about to remove it.
fn lock(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK);
    for _ in 0..ATTEMPTS_MAX {
        own_folder(folder)?;
        let file = match open_lock(&path) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("`{}` is in use by another process", folder.display());
                return Err(io::Error::new(ErrorKind::ResourceBusy, what));
            }
            Err(TryLockError::Error(cause)) => return Err(cause),
        }
        if is_same(&file, &path) {
            return Ok(file);
        }
    }
    let what = format!("`{}` is removed again and again", folder.display());
    Err(io::Error::other(what))
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

/// Whether `path` still leads to `file`, which somebody else may have removed before it was locked.
fn is_same(file: &File, path: &Path) -> bool {
    let (ours, there) = (file.metadata(), fs::metadata(path));
    matches!((ours, there), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Removes the folders beside `own` of TaskManagers that are gone and won't come back.
fn remove_abandoned(of_job: &Path, own: &Path) {
    for entry in fs::read_dir(of_job).into_iter().flatten().flatten() {
        let folder = entry.path();
        let lock = folder.join(LOCK);
        if folder == own || fs::read_to_string(&lock).is_ok_and(|word| word != TEMPORARY) {
            continue;
        }
        let Ok(mut lock) = File::open(&lock) else {
            continue;
        };
        // Read again under the lock: it may have found an owner meanwhile.
        let mut word = String::new();
        if lock.try_lock().is_ok() && lock.read_to_string(&mut word).is_ok() && word == TEMPORARY {
            tracing::debug!(folder = %folder.display(), "copies of a former TaskManager go");
            remove_folder(&folder);
        }
    }
}

fn remove_folder(path: &Path) {
    if let Err(cause) = fs::remove_dir_all(path)
        && cause.kind() != ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %cause, "a folder of local copies was left");
    }
}

/// Makes a folder that only this user can use.
///
/// # Errors
/// If what is there already is somebody else's, or others may write to it.
fn own_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let there = fs::symlink_metadata(path)?;
    let is_ours = there.is_dir() && there.uid() == geteuid().as_raw();
    if is_ours && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    let what = format!(
        "`{}` must be a folder that only this user can write to",
        path.display()
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn recovery(directory: &Path, keep: bool) -> LocalRecovery {
        LocalRecovery {
            directory: directory.to_owned(),
            keep,
        }
    }

    fn put(claimed: &Claimed, name: &str) -> PathBuf {
        let folder = claimed.path.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("copy"), "state").unwrap();
        folder
    }

    // LR-04
    #[test]
    fn a_task_manager_that_comes_back_under_its_name_finds_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let first = claim(&recovery(place.path(), true), "job", "tm/1").unwrap();
        let copies = put(&first, "copies");
        assert_eq!(first.of("job"), copies.parent());
        assert_eq!(first.of("other"), None);
        drop(first);
        let again = claim(&recovery(place.path(), true), "job", "tm/1").unwrap();
        assert!(copies.join("copy").exists());
        again.remove();
        assert!(!copies.exists());
    }

    #[test]
    fn two_never_share_a_folder() {
        let place = tempfile::tempdir().unwrap();
        let recovery = recovery(place.path(), true);
        let first = claim(&recovery, "job", "a").unwrap();
        let refused = claim(&recovery, "job", "a").unwrap_err();
        assert!(refused.to_string().contains("in use"), "{refused}");
        let second = claim(&recovery, "job", "b").unwrap();
        let third = claim(&recovery, "other", "a").unwrap();
        assert_ne!(first.path, second.path);
        assert_ne!(first.path, third.path);
    }

    #[test]
    fn what_nobody_will_look_for_goes_and_the_rest_stays() {
        let place = tempfile::tempdir().unwrap();
        let claim = |name, keep| claim(&recovery(place.path(), keep), "job", name).unwrap();
        let (kept, dead, alive) = (claim("kept", true), claim("1", false), claim("2", false));
        let folders = [&kept, &dead, &alive].map(|claimed| put(claimed, "copies"));
        drop(kept);
        drop(dead);
        let _next = claim("3", false);
        let are_there = folders.map(|folder| folder.exists());
        assert_eq!(are_there, [true, false, true]);
    }

    #[test]
    fn copies_of_a_former_job_of_that_name_go() {
        let place = tempfile::tempdir().unwrap();
        let claimed = claim(&recovery(place.path(), true), "job", "a").unwrap();
        let former = put(&claimed, &JobId(1).to_string());
        let own = put(&claimed, &JobId(2).to_string());
        assert_eq!(of_job(&claimed.path, JobId(2)), own);
        assert!(own.join("copy").exists());
        assert!(!former.exists());
        assert!(claimed.path.join(LOCK).exists());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("job");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = claim(&recovery(place.path(), true), "job", "a").unwrap_err();
        assert!(refused.to_string().contains("only this user"), "{refused}");
        fs::remove_dir(&open).unwrap();
        std::os::unix::fs::symlink(place.path(), &open).unwrap();
        assert!(claim(&recovery(place.path(), true), "job", "a").is_err());
    }
}
