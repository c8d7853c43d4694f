//! State files of an attempt that also has copies of them on a disk of its own.

use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_runtime::{BoxError, StateFileRead, StateFileWrite, StateFiles};
use tidegate_storage::{StateFileReader, StorageError};
use tidegate_types::message::RestoredFiles;
use tidegate_types::{CheckpointId, FileHandle, SnapshotLocation};

use super::copy::{CopyWriter, LocalCopies};
use crate::files::{READ_BYTES, StoredFiles};

#[derive(Debug, Default)]
struct Opened {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Opened {
    fn add(&self, file: &FileHandle) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(file.bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (get(&self.files), get(&self.bytes))
    }
}

/// State files in the checkpoint storage, and copies of them if there is a place for those.
pub(crate) struct RecoverableFiles {
    stored: StoredFiles,
    /// The checkpoint that the attempt is restored from.
    restored: Option<CheckpointId>,
    copies: Option<Arc<LocalCopies>>,
    opened: Opened,
    opened_locally: Opened,
}

impl RecoverableFiles {
    pub(crate) fn new(
        stored: StoredFiles,
        restored: Option<CheckpointId>,
        copies: Option<Arc<LocalCopies>>,
    ) -> Self {
        RecoverableFiles {
            stored,
            restored,
            copies,
            opened: Opened::default(),
            opened_locally: Opened::default(),
        }
    }

    /// What has been restored so far.
    pub(crate) fn restored(&self) -> RestoredFiles {
        let (local_files, local_bytes) = self.opened_locally.get();
        let (files, bytes) = self.opened.get();
        RestoredFiles {
            files,
            bytes,
            local_files,
            local_bytes,
        }
    }

    /// Opens the file in the storage, and leaves a copy for the next failure. The storage is read
    /// only once if that works.
    fn fetch(
        &self,
        copies: &LocalCopies,
        file: &FileHandle,
    ) -> Result<Box<dyn StateFileRead>, BoxError> {
        let mut stored = self.stored.store.open_state_file(file)?;
        let mut copy = copies.begin(self.restored.unwrap_or(CheckpointId::NONE));
        if copy.is_some() {
            copy_all(&mut stored, copies, &mut copy)?;
            copies.finish(copy, file);
            // Read back, since that is what is believed; a checksum of the storage's own would
            // leave out the disk.
            if let Some(copy) = copies.read(file) {
                return Ok(Box::new(BufReader::with_capacity(READ_BYTES, copy)));
            }
        }
        stored.rewind()?;
        verified(stored)
    }
}

/// Copies until the end of the file, or of the copy.
fn copy_all(
    stored: &mut StateFileReader,
    copies: &LocalCopies,
    copy: &mut Option<CopyWriter>,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    while copy.is_some() {
        match stored.read(&mut buffer)? {
            0 => break,
            read => copies.write(copy, &buffer[..read]),
        }
    }
    Ok(())
}

fn verified(stored: StateFileReader) -> Result<Box<dyn StateFileRead>, BoxError> {
    let verified: Result<(), StorageError> = stored.verify();
    verified?;
    Ok(Box::new(BufReader::with_capacity(READ_BYTES, stored)))
}

impl StateFiles for RecoverableFiles {
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        let stored = self.stored.create(checkpoint, location, subtask)?;
        match &self.copies {
            // No attempt restores from a savepoint that it has taken itself.
            Some(copies) if location.is_none() => Ok(Box::new(CopiedFile {
                stored,
                copy: copies.begin(checkpoint),
                copies: Arc::clone(copies),
            })),
            _ => Ok(stored),
        }
    }

    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        let opened: Box<dyn StateFileRead> = match &self.copies {
            None => self.stored.open(file)?,
            Some(copies) => match copies.read(file) {
                Some(copy) => {
                    self.opened_locally.add(file);
                    Box::new(BufReader::with_capacity(READ_BYTES, copy))
                }
                None => self.fetch(copies, file)?,
            },
        };
        self.opened.add(file);
        Ok(opened)
    }

    fn discard(&self, checkpoint: CheckpointId, file: &FileHandle) {
        if let Some(copies) = &self.copies {
            copies.forget(file);
        }
        self.stored.discard(checkpoint, file);
    }
}

/// A state file in the making, and its copy.
struct CopiedFile {
    stored: Box<dyn StateFileWrite>,
    copy: Option<CopyWriter>,
    copies: Arc<LocalCopies>,
}

impl Write for CopiedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stored.write(bytes)?;
        self.copies.write(&mut self.copy, &bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stored.flush()
    }
}

impl StateFileWrite for CopiedFile {
    fn finish(self: Box<Self>) -> Result<FileHandle, BoxError> {
        let CopiedFile {
            stored,
            copy,
            copies,
        } = *self;
        let file = stored.finish()?;
        copies.finish(copy, &file);
        Ok(file)
    }
}
