//! What a job keeps in its [`RecordStore`]: its identity, counters, pointers to completed
//! checkpoints, its origin, what somebody asked of it, its end.
//!
//! Invariants: numbers handed out are durable before anybody sees them; counters exist whenever the
//! identity does; a pointer and an origin are written once and never changed; what has been
//! discarded only grows, and no pointer up to it counts.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, ErrorChain, JobId, OrderedEnd,
};
use uuid::Uuid;

use super::ended::Ended;
use super::pointer::{CheckpointPointer, Origin};
use super::{Expected, RecordStore, RecordVersion, Written};
use crate::elsewhere::Elsewhere;
use crate::error::StorageError;
use crate::names::{
    self, ATTEMPTS, CHECKPOINT_IDS, COMPLETED, DISCARDED, ELSEWHERE, ENDED, FINISHED, IDENTITY,
    ORIGIN, PARALLELISM,
};
use crate::record;

/// The records of one job. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct JobRecords {
    store: Arc<dyn RecordStore>,
    job: JobId,
    /// Records that are read and replaced: two of one process wait for each other, rather than to
    /// conflict, and come about in the order in which they were issued.
    replacing: Arc<tokio::sync::Mutex<()>>,
}

impl JobRecords {
    /// The records of the job called `job_name`; `None` if there is no such job yet.
    pub(crate) async fn open(
        store: &Arc<dyn RecordStore>,
        job_name: &str,
    ) -> Result<Option<JobRecords>, StorageError> {
        let Some(found) = store.read(IDENTITY).await? else {
            return Ok(None);
        };
        let file = store.describe(IDENTITY);
        let values = record::JOB.decode(&file, &found.bytes)?;
        if values[1] != job_name {
            return Err(StorageError::OtherJobName {
                file,
                expected: job_name.to_owned(),
                found: values[1].clone(),
            });
        }
        let job = record::parse_job(&file, &values[0])?;
        Ok(Some(JobRecords::of(store, job)))
    }

    /// Makes an identity for the job called `job_name`. The counters are written first: once there
    /// is an identity, they are there.
    pub(crate) async fn create(
        store: &Arc<dyn RecordStore>,
        job_name: &str,
    ) -> Result<JobRecords, StorageError> {
        let records = JobRecords::of(store, JobId(Uuid::new_v4().as_u128()));
        for counter in [ATTEMPTS, CHECKPOINT_IDS] {
            // One may be left from somebody who came no further.
            let found = store.read(counter).await?;
            let expected = found.map_or(Expected::Absent, |f| Expected::Version(f.version));
            let written = records.write_counter(counter, 0, expected).await;
            written.into_result()?;
        }
        let bytes = record::JOB.encode(&[&records.job.to_string(), job_name]);
        let identity = store.write(IDENTITY, bytes.into(), Expected::Absent);
        identity.await.into_result()?;
        Ok(records)
    }

    /// The records of a job that is known otherwise. Nothing is read.
    pub(crate) fn of(store: &Arc<dyn RecordStore>, job: JobId) -> JobRecords {
        JobRecords {
            store: Arc::clone(store),
            job,
            replacing: Arc::default(),
        }
    }

    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    pub(crate) fn store(&self) -> &dyn RecordStore {
        &*self.store
    }

    pub(crate) async fn reserve_attempt(&self) -> Result<AttemptNumber, StorageError> {
        let _replacing = self.replacing.lock().await;
        let (last, version) = self.read_counter(ATTEMPTS).await?;
        let next = last.checked_add(1).expect("fewer than 2^64 attempts");
        let written = self.write_counter(ATTEMPTS, next, Expected::Version(version));
        written.await.into_result()?;
        Ok(AttemptNumber(next))
    }

    pub(crate) async fn last_attempt(&self) -> Result<AttemptNumber, StorageError> {
        let (last, _) = self.read_counter(ATTEMPTS).await?;
        Ok(AttemptNumber(last))
    }

    pub(crate) async fn reserve_ids(&self, up_to: CheckpointId) -> Written {
        let _replacing = self.replacing.lock().await;
        match self.read_counter(CHECKPOINT_IDS).await {
            Ok((reserved, _)) if reserved >= up_to.0 => Written::Done,
            Ok((_, version)) => {
                let expected = Expected::Version(version);
                self.write_counter(CHECKPOINT_IDS, up_to.0, expected).await
            }
            Err(error) => Written::NotDone(error),
        }
    }

