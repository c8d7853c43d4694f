//! Namespaces of every kind, which outlive their leaders, for tests that run on each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_storage::{
    Candidate, FolderRecords, JobStore, MemoryNamespace, NamespaceStatus, RecordStore,
    StorageError, parse_checkpoint_dir,
};
use tidegate_types::CompletedCheckpoint;

use super::Place;
use super::meeting::{Remote, remotes};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Folder,
    Memory,
    RecordsInMemory,
    /// In a real service, of whatever kind.
    RecordsElsewhere,
}

/// A namespace that outlives its leaders.
pub(crate) struct Namespace {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    memory: MemoryNamespace,
    remote: Option<Arc<dyn Remote>>,
}

/// Runs `test` on a new namespace of each kind.
pub(crate) fn on_each(test: impl Fn(&Namespace)) {
    let _turn = take_turn();
    for kind in [Kind::Folder, Kind::Memory, Kind::RecordsInMemory] {
        eprintln!("on {kind:?}");
        test(&Namespace::new(kind, None));
    }
}

/// As [`on_each`], and on folders whose records are in each real service, which takes longer.
pub(crate) fn on_each_and_services(test: impl Fn(&Namespace)) {
    on_each(&test);
    let _turn = take_turn();
    for remote in remotes() {
        eprintln!("on {}", remote.kind());
        test(&Namespace::new(Kind::RecordsElsewhere, Some(remote)));
    }
}

/// Injections apply to the whole process.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Namespace {
    fn new(kind: Kind, remote: Option<Arc<dyn Remote>>) -> Namespace {
        Namespace {
            kind,
            place: Place::new(),
            memory: MemoryNamespace::default(),
            remote,
        }
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.place.run(future)
    }

    /// A new namespace of the same kind, in the folder called `name`.
    pub(crate) fn another(&self, name: &str) -> Namespace {
        Namespace {
            kind: self.kind,
            place: Place::at(&self.place.dir.join(name)),
            memory: MemoryNamespace::default(),
            remote: self.remote.clone(),
        }
    }

    /// Takes the lead, also from somebody who still has it. Where a lock forbids that, the lock is
    /// lost: somebody deleted its file.
    pub(crate) fn lead(&self) -> JobStore {
        self.try_lead().unwrap().0
    }

    pub(crate) fn try_lead(&self) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let url = parse_checkpoint_dir(self.place.dir.to_str().unwrap()).unwrap();
        let handle = self.place.runtime.handle().clone();
        match self.kind {
            Kind::Folder => {
                self.lose_lock();
                self.place.try_open("job")
            }
            Kind::Memory => self.run(JobStore::open_in_memory(&self.memory, "job", handle)),
            Kind::RecordsInMemory | Kind::RecordsElsewhere => {
                let records = self.records();
                self.run(JobStore::open_with(&url, records, "job", handle))
            }
        }
    }

    /// Takes the lead over the bare records.
    pub(crate) fn records(&self) -> Arc<dyn RecordStore> {
        if let Some(remote) = &self.remote {
            self.run(remote.lose_leader());
            let election = remote.election();
            let won = self.run(election.campaign(&Candidate::new("")));
            return won.unwrap().records();
        }
        if self.kind != Kind::Folder {
            return self.memory.lead();
        }
        self.lose_lock();
        let folder = self.place.dir.join("job");
        Arc::new(self.run(FolderRecords::lead(&folder)).unwrap())
    }

    fn lose_lock(&self) {
        let _ = std::fs::remove_file(self.place.dir.join("job/lock"));
    }

    pub(crate) fn complete(&self, store: &JobStore, id: u64) -> CompletedCheckpoint {
        self.place.complete(store, id)
    }

    pub(crate) fn recover(&self, store: &JobStore) -> Vec<CompletedCheckpoint> {
        self.run(store.recover()).unwrap()
    }

    /// How many files lie in the namespace besides those of `live`.
    pub(crate) fn orphans(&self, store: &JobStore, live: &[CompletedCheckpoint]) -> usize {
        self.run(store.find_orphans(live)).unwrap().len()
    }
}
