//! The election of a leader by the lock on a folder.
//!
//! Whoever has the lock leads; the operating system gives it on the moment its holder ends. There
//! is no call that waits for a lock and can be given up, so candidates try again and again, and
//! whoever wants to know the leader reads its record again and again. Both are a few system calls.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tidegate_types::ErrorChain;

use super::election::{Candidate, LeaderElection, LeaderInfo, Leadership};
use super::folder::{FolderRecords, read_led};
use super::trouble::Trouble;
use crate::error::{ErrorKind, StorageError};
use crate::objects::Objects;

/// Pause between two tries to get the lock, and between two looks at who has it.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause between two looks of the leader at its own record.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

/// The election of a job's leader by the lock on its folder.
#[derive(Debug)]
pub(crate) struct FolderElection {
    folder: PathBuf,
}

impl FolderElection {
    /// The election in `folder`, which needn't exist.
    pub(crate) fn in_folder(folder: &Path) -> FolderElection {
        FolderElection {
            folder: folder.to_owned(),
        }
    }

    async fn win(&self, candidate: &Candidate) -> Result<Leadership, StorageError> {
        let mut trouble = Trouble::default();
        loop {
            match FolderRecords::lead_as(&self.folder, candidate).await {
                Ok((records, info)) => {
                    trouble.on_answer();
                    let records = Arc::new(records);
                    let loss = records.loss().loss();
                    tokio::spawn(watch(Arc::downgrade(&records)));
                    return Ok(Leadership::new(info, records, loss));
                }
                Err(StorageError::Locked { .. }) => trouble.on_answer(),
                Err(error) if error.kind() == ErrorKind::Retryable => {
                    trouble.on_failure("the lead can't be taken", &error);
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn read(&self) -> Result<Option<LeaderInfo>, StorageError> {
        if !self.folder.is_dir() {
            return Ok(None);
        }
        let led = read_led(&Objects::folder(&self.folder)?).await?;
        Ok(led.and_then(|led| led.leader))
    }

    async fn peek_at(&self, name: &str) -> Result<Option<Bytes>, StorageError> {
        if !self.folder.is_dir() {
            return Ok(None);
        }
        let records = FolderRecords::inspect(&self.folder)?;
        let found = super::RecordStore::read(&records, name).await?;
        Ok(found.map(|found| found.bytes))
    }

    async fn change(&self, known: Option<&LeaderInfo>) -> Result<Option<LeaderInfo>, StorageError> {
        loop {
            match self.read().await {
                Ok(found) if found.as_ref() != known => return Ok(found),
                Err(error) if error.kind() != ErrorKind::Retryable => return Err(error),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Looks whether somebody took the lead in spite of the lock, as long as there are records.
async fn watch(records: Weak<FolderRecords>) {
    loop {
        tokio::time::sleep(WATCH_PAUSE).await;
        let Some(records) = records.upgrade() else {
            return;
        };
        // Reports the loss if it sees one.
        let confirmed = super::RecordStore::confirm(&*records).await;
        if records.loss().has_ended() {
            return;
        }
        if let Err(error) = confirmed {
            tracing::debug!(error = %ErrorChain(&error), "the lead can't be confirmed");
        }
    }
}

impl LeaderElection for FolderElection {
    fn campaign<'a>(
        &'a self,
        candidate: &'a Candidate,
    ) -> BoxFuture<'a, Result<Leadership, StorageError>> {
        self.win(candidate).boxed()
    }

    fn peek<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StorageError>> {
        self.peek_at(name).boxed()
    }

    fn current_leader(&self) -> BoxFuture<'_, Result<Option<LeaderInfo>, StorageError>> {
        self.read().boxed()
    }

    fn leader_changed<'a>(
        &'a self,
        known: Option<&'a LeaderInfo>,
    ) -> BoxFuture<'a, Result<Option<LeaderInfo>, StorageError>> {
        self.change(known).boxed()
    }
}
