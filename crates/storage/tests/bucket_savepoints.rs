//! Savepoints in a bucket, of jobs whose checkpoints are there or elsewhere, and jobs that begin
//! from a snapshot in a bucket.

#![cfg(feature = "s3")]
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use support::places::cause;
use support::s3::{BUCKET, has_bucket};
use support::{Place, checkpoint, savepoint, savepoint_of, write, write_at};
use tidegate_storage::{
    CheckpointPointer, JobStore, RestoreFrom, StorageError, load_snapshot, parse_checkpoint_dir,
    parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, ErrorChain, Owner, RestoreMode, SnapshotLocation,
};

fn url(path: &str) -> String {
    format!("s3://{BUCKET}/{path}")
}

fn at(path: &str) -> SnapshotLocation {
    SnapshotLocation::new(&url(path))
}

/// A job whose namespace is in the bucket.
fn open(place: &Place, job: &str) -> JobStore {
    let dir = parse_checkpoint_dir(&url("checkpoints")).unwrap();
    let opened = JobStore::open(&dir, job, place.runtime.handle().clone());
    place.run(opened).unwrap().0
}

fn load(place: &Place, path: &str) -> Result<CompletedCheckpoint, StorageError> {
    place.run(load_snapshot(&parse_checkpoint_dir(&url(path)).unwrap()))
}

fn complete(place: &Place, store: &JobStore, checkpoint: &CompletedCheckpoint) {
    let published = place.run(store.publish_metadata(checkpoint));
    assert_eq!(published, WriteOutcome::Done);
    let pointed = place.run(store.store_pointer(&CheckpointPointer::to(checkpoint)));
    assert_eq!(pointed, WriteOutcome::Done);
}

fn from(path: &str, mode: RestoreMode) -> RestoreFrom {
    RestoreFrom {
        location: parse_snapshot_path(&url(path)).unwrap(),
        mode,
    }
}

/// Whether all files of a snapshot are there, as they were written.
fn is_whole(store: &JobStore, snapshot: &CompletedCheckpoint) -> bool {
    let verify = |file| store.open_state_file(file).and_then(|file| file.verify());
    snapshot.files().all(|file| verify(file).is_ok())
}

// FS-08, FS-07, BC-12
#[test]
fn a_savepoint_in_a_bucket_is_like_any_other() {
    if !has_bucket("a_savepoint_in_a_bucket_is_like_any_other") {
        return;
    }
    let place = Place::new();
    // Of a job in the bucket, and of one in a folder.
    for (name, store) in [("a", open(&place, "in the bucket")), ("b", place.open())] {
        let path = format!("savepoints/{name}");
        let location = at(&path);
        let prepared = place.run(store.prepare_savepoint(CheckpointId(7), &location));
        assert_eq!(prepared, WriteOutcome::Done);
        // Sent at once, and in several parts.
        let large: Vec<u8> = (0..18_000_000u32).map(|at| (at / 7) as u8).collect();
        let small = write_at(&store, &location, "count[0]", b"state");
        let parts = write_at(&store, &location, "count[1]", &large);
        let made = savepoint_of(&store, 7, &location, vec![small, parts]);
        let message = ErrorChain(&load(&place, &path).unwrap_err()).to_string();
        assert!(message.contains("did not complete"), "{message}");
        let published = place.run(store.publish_metadata(&made));
        assert_eq!(published, WriteOutcome::Done);
        for path in [
            path.clone(),
            format!("{path}/"),
            format!("{path}/_metadata"),
        ] {
            let loaded = load(&place, &path).unwrap();
            assert_eq!(loaded, made);
            assert!(is_whole(&store, &loaded));
            assert_eq!(parse_snapshot_path(&url(&path)).unwrap(), location);
        }
        // What is there is somebody's.
        let again = cause(place.run(store.prepare_savepoint(CheckpointId(8), &location)));
        assert!(again.contains("exists already"), "{again}");
        assert_eq!(place.run(store.recover()).unwrap(), []);
        assert!(place.run(store.find_orphans(&[])).unwrap().is_empty());
    }
    let message = ErrorChain(&load(&place, "savepoints").unwrap_err()).to_string();
    assert!(message.contains("give one of them: `a`, `b`"), "{message}");
    let missing = load(&place, "savepoints/c").unwrap_err();
    assert!(matches!(missing, StorageError::Missing { .. }), "{missing}");
}

