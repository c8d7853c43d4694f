//! The folder of copies, as the process of an attempt uses it: makes copies, opens those that can
//! be believed, drops those that aren't needed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_types::{AttemptNumber, CheckpointId, FileHandle};

use super::retained::Retained;

/// How much of a copy is read or written at once.
const PIECE_BYTES: usize = 1 << 20;

/// The copies of the state files of one process.
///
/// Names are the last parts of the state files' names, which are never used twice. Everything
/// blocks.
#[derive(Debug)]
pub(crate) struct LocalCopies {
    folder: PathBuf,
    attempt: AttemptNumber,
    retained: Mutex<Retained>,
    /// Number of the next unfinished copy.
    next: AtomicU64,
    /// Set once a copy couldn't be written: then none is for the rest of the attempt.
    broken: AtomicBool,
}

/// What was found in a folder and belongs to nothing.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Vec<PathBuf>);

impl Leftovers {
    /// Removes it. Takes a while if it is large.
    pub(crate) fn remove(self) {
        for path in self.0 {
            remove(&path);
        }
    }
}

impl LocalCopies {
    /// Opens `folder`, of which this process is the only user, for an attempt that restores
    /// `files` of `restored`, if anything. Whatever else former attempts have left there is left
    /// over: nothing can need it any more.
    ///
    /// # Errors
    /// If the folder can't be made or read.
    pub(crate) fn open(
        folder: PathBuf,
        attempt: AttemptNumber,
        restored: Option<CheckpointId>,
        files: &[FileHandle],
    ) -> io::Result<(LocalCopies, Leftovers)> {
        fs::create_dir_all(&folder)?;
        let mut retained = Retained::default();
        let names: BTreeSet<&str> = files.iter().filter_map(name_of).collect();
        let restored = restored.unwrap_or(CheckpointId::NONE);
        retained.needed(restored, names.iter().copied());
        let mut leftovers = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let name = entry?.file_name();
            match name.to_str().filter(|name| names.contains(name)) {
                Some(name) => retained.made(restored, name.to_owned()),
                None => leftovers.push(folder.join(name)),
            }
        }
        let copies = LocalCopies {
            folder,
            attempt,
            retained: Mutex::new(retained),
            next: AtomicU64::new(0),
            broken: AtomicBool::new(false),
        };
        Ok((copies, Leftovers(leftovers)))
    }

    /// Begins a copy of a file that is written for `checkpoint`. `None` if the disk has failed
    /// before.
    pub(super) fn begin(&self, checkpoint: CheckpointId) -> Option<CopyWriter> {
        if self.broken.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Unlike anything that a former attempt may have left.
        let name = format!("{}-{number}.unfinished", self.attempt);
        let path = self.folder.join(name);
        match File::create(&path) {
            Ok(file) => Some(CopyWriter {
                checkpoint,
                path,
                out: BufWriter::with_capacity(PIECE_BYTES, file),
                bytes: 0,
            }),
            Err(cause) => {
                self.give_up(&cause);
                None
            }
        }
    }

    /// Adds to a copy. One that can't be continued is given up, and all that would follow.
    pub(super) fn write(&self, copy: &mut Option<CopyWriter>, bytes: &[u8]) {
        if let Some(writer) = copy
            && let Err(cause) = writer.write(bytes)
        {
            *copy = None;
            self.give_up(&cause);
        }
    }

    /// Ends a copy of `file`; from here on it can be found.
    pub(super) fn finish(&self, copy: Option<CopyWriter>, file: &FileHandle) {
        let Some((copy, name)) = copy.zip(name_of(file)) else {
            return;
        };
        let checkpoint = copy.checkpoint;
        match copy.finish(&self.folder.join(name), file) {
            Ok(()) => self.retained().made(checkpoint, name.to_owned()),
            Err(cause) => self.give_up(&cause),
        }
    }

    /// The copy of `file`, from its beginning, if there is one that is complete and unaltered. Any
    /// other is removed.
    pub(super) fn read(&self, file: &FileHandle) -> Option<File> {
        let path = self.folder.join(name_of(file)?);
        match verified(&path, file) {
            Ok(copy) => Some(copy),
            Err(cause) => {
                let there = cause.kind() != ErrorKind::NotFound;
                tracing::debug!(file = file.name, %cause, "there is no local copy to restore from");
                if there {
                    self.forget(file);
                }
                None
            }
        }
    }

    /// Removes the copy of `file`.
    pub(super) fn forget(&self, file: &FileHandle) {
        if let Some(name) = name_of(file) {
            self.retained().lost(name);
            remove(&self.folder.join(name));
        }
    }

    /// The part of `checkpoint` that a subtask of this process has acknowledged.
    pub(crate) fn acknowledged<'a>(
        &self,
        checkpoint: CheckpointId,
        files: impl Iterator<Item = &'a FileHandle>,
    ) {
        self.retained()
            .needed(checkpoint, files.filter_map(name_of));
    }

    /// Removes what nothing needs once `checkpoint` has completed.
    pub(crate) fn completed(&self, checkpoint: CheckpointId) {
        let unneeded = self.retained().completed(checkpoint);
        self.remove_all(&unneeded);
    }

    /// Removes what was written for `checkpoint`, which is aborted.
    pub(crate) fn aborted(&self, checkpoint: CheckpointId) {
        let unneeded = self.retained().aborted(checkpoint);
        self.remove_all(&unneeded);
    }

    fn remove_all(&self, names: &[String]) {
        for name in names {
            remove(&self.folder.join(name));
        }
    }

    fn give_up(&self, cause: &io::Error) {
        if !self.broken.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                folder = %self.folder.display(), %cause,
                "no local copies of state are made until the next attempt"
            );
        }
    }

    fn retained(&self) -> MutexGuard<'_, Retained> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the copy of a file is called. `None` for a file that has no copies.
fn name_of(file: &FileHandle) -> Option<&str> {
    let name = file.name.rsplit('/').next()?;
    // Those of state files do; and it can be nothing else in the folder.
    name.ends_with(".state").then_some(name)
}

/// A copy that isn't there is as good as removed.
fn remove(path: &Path) {
    if let Err(cause) = fs::remove_file(path)
        && cause.kind() != ErrorKind::NotFound
    {
        tracing::debug!(path = %path.display(), %cause, "a local copy was left for the next sweep");
    }
}

/// A copy being written. Dropped before its end, it leaves nothing behind.
pub(super) struct CopyWriter {
    checkpoint: CheckpointId,
    /// Empty once it has another name.
    path: PathBuf,
    out: BufWriter<File>,
    bytes: u64,
}

impl CopyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Not synced: whoever reads it compares its checksum.
    fn finish(mut self, target: &Path, file: &FileHandle) -> io::Result<()> {
        if self.bytes != file.bytes {
            return Err(differs());
        }
        self.out.flush()?;
        fs::rename(&self.path, target)?;
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for CopyWriter {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            remove(&self.path);
        }
    }
}

/// Opens a copy and compares all of it with the handle.
fn verified(path: &Path, handle: &FileHandle) -> io::Result<File> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut bytes, mut checksum) = (0, 0);
    // A longer file needn't be read to its end.
    while bytes <= handle.bytes {
        match file.read(&mut buffer)? {
            0 => break,
            read => {
                checksum = crc32c::crc32c_append(checksum, &buffer[..read]);
                bytes += read as u64;
            }
        }
    }
    if (bytes, checksum) != (handle.bytes, handle.crc32c) {
        return Err(differs());
    }
    file.rewind()?;
    Ok(file)
}

fn differs() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the copy differs from the file")
}
