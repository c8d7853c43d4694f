//! The namespace of one job: opening it, its identity, its counters, its end.
//!
//! ```text
//! <checkpoint dir>/<job name, path-safe>/
//!   lock             held by the process that owns the namespace
//!   leader           the epoch of the latest owner
//!   job              identity: job id and full name
//!   attempts         last reserved attempt number
//!   checkpoint-ids   last reserved checkpoint id
//!   origin           the snapshot it was begun from, if any
//!   chk-N/           state files and, written last, _metadata
//!   completed/       one pointer per completed checkpoint
//!   ended            which run somebody has ended, if any
//!   parallelism      what somebody asked for while it ran, if any
//!   discarded        the id up to which nothing is restored any more, if any
//!   finished         once the job has finished
//! ```
//!
//! Invariants: only the leader of the latest epoch writes records or deletes anything; numbers
//! handed out are durable before anybody sees them.

use std::path::Path;
use std::sync::Arc;

use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, JobId, LeaderEpoch, OrderedEnd,
};
use tokio::runtime::Handle;
use url::Url;

use crate::belonging;
use crate::checkpoint_storage::CheckpointStorage;
use crate::error::StorageError;
use crate::folder;
use crate::ha::job_records::JobRecords;
#[cfg(feature = "s3")]
use crate::ha::{Candidate, HaLocation, LeaderElection, S3Inspection, S3Location};
use crate::ha::{Ended, FolderRecords, MemoryNamespace, RecordStore};
use crate::names::{self, IDENTITY};
use crate::objects::{Objects, blocking};
use crate::places::Places;

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

/// The durable namespace of one job: its files, and the records that say which of them count.
/// Clones share it; it is unlocked when the last one is dropped, including those inside
/// [state file writers](crate::StateFileWriter) and readers.
///
/// The asynchronous methods must run in a Tokio runtime with timers.
#[derive(Clone, Debug)]
pub struct JobStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) storage: CheckpointStorage,
    pub(crate) records: JobRecords,
    pub(crate) runtime: Handle,
}

impl JobStore {
    /// Opens the namespace of the job called `job_name` below `dir`, creating it if there is none,
    /// and takes ownership of it: the lock and the lead. `runtime` serves the blocking readers and
    /// writers.
    ///
    /// # Errors
    /// [`StorageError::UnsupportedScheme`] if `dir` isn't `file://`, or `s3://` with that feature;
    /// [`StorageError::Locked`] if another owns the namespace; [`StorageError::OtherJobName`] or
    /// [`StorageError::Version`] if it isn't this job's or not of this version; damage and IO.
    pub async fn open(
        dir: &Url,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        #[cfg(feature = "s3")]
        if dir.scheme() == "s3" {
            return Self::open_bucket(dir, job_name, runtime).await;
        }
        let root = names::directory_of(dir)?.join(names::path_safe(job_name));
        let records = Arc::new(FolderRecords::lead(&root).await?);
        let objects = Objects::folder(&root)?;
        Self::start(objects, records, job_name, runtime).await
    }

    /// Looks at the namespace of a job without owning it, whether somebody does or not: nothing is
    /// locked or written, and writes and deletions through this store are rejected. `None` if there
    /// is no such job. What its leader deletes meanwhile is an error to whoever reads it, who may
    /// try again.
    ///
    /// # Errors
    /// As [`open`](Self::open), apart from locks and writes.
    pub async fn inspect(
        dir: &Url,
        job_name: &str,
        runtime: Handle,
    ) -> Result<Option<(JobStore, NamespaceStatus)>, StorageError> {
        #[cfg(feature = "s3")]
        if dir.scheme() == "s3" {
            let (location, job) = (S3Location::parse(dir.as_str())?, names::path_safe(job_name));
            let objects = Objects::bucket(&location, &job)?;
            let store: Arc<dyn RecordStore> = Arc::new(S3Inspection::of(&location, &job)?);
            return Self::look_at(objects, &store, job_name, runtime).await;
        }
        let root = names::directory_of(dir)?.join(names::path_safe(job_name));
        if !root.is_dir() {
            return Ok(None);
        }
        let store: Arc<dyn RecordStore> = Arc::new(FolderRecords::inspect(&root)?);
        Self::look_at(Objects::folder(&root)?, &store, job_name, runtime).await
    }