    /// The largest id that was reserved or discarded, or that a pointer or the origin has.
    pub(crate) async fn largest_id(&self) -> Result<CheckpointId, StorageError> {
        let (reserved, _) = self.read_counter(CHECKPOINT_IDS).await?;
        let origin = self.origin().await?.map(|origin| origin.checkpoint);
        let listed = self.listed_ids().await?;
        let known = listed.into_iter().chain(origin);
        let known = known.chain(self.discarded().await?);
        Ok(known.fold(CheckpointId(reserved), CheckpointId::max))
    }

    pub(crate) async fn add_pointer(&self, pointer: &CheckpointPointer) -> Written {
        tidegate_fault::point("pointer:before");
        let bytes = pointer.encode(self.job).into();
        let name = names::pointer_name(pointer.checkpoint);
        let written = self.store.write(&name, bytes, Expected::Absent).await;
        written.passing("pointer:after")
    }

    pub(crate) async fn remove_pointer(&self, checkpoint: CheckpointId) -> Written {
        self.store.remove(&names::pointer_name(checkpoint)).await
    }

    /// The ids of the completed checkpoints, ascending by number: there is a pointer, and they
    /// weren't discarded.
    pub(crate) async fn completed_ids(&self) -> Result<Vec<CheckpointId>, StorageError> {
        let mut ids = self.listed_ids().await?;
        let discarded = self.discarded().await?;
        ids.retain(|id| Some(*id) > discarded);
        Ok(ids)
    }

    /// The ids that there are pointers to, discarded or not, ascending by number.
    pub(crate) async fn listed_ids(&self) -> Result<Vec<CheckpointId>, StorageError> {
        self.ids_in(COMPLETED).await
    }

