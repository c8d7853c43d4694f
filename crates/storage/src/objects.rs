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
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tidegate_types::ErrorChain;
use tidegate_types::message::WriteOutcome;

use crate::error::StorageError;
use crate::folder;

/// Tries of one operation in all, as long as its errors are transient.
const TRIES_MAX: u32 = 4;
/// Pause before the second try; doubles with each further one.
const PAUSE: Duration = Duration::from_millis(20);

/// The places at which a test can make a write fail, see `tidegate-fault`.
pub(crate) struct Faults {
    write: &'static str,
    reply: &'static str,
    read_back: &'static str,
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

/// How a write ended; see [`WriteOutcome`] for the guarantees.
#[derive(Debug)]
pub(crate) enum Put {
    Done,
    NotDone(StorageError),
    Unknown(StorageError),
}

impl Put {
    /// For callers that give up on anything but success.
    pub(crate) fn into_result(self) -> Result<(), StorageError> {
        match self {
            Put::Done => Ok(()),
            Put::NotDone(error) | Put::Unknown(error) => Err(error),
        }
    }
}

impl From<Put> for WriteOutcome {
    fn from(put: Put) -> WriteOutcome {
        match put {
            Put::Done => WriteOutcome::Done,
            Put::NotDone(error) => WriteOutcome::NotDone {
                cause: ErrorChain(&error).to_string(),
            },
            Put::Unknown(error) => WriteOutcome::Unknown {
                cause: ErrorChain(&error).to_string(),
            },
        }
    }
}

/// The objects below one local folder.
#[derive(Debug)]
pub(crate) struct Objects {
    store: Arc<LocalFileSystem>,
    root: PathBuf,
}

impl Objects {
    /// The objects below `root`, which must exist.
    pub(crate) fn new(root: &LocalPath) -> Result<Objects, StorageError> {
        let file = root.display().to_string();
        let store = LocalFileSystem::new_with_prefix(root)
            .map_err(|e| StorageError::from_object("open the folder", file, e))?;
        Ok(Objects {
            store: Arc::new(store.with_fsync(true)),
            root: root.to_owned(),
        })
    }

    /// The folder that names are relative to.
    pub(crate) fn root(&self) -> &LocalPath {
        &self.root
    }

    /// The store itself, for streaming.
    pub(crate) fn store(&self) -> &Arc<LocalFileSystem> {
        &self.store
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
        match tidegate_fault::fail(fault) {
            Some(source) => Err(StorageError::Io {
                action: "write",
                file: self.file(name),
                source,
            }),
            None => Ok(()),
        }
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
        bytes: Vec<u8>,
        mode: PutMode,
        faults: &Faults,
    ) -> Put {
        if let Err(error) = self.injected(faults.write, name) {
            return Put::NotDone(error);
        }
        let bytes = Bytes::from(bytes);
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
    ) -> Put {
        let read = match self.injected(faults.read_back, name) {
            Ok(()) => self.get(name, expected.len() as u64).await,
            Err(error) => Err(error),
        };
        match (read, reported) {
            (Ok(found), None) if found == expected => Put::Done,
            (Ok(found), Some(_)) if found == expected => match self.sync_folder_of(name).await {
                Ok(()) => Put::Done,
                Err(error) => Put::Unknown(error),
            },
            // Other contents, which may also be longer than ours.
            (Ok(_) | Err(StorageError::Malformed { .. }), reported) => {
                let file = self.file(name);
                Put::NotDone(reported.unwrap_or(StorageError::Conflict { file }))
            }
            (Err(missing @ StorageError::Missing { .. }), reported) => {
                Put::NotDone(reported.unwrap_or(missing))
            }
            (Err(unreadable), reported) => Put::Unknown(reported.unwrap_or(unreadable)),
        }
    }

    async fn sync_folder_of(&self, name: &str) -> Result<(), StorageError> {
        let path = self.root.join(name);
        let folder = path.parent().unwrap_or(&self.root).to_owned();
        blocking(move || folder::sync(&folder)).await
    }

    /// Makes deletions in `folder` durable.
    pub(crate) async fn sync_folder(&self, folder: &str) -> Result<(), StorageError> {
        let folder = self.root.join(folder);
        blocking(move || folder::sync(&folder)).await
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