    async fn look_at(
        objects: Objects,
        store: &Arc<dyn RecordStore>,
        job_name: &str,
        runtime: Handle,
    ) -> Result<Option<(JobStore, NamespaceStatus)>, StorageError> {
        let Some(records) = JobRecords::open(store, job_name).await? else {
            return Ok(None);
        };
        let status = status_of(&records).await?;
        let store = Self::with(objects, records, runtime);
        Ok(Some((store, status)))
    }

    /// As [`open`](Self::open), with records that are kept elsewhere, by the leader of one epoch.
    /// The folder isn't locked: the epoch alone fences former leaders.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(
        dir: &Url,
        records: Arc<dyn RecordStore>,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        #[cfg(feature = "s3")]
        if dir.scheme() == "s3" {
            let location = S3Location::parse(dir.as_str())?;
            let objects = Objects::bucket(&location, &names::path_safe(job_name))?;
            return Self::start_beside(objects, records, job_name, runtime).await;
        }
        let root = names::directory_of(dir)?.join(names::path_safe(job_name));
        let folder = root.clone();
        blocking(move || folder::create_durably(&folder)).await?;
        let objects = Objects::folder(&root)?;
        Self::start_beside(objects, records, job_name, runtime).await
    }

    /// As [`open`](Self::open), in a bucket: there the records are, too, and a lease is the lock. A
    /// run that was killed is waited for until its lease has run out.
    #[cfg(feature = "s3")]
    async fn open_bucket(
        dir: &Url,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let (location, job) = (S3Location::parse(dir.as_str())?, names::path_safe(job_name));
        let election = location.election(&job)?;
        let candidate = Candidate::new("");
        let campaign = election.campaign(&candidate);
        let won = tokio::time::timeout(HaLocation::LEASE * 3, campaign).await;
        let Ok(won) = won else {
            // Either the bucket can't be read, or somebody else leads.
            election.current_leader().await?;
            return Err(StorageError::Locked {
                lock: format!("{location}/{job}/lease").into(),
                owner: None,
            });
        };
        let records = won?.records();
        let objects = Objects::bucket(&location, &job)?;
        Self::start_beside(objects, records, job_name, runtime).await
    }

    /// Opens a namespace in memory and takes the lead over it, whoever has it: what stores opened
    /// before write from now on is rejected.
    ///
    /// # Errors
    /// As [`open`](Self::open), apart from locks and folders.
    pub async fn open_in_memory(
        namespace: &MemoryNamespace,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let records = namespace.lead();
        let objects = Objects::memory(Arc::clone(&namespace.objects));
        Self::start(objects, records, job_name, runtime).await
    }

    /// As [`start`](Self::start), where records and files are apart.
    async fn start_beside(
        objects: Objects,
        store: Arc<dyn RecordStore>,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let files = objects.clone();
        let (store, status) = Self::start(objects, store, job_name, runtime).await?;
        belonging::claim(&files, store.job(), job_name).await?;
        Ok((store, status))
    }

    async fn start(
        objects: Objects,
        store: Arc<dyn RecordStore>,
        job_name: &str,
        runtime: Handle,
    ) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let (records, status) = match JobRecords::open(&store, job_name).await? {
            Some(records) => {
                let status = status_of(&records).await?;
                (records, status)
            }
            None => {
                refuse_checkpoints(&objects, &*store).await?;
                let created = JobRecords::create(&store, job_name).await?;
                (created, NamespaceStatus::New)
            }
        };
        Ok((Self::with(objects, records, runtime), status))
    }

    pub(crate) fn with(objects: Objects, records: JobRecords, runtime: Handle) -> JobStore {
        let inner = Inner {
            storage: CheckpointStorage {
                objects,
                places: Places::default(),
            },
            records,
            runtime,
        };
        JobStore {
            inner: Arc::new(inner),
        }
    }

    /// The job's identity, made when the namespace was created.
    pub fn job(&self) -> JobId {
        self.inner.records.job()
    }

    /// The epoch of this store's leadership.
    pub fn epoch(&self) -> LeaderEpoch {
        self.inner.records.store().epoch()
    }

    /// The namespace's folder, for people to look at. In memory there is none of this name.
    pub fn folder(&self) -> &Path {
        self.inner.storage.objects.root()
    }

    /// Reserves the number of a new attempt. It is durable on return and never given out again,
    /// also if this returns an error.
    ///
    /// # Errors
    /// If the counter can't be read or written.
    pub async fn reserve_attempt(&self) -> Result<AttemptNumber, StorageError> {
        self.inner.records.reserve_attempt().await
    }

    /// The largest attempt number that may have been used.
    ///
    /// # Errors
    /// If the counter can't be read.
    pub async fn last_attempt(&self) -> Result<AttemptNumber, StorageError> {
        self.inner.records.last_attempt().await
    }

    /// The largest checkpoint id that may have been used: ids above it are new.
    ///
    /// # Errors
    /// If the records or the namespace can't be read.
    pub async fn reserved_ids(&self) -> Result<CheckpointId, StorageError> {
        let recorded = self.inner.records.largest_id().await?;
        // The records alone are enough unless somebody brought back old ones.
        let found = largest_folder(&self.inner.storage.objects).await?;
        Ok(found.max(recorded))
    }

    /// Reserves all checkpoint ids up to and including `up_to`. Reserving less than there is does
    /// nothing.
    pub async fn reserve_ids(&self, up_to: CheckpointId) -> WriteOutcome {
        self.inner.records.reserve_ids(up_to).await.into()
    }

    /// Records the parallelism that somebody asked for, instead of what is recorded; `None` removes
    /// that.
    pub async fn record_parallelism(&self, asked: Option<AskedParallelism>) -> WriteOutcome {
        self.inner.records.record_parallelism(asked).await.into()
    }

    /// The parallelism that somebody asked for, if one is recorded.
    ///
    /// # Errors
    /// If the record can't be read, or is damaged.
    pub async fn asked_parallelism(&self) -> Result<Option<AskedParallelism>, StorageError> {
        self.inner.records.asked_parallelism().await
    }

    /// Records that somebody has ended this run of the job.
    pub async fn record_end(&self, end: &OrderedEnd) -> WriteOutcome {
        self.inner.records.record_end(end).await.into()
    }

    /// Records that nobody is left who would go on with the run that was ended last, if one was:
    /// whoever starts the job from now on means to.
    ///
    /// # Errors
    /// If the record can't be read or written.
    pub async fn leave_ended(&self) -> Result<(), StorageError> {
        self.inner.records.leave_ended().await.into_result()
    }

    /// The last run that somebody has ended, if there is one.
    ///
    /// # Errors
    /// If the record can't be read, or is damaged.
    pub async fn ended(&self) -> Result<Option<Ended>, StorageError> {
        self.inner.records.ended().await
    }

    /// Marks the job as ended with `checkpoint`. The namespace keeps its checkpoints. One that is
    /// marked already, with whatever checkpoint, is done.
    pub async fn mark_finished(&self, checkpoint: CheckpointId) -> WriteOutcome {
        self.inner.records.mark_finished(checkpoint).await.into()
    }
}

async fn status_of(records: &JobRecords) -> Result<NamespaceStatus, StorageError> {
    Ok(match records.finished().await? {
        Some(checkpoint) => NamespaceStatus::Finished { checkpoint },
        None => NamespaceStatus::Unfinished,
    })
}

/// A namespace with checkpoints but without identity has lost it: a new one would orphan them.
async fn refuse_checkpoints(
    objects: &Objects,
    store: &dyn RecordStore,
) -> Result<(), StorageError> {
    let pointers = store.list(names::COMPLETED).await?;
    match largest_folder(objects).await? {
        CheckpointId::NONE if pointers.is_empty() => Ok(()),
        _ => Err(StorageError::Missing {
            file: store.describe(IDENTITY),
        }),
    }
}

/// The largest id of a checkpoint folder; `NONE` if there are none.
async fn largest_folder(objects: &Objects) -> Result<CheckpointId, StorageError> {
    let entries = objects.entries("").await?;
    let ids = entries
        .iter()
        .filter_map(|entry| names::parse_checkpoint_folder(&entry.name));
    Ok(ids.max().unwrap_or(CheckpointId::NONE))
}
