//! A namespace in memory: it outlives the handles on it, not the process.
//!
//! For jobs without a checkpoint directory, and for tests: whoever keeps the [`MemoryNamespace`]
//! can take the lead again while an old leader still has its handle, as after a long pause, which
//! no lock on a folder would allow. Every access is one critical section, so a check of the epoch
//! and the write after it can't be torn apart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};
use object_store::memory::InMemory;
use tidegate_types::LeaderEpoch;

use super::{Expected, RecordStore, RecordVersion, Versioned, Written};
use crate::error::StorageError;
use crate::objects::{Faults, injected};

/// The durable side of one job, in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryNamespace {
    pub(crate) objects: Arc<InMemory>,
    records: Arc<Mutex<Records>>,
}

#[derive(Debug)]
struct Records {
    epoch: LeaderEpoch,
    entries: BTreeMap<String, Versioned>,
    versions: u64,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            epoch: LeaderEpoch(0),
            entries: BTreeMap::new(),
            versions: 0,
        }
    }
}

impl MemoryNamespace {
    /// Takes the lead over the records, whoever has it: what handles of earlier epochs write from
    /// now on is rejected.
    pub fn lead(&self) -> Arc<dyn RecordStore> {
        let mut records = self.lock();
        let LeaderEpoch(latest) = records.epoch;
        records.epoch = LeaderEpoch(latest + 1);
        Arc::new(MemoryRecords {
            epoch: records.epoch,
            namespace: self.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle on the records of a namespace in memory.
#[derive(Debug)]
struct MemoryRecords {
    epoch: LeaderEpoch,
    namespace: MemoryNamespace,
}

impl MemoryRecords {
    fn check_epoch(&self, records: &Records) -> Result<(), StorageError> {
        if records.epoch == self.epoch {
            return Ok(());
        }
        Err(StorageError::Fenced {
            record: self.describe("leader"),
            ours: self.epoch,
            found: records.epoch,
        })
    }

    fn write_now(&self, name: &str, bytes: Bytes, expected: &Expected) -> Result<(), StorageError> {
        let mut records = self.namespace.lock();
        self.check_epoch(&records)?;
        let found = records.entries.get(name);
        let as_expected = match expected {
            Expected::Absent if found.is_some_and(|found| found.bytes == bytes) => return Ok(()),
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found.is_some_and(|found| found.version == *version),
        };
        if !as_expected {
            let file = self.describe(name);
            return Err(StorageError::Conflict { file });
        }
        records.versions += 1;
        let version = RecordVersion(records.versions.to_string());
        let entry = Versioned { bytes, version };
        records.entries.insert(name.to_owned(), entry);
        Ok(())
    }

    fn remove_now(&self, name: &str) -> Result<(), StorageError> {
        let mut records = self.namespace.lock();
        self.check_epoch(&records)?;
        injected("delete:write", || self.describe(name))?;
        records.entries.remove(name);
        Ok(())
    }

    /// A write as a store behind a network would see it: it can fail before it takes effect, and
    /// its answer can get lost.
    fn try_write(&self, name: &str, bytes: Bytes, expected: &Expected) -> Written {
        let (faults, file) = (Faults::of_record(name), || self.describe(name));
        let attempt =
            injected(faults.write, file).and_then(|()| self.write_now(name, bytes, expected));
        if let Err(error) = attempt {
            return Written::NotDone(error);
        }
        match (
            injected(faults.reply, file),
            injected(faults.read_back, file),
        ) {
            (reported, Err(unreadable)) => Written::Unknown(reported.err().unwrap_or(unreadable)),
            // Reading back finds what was written.
            (_, Ok(())) => Written::Done,
        }
    }
}

impl RecordStore for MemoryRecords {
    fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    fn describe(&self, name: &str) -> String {
        format!("memory:/{name}")
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, StorageError>> {
        let found = self.namespace.lock().entries.get(name).cloned();
        ready(Ok(found)).boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>> {
        let listed = injected("record:list", || self.describe(folder)).map(|()| {
            let records = self.namespace.lock();
            let names = records.entries.keys();
            names
                .filter_map(|name| name.strip_prefix(folder)?.strip_prefix('/'))
                .map(str::to_owned)
                .collect()
        });
        ready(listed).boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        bytes: Bytes,
        expected: Expected,
    ) -> BoxFuture<'a, Written> {
        // Ordering: when polled, as with every other store, not when called.
        async move { self.try_write(name, bytes, &expected) }.boxed()
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Written> {
        async move {
            match self.remove_now(name) {
                Ok(()) => Written::Done,
                Err(error) => Written::NotDone(error),
            }
        }
        .boxed()
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        async { self.check_epoch(&self.namespace.lock()) }.boxed()
    }
}
