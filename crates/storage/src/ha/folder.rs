//! Records as files in a local folder, owned by one process through a lock.
//!
//! The lock is what keeps others out: nobody can take the lead while the leader's process lives,
//! paused or not. The epoch is raised all the same and looked at before every write: a lock file
//! that somebody deleted, or a network file system that forgot a lock, must not let an old leader
//! go on. That look and the write after it are two steps; only the lock makes them one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use object_store::PutMode;
use tidegate_types::LeaderEpoch;

use super::election::{Candidate, LeaderInfo, Led, LossCause, LossReporter, Term};
use super::{Expected, RecordStore, RecordVersion, Versioned, Written};
use crate::error::StorageError;
use crate::folder;
use crate::names::{self, LEADER, LOCK};
use crate::objects::{self, Faults, Objects, blocking};
use crate::record::RECORD_BYTES_MAX;

/// The records in a folder. If this is its leader, the folder is unlocked when the leadership is
/// released, this is dropped, or the process ends.
#[derive(Debug)]
pub struct FolderRecords {
    objects: Objects,
    epoch: LeaderEpoch,
    writing: tokio::sync::Mutex<()>,
    /// Gone once the leadership was given back.
    lock: Mutex<Option<File>>,
    loss: LossReporter,
}

impl FolderRecords {
    /// Creates `folder` if there is none, locks it and raises its epoch.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another handle has it, in this process or another; damage and
    /// IO.
    pub async fn lead(folder: &Path) -> Result<FolderRecords, StorageError> {
        let led = FolderRecords::lead_as(folder, &Candidate::new("")).await;
        led.map(|(records, _)| records)
    }

    /// As [`lead`](Self::lead), for a leader that others can find.
    pub(super) async fn lead_as(
        folder: &Path,
        candidate: &Candidate,
    ) -> Result<(FolderRecords, LeaderInfo), StorageError> {
        let root: PathBuf = folder.to_owned();
        let lock = blocking(move || own(&root)).await?;
        let objects = Objects::folder(folder)?;
        let epoch = match read_led(&objects).await? {
            Some(Led { epoch, .. }) => LeaderEpoch(epoch.0 + 1),
            None => LeaderEpoch(1),
        };
        let info = LeaderInfo::of(candidate, epoch);
        write_led(&objects, &Led::by(info.clone())).await?;
        Ok((FolderRecords::of(objects, epoch, Some(lock)), info))
    }

    /// Looks into the folder of somebody else, which must exist: nothing is locked or written, and
    /// whatever is written through this handle is rejected, since its epoch is before the first.
    ///
    /// # Errors
    /// If the folder can't be opened.
    pub fn inspect(folder: &Path) -> Result<FolderRecords, StorageError> {
        let objects = Objects::folder(folder)?;
        Ok(FolderRecords::of_somebody_else(objects))
    }

    /// As [`inspect`](Self::inspect), wherever the folder is.
    pub(crate) fn of_somebody_else(objects: Objects) -> FolderRecords {
        FolderRecords::of(objects, LeaderEpoch(0), None)
    }

    fn of(objects: Objects, epoch: LeaderEpoch, lock: Option<File>) -> FolderRecords {
        FolderRecords {
            objects,
            epoch,
            writing: tokio::sync::Mutex::new(()),
            lock: Mutex::new(lock),
            loss: LossReporter::new(),
        }
    }

    pub(super) fn loss(&self) -> &LossReporter {
        &self.loss
    }

    async fn check_epoch(&self) -> Result<(), StorageError> {
        if self.loss.loss().cause() == Some(LossCause::Released) {
            return Err(StorageError::Released { ours: self.epoch });
        }
        let missing = || StorageError::Missing {
            file: self.objects.file(LEADER),
        };
        let found = read_led(&self.objects).await?.ok_or_else(missing)?.epoch;
        if found == self.epoch {
            return Ok(());
        }
        self.loss.report(LossCause::Deposed { by: found });
        Err(StorageError::Fenced {
            record: self.objects.file(LEADER),
            ours: self.epoch,
            found,
        })
    }

    async fn release_now(&self) -> Result<(), StorageError> {
        let _writing = self.writing.lock().await;
        self.check_epoch().await?;
        // Ordering: nothing is written any more before the next leader can be there.
        self.loss.report(LossCause::Released);
        let led = Led {
            epoch: self.epoch,
            leader: None,
        };
        let written = write_led(&self.objects, &led).await;
        let lock = self
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(lock);
        written
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

/// What is recorded of the leadership; `None` if there never was one.
pub(super) async fn read_led(objects: &Objects) -> Result<Option<Led>, StorageError> {
    match objects.get(LEADER, RECORD_BYTES_MAX).await {
        Ok(bytes) => Led::decode(&objects.file(LEADER), &bytes).map(Some),
        Err(StorageError::Missing { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

async fn write_led(objects: &Objects, led: &Led) -> Result<(), StorageError> {
    let bytes = led.encode().into();
    let put = objects.put(LEADER, bytes, PutMode::Overwrite, &objects::RECORD);
    put.await.into_result()
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

impl Term for FolderRecords {
    fn release(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.release_now().boxed()
    }
}
