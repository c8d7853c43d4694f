//! Whose files a namespace holds, where the records that say so are kept elsewhere.
//!
//! A job's records may be in ZooKeeper, or in one object of a bucket; its files are not. So that
//! nobody mistakes a local folder for the one that all machines share, or the files of one job for
//! those of another, the leader leaves the job's identity beside the files, as a folder of records
//! has it anyway. It is written before anything else, and never changed.

use object_store::PutMode;
use tidegate_types::JobId;
use tokio::runtime::Handle;
use url::Url;

use crate::error::StorageError;
use crate::ha::FolderRecords;
use crate::ha::job_records::JobRecords;
use crate::job_store::JobStore;
use crate::names::{self, IDENTITY};
use crate::objects::{self, Objects};
use crate::record::{self, RECORD_BYTES_MAX};

/// Leaves the job's identity beside its files, or finds it there.
///
/// # Errors
/// [`StorageError::OtherJob`] if the files are another job's.
pub(crate) async fn claim(
    objects: &Objects,
    job: JobId,
    job_name: &str,
) -> Result<(), StorageError> {
    if let Some(found) = owner(objects).await? {
        let file = objects.file(IDENTITY);
        return record::check_job(&file, job, &found);
    }
    let bytes = record::JOB.encode(&[&job.to_string(), job_name]);
    let put = objects.put(IDENTITY, bytes.into(), PutMode::Create, &objects::METADATA);
    put.await.into_result()
}

/// The id of the job whose files these are, as text.
async fn owner(objects: &Objects) -> Result<Option<String>, StorageError> {
    match objects.get(IDENTITY, RECORD_BYTES_MAX).await {
        Ok(bytes) => {
            let mut values = record::JOB.decode(&objects.file(IDENTITY), &bytes)?;
            Ok(Some(values.swap_remove(0)))
        }
        Err(StorageError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl JobStore {
    /// The files of `job` for a process that works for its leader: it reads and writes state files
    /// and nothing else, since writes of records and deletions are rejected. `None` if the files
    /// aren't there, or are another job's: then this isn't where the leader has them.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub async fn attend(
        dir: &Url,
        job_name: &str,
        job: JobId,
        runtime: Handle,
    ) -> Result<Option<JobStore>, StorageError> {
        let Some(objects) = objects_of(dir, job_name)? else {
            return Ok(None);
        };
        if owner(&objects).await? != Some(job.to_string()) {
            return Ok(None);
        }
        let records = FolderRecords::of_somebody_else(objects.clone());
        let records = JobRecords::of(&(std::sync::Arc::new(records) as _), job);
        Ok(Some(Self::with(objects, records, runtime)))
    }
}

fn objects_of(dir: &Url, job_name: &str) -> Result<Option<Objects>, StorageError> {
    let job = names::path_safe(job_name);
    #[cfg(feature = "s3")]
    if dir.scheme() == "s3" {
        let location = crate::ha::S3Location::parse(dir.as_str())?;
        return Objects::bucket(&location, &job).map(Some);
    }
    let root = names::directory_of(dir)?.join(job);
    match root.is_dir() {
        true => Objects::folder(&root).map(Some),
        false => Ok(None),
    }
}
