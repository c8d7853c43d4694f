//! Finds the files behind paths.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::FileSourceError;

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FoundFile {
    /// Its path, as text because it is kept in checkpoints.
    pub(super) path: String,
    /// Its length.
    pub(super) bytes: u64,
}

/// All regular files among `paths` and in those of them that are folders, at any depth: in the
/// order of `paths`, those of a folder sorted by path, each once. In folders, names that begin
/// with `.` or `_` are left out.
///
/// # Errors
/// For a path that isn't there, can't be listed, is no file, or isn't UTF-8.
pub(super) fn discover(paths: &[PathBuf]) -> Result<Vec<FoundFile>, FileSourceError> {
    let mut found = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|e| FileSourceError::io(path, e))?;
        if metadata.is_dir() {
            list_folder(path, &mut found)?;
        } else if metadata.is_file() {
            found.push(FoundFile {
                path: as_text(path)?,
                bytes: metadata.len(),
            });
        } else {
            return Err(FileSourceError::NotAFile { path: path.clone() });
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|file| seen.insert(file.path.clone()));
    Ok(found)
}

fn list_folder(folder: &Path, found: &mut Vec<FoundFile>) -> Result<(), FileSourceError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|e| FileSourceError::io(folder, e))?;
    let mut paths: Vec<_> = entries
        .iter()
        .filter(|entry| !is_hidden(entry.file_name().as_encoded_bytes()))
        .map(fs::DirEntry::path)
        .collect();
    paths.sort();
    for path in paths {
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // It has gone since it was listed; but a link that leads nowhere is a mistake.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !is_there(&path) => continue,
            Err(e) => return Err(FileSourceError::io(path, e)),
        };
        if metadata.is_dir() {
            list_folder(&path, found)?;
        } else if metadata.is_file() {
            found.push(FoundFile {
                path: as_text(&path)?,
                bytes: metadata.len(),
            });
        }
    }
    Ok(())
}

fn is_hidden(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'.' | b'_'))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn as_text(path: &Path) -> Result<String, FileSourceError> {
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(FileSourceError::NameNotUtf8 {
            path: path.to_owned(),
        }),
    }
}

/// Opens every file once, so that one that can't be read is known before the job starts.
///
/// # Errors
/// For the first that can't be opened.
pub(super) fn check_readable(files: &[FoundFile]) -> Result<(), FileSourceError> {
    for file in files {
        File::open(&file.path).map_err(|e| FileSourceError::io(file.path.as_str(), e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn names(dir: &Path, paths: &[PathBuf]) -> Vec<String> {
        let prefix = format!("{}/", dir.display());
        let found = discover(paths).unwrap();
        found
            .iter()
            .map(|file| file.path.strip_prefix(&prefix).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn folders_are_listed_sorted_without_hidden_files() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for name in [
            "b",
            "a/z",
            "a/_temporary/x",
            ".git/y",
            "a/.hidden",
            "_SUCCESS",
            "c",
        ] {
            write(&dir.join(name), "text\n");
        }
        assert_eq!(names(dir, &[dir.to_owned()]), ["a/z", "b", "c"]);
        // Named explicitly, a hidden file is read; named twice, a file is read once.
        let paths = [dir.join("c"), dir.join("_SUCCESS"), dir.to_owned()];
        assert_eq!(names(dir, &paths), ["c", "_SUCCESS", "a/z", "b"]);
    }

    #[test]
    fn what_is_not_there_or_unreadable_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = discover(std::slice::from_ref(&missing)).unwrap_err();
        assert!(matches!(&error, FileSourceError::Missing { path } if *path == missing));
        assert!(error.to_string().contains("missing"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_nowhere_or_round_and_devices_are_refused() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        let error = discover(&[dir.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("dangling"), "{error}");

        // Unlike a file without permissions, this is unreadable for the superuser, too.
        let looped = dir.path().join("looped");
        symlink("looped", &looped).unwrap();
        let error = discover(std::slice::from_ref(&looped)).unwrap_err();
        assert!(matches!(&error, FileSourceError::Read { path, .. } if *path == looped));

        let error = discover(&[PathBuf::from("/dev/null")]).unwrap_err();
        assert!(matches!(error, FileSourceError::NotAFile { .. }));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let gone = FoundFile {
            path: "no/such/file".to_owned(),
            bytes: 1,
        };
        let error = check_readable(&[gone]).unwrap_err();
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }
}
