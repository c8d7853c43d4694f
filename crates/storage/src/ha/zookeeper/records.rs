//! The records of a leader: every write is a transaction that checks its epoch.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tidegate_types::LeaderEpoch;
use tokio::task::JoinHandle;
use zookeeper_client::{Client, Error, MultiWriteError, MultiWriter};

use super::{Nodes, is_answer, is_over, over, patiently, persistent};
use crate::error::StorageError;
use crate::ha::election::{Led, LossCause, LossReporter, Term};
use crate::ha::{Expected, RecordStore, RecordVersion, Versioned, Written};
use crate::objects::{Faults, injected};

/// The records of one leader. Its session ends when this is dropped.
#[derive(Debug)]
pub(super) struct ZooKeeperRecords {
    leading: Arc<Leading>,
    watching: JoinHandle<()>,
}

/// A leadership: the session, and the version of the node that fences it.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) client: Client,
    pub(super) nodes: Nodes,
    pub(super) epoch: LeaderEpoch,
    pub(super) epoch_version: i32,
    /// Our node in the election.
    pub(super) candidacy: String,
    pub(super) loss: LossReporter,
}

/// How one try of a transaction ended.
enum Tried {
    Done,
    /// Refused by the node at the second place.
    Refused(Error),
    Failed(StorageError),
    InDoubt(Error),
}

/// What reading back tells about a write in doubt.
enum ReadBack {
    Happened,
    /// What was to be replaced is there as it was, or was replaced by something else.
    DidNot,
    /// Something else is there, and what was there before it isn't known.
    Other,
}

impl ZooKeeperRecords {
    pub(super) fn new(leading: Leading) -> ZooKeeperRecords {
        let leading = Arc::new(leading);
        let watching = tokio::spawn(watch(Arc::clone(&leading)));
        ZooKeeperRecords { leading, watching }
    }
}

impl Drop for ZooKeeperRecords {
    fn drop(&mut self) {
        // Whatever it holds of the session goes with it.
        self.watching.abort();
    }
}

impl Leading {
    fn refuse_released(&self) -> Result<(), StorageError> {
        match self.loss.loss().cause() {
            Some(LossCause::Released) => Err(StorageError::Released { ours: self.epoch }),
            _ => Ok(()),
        }
    }

    fn error(&self, action: &'static str, path: &str, error: Error) -> StorageError {
        self.nodes.error(action, path, error)
    }

