//! Files of a job whose records are kept elsewhere: whoever works for its leader finds them, and
//! mistakes no other folder for theirs.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::sync::Arc;

use tidegate_storage::{Candidate, JobStore, MemoryNamespace, RecordStore, StorageError};
use tidegate_types::JobId;
use tokio::runtime::Handle;
use url::Url;

async fn records_of_a_leader(elsewhere: &MemoryNamespace) -> Arc<dyn RecordStore> {
    let election = elsewhere.election();
    let leadership = election.campaign(&Candidate::new("here:1")).await.unwrap();
    leadership.records()
}

fn url(folder: &Path) -> Url {
    Url::from_directory_path(folder).unwrap()
}

async fn attend(folder: &Path, job: JobId) -> Option<JobStore> {
    let folder = url(folder);
    let attended = JobStore::attend(&folder, "job", job, Handle::current());
    attended.await.unwrap()
}

/// Opens it with records in the folder.
async fn open(folder: &Path) -> Result<JobStore, StorageError> {
    let opened = JobStore::open(&url(folder), "job", Handle::current()).await?;
    Ok(opened.0)
}

async fn open_with(folder: &Path, records: Arc<dyn RecordStore>) -> Result<JobStore, StorageError> {
    let opened = JobStore::open_with(&url(folder), records, "job", Handle::current()).await?;
    Ok(opened.0)
}

#[tokio::test]
async fn files_are_found_where_their_leader_has_them_and_nowhere_else() {
    let (shared, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let elsewhere = MemoryNamespace::default();
    let records = records_of_a_leader(&elsewhere).await;
    let leader = open_with(shared.path(), records).await.unwrap();
    let attended = attend(shared.path(), leader.job()).await.unwrap();
    assert_eq!(attended.job(), leader.job());
    assert!(
        attend(shared.path(), JobId(1)).await.is_none(),
        "another job"
    );
    assert!(
        attend(local.path(), leader.job()).await.is_none(),
        "no folder"
    );
    std::fs::create_dir(local.path().join("job")).unwrap();
    assert!(
        attend(local.path(), leader.job()).await.is_none(),
        "an empty folder"
    );
    // Whoever attends owns nothing.
    assert!(attended.reserve_attempt().await.is_err());
}

#[tokio::test]
async fn records_elsewhere_do_not_take_over_the_files_of_another_job() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).await.unwrap());
    let records = records_of_a_leader(&MemoryNamespace::default()).await;
    let error = open_with(folder.path(), records).await.unwrap_err();
    assert!(matches!(error, StorageError::OtherJob { .. }), "{error}");
}

#[tokio::test]
async fn files_of_a_cluster_are_not_opened_without_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = MemoryNamespace::default();
    for _ in 0..2 {
        let records = records_of_a_leader(&elsewhere).await;
        open_with(folder.path(), records).await.unwrap();
    }
    let without = open(folder.path()).await.unwrap();
    let error = without.reserve_attempt().await.unwrap_err();
    assert!(matches!(error, StorageError::Missing { .. }), "{error}");
}
