//! Beginning a job from a snapshot by its path: what is recorded, what is claimed, what is spared.
//!
//! Every test runs on each kind of namespace.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::fs;
use std::io::ErrorKind as Io;
use std::path::PathBuf;

use support::namespace::{Kind, Namespace, on_each};
use support::{Place, checkpoint, savepoint, write};
use tidegate_fault::inject;
use tidegate_storage::{
    ErrorKind, JobStore, MemoryNamespace, RestoreFrom, Resumed, StorageError, parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, ErrorChain, Owner, RestoreMode,
    SnapshotLocation,
};

/// A savepoint that another job has taken, and how to begin from it.
struct Foreign {
    path: PathBuf,
    snapshot: CompletedCheckpoint,
    from: RestoreFrom,
}

fn foreign(namespace: &Namespace, mode: RestoreMode) -> Foreign {
    let memory = MemoryNamespace::default();
    let handle = namespace.place.runtime.handle().clone();
    let (other, _) = namespace
        .run(JobStore::open_in_memory(&memory, "other", handle))
        .unwrap();
    let path = namespace.place.dir.join("savepoints/sp-70");
    let location = parse_snapshot_path(path.to_str().unwrap()).unwrap();
    let snapshot = savepoint(&namespace.place, &other, 70, &location);
    Foreign {
        path,
        snapshot,
        from: RestoreFrom { location, mode },
    }
}

fn resume(namespace: &Namespace, store: &JobStore, from: Option<&RestoreFrom>) -> Resumed {
    namespace.run(store.resume(from)).unwrap()
}

fn message(error: &StorageError) -> String {
    ErrorChain(error).to_string()
}

#[test]
fn a_job_without_origin_goes_on_from_its_own() {
    on_each(|namespace| {
        let store = namespace.lead();
        let nothing = Resumed {
            completed: vec![],
            origin: None,
            checkpoint_max: CheckpointId::NONE,
            attempt_max: AttemptNumber(0),
            asked: None,
        };
        assert_eq!(resume(namespace, &store, None), nothing);
        let completed = vec![namespace.complete(&store, 5)];
        namespace.run(store.reserve_attempt()).unwrap();
        namespace.run(store.reserve_ids(CheckpointId(64)));
        let store = namespace.lead();
        let going_on = Resumed {
            completed,
            origin: None,
            checkpoint_max: CheckpointId(64),
            attempt_max: AttemptNumber(1),
            asked: None,
        };
        assert_eq!(resume(namespace, &store, None), going_on);
        assert_eq!(namespace.run(store.origin()).unwrap(), None);
    });
}

// SP-13, ID-06: with the path or without it, until something completes; then without it
#[test]
fn an_origin_that_is_not_claimed_is_read_and_never_touched() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::NoClaim);
        let from = Some(&foreign.from);
        let store = namespace.lead();
        let preview = namespace.run(store.preview_resume(from)).unwrap();
        assert_eq!(namespace.run(store.origin()).unwrap(), None);
        for given in [from, None, from] {
            let store = namespace.lead();
            let resumed = resume(namespace, &store, given);
            assert_eq!(resumed, preview);
            assert_eq!(resumed.completed, []);
            assert_eq!(resumed.origin.as_ref(), Some(&foreign.snapshot));
            assert_eq!(resumed.checkpoint_max, CheckpointId(70));
            namespace.run(store.sweep_orphans(&[])).unwrap();
        }
        let store = namespace.lead();
        let first = namespace.complete(&store, 71);
        for given in [None, from] {
            let store = namespace.lead();
            let resumed = resume(namespace, &store, given);
            assert_eq!(resumed.completed, std::slice::from_ref(&first));
            assert_eq!(resumed.origin, None);
        }
        // It may go once it is no longer needed.
        let store = namespace.lead();
        namespace
            .run(store.verify_files(&foreign.snapshot))
            .unwrap();
        fs::remove_dir_all(&foreign.path).unwrap();
        assert_eq!(resume(namespace, &store, None).completed, [first]);
    });
}

// SP-13: it is a completed checkpoint of the job from then on, and is deleted like one.
#[test]
fn a_claimed_snapshot_is_subsumed_and_deleted() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::Claim);
        let from = Some(&foreign.from);
        let claimed = CompletedCheckpoint {
            owner: Owner::Job,
            ..foreign.snapshot.clone()
        };
        let store = namespace.lead();
        let preview = namespace.run(store.preview_resume(from)).unwrap();
        assert_eq!(namespace.recover(&store), [], "it is only a preview");
        assert_eq!(namespace.run(store.origin()).unwrap(), None);
        for given in [from, None, from] {
            let store = namespace.lead();
            let resumed = resume(namespace, &store, given);
            assert_eq!(resumed, preview);
            assert_eq!(resumed.completed, std::slice::from_ref(&claimed));
            assert_eq!(resumed.origin, None);
            assert_eq!(resumed.checkpoint_max, CheckpointId(70));
            assert_eq!(namespace.recover(&store), std::slice::from_ref(&claimed));
            let swept = namespace.run(store.sweep_orphans(&resumed.completed));
            assert_eq!(swept.unwrap().files, 0);
            namespace.run(store.verify_files(&claimed)).unwrap();
        }
        let store = namespace.lead();
        let first = namespace.complete(&store, 71);
        namespace.run(store.drop_completed(&claimed, &[])).unwrap();
        assert!(
            !foreign.path.exists(),
            "metadata, files and folder are gone"
        );
        for given in [None, from] {
            let store = namespace.lead();
            let resumed = resume(namespace, &store, given);
            assert_eq!(resumed.completed, std::slice::from_ref(&first));
        }
    });
}

