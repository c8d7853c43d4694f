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
use tokio::sync::watch;

use super::election::{
    Candidate, LeaderElection, LeaderInfo, Leadership, Led, LossCause, LossReporter, Term,
};
use super::{Expected, RecordStore, RecordVersion, Versioned, Written};
use crate::error::StorageError;
use crate::objects::{Faults, injected};

/// The durable side of one job, in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryNamespace {
    pub(crate) objects: Arc<InMemory>,
    records: Arc<Mutex<Records>>,
    /// Changes only while the records are locked.
    led: Arc<watch::Sender<Led>>,
}

#[derive(Debug, Default)]
struct Records {
    entries: BTreeMap<String, Versioned>,
    versions: u64,
    /// Tells the latest leader that it no longer is.
    latest: Option<LossReporter>,
}

impl Default for MemoryNamespace {
    fn default() -> MemoryNamespace {
        MemoryNamespace {
            objects: Arc::default(),
            records: Arc::default(),
            led: Arc::new(watch::Sender::new(Led {
                epoch: LeaderEpoch(0),
                leader: None,
            })),
        }
    }
}

impl MemoryNamespace {
    /// Takes the lead over the records, whoever has it: what handles of earlier epochs write from
    /// now on is rejected.
    pub fn lead(&self) -> Arc<dyn RecordStore> {
        let mut records = self.lock();
        let (term, _) = self.take(&mut records, &Candidate::new(""));
        Arc::new(term)
    }

    /// The election of the leader over these records. Somebody who leads does so until it gives
    /// the lead back or drops it, or somebody else [takes it](Self::lead).
    pub fn election(&self) -> Arc<dyn LeaderElection> {
        Arc::new(self.clone())
    }

    fn take(&self, records: &mut Records, candidate: &Candidate) -> (MemoryRecords, LeaderInfo) {
        let LeaderEpoch(latest) = self.led.borrow().epoch;
        let epoch = LeaderEpoch(latest + 1);
        let loss = LossReporter::new();
        if let Some(former) = records.latest.replace(loss.clone()) {
            former.report(LossCause::Deposed { by: epoch });
        }
        let info = LeaderInfo::of(candidate, epoch);
        self.led.send_replace(Led::by(info.clone()));
        let term = MemoryRecords {
            epoch,
            loss,
            namespace: self.clone(),
        };
        (term, info)
    }

    /// Takes the lead if nobody has it.
    fn try_take(&self, candidate: &Candidate) -> Option<Leadership> {
        let mut records = self.lock();
        if self.led.borrow().leader.is_some() {
            return None;
        }
        let (term, info) = self.take(&mut records, candidate);
        let loss = term.loss.loss();
        Some(Leadership::new(info, Arc::new(term), loss))
    }

    fn leader(&self) -> Option<LeaderInfo> {
        self.led.borrow().leader.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaderElection for MemoryNamespace {
    fn campaign<'a>(
        &'a self,
        candidate: &'a Candidate,
    ) -> BoxFuture<'a, Result<Leadership, StorageError>> {
        async move {
            let mut changes = self.led.subscribe();
            loop {
                if let Some(won) = self.try_take(candidate) {
                    return Ok(won);
                }
                let vacant = changes.wait_for(|led| led.leader.is_none());
                vacant.await.expect("this namespace sends the changes");
            }
        }
        .boxed()
    }

    fn peek<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StorageError>> {
        let found = self
            .lock()
            .entries
            .get(name)
            .map(|found| found.bytes.clone());
        ready(Ok(found)).boxed()
    }

    fn current_leader(&self) -> BoxFuture<'_, Result<Option<LeaderInfo>, StorageError>> {
        ready(Ok(self.leader())).boxed()
    }

    fn leader_changed<'a>(
        &'a self,
        known: Option<&'a LeaderInfo>,
    ) -> BoxFuture<'a, Result<Option<LeaderInfo>, StorageError>> {
        async move {
            let mut changes = self.led.subscribe();
            let changed = changes.wait_for(|led| led.leader.as_ref() != known);
            let led = changed.await.expect("this namespace sends the changes");
            Ok(led.leader.clone())
        }
        .boxed()
    }
}

/// A handle on the records of a namespace in memory.
#[derive(Debug)]
struct MemoryRecords {
    epoch: LeaderEpoch,
    loss: LossReporter,
    namespace: MemoryNamespace,
}

impl Drop for MemoryRecords {
    fn drop(&mut self) {
        let _ = self.vacate();
    }
}

impl Term for MemoryRecords {
    fn release(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        ready(self.vacate()).boxed()
    }
}

impl MemoryRecords {
    /// From here on nobody leads.
    fn vacate(&self) -> Result<(), StorageError> {
        let _records = self.namespace.lock();
        self.check_epoch()?;
        self.loss.report(LossCause::Released);
        self.namespace.led.send_modify(|led| led.leader = None);
        Ok(())
    }

    /// Whether this leads; the records are locked.
    fn check_epoch(&self) -> Result<(), StorageError> {
        let found = self.namespace.led.borrow().epoch;
        if found != self.epoch {
            return Err(StorageError::Fenced {
                record: self.describe("leader"),
                ours: self.epoch,
                found,
            });
        }
        match self.loss.has_ended() {
            true => Err(StorageError::Released { ours: self.epoch }),
            false => Ok(()),
        }
    }

    fn write_now(&self, name: &str, bytes: Bytes, expected: &Expected) -> Result<(), StorageError> {
        let mut records = self.namespace.lock();
        self.check_epoch()?;
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
        self.check_epoch()?;
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
        async {
            let _records = self.namespace.lock();
            self.check_epoch()
        }
        .boxed()
    }
}
