//! The end of a job's history: what was discarded or finished is never restored again, whatever
//! is cut off or fails after that was recorded.
//!
//! Every test runs on each kind of namespace.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::fs;
use std::io::ErrorKind as Io;
use std::path::Path;

use support::namespace::{Kind, Namespace, on_each};
use support::savepoint;
use tidegate_fault::inject;
use tidegate_storage::{
    CheckpointPointer, ErrorKind, JobStore, MemoryNamespace, NamespaceStatus, RestoreFrom,
    StorageError, parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CheckpointId, CompletedCheckpoint, RestoreMode, SnapshotLocation};

fn location(path: &Path) -> SnapshotLocation {
    parse_snapshot_path(path.to_str().unwrap()).unwrap()
}

/// A savepoint of another job, in the folder called `name`.
fn foreign(namespace: &Namespace, name: &str, mode: RestoreMode) -> RestoreFrom {
    let memory = MemoryNamespace::default();
    let handle = namespace.place.runtime.handle().clone();
    let (other, _) = namespace
        .run(JobStore::open_in_memory(&memory, "other", handle))
        .unwrap();
    let location = location(&namespace.place.dir.join("savepoints").join(name));
    savepoint(&namespace.place, &other, 70, &location);
    RestoreFrom { location, mode }
}

/// Makes a savepoint of the user and a pointer to it.
fn stop_with_savepoint(
    namespace: &Namespace,
    store: &JobStore,
    id: u64,
    name: &str,
) -> CompletedCheckpoint {
    let location = location(&namespace.place.dir.join("savepoints").join(name));
    let stop = savepoint(&namespace.place, store, id, &location);
    let pointer = CheckpointPointer::to(&stop);
    let stored = namespace.run(store.store_pointer(&pointer));
    assert_eq!(stored, WriteOutcome::Done);
    stop
}

/// The pointers that are there, whether they count or not.
fn pointers(namespace: &Namespace) -> usize {
    let records = namespace.records();
    namespace.run(records.list("completed")).unwrap().len()
}

fn assert_starts_empty(namespace: &Namespace, store: &JobStore) {
    for resumed in [
        namespace.run(store.preview_resume(None)).unwrap(),
        namespace.run(store.resume(None)).unwrap(),
    ] {
        assert_eq!((resumed.completed, resumed.origin), (vec![], None));
    }
    let report = namespace.run(store.sweep_orphans(&[])).unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(namespace.orphans(store, &[]), 0);
}

// CO-01, CO-09, ST-12
#[test]
fn a_discarded_history_leaves_what_the_user_owns() {
    on_each(|namespace| {
        let store = namespace.lead();
        let first = namespace.complete(&store, 1);
        let stop = stop_with_savepoint(namespace, &store, 2, "sp-2");
        let last = namespace.complete(&store, 3);
        // In any order.
        let history = [last, stop.clone(), first];
        namespace.run(store.discard_history(&history)).unwrap();
        assert_eq!(namespace.recover(&store), []);
        assert_eq!(namespace.orphans(&store, &[]), 0);
        assert_eq!(pointers(namespace), 0);
        let store = namespace.lead();
        namespace.run(store.verify_files(&stop)).unwrap();
        assert_starts_empty(namespace, &store);
        let next = namespace.run(store.reserved_ids()).unwrap();
        assert!(next >= CheckpointId(3), "{next}");
    });
}

