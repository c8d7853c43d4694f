//! Durable objects of one namespace: whole-file reads, and writes whose outcome is settled.
//!
//! A write that reports an error may have happened all the same. [`Objects::put`] never guesses:
//! it reads the object back. On a local file system an object becomes visible under its name only
//! after its bytes were synced, so if it is there, only its folder has to be synced again.
//!
//! Transient errors are retried a few times before that. Nothing else is: the caller knows better.

use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tidegate_types::ErrorChain;

use crate::error::StorageError;
use crate::folder::{self, Entry};
use crate::ha::Written;
use crate::names::COMPLETED;

/// Tries of one operation in all, as long as its errors are transient.
const TRIES_MAX: u32 = 4;
/// Pause before the second try; doubles with each further one.
const PAUSE: Duration = Duration::from_millis(20);

/// The places at which a test can make a write fail, see `tidegate-fault`.
pub(crate) struct Faults {
    pub(crate) write: &'static str,
    pub(crate) reply: &'static str,
    pub(crate) read_back: &'static str,
}

pub(crate) const METADATA: Faults = Faults {
    write: "metadata:write",
    reply: "metadata:reply",
    read_back: "metadata:read-back",
};
pub(crate) const POINTER: Faults = Faults {
    write: "pointer:write",
    reply: "pointer:reply",
    read_back: "pointer:read-back",
};
pub(crate) const RECORD: Faults = Faults {
    write: "record:write",
    reply: "record:reply",
    read_back: "record:read-back",
};

impl Faults {
    /// Those of a record called `name`.
    pub(crate) fn of_record(name: &str) -> &'static Faults {
        match name.split_once('/') {
            Some((COMPLETED, _)) => &POINTER,
            _ => &RECORD,
        }
    }
}

/// An error that a test has injected here.
pub(crate) fn injected(
    fault: &'static str,
    file: impl FnOnce() -> String,
) -> Result<(), StorageError> {
    match tidegate_fault::fail(fault) {
        Some(source) => Err(StorageError::Io {
            action: "access",
            file: file(),
            source,
        }),
        None => Ok(()),
    }
}

/// The objects below one folder, on a disk or in memory.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    root: PathBuf,
    /// Folders are things of their own: they can be synced, listed and be empty.
    has_folders: bool,
    /// What was sent and not answered may happen later.
    remote: bool,
}

impl Objects {
    /// The objects below the local folder `root`, which must exist.
    pub(crate) fn folder(root: &LocalPath) -> Result<Objects, StorageError> {
        let file = root.display().to_string();
        let store = LocalFileSystem::new_with_prefix(root)
            .map_err(|e| StorageError::from_object("open the folder", file, e))?;
        Ok(Objects {
            store: Arc::new(store.with_fsync(true)),
            root: root.to_owned(),
            has_folders: true,
            remote: false,
        })
    }

    /// Objects in memory.
    pub(crate) fn memory(store: Arc<InMemory>) -> Objects {
        Objects {
            store,
            root: PathBuf::from("memory:"),
            has_folders: false,
            remote: false,
        }
    }

    /// The objects of one job in a bucket.
    #[cfg(feature = "s3")]
    pub(crate) fn bucket(
        location: &crate::ha::S3Location,
        job: &str,
    ) -> Result<Objects, StorageError> {
        Ok(Objects::in_bucket(location.client()?, &location.child(job)))
    }

    /// The objects of a bucket below `location`.
    #[cfg(feature = "s3")]
    pub(crate) fn in_bucket(
        bucket: Arc<dyn ObjectStore>,
        location: &crate::ha::S3Location,
    ) -> Objects {
        Objects {
            store: location.within(bucket),
            root: PathBuf::from(location.to_string()),
            has_folders: false,
            remote: true,
        }
    }

    /// The folder that names are relative to.
    pub(crate) fn root(&self) -> &LocalPath {
        &self.root
    }

    /// Whether they are files in folders of this machine.
    pub(crate) fn has_folders(&self) -> bool {
        self.has_folders
    }

    /// The store itself, for streaming.
    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// Full name of an object, as errors give it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    /// # Errors
    /// If `name`, which may come from another process, isn't a path of plain segments.
    pub(crate) fn path(&self, name: &str) -> Result<Path, StorageError> {
        Path::parse(name).map_err(|e| StorageError::Malformed {
            file: name.to_owned(),
            reason: e.to_string(),
        })
    }

    fn error(
        &self,
        action: &'static str,
        name: &str,
    ) -> impl FnOnce(object_store::Error) -> StorageError + use<> {
        let file = self.file(name);
        move |source| StorageError::from_object(action, file, source)
    }

    /// An error that a test has injected here.
    pub(crate) fn injected(&self, fault: &'static str, name: &str) -> Result<(), StorageError> {
        injected(fault, || self.file(name))
    }

    /// Length of an object in bytes.
    ///
    /// # Errors
    /// [`StorageError::Missing`] if there is none.
    pub(crate) async fn bytes_of(&self, name: &str) -> Result<u64, StorageError> {
        let path = &self.path(name)?;
        let head = || async move {
            let head = self.store.head(path).await;
            head.map_err(self.error("read", name))
        };
        Ok(retry(head).await?.size)
    }

    /// Reads a whole object of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`StorageError::Missing`] if there is none, [`StorageError::Malformed`] if it is larger.
    pub(crate) async fn get(&self, name: &str, bytes_max: u64) -> Result<Bytes, StorageError> {
        let path = &self.path(name)?;
        let get = || async move {
            let found = self
                .store
                .get(path)
                .await
                .map_err(self.error("read", name))?;
            if found.meta.size > bytes_max {
                return Err(StorageError::Malformed {
                    file: self.file(name),
                    reason: format!("it has {} bytes, more than {bytes_max}", found.meta.size),
                });
            }
            found.bytes().await.map_err(self.error("read", name))
        };
        retry(get).await
    }

