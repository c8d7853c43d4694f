//! Errors at the wrong moment: a full disk, answers that get lost, files that can't be deleted.
//!
//! Injections apply to the whole process, so these tests take turns.

mod support;

use std::io::{ErrorKind as Io, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use support::{Place, checkpoint, message_naming, write};
use tidegate_fault::inject;
use tidegate_storage::{CheckpointPointer, ErrorKind, NamespaceStatus, StorageError};
use tidegate_types::ErrorChain;
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, CheckpointId};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that take several parts, or one.
const LENGTHS: [usize; 2] = [100, (8 << 20) + 1];

#[test]
fn a_full_disk_fails_the_state_file_and_leaves_nothing() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    for length in LENGTHS {
        let name = store.state_file_name(AttemptNumber(1), CheckpointId(1), "count[0]");
        let mut writer = store.create_state_file(name.clone());
        writer.write_all(&vec![1; length]).unwrap();
        let full = inject("state-file:write", Io::StorageFull, 0..1);
        let error = writer.finish().unwrap_err();
        assert_eq!(full.remaining(), 0);
        assert_eq!(error.kind(), ErrorKind::Retryable);
        message_naming(&error, &store, &name);
        assert_eq!(std::io::Error::from(error).kind(), Io::StorageFull);
        assert_eq!(place.files(&store), Vec::<String>::new());
    }
    // The job goes on: the next file can be written.
    write(&store, 2, "count[0]", b"state");
}

#[test]
fn a_full_disk_in_the_middle_of_a_file_is_reported_by_the_write() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    let name = store.state_file_name(AttemptNumber(1), CheckpointId(1), "count[0]");
    let mut writer = store.create_state_file(name.clone());
    let _full = inject("state-file:write", Io::StorageFull, 0..1);
    let error = writer.write_all(&vec![1; (8 << 20) + 1]).unwrap_err();
    assert_eq!(error.kind(), Io::StorageFull);
    assert!(error.to_string().contains(&name), "{error}");
    assert!(writer.write_all(b"more").is_err());
    assert!(matches!(
        writer.finish(),
        Err(StorageError::WriterFailed { .. })
    ));
    assert_eq!(place.files(&store), Vec::<String>::new());
}

#[test]
fn a_state_file_with_a_lost_answer_is_deleted_again() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    for length in LENGTHS {
        let name = store.state_file_name(AttemptNumber(1), CheckpointId(1), "count[0]");
        let mut writer = store.create_state_file(name);
        writer.write_all(&vec![1; length]).unwrap();
        let _lost = inject("state-file:reply", Io::TimedOut, 0..1);
        writer.finish().unwrap_err();
        assert_eq!(place.files(&store), Vec::<String>::new());
    }
}

fn cause(outcome: WriteOutcome) -> String {
    match outcome {
        WriteOutcome::NotDone { cause } | WriteOutcome::Unknown { cause } => cause,
        WriteOutcome::Done => panic!("it isn't done"),
    }
}

// ST-11, ST-15
#[test]
fn a_write_that_did_not_happen_is_not_done() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    let old = place.complete(&store, 1);
    let new = checkpoint(&store, 2, vec![write(&store, 2, "count[0]", b"new")]);

    let full = inject("metadata:write", Io::StorageFull, 0..1);
    let outcome = place.run(store.publish_metadata(&new));
    assert!(
        matches!(outcome, WriteOutcome::NotDone { .. }),
        "{outcome:?}"
    );
    let cause = cause(outcome);
    let file = store.folder().join("chk-2/_metadata");
    assert!(cause.contains(file.to_str().unwrap()), "{cause}");
    drop(full);
    assert!(!file.exists());

    assert_eq!(place.run(store.publish_metadata(&new)), WriteOutcome::Done);
    let _full = inject("pointer:write", Io::StorageFull, 0..1);
    let outcome = place.run(store.store_pointer(&CheckpointPointer::to(&new)));
    assert!(
        matches!(outcome, WriteOutcome::NotDone { .. }),
        "{outcome:?}"
    );
    assert_eq!(place.run(store.recover()).unwrap(), [old]);
}

// BC-02, ST-16
#[test]
fn a_lost_answer_is_settled_by_reading_back() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    let new = checkpoint(&store, 1, vec![write(&store, 1, "count[0]", b"new")]);
    let lost = inject("metadata:reply", Io::TimedOut, 0..1);
    assert_eq!(place.run(store.publish_metadata(&new)), WriteOutcome::Done);
    assert_eq!(lost.remaining(), 0);
    let lost = inject("pointer:reply", Io::TimedOut, 0..1);
    assert_eq!(
        place.run(store.store_pointer(&CheckpointPointer::to(&new))),
        WriteOutcome::Done
    );
    assert_eq!(lost.remaining(), 0);
    let lost = inject("record:reply", Io::TimedOut, 0..1);
    let reserved = place.run(store.reserve_ids(CheckpointId(9)));
    assert_eq!((reserved, lost.remaining()), (WriteOutcome::Done, 0));
    assert_eq!(place.run(store.recover()).unwrap(), [new]);
}

