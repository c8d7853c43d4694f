//! The namespace of one job: opening it, its identity, its counters, its end.
//!
//! ```text
//! <checkpoint dir>/<job name, path-safe>/
//!   lock             held by the process that owns the namespace
//!   job              identity: job id and full name
//!   attempts         last reserved attempt number
//!   checkpoint-ids   last reserved checkpoint id
//!   chk-N/           state files and, written last, _metadata
//!   completed/       one pointer per completed checkpoint
//!   finished         once the job has ended
//! ```
//!
//! Invariants: only the holder of the lock writes; numbers handed out are durable before anybody
//! sees them; `attempts` and `checkpoint-ids` exist whenever `job` does.

use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use object_store::PutMode;
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, CheckpointId, JobId};
use tokio::runtime::Handle;
use url::Url;
use uuid::Uuid;

use crate::error::StorageError;
use crate::folder;
use crate::names::{self, ATTEMPTS, CHECKPOINT_IDS, COMPLETED, FINISHED, IDENTITY, LOCK};
use crate::objects::{self, Objects, Put, blocking};
use crate::record::{self, RECORD_BYTES_MAX, RecordKind};

/// What a namespace holds when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceStatus {
    /// It was created just now.
    New,
    /// The job has run before and has not ended.
    Unfinished,
    /// The job has ended: nothing is left to do.
    Finished {
        /// The checkpoint it ended with.
        checkpoint: CheckpointId,
    },
}

/// The durable namespace of one job. Clones share it; it is unlocked when the last one is dropped,
/// including those inside [state file writers](crate::StateFileWriter) and readers.
///
/// The asynchronous methods must run in a Tokio runtime with timers.
#[derive(Clone, Debug)]
pub struct JobStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) objects: Objects,
    pub(crate) runtime: Handle,
    job: JobId,
    counters: tokio::sync::Mutex<()>,
    _lock: File,
}

impl JobStore {
    /// Opens the namespace of the job called `job_name` below `dir`, creating it if there is none,
    /// and takes ownership of it. `runtime` serves the blocking readers and writers.
    ///
    /// # Errors
    /// [`StorageError::UnsupportedScheme`] if `dir` isn't `file://`; [`StorageError::Locked`] if
    /// another store owns the namespace; [`StorageError::OtherJobName`] or
    /// [`StorageError::Version`] if it isn't this job's or not of this version; damage and IO.
    pub async fn open(
        dir: &Url,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let root = names::directory_of(dir)?.join(names::path_safe(job_name));
        let folder = root.clone();
        let lock = blocking(move || own(&folder)).await?;
        let objects = Objects::new(&root)?;
        let (job, status) = match read_identity(&objects, job_name).await {
            Ok(job) => (job, read_status(&objects, job).await?),
            Err(missing @ StorageError::Missing { .. }) => {
                refuse_checkpoints(&objects, missing).await?;
                (
                    create_identity(&objects, job_name).await?,
                    NamespaceStatus::New,
                )
            }
            Err(other) => return Err(other),
        };
        let inner = Inner {
            objects,
            runtime,
            job,
            counters: tokio::sync::Mutex::new(()),
            _lock: lock,
        };
        let store = JobStore {
            inner: Arc::new(inner),
        };
        Ok((store, status))
    }

    /// The job's identity, made when the namespace was created.
    pub fn job(&self) -> JobId {
        self.inner.job
    }

    /// The namespace's folder, for people to look at.
    pub fn folder(&self) -> &Path {
        self.inner.objects.root()
    }

    /// Reserves the number of a new attempt. It is durable on return and never given out again,
    /// also if this returns an error.
    ///
    /// # Errors
    /// If the counter can't be read or written.
    pub async fn reserve_attempt(&self) -> Result<AttemptNumber, StorageError> {
        let _counters = self.inner.counters.lock().await;
        let last = self.read_counter(ATTEMPTS).await?;
        let next = last.checked_add(1).expect("fewer than 2^64 attempts");
        self.write_counter(ATTEMPTS, next).await.into_result()?;
        Ok(AttemptNumber(next))
    }

    /// The largest checkpoint id that may have been used: ids above it are new.
    ///
    /// # Errors
    /// If the counter or the folder can't be read.
    pub async fn reserved_ids(&self) -> Result<CheckpointId, StorageError> {
        let _counters = self.inner.counters.lock().await;
        let counter = self.read_counter(CHECKPOINT_IDS).await?;
        // The counter alone is enough unless somebody brought back an old one.
        let root = self.folder().to_owned();
        let found = blocking(move || largest_checkpoint(&root)).await?;
        Ok(found.max(CheckpointId(counter)))
    }

    /// Reserves all checkpoint ids up to and including `up_to`. Reserving less than there is does
    /// nothing.
    pub async fn reserve_ids(&self, up_to: CheckpointId) -> WriteOutcome {
        let _counters = self.inner.counters.lock().await;
        match self.read_counter(CHECKPOINT_IDS).await {
            Ok(reserved) if reserved >= up_to.0 => WriteOutcome::Done,
            Ok(_) => self.write_counter(CHECKPOINT_IDS, up_to.0).await.into(),
            Err(error) => Put::NotDone(error).into(),
        }
    }

    /// Marks the job as ended with `checkpoint`. The namespace keeps its checkpoints.
    pub async fn mark_finished(&self, checkpoint: CheckpointId) -> WriteOutcome {
        let bytes = self.checkpoint_record(&record::FINISHED, checkpoint);
        let objects = &self.inner.objects;
        let put = objects.put(FINISHED, bytes, PutMode::Create, &objects::RECORD);
        put.await.into()
    }

