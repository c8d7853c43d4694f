//! A long state file in a folder, written by the thread that has its bytes.
//!
//! `object_store` would do it as well, but on threads of its own: for each part, and for each step
//! of the end, one is woken and waited for, which takes as long as the writing.
//!
//! As it does it, bytes go to `NAME#1` first, which is renamed when it is synced.
//!
//! Everything here blocks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::folder;

/// A file that has no name yet. Dropped without [`publish`](Self::publish), it is deleted.
#[derive(Debug)]
pub(super) struct StagedFile {
    file: File,
    path: PathBuf,
    published: bool,
}

impl StagedFile {
    /// Begins a file that will be `target`. Creates its folder, durably, if there is none.
    pub(super) fn begin(target: &Path) -> io::Result<StagedFile> {
        let (file, path) = match create(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_folder_of(target)?;
                create(target)?
            }
            other => other?,
        };
        Ok(StagedFile {
            file,
            path,
            published: false,
        })
    }

    /// Appends `bytes`. After an error nobody knows how many of them are there.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Makes the bytes durable, then the name, which must be free: whoever has asked for it looks
    /// before, and nobody else has it.
    pub(super) fn publish(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, target)?;
        self.published = true;
        match target.parent() {
            Some(folder) => folder::sync_entries(folder),
            None => Ok(()),
        }
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // Failing to is no harm: nothing refers to it, and a sweep will find it.
        if !self.published {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates `NAME#1`, or with the next number that is free.
fn create(target: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 1;
    loop {
        let mut path = target.as_os_str().to_owned();
        path.push(format!("#{number}"));
        let path = PathBuf::from(path);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            other => return Ok((other?, path)),
        }
    }
}

/// Creates the folder that `target` will be in. Where somebody else does so at the same time, it is
/// durable for both.
fn create_folder_of(target: &Path) -> io::Result<()> {
    let Some(folder) = target.parent() else {
        return Ok(());
    };
    match create_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder_of(folder)?;
            create_folder(folder)?;
        }
        other => other?,
    }
    folder::sync_entries(folder)?;
    match folder.parent() {
        Some(parent) => folder::sync_entries(parent),
        None => Ok(()),
    }
}

/// Creates a folder, unless it is there.
fn create_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let names = entries.map(name).map(|name| name.into_string().unwrap());
        names.collect()
    }

    #[test]
    fn parts_follow_each_other_in_a_new_folder() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a/b/file");
        let mut staged = StagedFile::begin(&target).unwrap();
        staged.append(b"one ").unwrap();
        staged.append(b"two").unwrap();
        assert_eq!(names(&folder.path().join("a/b")), ["file#1"]);
        staged.publish(&target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"one two");
        assert_eq!(names(&folder.path().join("a/b")), ["file"]);
    }

    // Subtasks begin their files of a checkpoint at the same time.
    #[test]
    fn folders_may_be_created_by_several_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let (all_ready, within) = (Barrier::new(4), folder.path().join(round.to_string()));
            std::thread::scope(|scope| {
                for subtask in 0..4 {
                    let target = within.join("a/b/c").join(subtask.to_string());
                    let all_ready = &all_ready;
                    scope.spawn(move || {
                        all_ready.wait();
                        StagedFile::begin(&target).unwrap();
                    });
                }
            });
        }
    }

    #[test]
    fn a_file_that_is_given_up_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let mut first = StagedFile::begin(&target).unwrap();
        first.append(b"abc").unwrap();
        let second = StagedFile::begin(&target).unwrap();
        assert_ne!(first.path, second.path);
        drop((first, second));
        assert_eq!(names(folder.path()), [""; 0]);
        let nowhere = folder.path().join("no such folder/file");
        StagedFile::begin(&target)
            .unwrap()
            .publish(&nowhere)
            .unwrap_err();
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_told() {
        let mut staged = StagedFile {
            file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
            path: PathBuf::from("no such file"),
            published: false,
        };
        let error = staged.append(&[1; 8192]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    // A file where the folder should be: an error, and nothing in its place.
    #[test]
    fn a_folder_that_cannot_be_is_told() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), b"").unwrap();
        StagedFile::begin(&folder.path().join("a/b/file")).unwrap_err();
        assert_eq!(names(folder.path()), ["a"]);
    }
}
