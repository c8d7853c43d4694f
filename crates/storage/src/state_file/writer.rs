//! Writing a state file: buffered, checksummed, durable on [`finish`](StateFileWriter::finish).
//!
//! A file that fits one part is created in one step that fails if the name is taken. A longer one
//! goes out in parts and appears under its name when complete; there the random part of the name
//! is what keeps it exclusive, and a file that is there already is refused beforehand.

use std::io::{self, Write};
use std::path::PathBuf;

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tidegate_types::{ErrorChain, FileHandle};

use super::part_bytes_of;
use super::staged::StagedFile;
use crate::checkpoint_storage::Located;
use crate::error::StorageError;
use crate::job_store::JobStore;
use crate::location::split_url;
use crate::names;
use crate::objects::{blocking, injected};

/// A state file being written. Dropped without [`finish`](Self::finish), it leaves nothing behind.
///
/// # Panics
/// Writing and finishing panic on a task of a Tokio runtime: they block.
pub struct StateFileWriter {
    store: JobStore,
    name: String,
    buffer: Vec<u8>,
    /// Bytes of a full buffer.
    part_bytes: usize,
    upload: Option<Upload>,
    bytes: u64,
    crc32c: u32,
    failure: Option<String>,
}

/// A file that is longer than a part.
enum Upload {
    /// In a folder.
    Folder(StagedFile),
    Elsewhere(Box<dyn MultipartUpload>),
}

impl StateFileWriter {
    pub(super) fn new(store: JobStore, name: String) -> StateFileWriter {
        assert!(
            names::is_state_file_name(&name) || split_url(&name).is_some(),
            "`{name}`"
        );
        StateFileWriter {
            part_bytes: part_bytes_of(&name, &store.inner.storage.objects),
            store,
            name,
            buffer: Vec::new(),
            upload: None,
            bytes: 0,
            crc32c: 0,
            failure: None,
        }
    }

    /// Name of the file, relative to the namespace, or its whole URL.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the file durable: its bytes and its name. The caller owns it from then on.
    ///
    /// # Errors
    /// If it can't be written (a full disk is [`ErrorKind::Retryable`](crate::ErrorKind)), or an
    /// earlier write failed. What there was of the file has been deleted then.
    pub fn finish(mut self) -> Result<FileHandle, StorageError> {
        tidegate_fault::point("state-file:before");
        if let Err(error) = self.complete() {
            // A file that was there before is somebody else's.
            let delete = !matches!(error, StorageError::Conflict { .. });
            self.discard(delete);
            return Err(error);
        }
        tidegate_fault::point("state-file:after");
        Ok(FileHandle {
            name: std::mem::take(&mut self.name),
            bytes: self.bytes,
            crc32c: self.crc32c,
        })
    }

    fn complete(&mut self) -> Result<(), StorageError> {
        self.refuse_after_failure()?;
        if self.upload.is_none() {
            self.create_whole()?;
        } else {
            self.write_part()?;
            self.complete_upload()?;
        }
        injected("state-file:reply", || self.name.clone())
    }

    fn target(&self) -> Result<Located, StorageError> {
        self.store.inner.storage.locate(&self.name)
    }

    fn refuse_after_failure(&self) -> Result<(), StorageError> {
        match &self.failure {
            None => Ok(()),
            Some(cause) => Err(StorageError::WriterFailed {
                file: self.target()?.file(),
                cause: cause.clone(),
            }),
        }
    }

    fn create_whole(&mut self) -> Result<(), StorageError> {
        let Located { objects, name } = self.target()?;
        objects.injected("state-file:write", &name)?;
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let runtime = &self.store.inner.runtime;
        runtime.block_on(objects.create(&name, bytes))
    }

    fn complete_upload(&mut self) -> Result<(), StorageError> {
        let runtime = &self.store.inner.runtime;
        let target = self.target()?;
        match runtime.block_on(target.objects.bytes_of(&target.name)) {
            Err(StorageError::Missing { .. }) => {}
            Err(other) => return Err(other),
            Ok(_) => {
                let file = target.file();
                return Err(StorageError::Conflict { file });
            }
        }
        match self.upload.take().expect("the caller has seen an upload") {
            Upload::Folder(staged) => {
                let published = staged.publish(&path_of(&target)?);
                published.map_err(|e| failed_to_write(&target, e))
            }
            Upload::Elsewhere(mut upload) => {
                let completed = runtime.block_on(upload.complete());
                if completed.is_err() {
                    self.upload = Some(Upload::Elsewhere(upload));
                }
                let error = |e| StorageError::from_object("write", target.file(), e);
                completed.map(|_| ()).map_err(error)
            }
        }
    }