// BC-02, ST-16
#[test]
fn what_reading_back_cannot_settle_is_unknown_and_keeps_its_files() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    let new = checkpoint(&store, 1, vec![write(&store, 1, "count[0]", b"new")]);
    let _read = inject("metadata:read-back", Io::PermissionDenied, 0..1);
    let outcome = place.run(store.publish_metadata(&new));
    assert!(
        matches!(outcome, WriteOutcome::Unknown { .. }),
        "{outcome:?}"
    );

    let _lost = inject("pointer:reply", Io::TimedOut, 0..1);
    let _read = inject("pointer:read-back", Io::PermissionDenied, 0..1);
    let outcome = place.run(store.store_pointer(&CheckpointPointer::to(&new)));
    assert!(
        matches!(outcome, WriteOutcome::Unknown { .. }),
        "{outcome:?}"
    );
    assert!(
        cause(outcome).contains("injected"),
        "the cause is the first error"
    );

    // A careless driver takes it for a failure: the pointer protects the files.
    let files: Vec<_> = new.files().cloned().collect();
    let error = place
        .run(store.discard_files(new.id, None, &files, true))
        .unwrap_err();
    assert!(
        matches!(error, StorageError::StillReferenced { .. }),
        "{error}"
    );
    drop(store);
    let store = place.open();
    assert_eq!(
        place.run(store.recover()).unwrap(),
        std::slice::from_ref(&new)
    );
    place.run(store.verify_files(&new)).unwrap();
}

// ID-02
#[test]
fn a_failed_reservation_gives_no_number_out_twice() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    let first = place.run(store.reserve_attempt()).unwrap();
    let unsettled = [
        inject("record:reply", Io::TimedOut, 0..1),
        inject("record:read-back", Io::PermissionDenied, 0..1),
    ];
    place.run(store.reserve_attempt()).unwrap_err();
    drop(unsettled);
    let next = place.run(store.reserve_attempt()).unwrap();
    assert!(
        next > AttemptNumber(first.0 + 1),
        "{next} may have been seen"
    );

    let _full = inject("record:write", Io::StorageFull, 0..1);
    let outcome = place.run(store.reserve_ids(CheckpointId(100)));
    assert!(
        matches!(outcome, WriteOutcome::NotDone { .. }),
        "{outcome:?}"
    );
    assert_eq!(place.run(store.reserved_ids()).unwrap(), CheckpointId::NONE);
}

#[test]
fn a_namespace_that_failed_to_be_created_can_be_created_again() {
    let _turn = turn();
    let place = Place::new();
    // The epoch, the first counter, the second, the identity.
    for write in 0..4 {
        let name = format!("job {write}");
        let full = inject("record:write", Io::StorageFull, write..write + 1);
        let error = place.try_open(&name).unwrap_err();
        assert_eq!((error.kind(), full.remaining()), (ErrorKind::Retryable, 0));
        let (store, status) = place.try_open(&name).unwrap();
        assert_eq!(status, NamespaceStatus::New);
        assert_eq!(
            place.run(store.reserve_attempt()).unwrap(),
            AttemptNumber(1)
        );
    }
}

// ST-18, USER-ASKS 36
#[test]
fn a_checkpoint_whose_pointer_cannot_be_deleted_stays_whole() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    let old = place.complete(&store, 1);
    let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
    let error = place.run(store.drop_completed(&old, &[])).unwrap_err();
    message_naming(&error, &store, "completed/00000000000000000001");
    drop(stuck);
    let new = place.complete(&store, 2);
    assert_eq!(place.run(store.recover()).unwrap(), [old.clone(), new]);
    place.run(store.verify_files(&old)).unwrap();
}

#[test]
fn a_sweep_reports_what_it_could_not_delete_and_goes_on() {
    let _turn = turn();
    let place = Place::new();
    let store = place.open();
    for id in 1..=3 {
        write(&store, id, "count[0]", b"orphan");
    }
    let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
    let report = place.run(store.sweep_orphans(&[])).unwrap();
    assert_eq!(
        (report.files, report.folders, report.failures.len()),
        (2, 2, 1)
    );
    let message = ErrorChain(&report.failures[0]).to_string();
    assert!(
        message.contains("chk-1/") && message.contains("injected"),
        "{message}"
    );
    drop(stuck);
    let report = place.run(store.sweep_orphans(&[])).unwrap();
    assert_eq!((report.files, report.failures.len()), (1, 0));
}
