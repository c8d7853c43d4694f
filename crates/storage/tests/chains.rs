//! Beginning from an incremental checkpoint of another namespace: some of its files lie in sibling
//! folders, which stay the other's whatever becomes of the checkpoint.
//!
//! Every test runs on each kind of namespace; the other one is on the disk.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::fs;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};

use support::namespace::{Namespace, on_each};
use support::places::load;
use support::{Place, checkpoint, write};
use tidegate_fault::inject;
use tidegate_storage::{
    CheckpointPointer, ErrorKind, JobStore, RestoreFrom, StorageError, parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CompletedCheckpoint, ErrorChain, FileHandle, KeyedPiece, RestoreMode};

/// The namespace of another job, with `base`, and a newer one that refers to its file, too.
struct Other {
    place: Place,
    base: CompletedCheckpoint,
    newer: CompletedCheckpoint,
}

impl Other {
    fn beside(namespace: &Namespace) -> Other {
        let place = Place::at(&namespace.place.dir.join("others"));
        let store = place.try_open("other").unwrap().0;
        let base = place.complete(&store, 8);
        let changes = write(&store, 9, "count[0]", b"changes");
        let mut newer = checkpoint(&store, 9, vec![changes]);
        refer(&mut newer, base.files().next().unwrap());
        assert_eq!(
            place.run(store.publish_metadata(&newer)),
            WriteOutcome::Done
        );
        let pointer = CheckpointPointer::to(&newer);
        assert_eq!(place.run(store.store_pointer(&pointer)), WriteOutcome::Done);
        Other { place, base, newer }
    }

    fn folder(&self, checkpoint: &CompletedCheckpoint) -> PathBuf {
        self.place.dir.join("other").join(checkpoint.id.to_string())
    }

    /// Claims the newer one for a job in `namespace`.
    fn claimed_by(&self, namespace: &Namespace, store: &JobStore) -> CompletedCheckpoint {
        let folder = self.folder(&self.newer);
        let from = RestoreFrom {
            location: parse_snapshot_path(folder.to_str().unwrap()).unwrap(),
            mode: RestoreMode::Claim,
        };
        let mut resumed = namespace.run(store.resume(Some(&from))).unwrap();
        resumed.completed.remove(0)
    }

    /// The older one is still listed, with all its files.
    fn assert_base_is_whole(&self) {
        let store = self.place.try_open("other").unwrap().0;
        self.place.run(store.verify_files(&self.base)).unwrap();
        assert!(self.folder(&self.base).join("_metadata").exists());
    }
}

/// Puts a piece in a file of another checkpoint before those that `checkpoint` has.
fn refer(checkpoint: &mut CompletedCheckpoint, file: &FileHandle) {
    let mut subtasks = checkpoint.operators[1].subtasks.iter_mut();
    let keyed = subtasks.find_map(|subtask| subtask.keyed.as_mut()).unwrap();
    keyed.pieces.insert(0, KeyedPiece::File(file.clone()));
}

