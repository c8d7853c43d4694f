//! Records as files in a local folder, owned by one process through a lock.
//!
//! The lock is what keeps others out: nobody can take the lead while the leader's process lives,
//! paused or not. The epoch is raised all the same and looked at before every write: a lock file
//! that somebody deleted, or a network file system that forgot a lock, must not let an old leader
//! go on. That look and the write after it are two steps; only the lock makes them one.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use object_store::PutMode;
use tidegate_types::LeaderEpoch;

use super::{Expected, RecordStore, RecordVersion, Versioned, Written};
use crate::error::StorageError;
use crate::folder;
use crate::names::{self, LEADER, LOCK};
use crate::objects::{self, Faults, Objects, blocking};
use crate::record::{self, RECORD_BYTES_MAX};

/// The records in a folder. If this is its leader, the folder is unlocked when this is dropped, or
/// the process ends.
#[derive(Debug)]
pub struct FolderRecords {
    objects: Objects,
    epoch: LeaderEpoch,
    writing: tokio::sync::Mutex<()>,
    _lock: Option<File>,
}

impl FolderRecords {
    /// Creates `folder` if there is none, locks it and raises its epoch.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another handle has it, in this process or another; damage and
    /// IO.
    pub async fn lead(folder: &Path) -> Result<FolderRecords, StorageError> {
        let root: PathBuf = folder.to_owned();
        let lock = blocking(move || own(&root)).await?;
        let objects = Objects::folder(folder)?;
        let epoch = match read_epoch(&objects).await {
            Ok(LeaderEpoch(latest)) => LeaderEpoch(latest + 1),
            Err(StorageError::Missing { .. }) => LeaderEpoch(1),
            Err(other) => return Err(other),
        };
        let bytes = record::LEADER.encode(&[&epoch.0.to_string()]);
        objects
            .put(LEADER, bytes.into(), PutMode::Overwrite, &objects::RECORD)
            .await
            .into_result()?;
        Ok(FolderRecords {
            objects,
            epoch,
            writing: tokio::sync::Mutex::new(()),
            _lock: Some(lock),
        })
    }

    /// Looks into the folder of somebody else, which must exist: nothing is locked or written, and
    /// whatever is written through this handle is rejected, since its epoch is before the first.
    ///
    /// # Errors
    /// If the folder can't be opened.
    pub fn inspect(folder: &Path) -> Result<FolderRecords, StorageError> {
        Ok(FolderRecords {
            objects: Objects::folder(folder)?,
            epoch: LeaderEpoch(0),
            writing: tokio::sync::Mutex::new(()),
            _lock: None,
        })
    }

    async fn check_epoch(&self) -> Result<(), StorageError> {
        let found = read_epoch(&self.objects).await?;
        if found == self.epoch {
            return Ok(());
        }
        Err(StorageError::Fenced {
            record: self.objects.file(LEADER),
            ours: self.epoch,
            found,
        })
    }

    async fn find(&self, name: &str) -> Result<Option<Versioned>, StorageError> {
        match self.objects.get(name, RECORD_BYTES_MAX).await {
            Ok(bytes) => Ok(Some(Versioned {
                version: version_of(&bytes),
                bytes,
            })),
            Err(StorageError::Missing { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// How to write the record, if it is as expected.
    async fn mode(&self, name: &str, expected: Expected) -> Result<PutMode, StorageError> {
        self.check_epoch().await?;
        let Expected::Version(version) = expected else {
            return Ok(PutMode::Create);
        };
        match self.find(name).await? {
            Some(found) if found.version == version => Ok(PutMode::Overwrite),
            _ => Err(StorageError::Conflict {
                file: self.objects.file(name),
            }),
        }
    }

    async fn write_now(&self, name: &str, bytes: Bytes, expected: Expected) -> Written {
        let _writing = self.writing.lock().await;
        match self.mode(name, expected).await {
            Ok(mode) => {
                let faults = Faults::of_record(name);
                self.objects.put(name, bytes, mode, faults).await
            }
            Err(error) => Written::NotDone(error),
        }
    }

    async fn remove_now(&self, name: &str) -> Written {
        let _writing = self.writing.lock().await;
        let removed = async {
            self.check_epoch().await?;
            self.objects.delete(name).await
        };
        if let Err(error) = removed.await {
            return Written::NotDone(error);
        }
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        // Ordering: after a power failure the record must not be back while what depended on its
        // absence has happened.
        match self.objects.sync_folder(folder).await {
            Ok(()) => Written::Done,
            Err(error) => Written::Unknown(error),
        }
    }

    async fn names_in(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        objects::injected("record:list", || self.objects.file(folder))?;
        let path = self.objects.root().join(folder);
        let entries = blocking(move || folder::entries(&path)).await?;
        let names = entries.into_iter().map(|entry| entry.name);
        // What `object_store` leaves behind when it is killed while writing is no record yet.
        Ok(names.filter(|name| !names::is_staging(name)).collect())
    }
}

/// Creates the folder and takes the lock.
fn own(root: &Path) -> Result<File, StorageError> {
    folder::create_durably(&root.join(names::COMPLETED))?;
    folder::lock(&root.join(LOCK))
}

async fn read_epoch(objects: &Objects) -> Result<LeaderEpoch, StorageError> {
    let bytes = objects.get(LEADER, RECORD_BYTES_MAX).await?;
    let file = objects.file(LEADER);
    let values = record::LEADER.decode(&file, &bytes)?;
    record::parse_number(&file, &values[0]).map(LeaderEpoch)
}

/// Under the lock nobody else writes, so the same bytes are the same version.
fn version_of(bytes: &[u8]) -> RecordVersion {
    RecordVersion(format!("{:08x}-{}", crc32c::crc32c(bytes), bytes.len()))
}

impl RecordStore for FolderRecords {
    fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    fn describe(&self, name: &str) -> String {
        self.objects.file(name)
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, StorageError>> {
        self.find(name).boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        self.names_in(folder).boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        bytes: Bytes,
        expected: Expected,
    ) -> BoxFuture<'a, Written> {
        self.write_now(name, bytes, expected).boxed()
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Written> {
        self.remove_now(name).boxed()
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.check_epoch().boxed()
    }
}