/// A failure or a crash between the record and the pointer is made good by the next start, also by
/// one that doesn't name the snapshot.
#[test]
fn a_claim_that_was_cut_off_is_completed() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::Claim);
        let store = namespace.lead();
        for fault in ["record:write", "pointer:write"] {
            let full = inject(fault, Io::StorageFull, 0..1);
            let error = namespace
                .run(store.resume(Some(&foreign.from)))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Retryable, "{error}");
            assert_eq!(full.remaining(), 0);
            assert_eq!(namespace.recover(&store), []);
            let recorded = namespace.run(store.origin()).unwrap();
            assert_eq!(recorded.is_some(), fault == "pointer:write");
        }
        let store = namespace.lead();
        let resumed = resume(namespace, &store, None);
        assert_eq!(resumed.completed.len(), 1);
        assert_eq!(resumed.completed[0].id, foreign.snapshot.id);
        assert_eq!(resumed.completed[0].owner, Owner::Job);
        assert_eq!(namespace.recover(&store), resumed.completed);
    });
}

// SP-12
#[test]
fn another_origin_or_none_that_fits_is_refused() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::NoClaim);
        let store = namespace.lead();
        resume(namespace, &store, Some(&foreign.from));
        let other_mode = RestoreFrom {
            mode: RestoreMode::Claim,
            ..foreign.from.clone()
        };
        let other_place = RestoreFrom {
            location: SnapshotLocation::new("file:///nowhere"),
            ..foreign.from.clone()
        };
        for other in [other_mode, other_place] {
            let error = namespace.run(store.resume(Some(&other))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            for origin in [&foreign.from, &other] {
                let text = format!("`{}` ({})", origin.location, origin.mode);
                assert!(error.to_string().contains(&text), "{error}");
            }
        }
        let resumed = resume(namespace, &store, None);
        assert_eq!(resumed.origin, Some(foreign.snapshot));
    });
}

#[test]
fn a_job_with_checkpoints_of_its_own_has_no_other_origin() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::Claim);
        let store = namespace.lead();
        let completed = [namespace.complete(&store, 5)];
        let error = namespace
            .run(store.resume(Some(&foreign.from)))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("`chk-5`"), "{error}");
        assert_eq!(namespace.run(store.origin()).unwrap(), None);
        assert_eq!(resume(namespace, &store, None).completed, completed);
    });
}

// FS-08, SP-12: nothing is recorded for a snapshot that isn't there, and one that is lost or
// replaced later is an error rather than an empty start.
#[test]
fn an_origin_that_cannot_be_read_is_named() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::NoClaim);
        let store = namespace.lead();
        let aside = foreign.path.with_file_name("aside");
        let location = foreign.from.location.as_str();
        fs::rename(&foreign.path, &aside).unwrap();
        let error = namespace
            .run(store.resume(Some(&foreign.from)))
            .unwrap_err();
        assert!(message(&error).contains(location), "{error}");
        assert!(message(&error).contains("is missing"), "{error}");
        assert_eq!(namespace.run(store.origin()).unwrap(), None);

        fs::rename(&aside, &foreign.path).unwrap();
        resume(namespace, &store, Some(&foreign.from));
        fs::rename(&foreign.path, &aside).unwrap();
        for given in [Some(&foreign.from), None] {
            let error = namespace.run(store.resume(given)).unwrap_err();
            assert!(message(&error).contains(location), "{error}");
            assert!(message(&error).contains("is missing"), "{error}");
        }
        // Another snapshot in its place.
        savepoint(&namespace.place, &store, 70, &foreign.from.location);
        let error = namespace.run(store.resume(None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        let text = message(&error);
        assert!(text.contains(&foreign.snapshot.job.to_string()), "{text}");
    });
}