    /// Begins a file that is longer than a part.
    fn begin_upload(&self, target: &Located) -> Result<Upload, StorageError> {
        if target.objects.has_folders() {
            let staged = StagedFile::begin(&path_of(target)?);
            let staged = staged.map_err(|e| failed_to_write(target, e))?;
            return Ok(Upload::Folder(staged));
        }
        let path = target.objects.path(&target.name)?;
        let started = target.objects.store().put_multipart(&path);
        let started = self.store.inner.runtime.block_on(started);
        let error = |e| StorageError::from_object("write", target.file(), e);
        started.map(Upload::Elsewhere).map_err(error)
    }

    /// Writes the buffer as the next part. Never retried: a part has its place in the order.
    fn write_part(&mut self) -> Result<(), StorageError> {
        let target = self.target()?;
        let objects = &target.objects;
        objects.injected("state-file:write", &target.name)?;
        if self.upload.is_none() {
            self.upload = Some(self.begin_upload(&target)?);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        match self.upload.as_mut().expect("it was begun above") {
            Upload::Folder(staged) => {
                let appended = staged.append(&self.buffer);
                appended.map_err(|e| failed_to_write(&target, e))?;
                self.buffer.clear();
            }
            Upload::Elsewhere(upload) => {
                let part = Bytes::from(std::mem::take(&mut self.buffer));
                let put = upload.put_part(PutPayload::from(part.clone()));
                let error = |e| StorageError::from_object("write", target.file(), e);
                self.store.inner.runtime.block_on(put).map_err(error)?;
                self.buffer = emptied(part, self.part_bytes);
            }
        }
        Ok(())
    }

    /// Ends the upload and, if `delete` is set, deletes the file. Failing to is no harm: nothing
    /// refers to it, and a sweep will find it.
    fn discard(&mut self, delete: bool) {
        let (store, name) = (self.store.clone(), std::mem::take(&mut self.name));
        let upload = self.upload.take();
        let discarding = async move {
            match upload {
                // After a failed completion there may be nothing left to abort.
                Some(Upload::Elsewhere(mut upload)) => _ = upload.abort().await,
                Some(Upload::Folder(staged)) => {
                    let deleted = blocking(move || {
                        drop(staged);
                        Ok(())
                    });
                    _ = deleted.await;
                }
                None => {}
            }
            let deleted = async {
                let target = store.inner.storage.locate(&name)?;
                target.objects.delete(&target.name).await
            };
            if delete && let Err(error) = deleted.await {
                let error = ErrorChain(&error);
                tracing::warn!(file = name, %error, "unfinished state file is left to the sweep");
            }
        };
        let runtime = &self.store.inner.runtime;
        if tokio::runtime::Handle::try_current().is_ok() {
            // Dropped on a task, where blocking isn't allowed.
            runtime.spawn(discarding);
        } else {
            runtime.block_on(discarding);
        }
    }
}

/// Where a file in a folder lies.
fn path_of(target: &Located) -> Result<PathBuf, StorageError> {
    // It may come from another process.
    target.objects.path(&target.name)?;
    Ok(target.objects.root().join(&target.name))
}

fn failed_to_write(target: &Located, source: io::Error) -> StorageError {
    StorageError::Io {
        action: "write",
        file: target.file(),
        source,
    }
}

/// The memory of a part that has been written, for the next one: fresh memory costs time, and two
/// parts at a time are twice the memory. It is another one if somebody still holds the part.
fn emptied(part: Bytes, part_bytes: usize) -> Vec<u8> {
    match part.try_into_mut() {
        Ok(mut part) => {
            part.clear();
            Vec::from(part)
        }
        Err(_) => Vec::with_capacity(part_bytes),
    }
}

impl Write for StateFileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.refuse_after_failure()?;
        if self.buffer.len() == self.part_bytes {
            self.write_part().map_err(|error| {
                self.failure = Some(ErrorChain(&error).to_string());
                io::Error::from(error)
            })?;
        }
        let count = bytes.len().min(self.part_bytes - self.buffer.len());
        let taken = &bytes[..count];
        self.buffer.extend_from_slice(taken);
        self.crc32c = crc32c::crc32c_append(self.crc32c, taken);
        self.bytes += count as u64;
        Ok(count)
    }

    /// Does nothing: only [`finish`](Self::finish) makes bytes durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StateFileWriter {
    fn drop(&mut self) {
        // An empty name: finished or discarded. Without an upload nothing has been written.
        if !self.name.is_empty() && self.upload.is_some() {
            self.discard(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_part_is_used_again_unless_somebody_holds_it() {
        let part = Bytes::from(vec![7; 1000]);
        let (at, held) = (part.as_ptr(), part.clone());
        drop(held);
        let buffer = emptied(part, 1000);
        assert_eq!((buffer.as_ptr(), buffer.len()), (at, 0));
        assert_eq!(buffer.capacity(), 1000);

        let part = Bytes::from(vec![7; 1000]);
        let held = part.clone();
        let buffer = emptied(part, 1000);
        assert_ne!(buffer.as_ptr(), held.as_ptr());
        assert_eq!((buffer.len(), &held[..]), (0, &[7; 1000][..]));
        assert!(buffer.capacity() >= 1000);
    }
}