    /// A record of this job about one checkpoint.
    pub(crate) fn checkpoint_record(&self, kind: &RecordKind, checkpoint: CheckpointId) -> Vec<u8> {
        kind.encode(&[&self.job().to_string(), &checkpoint.0.to_string()])
    }

    async fn read_counter(&self, name: &str) -> Result<u64, StorageError> {
        let objects = &self.inner.objects;
        let values = read_record(objects, &record::COUNTER, name).await?;
        let file = objects.file(name);
        check_job(&file, self.job(), &values[0])?;
        if values[1] != name {
            let reason = format!("it counts `{}`", values[1]);
            return Err(StorageError::Malformed { file, reason });
        }
        parse_number(&file, &values[2])
    }

    async fn write_counter(&self, name: &str, last: u64) -> Put {
        put_counter(&self.inner.objects, self.job(), name, last).await
    }
}

/// Creates the folders and takes the lock.
fn own(root: &Path) -> Result<File, StorageError> {
    folder::create_durably(&root.join(COMPLETED))?;
    folder::lock(&root.join(LOCK))
}

async fn read_record(
    objects: &Objects,
    kind: &RecordKind,
    name: &str,
) -> Result<Vec<String>, StorageError> {
    let bytes = objects.get(name, RECORD_BYTES_MAX).await?;
    kind.decode(&objects.file(name), &bytes)
}

async fn put_counter(objects: &Objects, job: JobId, name: &str, last: u64) -> Put {
    let bytes = record::COUNTER.encode(&[&job.to_string(), name, &last.to_string()]);
    objects
        .put(name, bytes, PutMode::Overwrite, &objects::RECORD)
        .await
}

async fn read_identity(objects: &Objects, job_name: &str) -> Result<JobId, StorageError> {
    let values = read_record(objects, &record::JOB, IDENTITY).await?;
    let file = objects.file(IDENTITY);
    if values[1] != job_name {
        return Err(StorageError::OtherJobName {
            file,
            expected: job_name.to_owned(),
            found: values[1].clone(),
        });
    }
    parse_job(&file, &values[0])
}

/// Writes the counters first: once there is an identity, they are there.
async fn create_identity(objects: &Objects, job_name: &str) -> Result<JobId, StorageError> {
    let job = JobId(Uuid::new_v4().as_u128());
    for counter in [ATTEMPTS, CHECKPOINT_IDS] {
        put_counter(objects, job, counter, 0).await.into_result()?;
    }
    let bytes = record::JOB.encode(&[&job.to_string(), job_name]);
    let put = objects.put(IDENTITY, bytes, PutMode::Create, &objects::RECORD);
    put.await.into_result()?;
    Ok(job)
}

async fn read_status(objects: &Objects, job: JobId) -> Result<NamespaceStatus, StorageError> {
    match read_record(objects, &record::FINISHED, FINISHED).await {
        Ok(values) => {
            let checkpoint = parse_checkpoint_record(&objects.file(FINISHED), job, &values)?;
            Ok(NamespaceStatus::Finished { checkpoint })
        }
        Err(StorageError::Missing { .. }) => Ok(NamespaceStatus::Unfinished),
        Err(other) => Err(other),
    }
}

/// A namespace with checkpoints but without identity has lost it: a new one would orphan them.
async fn refuse_checkpoints(objects: &Objects, missing: StorageError) -> Result<(), StorageError> {
    let root = objects.root().to_owned();
    match blocking(move || largest_checkpoint(&root)).await? {
        CheckpointId::NONE => Ok(()),
        _ => Err(missing),
    }
}

/// The largest id of a checkpoint folder or pointer; `NONE` if there are none.
fn largest_checkpoint(root: &Path) -> Result<CheckpointId, StorageError> {
    let folders = folder::entries(root)?;
    let pointers = folder::entries(&root.join(COMPLETED))?;
    let ids = folders
        .iter()
        .filter_map(|entry| names::parse_checkpoint_folder(&entry.name));
    let completed = pointers
        .iter()
        .filter_map(|entry| names::parse_pointer_file_name(&entry.name));
    Ok(ids.chain(completed).max().unwrap_or(CheckpointId::NONE))
}

/// The checkpoint in a record made by [`JobStore::checkpoint_record`].
pub(crate) fn parse_checkpoint_record(
    file: &str,
    job: JobId,
    values: &[String],
) -> Result<CheckpointId, StorageError> {
    check_job(file, job, &values[0])?;
    parse_number(file, &values[1]).map(CheckpointId)
}

fn check_job(file: &str, expected: JobId, text: &str) -> Result<(), StorageError> {
    let found = parse_job(file, text)?;
    if found == expected {
        return Ok(());
    }
    Err(StorageError::OtherJob {
        file: file.to_owned(),
        expected,
        found,
    })
}

fn parse_job(file: &str, text: &str) -> Result<JobId, StorageError> {
    parse_canonical(file, text, "job id of 32 lower-case hexadecimal digits")
}

fn parse_number(file: &str, text: &str) -> Result<u64, StorageError> {
    parse_canonical(file, text, "decimal number")
}

/// Parses `text` and refuses it if the value would be written in another way.
fn parse_canonical<T: FromStr + Display>(
    file: &str,
    text: &str,
    expected: &str,
) -> Result<T, StorageError> {
    text.parse()
        .ok()
        .filter(|value: &T| value.to_string() == text)
        .ok_or_else(|| StorageError::Malformed {
            file: file.to_owned(),
            reason: format!("`{text}` is no {expected}"),
        })
}
