//! Completed checkpoints: recovered in order, never skipped, dropped without dangling pointers.

mod support;

use std::fs;
use std::path::PathBuf;

use support::{Place, checkpoint, message_naming, write};
use tidegate_storage::{CheckpointPointer, ErrorKind, JobStore, StorageError};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CheckpointId, CompletedCheckpoint, JobId, KeyedPiece};

fn ids(checkpoints: &[CompletedCheckpoint]) -> Vec<u64> {
    checkpoints
        .iter()
        .map(|checkpoint| checkpoint.id.0)
        .collect()
}

// ST-02, ST-08, ZK-01
#[test]
fn checkpoints_are_recovered_by_number() {
    let place = Place::new();
    let store = place.open();
    assert_eq!(place.run(store.recover()).unwrap(), []);
    let written: Vec<_> = [10, 9, 11, 100].map(|id| place.complete(&store, id)).into();
    let recovered = place.run(store.recover()).unwrap();
    assert_eq!(ids(&recovered), [9, 10, 11, 100]);
    assert!(
        written
            .iter()
            .all(|checkpoint| recovered.contains(checkpoint))
    );
    for checkpoint in &recovered {
        place.run(store.verify_files(checkpoint)).unwrap();
    }
}

/// What is broken, and what the message says about it.
type Damage = (
    fn(&JobStore) -> PathBuf,
    fn(&PathBuf),
    ErrorKind,
    &'static str,
);

