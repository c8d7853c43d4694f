//! Folders of savepoints, and what is in them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tidegate_storage::{JobStore, StorageError, load_snapshot, parse_checkpoint_dir};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CompletedCheckpoint, SnapshotLocation};

use super::namespace::Namespace;

/// A folder with a name that URLs spell in another way.
pub(crate) fn folder(namespace: &Namespace, name: &str) -> PathBuf {
    namespace.place.dir.join("säve points #1?%41").join(name)
}

pub(crate) fn location(namespace: &Namespace, name: &str) -> SnapshotLocation {
    let path = folder(namespace, name);
    let url = parse_checkpoint_dir(path.to_str().unwrap()).unwrap();
    SnapshotLocation::new(url.as_str())
}

pub(crate) fn load(
    namespace: &Namespace,
    path: &Path,
) -> Result<CompletedCheckpoint, StorageError> {
    let url = parse_checkpoint_dir(path.to_str().unwrap()).unwrap();
    namespace.run(load_snapshot(&url))
}

pub(crate) fn cause(outcome: WriteOutcome) -> String {
    let WriteOutcome::NotDone { cause } = outcome else {
        panic!("{outcome:?}");
    };
    cause
}

pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn verify(namespace: &Namespace, store: &JobStore, snapshot: &CompletedCheckpoint) {
    namespace.run(store.verify_files(snapshot)).unwrap();
    for handle in snapshot.files() {
        let mut reader = store.open_state_file(handle).unwrap();
        reader.verify().unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"state");
    }
}