// BC-12: what is left of one that failed goes, at once or with the next sweep
#[test]
fn a_failed_savepoint_in_a_bucket_leaves_nothing() {
    if !has_bucket("a_failed_savepoint_in_a_bucket_leaves_nothing") {
        return;
    }
    let place = Place::new();
    let store = open(&place, "job");
    let location = at("savepoints/failed");
    let prepared = place.run(store.prepare_savepoint(CheckpointId(3), &location));
    assert_eq!(prepared, WriteOutcome::Done);
    let known = write_at(&store, &location, "count[0]", b"state");
    let _unknown = write_at(&store, &location, "count[1]", b"nobody has heard of it");
    let known = [known];
    let discarded = store.discard_files(CheckpointId(3), Some(&location), &known, true);
    place.run(discarded).unwrap();
    let orphans = place.run(store.find_orphans(&[])).unwrap();
    assert_eq!(orphans.len(), 1, "{orphans:?}");
    let swept = place.run(store.sweep_orphans(&[])).unwrap();
    assert_eq!((swept.files, swept.failures.len()), (1, 0));
    let gone = load(&place, "savepoints/failed").unwrap_err();
    assert!(matches!(gone, StorageError::Missing { .. }), "{gone}");
    // One that was completed stays, whatever is swept.
    let made = savepoint(&place, &store, 4, &at("savepoints/made"));
    place.run(store.sweep_orphans(&[])).unwrap();
    assert_eq!(load(&place, "savepoints/made").unwrap(), made);
}

#[test]
fn a_job_begins_from_a_snapshot_in_a_bucket_and_leaves_or_owns_it() {
    if !has_bucket("a_job_begins_from_a_snapshot_in_a_bucket_and_leaves_or_owns_it") {
        return;
    }
    let place = Place::new();
    let before = open(&place, "before");
    let state = write(&before, 5, "count[0]", b"state");
    let retained = checkpoint(&before, 5, vec![state]);
    complete(&place, &before, &retained);
    savepoint(&place, &before, 6, &at("savepoints/6"));

    // A checkpoint of another job, which stays that job's.
    let borrower = open(&place, "borrower");
    let origin = from("checkpoints/before/chk-5", RestoreMode::NoClaim);
    let resumed = place.run(borrower.resume(Some(&origin))).unwrap();
    let borrowed = resumed.origin.unwrap();
    assert_eq!(
        (borrowed.id, &resumed.completed[..]),
        (CheckpointId(5), &[][..])
    );
    assert!(is_whole(&borrower, &borrowed));
    let next = checkpoint(&borrower, 9, vec![write(&borrower, 9, "count[0]", b"new")]);
    complete(&place, &borrower, &next);
    place
        .run(borrower.sweep_orphans(std::slice::from_ref(&next)))
        .unwrap();
    place.run(borrower.drop_completed(&next, &[])).unwrap();
    assert_eq!(
        load(&place, "checkpoints/before/chk-5").unwrap().id,
        retained.id
    );
    assert!(is_whole(&before, &retained));

    // A savepoint, which becomes the job's; also of one whose namespace is a folder.
    let owner = place.open();
    let origin = from("savepoints/6", RestoreMode::Claim);
    let resumed = place.run(owner.resume(Some(&origin))).unwrap();
    let [claimed] = &resumed.completed[..] else {
        panic!("{resumed:?}");
    };
    assert_eq!((claimed.id, claimed.owner), (CheckpointId(6), Owner::Job));
    assert!(is_whole(&owner, claimed));
    let again = place.run(owner.resume(None)).unwrap();
    assert_eq!(again.completed, resumed.completed);
    place.run(owner.drop_completed(claimed, &[])).unwrap();
    let gone = load(&place, "savepoints/6").unwrap_err();
    assert!(matches!(gone, StorageError::Missing { .. }), "{gone}");
    assert!(!is_whole(&owner, claimed));
    assert!(place.run(owner.find_orphans(&[])).unwrap().is_empty());
}

#[test]
fn a_namespace_in_a_bucket_can_be_looked_at_while_its_job_runs() {
    if !has_bucket("a_namespace_in_a_bucket_can_be_looked_at_while_its_job_runs") {
        return;
    }
    let place = Place::new();
    let dir = parse_checkpoint_dir(&url("checkpoints")).unwrap();
    let look = |job: &str| {
        let inspected = JobStore::inspect(&dir, job, place.runtime.handle().clone());
        place.run(inspected).unwrap()
    };
    assert!(look("job").is_none());
    let store = open(&place, "job");
    let state = write(&store, 5, "count[0]", b"state");
    let made = checkpoint(&store, 5, vec![state]);
    complete(&place, &store, &made);
    let (seen, _) = look("job").unwrap();
    assert_eq!(seen.job(), store.job());
    let resumed = place.run(seen.preview_resume(None)).unwrap();
    assert_eq!(resumed.completed, std::slice::from_ref(&made));
    assert!(is_whole(&seen, &made));
    // Nothing can be changed by it.
    let dropped = place.run(seen.drop_completed(&made, &[])).unwrap_err();
    assert!(matches!(dropped, StorageError::Fenced { .. }), "{dropped}");
    let pointed = place.run(seen.store_pointer(&CheckpointPointer::to(&made)));
    assert!(
        matches!(pointed, WriteOutcome::NotDone { .. }),
        "{pointed:?}"
    );
    assert_eq!(place.run(store.recover()).unwrap(), [made]);
}
