//! Writes staged files.
//!
//! Lines are gathered in a buffer and written to the file's pages; nothing waits for the disk
//! except the seal, which runs on another thread. A file is closed by a checkpoint, or when it is
//! large, and never written to again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_runtime::Batch;
use tidegate_runtime::sink::{PreCommitted, SinkContext, TransactionWriter};
use tidegate_runtime::{BoxError, Flow, Seal};
use tidegate_types::{AttemptNumber, CheckpointId, JobId};

use super::error::FileSinkError;
use super::layout::{Layout, published_name, staged_name, sync_folder};
use crate::line::LineFormat;

/// Lines are handed to the system in pieces of about this size.
const BUFFER_BYTES: usize = 64 << 10;

/// A staged file, complete: what it takes to publish it. Names are relative to the output folder,
/// which may be moved as a whole.
///
/// A job that is begun from another job's snapshot has an output folder of its own, and a job may
/// go on with another folder than before. What the snapshot lists lies in the folder that it was
/// written to, and is published there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTransaction {
    /// The job that wrote it; `None` if its output folder didn't say.
    pub job: Option<u128>,
    /// Absolute path of the output folder when it was written.
    pub dir: String,
    /// Name in the staging folder.
    pub staged: String,
    /// Name in the output folder.
    pub published: String,
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of the whole file.
    pub crc32c: u32,
}

/// A file in the staging folder. The handle stays open until it is sealed: a failure to write
/// pages back is reported to it alone.
#[derive(Debug)]
struct StagedFile {
    file: File,
    sequence: u64,
    path: PathBuf,
    bytes: u64,
    crc32c: u32,
}

impl StagedFile {
    /// Writes as much of `buffer` as possible and removes that from it; on an error, what was not
    /// written is still there.
    fn append(&mut self, buffer: &mut Vec<u8>) -> Result<(), FileSinkError> {
        let mut written = 0;
        let outcome = loop {
            if written == buffer.len() {
                break Ok(());
            }
            match self.file.write(&buffer[written..]) {
                Ok(0) => break Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(count) => {
                    let part = &buffer[written..written + count];
                    self.crc32c = crc32c::crc32c_append(self.crc32c, part);
                    written += count;
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => break Err(cause),
            }
        };
        self.bytes += written as u64;
        buffer.drain(..written);
        outcome.map_err(|cause| FileSinkError::Write {
            path: self.path.clone(),
            cause,
        })
    }
}

/// Writes the files of one subtask.
#[derive(Debug)]
pub struct FileWriter<F> {
    layout: Layout,
    job: JobId,
    dir: String,
    attempt: AttemptNumber,
    subtask: u32,
    format: Arc<F>,
    roll_bytes: u64,
    /// Whole lines that have not been written.
    buffer: Vec<u8>,
    open: Option<StagedFile>,
    /// Large files since the last checkpoint.
    closed: Vec<StagedFile>,
    next_sequence: u64,
}

impl<F> FileWriter<F> {
    pub(super) fn new(
        layout: Layout,
        job: JobId,
        context: &SinkContext,
        format: Arc<F>,
        roll_bytes: u64,
    ) -> Result<Self, FileSinkError> {
        Ok(FileWriter {
            dir: layout.recorded()?,
            layout,
            job,
            attempt: context.attempt,
            subtask: context.subtask.index,
            format,
            roll_bytes,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            open: None,
            closed: Vec::new(),
            next_sequence: 0,
        })
    }

    fn open(&mut self) -> Result<&mut StagedFile, FileSinkError> {
        if self.open.is_none() {
            let sequence = self.next_sequence;
            let path = self
                .layout
                .staged(&staged_name(self.attempt, self.subtask, sequence));
            let created = OpenOptions::new().write(true).create_new(true).open(&path);
            let file = match created {
                Ok(file) => file,
                Err(cause) => return Err(FileSinkError::Write { path, cause }),
            };
            self.next_sequence += 1;
            self.open = Some(StagedFile {
                file,
                sequence,
                path,
                bytes: 0,
                crc32c: 0,
            });
        }
        Ok(self.open.as_mut().expect("opened above"))
    }

    /// Hands the buffer to the system.
    fn flush(&mut self) -> Result<(), FileSinkError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.open().and_then(|file| file.append(&mut buffer));
        self.buffer = buffer;
        outcome?;
        if self
            .open
            .as_ref()
            .is_some_and(|file| file.bytes >= self.roll_bytes)
        {
            self.closed.extend(self.open.take());
        }
        Ok(())
    }

    fn end(&self, file: StagedFile, checkpoint: CheckpointId) -> PreCommitted<FileTransaction> {
        let (attempt, subtask, sequence) = (self.attempt, self.subtask, file.sequence);
        let transaction = FileTransaction {
            job: Some(self.job.0),
            dir: self.dir.clone(),
            staged: staged_name(attempt, subtask, sequence),
            published: published_name(attempt, subtask, sequence, checkpoint),
            bytes: file.bytes,
            crc32c: file.crc32c,
        };
        PreCommitted {
            transaction,
            seal: seal(file, self.layout.staging()),
        }
    }
}

/// Makes a file and its name durable.
fn seal(file: StagedFile, staging: PathBuf) -> Seal {
    Box::new(move || {
        let StagedFile { file, path, .. } = file;
        file.sync_all()
            .map_err(|cause| FileSinkError::Sync { path, cause })?;
        sync_folder(&staging).map_err(|cause| FileSinkError::Sync {
            path: staging,
            cause,
        })?;
        Ok(())
    })
}

impl<T: 'static, F: LineFormat<T>> TransactionWriter<T> for FileWriter<F> {
    type Transaction = FileTransaction;

    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        for record in records {
            self.format.write(&record, &mut self.buffer);
            self.buffer.push(b'\n');
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(Flow::Continue)
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Vec<PreCommitted<FileTransaction>>, BoxError> {
        // If this fails, buffer and files are as they were: the next checkpoint tries again.
        self.flush()?;
        let mut files = std::mem::take(&mut self.closed);
        files.extend(self.open.take());
        Ok(files
            .into_iter()
            .map(|file| self.end(file, checkpoint))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_file_and_loses_nothing() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut staged = StagedFile {
            file,
            sequence: 0,
            path,
            bytes: 0,
            crc32c: 0,
        };
        let mut buffer = b"line\n".to_vec();
        let error = staged.append(&mut buffer).unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
        let FileSinkError::Write { cause, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
        assert_eq!((buffer.as_slice(), staged.bytes), (&b"line\n"[..], 0));
    }
}
