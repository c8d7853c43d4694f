//! Writing a state file: buffered, checksummed, durable on [`finish`](StateFileWriter::finish).
//!
//! A file that fits one part is created in one step that fails if the name is taken. A longer one
//! goes out in parts and appears under its name when complete; there the random part of the name
//! is what keeps it exclusive, and a file that is there already is refused beforehand.

use std::io::{self, Write};

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tidegate_types::{ErrorChain, FileHandle};

use super::PART_BYTES;
use crate::error::StorageError;
use crate::job_store::JobStore;
use crate::names;

/// A state file being written. Dropped without [`finish`](Self::finish), it leaves nothing behind.
///
/// # Panics
/// Writing and finishing panic on a task of a Tokio runtime: they block.
pub struct StateFileWriter {
    store: JobStore,
    name: String,
    buffer: Vec<u8>,
    upload: Option<Box<dyn MultipartUpload>>,
    bytes: u64,
    crc32c: u32,
    failure: Option<String>,
}

impl StateFileWriter {
    pub(super) fn new(store: JobStore, name: String) -> StateFileWriter {
        assert!(names::is_state_file_name(&name), "`{name}`");
        StateFileWriter {
            store,
            name,
            buffer: Vec::new(),
            upload: None,
            bytes: 0,
            crc32c: 0,
            failure: None,
        }
    }

    /// Name of the file, relative to the namespace.
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
        self.store
            .inner
            .objects
            .injected("state-file:reply", &self.name)
    }

    fn refuse_after_failure(&self) -> Result<(), StorageError> {
        match &self.failure {
            None => Ok(()),
            Some(cause) => Err(StorageError::WriterFailed {
                file: self.store.inner.objects.file(&self.name),
                cause: cause.clone(),
            }),
        }
    }

    fn create_whole(&mut self) -> Result<(), StorageError> {
        let inner = &self.store.inner;
        inner.objects.injected("state-file:write", &self.name)?;
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        inner
            .runtime
            .block_on(inner.objects.create(&self.name, bytes))
    }

    fn complete_upload(&mut self) -> Result<(), StorageError> {
        let inner = &self.store.inner;
        let file = || inner.objects.file(&self.name);
        match inner.runtime.block_on(inner.objects.bytes_of(&self.name)) {
            Err(StorageError::Missing { .. }) => {}
            Err(other) => return Err(other),
            Ok(_) => return Err(StorageError::Conflict { file: file() }),
        }
        let upload = self.upload.as_mut().expect("the caller has seen an upload");
        let completed = inner.runtime.block_on(upload.complete());
        completed.map_err(|e| StorageError::from_object("write", file(), e))?;
        self.upload = None;
        Ok(())
    }

    /// Writes the buffer as the next part. Never retried: a part has its place in the order.
    fn write_part(&mut self) -> Result<(), StorageError> {
        let inner = &self.store.inner;
        inner.objects.injected("state-file:write", &self.name)?;
        let error = |e| StorageError::from_object("write", inner.objects.file(&self.name), e);
        if self.upload.is_none() {
            let path = inner.objects.path(&self.name)?;
            let started = inner.objects.store().put_multipart(&path);
            self.upload = Some(inner.runtime.block_on(started).map_err(error)?);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        let next = Vec::with_capacity(PART_BYTES);
        let part = PutPayload::from(std::mem::replace(&mut self.buffer, next));
        let upload = self.upload.as_mut().expect("it was started above");
        inner.runtime.block_on(upload.put_part(part)).map_err(error)
    }

    /// Ends the upload and, if `delete` is set, deletes the file. Failing to is no harm: nothing
    /// refers to it, and a sweep will find it.
    fn discard(&mut self, delete: bool) {
        let (store, name) = (self.store.clone(), std::mem::take(&mut self.name));
        let upload = self.upload.take();
        let discarding = async move {
            if let Some(mut upload) = upload {
                // After a failed completion there may be nothing left to abort.
                let _ = upload.abort().await;
            }
            if delete && let Err(error) = store.inner.objects.delete(&name).await {
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

impl Write for StateFileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.refuse_after_failure()?;
        if self.buffer.len() == PART_BYTES {
            self.write_part().map_err(|error| {
                self.failure = Some(ErrorChain(&error).to_string());
                io::Error::from(error)
            })?;
        }
        let count = bytes.len().min(PART_BYTES - self.buffer.len());
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
