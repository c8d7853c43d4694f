//! A namespace in a folder of its own, and checkpoints to put there.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes a test without harness for a program"
)]

pub(crate) mod meeting;
pub(crate) mod namespace;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod proxy;
#[cfg(feature = "s3")]
pub(crate) mod s3;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidegate_storage::{
    CheckpointPointer, JobStore, NamespaceStatus, StorageError, parse_checkpoint_dir,
};
use tidegate_types::ErrorChain;
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, HASH_ID, KeyGroupRange,
    KeyedStateHandle, ListState, MaxParallelism, OperatorCheckpoint, OperatorUid, Owner,
    Redistribution, SnapshotKind, SnapshotLocation, SubtaskState, UnixMillis,
};
use tokio::runtime::Runtime;

/// A checkpoint directory, and a runtime to block on: tests are plain threads, like writers.
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    temporary: Option<TempDir>,
    pub(crate) runtime: Runtime,
}

impl Place {
    /// An empty one that is deleted in the end.
    pub(crate) fn new() -> Place {
        let temporary = tempfile::tempdir().unwrap();
        let mut place = Place::at(temporary.path());
        place.temporary = Some(temporary);
        place
    }

    /// One that somebody else owns.
    pub(crate) fn at(dir: &Path) -> Place {
        Place {
            dir: dir.to_owned(),
            temporary: None,
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    pub(crate) fn try_open(&self, name: &str) -> Result<(JobStore, NamespaceStatus), StorageError> {
        let url = parse_checkpoint_dir(self.dir.to_str().unwrap()).unwrap();
        let handle = self.runtime.handle().clone();
        self.runtime.block_on(JobStore::open(&url, name, handle))
    }

    pub(crate) fn open(&self) -> JobStore {
        self.try_open("job").unwrap().0
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Every file in the job's folder, relative to it, but the lock and those that are always
    /// there.
    pub(crate) fn files(&self, store: &JobStore) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![store.folder().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    let path = entry.path();
                    let name = path.strip_prefix(store.folder()).unwrap();
                    found.push(name.to_str().unwrap().to_owned());
                }
            }
        }
        found.retain(|name| {
            !["lock", "leader", "job", "attempts", "checkpoint-ids"].contains(&&name[..])
        });
        found.sort();
        found
    }

    /// Writes a checkpoint with one state file and completes it.
    pub(crate) fn complete(&self, store: &JobStore, id: u64) -> CompletedCheckpoint {
        let file = write(store, id, "count[0]", b"state");
        let checkpoint = checkpoint(store, id, vec![file]);
        assert_eq!(
            self.run(store.publish_metadata(&checkpoint)),
            WriteOutcome::Done
        );
        assert_eq!(
            self.run(store.store_pointer(&CheckpointPointer::to(&checkpoint))),
            WriteOutcome::Done
        );
        checkpoint
    }
}

pub(crate) fn write(store: &JobStore, id: u64, subtask: &str, bytes: &[u8]) -> FileHandle {
    let name = store.state_file_name(AttemptNumber(1), CheckpointId(id), subtask);
    let mut writer = store.create_state_file(name);
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// Makes a savepoint with two state files in a new folder; no pointer leads to it.
pub(crate) fn savepoint(
    place: &Place,
    store: &JobStore,
    id: u64,
    location: &SnapshotLocation,
) -> CompletedCheckpoint {
    let prepared = place.run(store.prepare_savepoint(CheckpointId(id), location));
    assert_eq!(prepared, WriteOutcome::Done);
    let files = (0..2).map(|index| write_at(store, location, &format!("count[{index}]"), b"state"));
    let savepoint = savepoint_of(store, id, location, files.collect());
    let published = place.run(store.publish_metadata(&savepoint));
    assert_eq!(published, WriteOutcome::Done);
    savepoint
}

pub(crate) fn savepoint_of(
    store: &JobStore,
    id: u64,
    location: &SnapshotLocation,
    files: Vec<FileHandle>,
) -> CompletedCheckpoint {
    CompletedCheckpoint {
        kind: SnapshotKind::StopWithSavepoint { drain: false },
        location: Some(location.clone()),
        owner: Owner::User,
        ..checkpoint(store, id, files)
    }
}

pub(crate) fn write_at(
    store: &JobStore,
    location: &SnapshotLocation,
    subtask: &str,
    bytes: &[u8],
) -> FileHandle {
    let name = store.savepoint_file_name(location, AttemptNumber(1), subtask);
    let mut writer = store.create_state_file(name);
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub(crate) fn checkpoint(store: &JobStore, id: u64, files: Vec<FileHandle>) -> CompletedCheckpoint {
    let keyed = files.into_iter().map(|file| SubtaskState {
        keyed: Some(KeyedStateHandle::of_file(
            file,
            KeyGroupRange { start: 0, end: 127 },
        )),
        ..SubtaskState::default()
    });
    let source = SubtaskState {
        lists: vec![ListState {
            name: "splits".to_owned(),
            redistribution: Redistribution::Split,
            elements: vec![b"split".to_vec()],
        }],
        ..SubtaskState::default()
    };
    let operator = |uid: &str, subtasks| OperatorCheckpoint {
        uid: OperatorUid(uid.to_owned()),
        max_parallelism: MaxParallelism::new(128).unwrap(),
        subtasks,
    };
    let mut operators = vec![operator("source", vec![source])];
    let keyed: Vec<_> = keyed.collect();
    if !keyed.is_empty() {
        operators.push(operator("count", keyed));
    }
    CompletedCheckpoint {
        id: CheckpointId(id),
        job: store.job(),
        attempt: AttemptNumber(1),
        kind: SnapshotKind::Checkpoint,
        location: None,
        owner: Owner::Job,
        triggered_at: UnixMillis(1),
        hash_id: HASH_ID.to_owned(),
        operators,
    }
}

/// The whole message, which must name `file` by its full path.
pub(crate) fn message_naming(error: &StorageError, store: &JobStore, file: &str) -> String {
    let message = ErrorChain(error).to_string();
    let path: PathBuf = store.folder().join(file);
    assert!(
        message.contains(path.to_str().unwrap()),
        "{message} names {file}"
    );
    message
}