    /// Creates an object that must not exist yet, without settling an unclear outcome.
    pub(crate) async fn create(&self, name: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.put_once(name, bytes, PutMode::Create).await
    }

    async fn put_once(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<(), StorageError> {
        let (path, bytes, mode) = (&self.path(name)?, &bytes, &mode);
        let put = || async move {
            let payload = PutPayload::from_bytes(bytes.clone());
            let options = PutOptions::from(mode.clone());
            let put = self.store.put_opts(path, payload, options).await;
            put.map(|_| ()).map_err(self.error("write", name))
        };
        retry(put).await
    }

    /// Writes an object and settles the outcome by reading it back, whatever the write reported.
    ///
    /// With [`PutMode::Create`], an object that is there already with the same bytes counts as
    /// done: this process owns the namespace, so it was written here.
    pub(crate) async fn put(
        &self,
        name: &str,
        bytes: Bytes,
        mode: PutMode,
        faults: &Faults,
    ) -> Written {
        if let Err(error) = self.injected(faults.write, name) {
            return Written::NotDone(error);
        }
        let written = self.put_once(name, bytes.clone(), mode).await;
        let reported = written.and_then(|()| self.injected(faults.reply, name));
        self.settle(name, &bytes, reported.err(), faults).await
    }

    async fn settle(
        &self,
        name: &str,
        expected: &Bytes,
        reported: Option<StorageError>,
        faults: &Faults,
    ) -> Written {
        let read = match self.injected(faults.read_back, name) {
            Ok(()) => self.get(name, expected.len() as u64).await,
            Err(error) => Err(error),
        };
        match (read, reported) {
            (Ok(found), None) if found == expected => Written::Done,
            (Ok(found), Some(_)) if found == expected => match self.sync_folder_of(name).await {
                Ok(()) => Written::Done,
                Err(error) => Written::Unknown(error),
            },
            // Other contents, which may also be longer than ours.
            (Ok(_) | Err(StorageError::Malformed { .. }), reported) => {
                let file = self.file(name);
                Written::NotDone(reported.unwrap_or(StorageError::Conflict { file }))
            }
            (Err(StorageError::Missing { .. }), Some(reported))
                if self.remote && !matches!(reported, StorageError::Conflict { .. }) =>
            {
                Written::Unknown(reported)
            }
            (Err(missing @ StorageError::Missing { .. }), reported) => {
                Written::NotDone(reported.unwrap_or(missing))
            }
            (Err(unreadable), reported) => Written::Unknown(reported.unwrap_or(unreadable)),
        }
    }

    async fn sync_folder_of(&self, name: &str) -> Result<(), StorageError> {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.sync_folder(folder).await
    }

    /// Makes additions and deletions in `folder` durable.
    pub(crate) async fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        if !self.has_folders {
            return Ok(());
        }
        let folder = self.root.join(folder);
        blocking(move || folder::sync(&folder)).await
    }

    /// Deletes an empty folder and says whether it did.
    pub(crate) async fn remove_if_empty(&self, folder: &str) -> Result<bool, StorageError> {
        if !self.has_folders {
            return Ok(false);
        }
        let folder = self.root.join(folder);
        blocking(move || folder::remove_if_empty(&folder)).await
    }

    /// Deletes something that was found by [`entries`](Self::entries), which may have a name that
    /// `object_store` hides.
    pub(crate) async fn delete_entry(&self, name: &str, path: PathBuf) -> Result<(), StorageError> {
        if !self.has_folders {
            return self.delete(name).await;
        }
        self.injected("delete:write", name)?;
        let removed = blocking(move || Ok(std::fs::remove_file(path))).await?;
        removed.map_err(|source| StorageError::Io {
            action: "delete",
            file: self.file(name),
            source,
        })
    }

    /// What lies directly in `folder`, by name; nothing if there is no such folder.
    pub(crate) async fn entries(&self, folder: &str) -> Result<Vec<Entry>, StorageError> {
        if self.has_folders {
            let folder = self.root.join(folder);
            return blocking(move || folder::entries(&folder)).await;
        }
        let prefix = self.path(folder)?;
        let listed = self.store.list_with_delimiter(Some(&prefix));
        let listed = listed.await.map_err(self.error("list", folder))?;
        let entry = |path: &Path, is_folder, bytes| Entry {
            path: self.root.join(path.as_ref()),
            name: path.filename().unwrap_or_default().to_owned(),
            is_folder,
            bytes,
        };
        let folders = listed.common_prefixes.iter().map(|p| entry(p, true, 0));
        let files = listed.objects.iter();
        let files = files.map(|file| entry(&file.location, false, file.size));
        Ok(folders.chain(files).collect())
    }

    /// Deletes an object; one that is gone already is fine.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), StorageError> {
        self.injected("delete:write", name)?;
        let path = &self.path(name)?;
        let delete = || async move {
            let deleted = self.store.delete(path).await;
            deleted.map_err(self.error("delete", name))
        };
        match retry(delete).await {
            Err(StorageError::Missing { .. }) => Ok(()),
            other => other,
        }
    }
}

/// Runs blocking work beside the asynchronous tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(StorageError::TaskLost)?
}

/// Repeats `operation` while it fails for transient reasons, a bounded number of times.
async fn retry<T, F: Future<Output = Result<T, StorageError>>>(
    operation: impl Fn() -> F,
) -> Result<T, StorageError> {
    let mut pause = PAUSE;
    for _ in 1..TRIES_MAX {
        match operation().await {
            Err(error) if error.is_transient() => {
                tracing::debug!(error = %ErrorChain(&error), "storage operation is tried again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
    operation().await
}