/// A damaged record of the origin is no reason to start empty.
#[test]
fn a_damaged_origin_is_named() {
    on_each(|namespace| {
        if namespace.kind != Kind::Folder {
            return;
        }
        let foreign = foreign(namespace, RestoreMode::NoClaim);
        let store = namespace.lead();
        resume(namespace, &store, Some(&foreign.from));
        let path = store.folder().join("origin");
        let mut bytes = fs::read(&path).unwrap();
        bytes[30] ^= 1;
        fs::write(&path, bytes).unwrap();
        for given in [Some(&foreign.from), None] {
            let error = namespace.run(store.resume(given)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(
                error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
        }
    });
}

// BC-12: a sweep of the namespace spares the snapshot it was begun from, should that lie in it.
#[test]
fn an_origin_inside_the_namespace_is_spared() {
    on_each(|namespace| {
        if namespace.kind == Kind::Memory {
            return;
        }
        for mode in RestoreMode::ALL {
            let name = mode.to_string();
            let place = Place::at(&namespace.place.dir.join(&name));
            let (store, _) = place.try_open(&name).unwrap();
            // Its pointer was lost, or deleted on purpose.
            let old = checkpoint(&store, 5, vec![write(&store, 5, "count[0]", b"state")]);
            assert_eq!(place.run(store.publish_metadata(&old)), WriteOutcome::Done);
            write(&store, 5, "late[0]", b"orphan");
            let path = store.folder().join("chk-5");
            let location = parse_snapshot_path(path.to_str().unwrap()).unwrap();
            let from = RestoreFrom { location, mode };
            let resumed = place.run(store.resume(Some(&from))).unwrap();
            let origin = resumed.origin.iter().chain(&resumed.completed).next();
            let origin = origin.unwrap();
            assert_eq!(origin.id, old.id);
            let report = place.run(store.sweep_orphans(&resumed.completed)).unwrap();
            assert_eq!(report.files, 1, "the late file");
            place.run(store.verify_files(origin)).unwrap();
        }
    });
}

// ST-05, CO-01: of a checkpoint of another job that was claimed, too, nothing is left
#[test]
fn a_claimed_checkpoint_of_another_job_is_deleted_in_its_namespace() {
    on_each(|namespace| {
        let place = Place::at(&namespace.place.dir.join("others"));
        let (other, _) = place.try_open("other").unwrap();
        let kept = place.complete(&other, 8);
        let wanted = place.complete(&other, 9);
        drop(other);
        let path = namespace.place.dir.join("others/other/chk-9/_metadata");
        let location = parse_snapshot_path(path.to_str().unwrap()).unwrap();
        let from = RestoreFrom {
            location,
            mode: RestoreMode::Claim,
        };
        let store = namespace.lead();
        let resumed = resume(namespace, &store, Some(&from));
        let [claimed] = &resumed.completed[..] else {
            panic!("{resumed:?}");
        };
        assert_eq!((claimed.id, claimed.job), (wanted.id, wanted.job));
        namespace.run(store.verify_files(claimed)).unwrap();
        namespace.run(store.drop_completed(claimed, &[])).unwrap();
        let folder = namespace.place.dir.join("others/other");
        assert!(!folder.join("chk-9").exists());
        let (other, _) = place.try_open("other").unwrap();
        place.run(other.verify_files(&kept)).unwrap();
    });
}

// BC-27: a claimed snapshot that could be deleted only in part is deleted by the next sweep.
#[test]
fn a_sweep_completes_the_deletion_of_a_claimed_snapshot() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::Claim);
        let store = namespace.lead();
        let claimed = resume(namespace, &store, Some(&foreign.from)).completed;
        // The pointer can be deleted, and nothing after it.
        let stuck = inject("delete:write", Io::PermissionDenied, 1..100);
        let error = namespace
            .run(store.drop_completed(&claimed[0], &[]))
            .unwrap_err();
        assert!(matches!(error, StorageError::Undeletable { .. }), "{error}");
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert_eq!((report.files, report.failures.len()), (0, 1));
        drop(stuck);
        assert_eq!(namespace.recover(&store), []);
        assert!(foreign.path.join("_metadata").exists());
        let store = namespace.lead();
        assert_eq!(namespace.orphans(&store, &[]), 3);
        let report = namespace.run(store.sweep_orphans(&[])).unwrap();
        assert_eq!((report.files, report.folders), (3, 1));
        assert!(!foreign.path.exists());
    });
}

/// As long as its pointer is there it is completed, whatever was begun.
#[test]
fn a_deletion_that_could_not_begin_deletes_nothing() {
    on_each(|namespace| {
        let foreign = foreign(namespace, RestoreMode::Claim);
        let store = namespace.lead();
        let claimed = resume(namespace, &store, Some(&foreign.from)).completed;
        let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
        namespace
            .run(store.drop_completed(&claimed[0], &[]))
            .unwrap_err();
        drop(stuck);
        let store = namespace.lead();
        assert_eq!(namespace.recover(&store), claimed);
        let report = namespace.run(store.sweep_orphans(&claimed)).unwrap();
        assert_eq!(report.files, 0);
        namespace.run(store.verify_files(&claimed[0])).unwrap();
        namespace
            .run(store.drop_completed(&claimed[0], &[]))
            .unwrap();
        assert!(!foreign.path.exists());
    });
}