    /// A transaction that begins with the check of the epoch.
    fn transaction(&self) -> Result<MultiWriter<'_>, Error> {
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version(&self.nodes.epoch(), self.epoch_version)?;
        Ok(writer)
    }

    /// Tries a transaction whose second operation is on `path`.
    async fn attempt(&self, path: &str, writer: Result<MultiWriter<'_>, Error>) -> Tried {
        let mut writer = match writer {
            Ok(writer) => writer,
            Err(error) => return Tried::Failed(self.error("write", path, error)),
        };
        match writer.commit().await {
            Ok(_) => Tried::Done,
            Err(MultiWriteError::OperationFailed { index: 0, source }) => match source {
                Error::BadVersion | Error::NoNode => Tried::Failed(self.fenced().await),
                other => Tried::Failed(self.error("check", &self.nodes.epoch(), other)),
            },
            Err(MultiWriteError::OperationFailed { source, .. }) => Tried::Refused(source),
            Err(MultiWriteError::RequestFailed { source }) if is_answer(&source) => {
                Tried::Failed(self.error("write", path, source))
            }
            Err(MultiWriteError::RequestFailed { source }) => Tried::InDoubt(source),
        }
    }

    /// Why the epoch isn't ours any more.
    async fn fenced(&self) -> StorageError {
        let path = self.nodes.epoch();
        let file = self.nodes.describe(&path);
        let read = patiently(&self.client, || self.client.get_data(&path)).await;
        let led = match read {
            Ok((bytes, _)) => Led::decode(&file, &bytes),
            Err(error) => Err(self.error("read", &path, error)),
        };
        match led {
            Ok(Led { epoch: found, .. }) if found > self.epoch => {
                self.loss.report(LossCause::Deposed { by: found });
                StorageError::Fenced {
                    record: file,
                    ours: self.epoch,
                    found,
                }
            }
            // Not by a leader: somebody has tampered with it.
            Ok(_) => StorageError::Conflict { file },
            Err(error) => error,
        }
    }

    async fn get(&self, path: &str) -> Result<Option<Versioned>, StorageError> {
        let read = || async {
            // Ordering: the server that answers must have seen all that others have written.
            self.client.sync(path).await?;
            self.client.get_data(path).await
        };
        match patiently(&self.client, read).await {
            Ok((bytes, stat)) => Ok(Some(Versioned {
                bytes: bytes.into(),
                version: version_of(stat.version),
            })),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(self.error("read", path, error)),
        }
    }

    async fn children(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let path = self.nodes.record(folder);
        injected("record:list", || self.nodes.describe(&path))?;
        let list = || async {
            self.client.sync(&path).await?;
            self.client.list_children(&path).await
        };
        match patiently(&self.client, list).await {
            Err(Error::NoNode) => Ok(Vec::new()),
            other => other.map_err(|e| self.error("list", &path, e)),
        }
    }

    fn put(
        &self,
        path: &str,
        bytes: &Bytes,
        expected: Option<i32>,
    ) -> Result<MultiWriter<'_>, Error> {
        let mut writer = self.transaction()?;
        match expected {
            None => writer.add_create(path, bytes, &persistent())?,
            Some(version) => writer.add_set_data(path, bytes, Some(version))?,
        }
        Ok(writer)
    }

    /// Writes until the outcome is known or the session is over. `expected` is a version, or none
    /// if the record must be absent.
    async fn write(&self, path: &str, bytes: &Bytes, expected: Option<i32>) -> Written {
        // A record that is absent after a try in doubt may have been written, and removed by the
        // next leader since. A version that is still there has not been replaced.
        let mut doubted = false;
        loop {
            let put = self.put(path, bytes, expected);
            let refusal = match self.attempt(path, put).await {
                Tried::Done => return Written::Done,
                Tried::Failed(error) if doubted => return Written::Unknown(error),
                Tried::Failed(error) => return Written::NotDone(error),
                Tried::Refused(refusal) => refusal,
                Tried::InDoubt(doubt) if is_over(&self.client) => {
                    return Written::Unknown(self.error("write", path, doubt));
                }
                Tried::InDoubt(doubt) => match self.read_back(path, bytes, expected).await {
                    Ok(ReadBack::Happened) => return Written::Done,
                    Ok(ReadBack::DidNot) => {
                        doubted = expected.is_none();
                        continue;
                    }
                    // By the next leader, but on top of what?
                    Ok(ReadBack::Other) => {
                        return Written::Unknown(self.error("write", path, doubt));
                    }
                    Err(error) => return Written::Unknown(error),
                },
            };
            match refusal {
                Error::NoNode if expected.is_none() => match self.make_parent(path).await {
                    Ok(()) => {}
                    Err(error) => return Written::NotDone(error),
                },
                Error::NoNode | Error::NodeExists | Error::BadVersion => {
                    return self.conflict(path, bytes, expected).await;
                }
                other => return Written::NotDone(self.error("write", path, other)),
            }
        }
    }

    /// A write was refused since the record isn't as expected.
    async fn conflict(&self, path: &str, bytes: &Bytes, expected: Option<i32>) -> Written {
        let file = self.nodes.describe(path);
        match self.read_back(path, bytes, expected).await {
            Ok(ReadBack::Happened) if expected.is_none() => Written::Done,
            Ok(_) => Written::NotDone(StorageError::Conflict { file }),
            Err(error) => Written::NotDone(error),
        }
    }

    async fn read_back(
        &self,
        path: &str,
        bytes: &Bytes,
        expected: Option<i32>,
    ) -> Result<ReadBack, StorageError> {
        let found = self.get(path).await?;
        Ok(match (found, expected) {
            (None, None) => ReadBack::DidNot,
            (Some(found), None) if found.bytes == *bytes => ReadBack::Happened,
            (Some(found), Some(version)) => {
                let replaced = found.version == version_of(version + 1);
                if replaced && found.bytes == *bytes {
                    ReadBack::Happened
                } else if replaced || found.version == version_of(version) {
                    ReadBack::DidNot
                } else {
                    ReadBack::Other
                }
            }
            _ => ReadBack::Other,
        })
    }

    /// Folders are made when they are needed first; an empty one means nothing.
    async fn make_parent(&self, path: &str) -> Result<(), StorageError> {
        let (parent, _) = path.rsplit_once('/').expect("every path is absolute");
        let options = persistent();
        let made = patiently(&self.client, || self.client.mkdir(parent, &options)).await;
        made.map_err(|e| self.error("create", parent, e))
    }

    async fn remove(&self, path: &str) -> Written {
        let mut doubted = false;
        loop {
            let delete = || {
                let mut writer = self.transaction()?;
                writer.add_delete(path, None)?;
                Ok(writer)
            };
            match self.attempt(path, delete()).await {
                Tried::Done | Tried::Refused(Error::NoNode) => return Written::Done,
                Tried::Refused(error) => {
                    return Written::NotDone(self.error("delete", path, error));
                }
                Tried::Failed(error) if doubted => return Written::Unknown(error),
                Tried::Failed(error) => return Written::NotDone(error),
                // Deleting what is gone is done, so it needn't be read back.
                Tried::InDoubt(doubt) if is_over(&self.client) => {
                    return Written::Unknown(self.error("delete", path, doubt));
                }
                Tried::InDoubt(_) => doubted = true,
            }
        }
    }

    async fn confirm(&self) -> Result<(), StorageError> {
        self.refuse_released()?;
        loop {
            let path = self.nodes.epoch();
            match self.attempt(&path, self.transaction()).await {
                Tried::Done => return Ok(()),
                Tried::Failed(error) => return Err(error),
                Tried::Refused(error) => return Err(self.error("check", &path, error)),
                Tried::InDoubt(doubt) if is_over(&self.client) => {
                    return Err(self.error("check", &path, doubt));
                }
                Tried::InDoubt(_) => {}
            }
        }
    }

    async fn release(&self) -> Result<(), StorageError> {
        self.confirm().await?;
        self.loss.report(LossCause::Released);
        // Ordering: nobody is to turn to us when the next one may lead already.
        for path in [self.nodes.leader(), self.candidacy.clone()] {
            let delete = || self.client.delete(&path, None);
            match patiently(&self.client, delete).await {
                Ok(()) | Err(Error::NoNode) => {}
                Err(error) => return Err(self.error("delete", &path, error)),
            }
        }
        Ok(())
    }
}

