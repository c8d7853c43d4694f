//! What is left of savepoints that were cut off, that failed, or were discarded: nothing that
//! passes for one, and nothing that a sweep doesn't find.
//!
//! Every test runs on each kind of namespace; savepoints of a job in memory lie on the disk, too.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::fs;
use std::io::ErrorKind as Io;

use support::namespace::{Kind, on_each};
use support::places::{cause, folder, load, location, names_in, verify};
use support::{savepoint, savepoint_of, write_at};
use tidegate_fault::inject;
use tidegate_storage::{JobStore, StorageError, parse_checkpoint_dir, parse_snapshot_path};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CheckpointId, SnapshotLocation};

// BC-06, BC-27: whatever a killed process leaves of a savepoint is found by the next sweep, and
// nothing else in that folder is touched.
#[test]
fn a_sweep_finds_what_is_left_of_savepoints() {
    on_each(|namespace| {
        let store = namespace.lead();
        let [cut_off, complete, foreign] = ["sp-1", "sp-2", "sp-3"];
        for (id, name) in [(1, cut_off), (2, complete), (3, foreign)] {
            let here = location(namespace, name);
            namespace.run(store.prepare_savepoint(CheckpointId(id), &here));
            write_at(&store, &here, "count[0]", b"state");
        }
        fs::write(
            folder(namespace, cut_off).join("a1-count.1.state#1"),
            "part",
        )
        .unwrap();
        let made = savepoint_of(&store, 2, &location(namespace, complete), vec![]);
        let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
        let published = namespace.run(store.publish_metadata(&made));
        assert_eq!(published, WriteOutcome::Done);
        assert_eq!(stuck.remaining(), 0, "it is still recorded as being made");
        drop(stuck);
        // Somebody has put another savepoint in the place of the third.
        fs::remove_dir_all(folder(namespace, foreign)).unwrap();
        let elsewhere = savepoint(&namespace.place, &store, 4, &location(namespace, "sp-4"));
        fs::rename(folder(namespace, "sp-4"), folder(namespace, foreign)).unwrap();
        // Not a file of any snapshot.
        let notes = folder(namespace, cut_off).join("notes.txt");
        fs::write(&notes, "mine").unwrap();

        let store = namespace.lead();
        let found = namespace.run(store.find_orphans(&[])).unwrap();
        let here = location(namespace, cut_off);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found
                .iter()
                .all(|orphan| orphan.name.starts_with(here.as_str()))
        );
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!((report.files, report.folders), (2, 0));
        assert_eq!(names_in(&folder(namespace, cut_off)), ["notes.txt"]);
        assert_eq!(names_in(&folder(namespace, complete)).len(), 2);
        let there = load(namespace, &folder(namespace, foreign)).unwrap();
        assert_eq!(there.id, elsewhere.id);
        verify(namespace, &store, &there);
        // It is settled: what comes there later is nobody's leftover.
        fs::write(folder(namespace, cut_off).join("a.state"), "mine").unwrap();
        let again = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert_eq!((again.files, again.folders), (0, 0));
        assert_eq!(names_in(&folder(namespace, cut_off)).len(), 2);
    });
}

#[test]
fn a_folder_that_cannot_be_recorded_is_not_made() {
    on_each(|namespace| {
        let store = namespace.lead();
        let here = location(namespace, "sp-7");
        let full = inject("record:write", Io::StorageFull, 0..1);
        let prepared = namespace.run(store.prepare_savepoint(CheckpointId(7), &here));
        cause(prepared);
        assert_eq!(full.remaining(), 0);
        drop(full);
        assert!(!folder(namespace, "sp-7").exists());
        savepoint(&namespace.place, &store, 7, &here);
    });
}

// BC-06: killed, or failed, between the record and the folder
#[test]
fn a_recorded_folder_that_was_never_made_is_harmless() {
    on_each(|namespace| {
        let store = namespace.lead();
        let here = location(namespace, "sp-7");
        let failing = inject("savepoint:prepare", Io::PermissionDenied, 0..1);
        let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
        cause(namespace.run(store.prepare_savepoint(CheckpointId(7), &here)));
        assert_eq!(failing.remaining(), 0);
        drop(stuck);
        let recorded = |kept: usize| {
            let listed = namespace.records();
            let listed = namespace.run(listed.list("elsewhere")).unwrap();
            assert_eq!(listed.len(), kept);
        };
        if namespace.kind == Kind::Folder {
            recorded(1);
        }
        let store = namespace.lead();
        assert_eq!(namespace.orphans(&store, &[]), 0);
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        recorded(0);
        let store = namespace.lead();
        savepoint(&namespace.place, &store, 7, &here);
    });
}

// BC-06, D16: a discard that is cut off leaves nothing that passes for a savepoint.
#[test]
fn the_metadata_of_a_discarded_savepoint_goes_first() {
    on_each(|namespace| {
        let store = namespace.lead();
        let made = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        let files: Vec<_> = made.files().cloned().collect();
        let path = folder(namespace, "sp-7");
        let discard = |store: &JobStore| {
            let discarded = store.discard_files(made.id, made.location.as_ref(), &files, true);
            namespace.run(discarded).unwrap_err()
        };
        let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
        let error = discard(&store);
        assert!(
            matches!(error, StorageError::Undeletable { count: 3, .. }),
            "{error}"
        );
        drop(stuck);
        verify(namespace, &store, &load(namespace, &path).unwrap());
        let stuck = inject("delete:write", Io::PermissionDenied, 1..100);
        let error = discard(&store);
        assert!(
            matches!(error, StorageError::Undeletable { count: 2, .. }),
            "{error}"
        );
        drop(stuck);
        assert!(!path.join("_metadata").exists());
        let store = namespace.lead();
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert_eq!((report.files, report.folders), (2, 1));
        assert!(!path.exists());
    });
}

// SP-12: the root is a folder like others, though it can't be a savepoint.
#[test]
fn the_root_is_no_place_for_a_savepoint_itself() {
    on_each(|namespace| {
        let store = namespace.lead();
        let url = parse_checkpoint_dir("file:///").unwrap();
        let root = SnapshotLocation::new(url.as_str());
        let prepared = namespace.run(store.prepare_savepoint(CheckpointId(7), &root));
        let text = cause(prepared);
        assert!(text.contains("`/` exists already"), "{text}");
        assert_eq!(parse_snapshot_path("/").unwrap(), root);
        let below = parse_snapshot_path("/savepoint-00000000-7").unwrap();
        assert_eq!(below, root.child("savepoint-00000000-7"));
    });
}