    async fn ids_in(&self, folder: &str) -> Result<Vec<CheckpointId>, StorageError> {
        let mut ids = Vec::new();
        for name in self.store.list(folder).await? {
            let id = names::parse_pointer_file_name(&name);
            ids.push(id.ok_or_else(|| StorageError::Malformed {
                file: self.store.describe(&format!("{folder}/{name}")),
                reason: "its name is no checkpoint id of 20 digits".to_owned(),
            })?);
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// The pointer to `checkpoint`, which was listed.
    pub(crate) async fn pointer(
        &self,
        checkpoint: CheckpointId,
    ) -> Result<CheckpointPointer, StorageError> {
        let name = names::pointer_name(checkpoint);
        let bytes = self.expect(&name).await?;
        let file = self.store.describe(&name);
        let pointer = CheckpointPointer::decode(&file, self.job, &bytes)?;
        if pointer.checkpoint == checkpoint {
            return Ok(pointer);
        }
        let reason = format!("it points to `{}`", pointer.checkpoint);
        Err(StorageError::Malformed { file, reason })
    }

    /// Refuses to go on if `checkpoint` has a pointer.
    pub(crate) async fn refuse_completed(
        &self,
        checkpoint: CheckpointId,
    ) -> Result<(), StorageError> {
        let name = names::pointer_name(checkpoint);
        match self.store.read(&name).await? {
            None => Ok(()),
            Some(_) => Err(StorageError::StillReferenced {
                checkpoint,
                pointer: self.store.describe(&name),
            }),
        }
    }

    /// Records a folder elsewhere in which something is going on, instead of what went on there
    /// before.
    pub(crate) async fn begin_elsewhere(&self, folder: &Elsewhere) -> Written {
        let name = names::elsewhere_name(folder.checkpoint);
        let expected = match self.store.read(&name).await {
            Ok(found) => found.map_or(Expected::Absent, |f| Expected::Version(f.version)),
            Err(error) => return Written::NotDone(error),
        };
        let bytes = folder.encode(self.job).into();
        self.store.write(&name, bytes, expected).await
    }

    pub(crate) async fn end_elsewhere(&self, checkpoint: CheckpointId) -> Written {
        self.store.remove(&names::elsewhere_name(checkpoint)).await
    }

    /// The folders elsewhere in which something was going on, by checkpoint.
    pub(crate) async fn elsewhere(&self) -> Result<Vec<Elsewhere>, StorageError> {
        let mut folders = Vec::new();
        for id in self.ids_in(ELSEWHERE).await? {
            let name = names::elsewhere_name(id);
            let bytes = self.expect(&name).await?;
            let file = self.store.describe(&name);
            folders.push(Elsewhere::decode(&file, self.job, &bytes)?);
        }
        Ok(folders)
    }

    /// A marker with another id is one of unknown outcome that has landed after all: it is
    /// replaced. Whatever becomes of that, the job is marked.
    pub(crate) async fn mark_finished(&self, checkpoint: CheckpointId) -> Written {
        let expected = match self.last_checkpoint(FINISHED, &record::FINISHED).await {
            Err(error) => return Written::NotDone(error),
            Ok(Some((found, version))) if found != checkpoint => Expected::Version(version),
            Ok(_) => Expected::Absent,
        };
        let marked = matches!(expected, Expected::Version(_));
        let bytes = record::FINISHED.encode(&[&self.job.to_string(), &checkpoint.0.to_string()]);
        match self.store.write(FINISHED, bytes.into(), expected).await {
            Written::NotDone(error) if marked => Written::Unknown(error),
            written => written,
        }
    }

    pub(crate) async fn finished(&self) -> Result<Option<CheckpointId>, StorageError> {
        let found = self.last_checkpoint(FINISHED, &record::FINISHED).await?;
        Ok(found.map(|(checkpoint, _)| checkpoint))
    }

    /// Records that nothing up to `checkpoint` is restored any more. Never lowers what is there.
    pub(crate) async fn discard_up_to(&self, checkpoint: CheckpointId) -> Written {
        let expected = match self.last_checkpoint(DISCARDED, &record::DISCARDED).await {
            Err(error) => return Written::NotDone(error),
            Ok(Some((found, _))) if found > checkpoint => return Written::Done,
            Ok(Some((found, version))) if found < checkpoint => Expected::Version(version),
            // The same is written again: that settles one of unknown outcome.
            Ok(_) => Expected::Absent,
        };
        let bytes = record::DISCARDED.encode(&[&self.job.to_string(), &checkpoint.0.to_string()]);
        self.store.write(DISCARDED, bytes.into(), expected).await
    }

    /// The checkpoint up to which nothing is restored any more.
    pub(crate) async fn discarded(&self) -> Result<Option<CheckpointId>, StorageError> {
        let found = self.last_checkpoint(DISCARDED, &record::DISCARDED).await?;
        Ok(found.map(|(checkpoint, _)| checkpoint))
    }

    /// Records the parallelism that somebody asked for, instead of what there is; `None` removes
    /// that.
    pub(crate) async fn record_parallelism(&self, asked: Option<AskedParallelism>) -> Written {
        let _replacing = self.replacing.lock().await;
        self.replace_parallelism(asked).await
    }

    async fn replace_parallelism(&self, asked: Option<AskedParallelism>) -> Written {
        let found = match self.store.read(PARALLELISM).await {
            Ok(found) => found,
            Err(error) => return Written::NotDone(error),
        };
        match (asked, found) {
            (None, None) => Written::Done,
            (None, Some(_)) => self.store.remove(PARALLELISM).await,
            (Some(AskedParallelism { declared, asked }), found) => {
                let expected = found.map_or(Expected::Absent, |f| Expected::Version(f.version));
                let job = self.job.to_string();
                let values = [&*job, &declared.to_string(), &asked.to_string()];
                let bytes = record::PARALLELISM.encode(&values).into();
                self.store.write(PARALLELISM, bytes, expected).await
            }
        }
    }

    /// The parallelism that somebody asked for, if one is recorded.
    pub(crate) async fn asked_parallelism(&self) -> Result<Option<AskedParallelism>, StorageError> {
        let Some(found) = self.store.read(PARALLELISM).await? else {
            return Ok(None);
        };
        let file = self.store.describe(PARALLELISM);
        let values = record::PARALLELISM.decode(&file, &found.bytes)?;
        record::check_job(&file, self.job, &values[0])?;
        Ok(Some(AskedParallelism {
            declared: record::parse_parallelism(&file, &values[1])?,
            asked: record::parse_parallelism(&file, &values[2])?,
        }))
    }

    /// Records that the run of this leader was ended, instead of whichever was before, and that
    /// nobody's parallelism is to be kept.
    pub(crate) async fn record_end(&self, end: &OrderedEnd) -> Written {
        let _replacing = self.replacing.lock().await;
        let ended = Ended {
            epoch: self.store.epoch(),
            end: end.clone(),
            left: false,
        };
        let written = self.replace_end(&ended).await;
        if matches!(written, Written::Done)
            && let Err(error) = self.replace_parallelism(None).await.into_result()
        {
            let error = ErrorChain(&error);
            tracing::warn!(%error, "the parallelism that was asked for is still recorded");
        }
        written
    }

    /// Records that whoever has ended, or found the job ended, has left it: whoever starts it from
    /// now on means to.
    pub(crate) async fn leave_ended(&self) -> Written {
        let _replacing = self.replacing.lock().await;
        match self.ended().await {
            Err(error) => Written::NotDone(error),
            Ok(Some(ended)) if !ended.left => {
                let left = true;
                self.replace_end(&Ended { left, ..ended }).await
            }
            Ok(_) => Written::Done,
        }
    }

    async fn replace_end(&self, ended: &Ended) -> Written {
        let expected = match self.store.read(ENDED).await {
            Ok(found) => found.map_or(Expected::Absent, |f| Expected::Version(f.version)),
            Err(error) => return Written::NotDone(error),
        };
        let bytes = ended.encode(self.job).into();
        self.store.write(ENDED, bytes, expected).await
    }

    /// The last run that somebody has ended, if there is one.
    pub(crate) async fn ended(&self) -> Result<Option<Ended>, StorageError> {
        let Some(found) = self.store.read(ENDED).await? else {
            return Ok(None);
        };
        let file = self.store.describe(ENDED);
        Ended::decode(&file, Some(self.job), &found.bytes).map(Some)
    }

    async fn last_checkpoint(
        &self,
        name: &str,
        kind: &record::RecordKind,
    ) -> Result<Option<(CheckpointId, RecordVersion)>, StorageError> {
        let Some(found) = self.store.read(name).await? else {
            return Ok(None);
        };
        let file = self.store.describe(name);
        let values = kind.decode(&file, &found.bytes)?;
        record::check_job(&file, self.job, &values[0])?;
        let id = record::parse_number(&file, &values[1])?;
        Ok(Some((CheckpointId(id), found.version)))
    }

    pub(crate) async fn record_origin(&self, origin: &Origin) -> Written {
        let bytes = origin.encode(self.job).into();
        self.store.write(ORIGIN, bytes, Expected::Absent).await
    }

    pub(crate) async fn origin(&self) -> Result<Option<Origin>, StorageError> {
        let Some(found) = self.store.read(ORIGIN).await? else {
            return Ok(None);
        };
        let file = self.store.describe(ORIGIN);
        Origin::decode(&file, self.job, &found.bytes).map(Some)
    }

    async fn expect(&self, name: &str) -> Result<Bytes, StorageError> {
        let file = || self.store.describe(name);
        let found = self.store.read(name).await?;
        let found = found.ok_or_else(|| StorageError::Missing { file: file() })?;
        Ok(found.bytes)
    }

    async fn read_counter(&self, name: &str) -> Result<(u64, RecordVersion), StorageError> {
        let file = self.store.describe(name);
        let Some(found) = self.store.read(name).await? else {
            return Err(StorageError::Missing { file });
        };
        let values = record::COUNTER.decode(&file, &found.bytes)?;
        record::check_job(&file, self.job, &values[0])?;
        if values[1] != name {
            let reason = format!("it counts `{}`", values[1]);
            return Err(StorageError::Malformed { file, reason });
        }
        Ok((record::parse_number(&file, &values[2])?, found.version))
    }

    async fn write_counter(&self, name: &str, last: u64, expected: Expected) -> Written {
        let bytes = record::COUNTER.encode(&[&self.job.to_string(), name, &last.to_string()]);
        self.store.write(name, bytes.into(), expected).await
    }
}