// BC-12, ST-18: nothing is deleted before it is certain that none of it is restored.
#[test]
fn a_history_whose_end_cannot_be_recorded_stays() {
    on_each(|namespace| {
        let store = namespace.lead();
        let history = [namespace.complete(&store, 1), namespace.complete(&store, 2)];
        if namespace.kind == Kind::Folder {
            let full = inject("record:write", Io::StorageFull, 0..1);
            let error = namespace.run(store.discard_history(&history)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Retryable, "{error}");
            drop(full);
        }
        let newer = namespace.lead();
        let error = namespace.run(store.discard_history(&history)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(namespace.recover(&newer), history);
        for checkpoint in &history {
            namespace.run(newer.verify_files(checkpoint)).unwrap();
        }
    });
}

// CO-01, BC-27: the newest are dropped, and the older ones are not.
#[test]
fn an_older_checkpoint_of_a_discarded_history_is_not_restored() {
    on_each(|namespace| {
        if namespace.kind != Kind::Folder {
            return;
        }
        let store = namespace.lead();
        let history: Vec<_> = (1..=3).map(|id| namespace.complete(&store, id)).collect();
        let pointers_before: Vec<_> = (1..=3)
            .map(|id| store.folder().join(format!("completed/{id:020}")))
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
        let error = namespace.run(store.discard_history(&history)).unwrap_err();
        assert!(matches!(error, StorageError::Undeletable { count: 1, .. }));
        assert_eq!(stuck.remaining(), 0);
        drop(stuck);
        assert_eq!(pointers(namespace), 1, "it goes on after a failure");
        let store = namespace.lead();
        assert_eq!(namespace.recover(&store), []);
        // As if it had been cut off right after the record.
        for (bytes, path) in &pointers_before {
            fs::write(path, bytes).unwrap();
        }
        assert_starts_empty(namespace, &store);
        assert_eq!(pointers(namespace), 0);
        let store = namespace.lead();
        assert_eq!(namespace.place.files(&store), ["discarded"]);
        // The history after it counts, and can be discarded in its turn.
        let next = namespace.complete(&store, 4);
        assert_eq!(namespace.recover(&store), std::slice::from_ref(&next));
        namespace.run(store.discard_history(&[next])).unwrap();
        namespace.run(store.discard_history(&history)).unwrap();
        let old = store.folder().join("completed/00000000000000000003");
        fs::write(old, &pointers_before[2].0).unwrap();
        assert_starts_empty(namespace, &store);
    });
}

// SP-13: going back to the origin would repeat everything.
#[test]
fn a_discarded_history_uses_up_its_origin() {
    on_each(|namespace| {
        for mode in RestoreMode::ALL {
            let namespace = &namespace.another(&mode.to_string());
            let from = foreign(namespace, "sp", mode);
            let store = namespace.lead();
            let mut history = namespace.run(store.resume(Some(&from))).unwrap().completed;
            history.push(namespace.complete(&store, 71));
            namespace.run(store.discard_history(&history)).unwrap();
            let store = namespace.lead();
            assert_starts_empty(namespace, &store);
            for completed in [false, true] {
                if completed {
                    namespace.complete(&store, 72);
                }
                for resumed in [
                    namespace.run(store.preview_resume(Some(&from))),
                    namespace.run(store.resume(Some(&from))),
                ] {
                    let error = resumed.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                    assert!(error.to_string().contains("`chk-71`"), "{error}");
                }
            }
            let resumed = namespace.run(store.resume(None)).unwrap();
            assert_eq!(resumed.completed.len(), 1);
            assert_eq!(resumed.checkpoint_max, CheckpointId(72));
        }
    });
}

/// A claimed snapshot that was discarded is the job's to delete, also after a crash.
#[test]
fn a_claimed_snapshot_of_a_discarded_history_is_swept() {
    on_each(|namespace| {
        let from = foreign(namespace, "sp", RestoreMode::Claim);
        let store = namespace.lead();
        let history = namespace.run(store.resume(Some(&from))).unwrap().completed;
        let stuck = inject("delete:write", Io::PermissionDenied, 0..100);
        let folder = namespace.kind == Kind::Folder;
        let discarded = namespace.run(store.discard_history(&history));
        assert!(discarded.is_err(), "{discarded:?}");
        drop(stuck);
        let store = namespace.lead();
        if folder {
            let kept = namespace.place.dir.join("job/completed");
            assert_eq!(fs::read_dir(kept).unwrap().count(), 1);
        }
        assert_starts_empty(namespace, &store);
        assert!(!namespace.place.dir.join("savepoints/sp").exists());
    });
}

// CO-01, BC-27: killed between its marker and the deletions
#[test]
fn a_finished_job_leaves_nothing_but_what_the_user_owns() {
    on_each(|namespace| {
        let from = foreign(namespace, "claimed", RestoreMode::Claim);
        let store = namespace.lead();
        namespace.run(store.resume(Some(&from))).unwrap();
        namespace.complete(&store, 71);
        let stop = stop_with_savepoint(namespace, &store, 72, "sp-72");
        let report = namespace.run(store.sweep_after_end()).unwrap();
        assert_eq!(report.files, 0, "it has not finished");
        assert_eq!(namespace.recover(&store).len(), 3);
        namespace.run(store.mark_finished(stop.id));
        let (store, status) = namespace.try_lead().unwrap();
        let checkpoint = CheckpointId(72);
        assert_eq!(status, NamespaceStatus::Finished { checkpoint });
        let report = namespace.run(store.sweep_after_end()).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(namespace.recover(&store), []);
        assert_eq!(namespace.orphans(&store, &[]), 0);
        assert!(!namespace.place.dir.join("savepoints/claimed").exists());
        assert!(!store.folder().join("chk-71").exists());
        namespace.run(store.verify_files(&stop)).unwrap();
        assert_eq!(pointers(namespace), 0);
    });
}

/// One of unknown outcome may have landed before the job finished anew.
#[test]
fn a_job_is_marked_whatever_an_earlier_marker_says() {
    on_each(|namespace| {
        for id in [4, 4, 9, 7] {
            let store = namespace.lead();
            let marked = namespace.run(store.mark_finished(CheckpointId(id)));
            assert_eq!(marked, WriteOutcome::Done, "{id}");
            let (_, status) = namespace.try_lead().unwrap();
            assert!(matches!(status, NamespaceStatus::Finished { .. }));
        }
    });
}

// SP-10: it is theirs to delete once nothing goes on from it.
#[test]
fn a_savepoint_that_its_user_has_deleted_blocks_nothing() {
    on_each(|namespace| {
        let store = namespace.lead();
        let stop = stop_with_savepoint(namespace, &store, 1, "sp-1");
        let path = namespace.place.dir.join("savepoints/sp-1");
        let aside = path.with_file_name("aside");
        fs::rename(&path, &aside).unwrap();
        let error = namespace.run(store.recover()).unwrap_err();
        let missing = matches!(error, StorageError::UnreadableCheckpoint { .. });
        assert!(missing, "it is the newest: {error}");
        let next = namespace.complete(&store, 2);
        assert_eq!(namespace.recover(&store), std::slice::from_ref(&next));
        // Damaged isn't deleted.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("_metadata"), "x").unwrap();
        let error = namespace.run(store.recover()).unwrap_err();
        assert!(error.to_string().contains("chk-1"), "{error}");
        fs::remove_dir_all(&path).unwrap();
        let resumed = namespace.run(store.resume(None)).unwrap();
        assert_eq!(resumed.completed, std::slice::from_ref(&next));
        namespace.run(store.sweep_orphans(&[next])).unwrap();
        assert_eq!(pointers(namespace), 1);
        fs::rename(&aside, &path).unwrap();
        namespace.run(namespace.lead().verify_files(&stop)).unwrap();
    });
}

// BC-12, SP-13: what is deleted is what was claimed, wherever links lead by then.
#[cfg(unix)]
#[test]
fn a_link_that_leads_to_another_snapshot_deletes_the_claimed_one() {
    on_each(|namespace| {
        let claimed = foreign(namespace, "claimed", RestoreMode::Claim);
        let other = foreign(namespace, "other", RestoreMode::Claim);
        let link = namespace.place.dir.join("link");
        let point = |name: &str| {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(namespace.place.dir.join("savepoints").join(name), &link)
                .unwrap();
        };
        point("claimed");
        let from = RestoreFrom {
            location: location(&link),
            mode: RestoreMode::Claim,
        };
        let store = namespace.lead();
        let resumed = namespace.run(store.resume(Some(&from))).unwrap();
        point("other");
        namespace.complete(&store, 71);
        // The same path may be given again.
        namespace.run(store.resume(Some(&from))).unwrap();
        let subsumed = &resumed.completed[0];
        namespace.run(store.drop_completed(subsumed, &[])).unwrap();
        let exists = |from: &RestoreFrom| {
            let url = url::Url::parse(from.location.as_str()).unwrap();
            url.to_file_path().unwrap().join("_metadata").exists()
        };
        assert!(exists(&other));
        assert!(!exists(&claimed));
    });
}

// BC-12: another snapshot in the very place
#[test]
fn what_replaced_a_claimed_snapshot_is_not_deleted() {
    on_each(|namespace| {
        let from = foreign(namespace, "sp", RestoreMode::Claim);
        let store = namespace.lead();
        let claimed = namespace.run(store.resume(Some(&from))).unwrap().completed;
        namespace.complete(&store, 71);
        let path = namespace.place.dir.join("savepoints/sp");
        fs::remove_dir_all(&path).unwrap();
        foreign(namespace, "sp", RestoreMode::Claim);
        let error = namespace
            .run(store.drop_completed(&claimed[0], &[]))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        let live = namespace.recover(&store);
        assert_eq!(live.len(), 1, "its pointer is gone");
        namespace.run(store.sweep_orphans(&live)).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
    });
}