fn files(checkpoint: &CompletedCheckpoint) -> Vec<FileHandle> {
    checkpoint.files().cloned().collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

// BC-12: dropped in two steps, as what shares files is. Its own folder goes, and is settled.
#[test]
fn a_claim_takes_over_its_folder_and_nothing_else() {
    on_each(|namespace| {
        let other = Other::beside(namespace);
        let store = namespace.lead();
        let claimed = other.claimed_by(namespace, &store);
        namespace
            .run(store.drop_completed(&claimed, &files(&claimed)))
            .unwrap();
        namespace.run(store.verify_files(&claimed)).unwrap();
        namespace.run(store.drop_completed(&claimed, &[])).unwrap();
        let folder = other.folder(&other.newer);
        assert!(!folder.exists());
        other.assert_base_is_whole();
        // What comes there later is nobody's leftover.
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.state"), "mine").unwrap();
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert_eq!((report.files, report.folders), (0, 0));
        other.assert_base_is_whole();
    });
}

/// The other job has let go of the older one, but for the file that is shared: that stays, too.
#[test]
fn a_sibling_that_only_the_claimed_one_uses_stays() {
    on_each(|namespace| {
        let other = Other::beside(namespace);
        let theirs = other.place.try_open("other").unwrap().0;
        let shared = files(&other.base);
        let dropped = theirs.drop_completed(&other.base, &shared);
        other.place.run(dropped).unwrap();
        drop(theirs);
        let store = namespace.lead();
        let claimed = other.claimed_by(namespace, &store);
        namespace.run(store.discard_history(&[claimed])).unwrap();
        namespace.run(store.sweep_after_end()).unwrap();
        assert!(!other.folder(&other.newer).exists());
        let left = fs::read_dir(other.folder(&other.base)).unwrap();
        assert_eq!(left.count(), shared.len());
    });
}

// BC-27: the process ends between the two steps, by a crash or in good order.
#[test]
fn a_claimed_chain_is_not_forgotten_between_its_drops() {
    for in_order in [false, true] {
        on_each(|namespace| {
            let other = Other::beside(namespace);
            let mut store = namespace.lead();
            let claimed = other.claimed_by(namespace, &store);
            namespace
                .run(store.drop_completed(&claimed, &files(&claimed)))
                .unwrap();
            assert!(other.folder(&other.newer).exists());
            let found = namespace.run(store.find_orphans(&[])).unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            let swept = if in_order {
                namespace.run(store.sweep_after_end())
            } else {
                store = namespace.lead();
                namespace.run(store.sweep_orphans(&[]))
            };
            assert_eq!(swept.unwrap().files, 1);
            assert!(!other.folder(&other.newer).exists());
            assert_eq!(namespace.orphans(&store, &[]), 0);
            other.assert_base_is_whole();
        });
    }
}

// BC-27: the deletion is cut off before anything but the pointer is gone.
#[test]
fn a_sweep_completes_the_deletion_of_a_claimed_chain_in_its_folder() {
    on_each(|namespace| {
        let other = Other::beside(namespace);
        let store = namespace.lead();
        let claimed = other.claimed_by(namespace, &store);
        let stuck = inject("delete:write", Io::PermissionDenied, 1..100);
        namespace
            .run(store.drop_completed(&claimed, &[]))
            .unwrap_err();
        drop(stuck);
        let store = namespace.lead();
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(!other.folder(&other.newer).exists());
        other.assert_base_is_whole();
    });
}

// BC-12: a sweep between the two steps leaves what a checkpoint of the job still refers to, and
// comes back for it.
#[test]
fn a_sweep_spares_what_is_used_in_a_claimed_folder() {
    on_each(|namespace| {
        let other = Other::beside(namespace);
        let store = namespace.lead();
        let claimed = other.claimed_by(namespace, &store);
        let changes = claimed.files().find(|file| claimed.owns(file)).unwrap();
        let mut live = checkpoint(&store, 10, vec![write(&store, 10, "count[0]", b"more")]);
        refer(&mut live, changes);
        namespace
            .run(store.drop_completed(&claimed, &files(&claimed)))
            .unwrap();
        let both = [live];
        for _ in 0..2 {
            assert_eq!(namespace.orphans(&store, &both), 0);
            let report = namespace.run(store.sweep_orphans(&both)).unwrap();
            assert_eq!(report.files, 0);
            namespace.run(store.verify_files(&both[0])).unwrap();
        }
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert_eq!(report.files, 2, "its own, and that in the claimed folder");
        assert!(!other.folder(&other.newer).exists());
        other.assert_base_is_whole();
    });
}

// FS-08: it says why, and what can be moved; with the siblings it can be restored.
#[test]
fn a_checkpoint_copied_without_its_siblings_is_refused() {
    on_each(|namespace| {
        let other = Other::beside(namespace);
        let [newer, base] = [&other.newer, &other.base].map(|of| other.folder(of));
        let copied = namespace.place.dir.join("copy/chk-9");
        copy(&newer, &copied);
        let error = load(namespace, &copied).unwrap_err();
        assert!(matches!(error, StorageError::MissingSibling { .. }));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = ErrorChain(&error).to_string();
        for part in [
            "copy/chk-8/",
            "copy/chk-9",
            "sibling folders",
            "a savepoint",
        ] {
            assert!(text.contains(part), "{text}");
        }
        copy(&base, &namespace.place.dir.join("copy/chk-8"));
        assert_eq!(load(namespace, &copied).unwrap().id, other.newer.id);
        // One of its own is just missing.
        let own = other.newer.files().find(|file| other.newer.owns(file));
        let name = Path::new(&own.unwrap().name).file_name().unwrap();
        fs::remove_file(copied.join(name)).unwrap();
        let error = load(namespace, &copied).unwrap_err();
        assert!(matches!(error, StorageError::Missing { .. }), "{error}");
    });
}