// ST-09
#[test]
fn an_unreadable_checkpoint_is_an_error_not_a_fallback() {
    let metadata = |store: &JobStore| store.folder().join("chk-3/_metadata");
    let pointer = |store: &JobStore| store.folder().join("completed/00000000000000000003");
    let older = |store: &JobStore| store.folder().join("chk-2/_metadata");
    let remove = |path: &PathBuf| fs::remove_file(path).unwrap();
    let flip = |path: &PathBuf| {
        let mut bytes = fs::read(path).unwrap();
        let last = bytes.len() - 4;
        bytes[last] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let cut = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    };
    let swap = |path: &PathBuf| {
        let other = path
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("chk-1/_metadata");
        fs::copy(other, path).unwrap();
    };
    let empty = |path: &PathBuf| fs::write(path, "").unwrap();
    let damages: [Damage; 9] = [
        (metadata, remove, ErrorKind::Corrupt, "is missing"),
        (metadata, flip, ErrorKind::Corrupt, "CRC-32C"),
        (metadata, cut, ErrorKind::Corrupt, "truncated"),
        (metadata, empty, ErrorKind::Corrupt, "0 left"),
        (metadata, swap, ErrorKind::Corrupt, "metadata of `chk-1`"),
        (older, remove, ErrorKind::Corrupt, "is missing"),
        (pointer, flip, ErrorKind::Corrupt, "is damaged"),
        (
            pointer,
            cut,
            ErrorKind::Corrupt,
            "doesn't end with a checksum",
        ),
        (
            pointer,
            empty,
            ErrorKind::Corrupt,
            "doesn't end with a checksum",
        ),
    ];
    for (path, damage, kind, text) in damages {
        let place = Place::new();
        let store = place.open();
        (1..=3).for_each(|id| drop(place.complete(&store, id)));
        let path = path(&store);
        damage(&path);
        let error = place.run(store.recover()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let message = message_naming(&error, &store, path.to_str().unwrap());
        assert!(message.contains(text), "{message}");
        assert!(
            message.contains("how to fall back to an older checkpoint"),
            "{message}"
        );
    }
}

#[test]
fn following_the_advice_falls_back_to_the_older_checkpoint() {
    let place = Place::new();
    let store = place.open();
    (1..=2).for_each(|id| drop(place.complete(&store, id)));
    fs::remove_file(store.folder().join("chk-2/_metadata")).unwrap();
    let Err(StorageError::UnreadableCheckpoint { pointer, .. }) = place.run(store.recover()) else {
        panic!("chk-2 has lost its metadata");
    };
    fs::remove_file(pointer).unwrap();
    let recovered = place.run(store.recover()).unwrap();
    assert_eq!(ids(&recovered), [1]);
    place.run(store.sweep_orphans(&recovered)).unwrap();
    assert!(!store.folder().join("chk-2").exists());
}

/// Checksums that fit, text that isn't what this crate writes.
#[test]
fn pointers_have_one_form() {
    let place = Place::new();
    let store = place.open();
    place.complete(&store, 3);
    let job = store.job().to_string();
    let name = "completed/00000000000000000003";
    for (job, id, reason) in [
        (&job, "03", "`03` is no decimal number"),
        (&job, "+3", "`+3` is no decimal number"),
        (&job, "4", "it points to `chk-4`"),
        (&job, "%33", "canonical form"),
        (&format!("{:X}", u128::MAX), "3", "is no job id"),
    ] {
        let text = format!("tidegate-pointer 1\njob {job}\ncheckpoint {id}\n");
        let sum = crc32c::crc32c(text.as_bytes());
        fs::write(
            store.folder().join(name),
            format!("{text}crc32c {sum:08x}\n"),
        )
        .unwrap();
        let error = place.run(store.recover()).unwrap_err();
        let message = message_naming(&error, &store, name);
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_stray_file_among_the_pointers_is_named() {
    let place = Place::new();
    let store = place.open();
    fs::write(store.folder().join("completed/3"), "").unwrap();
    let error = place.run(store.recover()).unwrap_err();
    message_naming(&error, &store, "completed/3");
}

#[test]
fn a_checkpoint_of_another_job_is_refused() {
    let place = Place::new();
    let store = place.open();
    let (other, _) = place.try_open("other").unwrap();
    place.complete(&other, 1);
    place.complete(&store, 1);
    fs::copy(
        other.folder().join("chk-1/_metadata"),
        store.folder().join("chk-1/_metadata"),
    )
    .unwrap();
    let error = place.run(store.recover()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let message = message_naming(&error, &store, "chk-1/_metadata");
    assert!(
        message.contains(&format!("belongs to job `{}`", other.job())),
        "{message}"
    );
}

// FS-07
#[test]
fn metadata_is_never_overwritten() {
    let place = Place::new();
    let store = place.open();
    let first = place.complete(&store, 1);
    // The same again is the same write, repeated.
    assert_eq!(
        place.run(store.publish_metadata(&first)),
        WriteOutcome::Done
    );
    assert_eq!(
        place.run(store.store_pointer(&CheckpointPointer::to(&first))),
        WriteOutcome::Done
    );
    for files in [vec![], vec![write(&store, 1, "count[1]", b"other"); 3]] {
        let outcome = place.run(store.publish_metadata(&checkpoint(&store, 1, files)));
        let WriteOutcome::NotDone { cause } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(
            cause.contains("exists already with other contents"),
            "{cause}"
        );
    }
    assert_eq!(place.run(store.recover()).unwrap(), [first]);
}

// CO-01, FS-12
#[test]
fn dropping_removes_pointer_metadata_files_and_folder() {
    let place = Place::new();
    let store = place.open();
    let old = place.complete(&store, 1);
    let new = place.complete(&store, 2);
    place.run(store.drop_completed(&old, &[])).unwrap();
    assert!(!store.folder().join("chk-1").exists());
    assert_eq!(
        place.run(store.recover()).unwrap(),
        std::slice::from_ref(&new)
    );
    place.run(store.verify_files(&new)).unwrap();
    // Again: everything is gone already.
    place.run(store.drop_completed(&old, &[])).unwrap();
}

// USER-ASKS 36
#[test]
fn an_undeletable_file_does_not_keep_the_others() {
    let place = Place::new();
    let store = place.open();
    let files: Vec<_> = (0..3)
        .map(|_| write(&store, 1, "count[0]", b"state"))
        .collect();
    let old = checkpoint(&store, 1, files.clone());
    place.run(store.publish_metadata(&old));
    place.run(store.store_pointer(&CheckpointPointer::to(&old)));
    // A folder can't be deleted as a file, not even by root.
    let stuck = store.folder().join(&files[1].name);
    fs::remove_file(&stuck).unwrap();
    fs::create_dir(&stuck).unwrap();

    let error = place.run(store.drop_completed(&old, &[])).unwrap_err();
    assert!(
        matches!(error, StorageError::Undeletable { count: 1, .. }),
        "{error}"
    );
    message_naming(&error, &store, &files[1].name);
    assert_eq!(place.files(&store), Vec::<String>::new());
    assert_eq!(place.run(store.recover()).unwrap(), []);
    fs::remove_dir(&stuck).unwrap();
    place.run(store.drop_completed(&old, &[])).unwrap();
    assert!(!store.folder().join("chk-1").exists());
}

// BC-01, BC-06, ST-15, ST-17
#[test]
fn discarding_leaves_nothing_of_a_checkpoint_that_did_not_complete() {
    let place = Place::new();
    let store = place.open();
    let files = [
        write(&store, 1, "a[0]", b"a"),
        write(&store, 1, "b[0]", b"b"),
    ];
    place.run(store.publish_metadata(&checkpoint(&store, 1, files.to_vec())));
    place
        .run(store.discard_files(CheckpointId(1), None, &files[..1], false))
        .unwrap();
    assert_eq!(place.files(&store), ["chk-1/_metadata", &files[1].name]);
    place
        .run(store.discard_files(CheckpointId(1), None, &files, true))
        .unwrap();
    assert!(!store.folder().join("chk-1").exists());
    place
        .run(store.discard_files(CheckpointId(1), None, &files, true))
        .unwrap();
}

// BC-02, ST-16
#[test]
fn discarding_refuses_to_break_a_completed_checkpoint() {
    let place = Place::new();
    let store = place.open();
    let completed = place.complete(&store, 1);
    let files: Vec<_> = completed.files().cloned().collect();
    let error = place
        .run(store.discard_files(completed.id, None, &files, true))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    message_naming(&error, &store, "completed/00000000000000000001");
    place.run(store.verify_files(&completed)).unwrap();
}

#[test]
fn names_from_elsewhere_cannot_delete_other_files() {
    let place = Place::new();
    let store = place.open();
    let mut handle = write(&store, 1, "a[0]", b"a");
    for name in [
        "job",
        "chk-1/../job",
        "/etc/hostname",
        "chk-2/_metadata",
        "",
    ] {
        handle.name = name.to_owned();
        let files = std::slice::from_ref(&handle);
        let error = place
            .run(store.discard_files(CheckpointId(1), None, files, false))
            .unwrap_err();
        assert!(
            matches!(error, StorageError::Undeletable { count: 1, .. }),
            "{name}: {error}"
        );
    }
    assert!(store.folder().join("job").exists());
}

// BC-55, CO-01
#[test]
fn a_sweep_deletes_what_no_checkpoint_refers_to() {
    let place = Place::new();
    let store = place.open();
    let live = place.complete(&store, 5);
    // A late acknowledgement in a completed checkpoint's folder, a checkpoint that never got a
    // pointer, and writes that were cut off.
    write(&store, 5, "late[0]", b"1234");
    let unfinished = checkpoint(&store, 6, vec![write(&store, 6, "count[0]", b"12")]);
    place.run(store.publish_metadata(&unfinished));
    let staging = [
        "chk-7/a1-x-1.state#1",
        "completed/00000000000000000007#2",
        "attempts#1",
    ];
    for name in staging {
        let path = store.folder().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "part").unwrap();
    }

    assert_eq!(
        place.run(store.recover()).unwrap(),
        std::slice::from_ref(&live)
    );
    let report = place
        .run(store.sweep_orphans(std::slice::from_ref(&live)))
        .unwrap();
    assert_eq!(report.files, 6);
    assert_eq!(report.folders, 2);
    assert!(report.bytes > 4 + 2 + 3 * 4, "{}", report.bytes);
    assert!(report.failures.is_empty());
    let state = live.files().next().unwrap().name.clone();
    assert_eq!(
        place.files(&store),
        ["chk-5/_metadata", &state, "completed/00000000000000000005"]
    );
    place.run(store.verify_files(&live)).unwrap();
    let again = place.run(store.sweep_orphans(&[live])).unwrap();
    assert_eq!((again.files, again.bytes, again.folders), (0, 0, 0));
}

// BC-12: never delete what may still be needed
#[test]
fn a_sweep_refuses_to_forget_a_completed_checkpoint() {
    let place = Place::new();
    let store = place.open();
    let kept = place.complete(&store, 1);
    let forgotten = place.complete(&store, 2);
    let error = place.run(store.sweep_orphans(&[kept])).unwrap_err();
    assert!(
        matches!(error, StorageError::StillReferenced { .. }),
        "{error}"
    );
    place.run(store.verify_files(&forgotten)).unwrap();
}

#[test]
fn missing_and_truncated_state_files_are_found_before_a_restore() {
    let place = Place::new();
    let store = place.open();
    let completed = place.complete(&store, 1);
    let name = completed.files().next().unwrap().name.clone();
    fs::write(store.folder().join(&name), "stat").unwrap();
    let error = place.run(store.verify_files(&completed)).unwrap_err();
    let message = message_naming(&error, &store, &name);
    assert!(message.contains("has 4 bytes instead of 5"), "{message}");

    fs::remove_file(store.folder().join(&name)).unwrap();
    let error = place.run(store.verify_files(&completed)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(message_naming(&error, &store, &name).contains("is missing"));
}

// RS-17: every piece of a subtask's state must be there, not only the first.
#[test]
fn each_piece_of_a_subtask_is_looked_at() {
    let place = Place::new();
    let store = place.open();
    let mut completed = place.complete(&store, 1);
    let later = write(&store, 2, "count[0]", b"changes");
    let keyed = completed.operators[1].subtasks[0].keyed.as_mut().unwrap();
    keyed
        .pieces
        .push(KeyedPiece::Inline(b"more".as_slice().into()));
    keyed.pieces.push(KeyedPiece::File(later.clone()));
    place.run(store.verify_files(&completed)).unwrap();
    fs::remove_file(store.folder().join(&later.name)).unwrap();
    let error = place.run(store.verify_files(&completed)).unwrap_err();
    assert!(message_naming(&error, &store, &later.name).contains("is missing"));
}

#[test]
#[should_panic(expected = "job of `chk-1`")]
fn publishing_for_another_job_is_a_bug() {
    let place = Place::new();
    let store = place.open();
    let mut checkpoint = checkpoint(&store, 1, vec![]);
    checkpoint.job = JobId(store.job().0 ^ 1);
    place.run(store.publish_metadata(&checkpoint));
}

// CO-02, BC-12: nothing is deleted by closing, however often
#[test]
fn the_asynchronous_side_runs_on_tasks() {
    let place = Place::new();
    let store = place.open();
    let file = write(&store, 1, "count[0]", b"state");
    let task = place.runtime.spawn(async move {
        let full = checkpoint(&store, 1, vec![file]);
        store.reserve_attempt().await.unwrap();
        assert_eq!(store.reserve_ids(full.id).await, WriteOutcome::Done);
        assert_eq!(store.publish_metadata(&full).await, WriteOutcome::Done);
        assert_eq!(
            store.store_pointer(&CheckpointPointer::to(&full)).await,
            WriteOutcome::Done
        );
        assert_eq!(store.mark_finished(full.id).await, WriteOutcome::Done);
        full
    });
    let full = place.run(task).unwrap();
    for _ in 0..2 {
        let store = place.open();
        let recovered = place.run(store.recover()).unwrap();
        assert_eq!(recovered, std::slice::from_ref(&full));
        place
            .run(async { store.verify_files(&full).await })
            .unwrap();
        let live = recovered.clone();
        let sweep = async move { store.sweep_orphans(&live).await.unwrap().files };
        assert_eq!(place.run(place.runtime.spawn(sweep)).unwrap(), 0);
    }
    let store = place.open();
    let drop_it = async move { store.drop_completed(&full, &[]).await };
    place.run(place.runtime.spawn(drop_it)).unwrap().unwrap();
}
