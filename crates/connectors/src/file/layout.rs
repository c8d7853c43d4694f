//! Names of the files in an output folder, and how folders are made durable.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tidegate_types::{AttemptNumber, CheckpointId};

use super::error::FileSinkError;

/// Folder within the output folder for everything that readers should not see.
const HIDDEN: &str = ".tidegate";
/// The staging folder, the hidden one, and the output folder.
const OWN_FOLDERS: usize = 3;

/// The paths in an output folder.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(super) fn new(dir: &Path) -> Self {
        Layout {
            dir: dir.to_owned(),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The absolute path of the output folder, as checkpoints keep it.
    ///
    /// # Errors
    /// If it isn't UTF-8, or the current folder is needed and isn't known.
    pub(super) fn recorded(&self) -> Result<String, FileSinkError> {
        let absolute = std::path::absolute(&self.dir).map_err(|cause| FileSinkError::Prepare {
            path: self.dir.clone(),
            cause,
        })?;
        let text = absolute.into_os_string().into_string();
        text.map_err(|path| FileSinkError::DirNotUtf8 { path: path.into() })
    }

    /// Where it is written who owns the folder.
    pub(super) fn owner(&self) -> PathBuf {
        self.dir.join(HIDDEN).join("owner")
    }

    pub(super) fn staging(&self) -> PathBuf {
        self.dir.join(HIDDEN).join("staged")
    }

    pub(super) fn staged(&self, name: &str) -> PathBuf {
        self.staging().join(name)
    }

    /// The final place of a published file.
    pub(super) fn published(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes all folders, and makes their names durable up to the root.
    pub(super) fn create(&self) -> io::Result<()> {
        fs::create_dir_all(self.staging())?;
        // A process that died may have made any of them without syncing it. What is above the
        // output folder was made by others, and may not be ours to open.
        let staging = fs::canonicalize(self.staging())?;
        for (level, folder) in staging.ancestors().enumerate() {
            let synced = sync_folder(folder);
            if level < OWN_FOLDERS || !synced.as_ref().is_err_and(is_refused) {
                synced?;
            }
        }
        Ok(())
    }

    /// Names of the visible files in the output folder, sorted.
    pub(super) fn visible(&self) -> io::Result<Vec<String>> {
        let mut names = list(&self.dir)?;
        names.retain(|name| !name.starts_with('.'));
        Ok(names)
    }
}

/// Whether a folder can't be synced for what it is, rather than because the disk fails.
fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
}

/// Names of all files in a folder, sorted.
pub(super) fn list(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Name of a file that is not published yet: unique in the folder for ever.
pub(super) fn staged_name(attempt: AttemptNumber, subtask: u32, sequence: u64) -> String {
    format!("a{}-{subtask}-{sequence}", attempt.0)
}

/// The attempt that wrote a staged file.
pub(super) fn attempt_of(staged_name: &str) -> Option<AttemptNumber> {
    let (attempt, rest) = staged_name.strip_prefix('a')?.split_once('-')?;
    let (subtask, sequence) = rest.split_once('-')?;
    subtask.parse::<u32>().ok()?;
    sequence.parse::<u64>().ok()?;
    attempt.parse().ok().map(AttemptNumber)
}

/// Name of a published file: unique in the folder for ever, since checkpoint ids and attempt
/// numbers are never reused.
pub(super) fn published_name(
    attempt: AttemptNumber,
    subtask: u32,
    sequence: u64,
    checkpoint: CheckpointId,
) -> String {
    format!(
        "part-{subtask}-chk{}-a{}-{sequence}.txt",
        checkpoint.0, attempt.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_names_tell_their_attempt() {
        let name = staged_name(AttemptNumber(12), 3, 4);
        assert_eq!(attempt_of(&name), Some(AttemptNumber(12)));
        for other in ["", "a", "a1", "a1-2", "b1-2-3", "a-1-2", "a1-2-x", "owner"] {
            assert_eq!(attempt_of(other), None, "{other}");
        }
    }

    #[test]
    fn folders_are_made_below_those_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("a/b"));
        layout.create().unwrap();
        layout.create().unwrap();
        assert!(layout.staging().is_dir());
        assert_eq!(layout.visible().unwrap(), Vec::<String>::new());
    }
}
