//! Reading a state file: ranges, or sequentially with seeks.

use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use object_store::ObjectStoreExt;
use tidegate_types::FileHandle;

use super::part_bytes;
use crate::checkpoint_storage::{Located, verify_length};
use crate::error::StorageError;
use crate::job_store::JobStore;

/// A state file being read. Its length has been compared with the recorded one; its bytes are
/// only trustworthy after [`verify`](Self::verify), or if their format has checksums of its own.
///
/// # Panics
/// All methods panic on a task of a Tokio runtime: they block.
pub struct StateFileReader {
    store: JobStore,
    target: Located,
    handle: FileHandle,
    position: u64,
    buffer: Bytes,
    buffer_start: u64,
}

impl StateFileReader {
    pub(super) fn new(store: JobStore, target: Located, handle: FileHandle) -> StateFileReader {
        StateFileReader {
            store,
            target,
            handle,
            position: 0,
            buffer: Bytes::new(),
            buffer_start: 0,
        }
    }

    /// The file being read.
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// Reads exactly `bytes` bytes from `offset` on, both counted in bytes.
    ///
    /// # Errors
    /// [`StorageError::WrongLength`] if the range or the file ends earlier; IO.
    pub fn read_range(&self, offset: u64, bytes: u64) -> Result<Bytes, StorageError> {
        let runtime = &self.store.inner.runtime;
        let Located { objects, name } = &self.target;
        let file = || self.target.file();
        let end = offset.saturating_add(bytes);
        if end > self.handle.bytes {
            return Err(StorageError::WrongLength {
                file: file(),
                expected: end,
                actual: self.handle.bytes,
            });
        }
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        let path = objects.path(name)?;
        let reading = objects.store().get_range(&path, offset..end);
        match runtime.block_on(reading) {
            Ok(read) if read.len() as u64 == bytes => Ok(read),
            // A file that shrank after it was opened gives fewer bytes or an odd error.
            Ok(_) => Err(self.changed_length()),
            Err(e) => Err(match StorageError::from_object("read", file(), e) {
                StorageError::Object { .. } => self.changed_length(),
                other => other,
            }),
        }
    }

    /// Why a range within the recorded length can't be read.
    fn changed_length(&self) -> StorageError {
        let runtime = &self.store.inner.runtime;
        let verified = runtime.block_on(verify_length(&self.target, &self.handle));
        verified.err().unwrap_or_else(|| StorageError::Malformed {
            file: self.target.file(),
            reason: "its length changes while it is read".to_owned(),
        })
    }

    /// Reads the whole file and compares its checksum. The position stays where it is.
    ///
    /// # Errors
    /// [`StorageError::WrongChecksum`] if the file was altered; IO.
    pub fn verify(&self) -> Result<(), StorageError> {
        let (mut offset, mut actual) = (0, 0);
        while offset < self.handle.bytes {
            let count = (self.handle.bytes - offset).min(part_bytes(&self.target.objects) as u64);
            let read = self.read_range(offset, count)?;
            actual = crc32c::crc32c_append(actual, &read);
            offset += count;
        }
        if actual == self.handle.crc32c {
            return Ok(());
        }
        Err(StorageError::WrongChecksum {
            file: self.target.file(),
            expected: self.handle.crc32c,
            actual,
        })
    }

    /// The buffered bytes from the position on; reads the next piece if there are none.
    fn buffered(&mut self) -> Result<&[u8], StorageError> {
        let buffer_end = self.buffer_start + self.buffer.len() as u64;
        if !(self.buffer_start..buffer_end).contains(&self.position) {
            let left = self.handle.bytes.saturating_sub(self.position);
            self.buffer = self.read_range(
                self.position.min(self.handle.bytes),
                left.min(part_bytes(&self.target.objects) as u64),
            )?;
            self.buffer_start = self.position;
        }
        Ok(&self.buffer[(self.position - self.buffer_start) as usize..])
    }
}

impl Read for StateFileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let buffered = self.buffered()?;
        let count = buffered.len().min(out.len());
        out[..count].copy_from_slice(&buffered[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for StateFileReader {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position = match target {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.handle.bytes.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "seek before the start of the file",
            )
        })?;
        Ok(self.position)
    }
}