/// Reports when the leadership ends: the session is over, or `leader` isn't ours any more.
async fn watch(leading: Arc<Leading>) {
    let path = leading.nodes.leader();
    let client = &leading.client;
    loop {
        let watched = patiently(client, || client.check_and_watch_stat(&path)).await;
        match watched {
            Ok((Some(stat), changes)) if stat.ephemeral_owner == client.session_id().0 => {
                tokio::select! {
                    _ = changes.changed() => {}
                    () = over(client) => {}
                }
            }
            Ok(_) => {
                // Reports who it is, if somebody is.
                let _ = leading.confirm().await;
                leading.loss.report(LossCause::Expired);
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "the session of the leader is over");
                leading.loss.report(LossCause::Expired);
                return;
            }
        }
    }
}

fn version_of(version: i32) -> RecordVersion {
    RecordVersion(version.to_string())
}

impl ZooKeeperRecords {
    async fn write_now(&self, name: &str, bytes: Bytes, expected: Expected) -> Written {
        let leading = &self.leading;
        let path = leading.nodes.record(name);
        let (faults, file) = (Faults::of_record(name), || self.describe(name));
        let begun = leading.refuse_released();
        if let Err(error) = begun.and_then(|()| injected(faults.write, file)) {
            return Written::NotDone(error);
        }
        let expected = match expected {
            Expected::Absent => None,
            Expected::Version(RecordVersion(text)) => match text.parse() {
                Ok(version) => Some(version),
                Err(_) => return Written::NotDone(StorageError::Conflict { file: file() }),
            },
        };
        match leading.write(&path, &bytes, expected).await {
            Written::Done => {}
            other => return other,
        }
        // As if the answer had got lost; reading back finds what was written.
        match (
            injected(faults.reply, file),
            injected(faults.read_back, file),
        ) {
            (reported, Err(unreadable)) => Written::Unknown(reported.err().unwrap_or(unreadable)),
            (_, Ok(())) => Written::Done,
        }
    }

    async fn remove_now(&self, name: &str) -> Written {
        let begun = self.leading.refuse_released();
        if let Err(error) = begun.and_then(|()| injected("delete:write", || self.describe(name))) {
            return Written::NotDone(error);
        }
        self.leading.remove(&self.leading.nodes.record(name)).await
    }
}

impl RecordStore for ZooKeeperRecords {
    fn epoch(&self) -> LeaderEpoch {
        self.leading.epoch
    }

    fn describe(&self, name: &str) -> String {
        let nodes = &self.leading.nodes;
        nodes.describe(&nodes.record(name))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, StorageError>> {
        let leading = &self.leading;
        async move { leading.get(&leading.nodes.record(name)).await }.boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        self.leading.children(folder).boxed()
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
        self.leading.confirm().boxed()
    }
}

impl Term for ZooKeeperRecords {
    fn release(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.leading.release().boxed()
    }
}
