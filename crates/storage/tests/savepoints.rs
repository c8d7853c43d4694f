//! Savepoints: made in folders of their own, read by path, moved, discarded, owned by the user.
//!
//! Every test runs on each kind of namespace; savepoints of a job in memory lie on the disk, too.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::fs;
use std::io::ErrorKind as Io;
use std::path::Path;

use support::namespace::{Kind, Namespace, on_each};
use support::places::{cause, folder, load, location, names_in, verify};
use support::{checkpoint, savepoint, savepoint_of, write, write_at};
use tidegate_fault::inject;
use tidegate_storage::{
    CheckpointPointer, ErrorKind, StorageError, parse_checkpoint_dir, parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, ErrorChain, JobId, Owner, SnapshotKind, SnapshotLocation,
};

/// The message of why `path` can't be loaded; it must name the path.
fn refusal(namespace: &Namespace, path: &Path, kind: ErrorKind) -> String {
    let error = load(namespace, path).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let message = ErrorChain(&error).to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    message
}

// FS-08: by folder and by metadata file, as path and as URL
#[test]
fn a_savepoint_comes_back_by_its_path() {
    on_each(|namespace| {
        let store = namespace.lead();
        let location = location(namespace, "sp-7");
        let made = savepoint(&namespace.place, &store, 7, &location);
        let path = folder(namespace, "sp-7");
        assert_eq!(names_in(&path).len(), 3, "metadata and two files");
        for path in [path.clone(), path.join("_metadata")] {
            let loaded = load(namespace, &path).unwrap();
            assert_eq!(loaded, made);
            verify(namespace, &store, &loaded);
            let parsed = parse_snapshot_path(path.to_str().unwrap()).unwrap();
            assert_eq!(parsed, location);
        }
        assert_eq!(parse_snapshot_path(location.as_str()).unwrap(), location);
        // It is no completed checkpoint of the job, and nothing of it lies in the namespace.
        assert_eq!(namespace.recover(&store), []);
        assert_eq!(namespace.orphans(&store, &[]), 0);
    });
}

// SP-14: also under another name, with whatever was there before gone
#[test]
fn a_savepoint_can_be_moved() {
    on_each(|namespace| {
        let store = namespace.lead();
        let made = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        let target = namespace.place.dir.join("elsewhere/renamed");
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::rename(folder(namespace, "sp-7"), &target).unwrap();
        let loaded = load(namespace, &target).unwrap();
        assert_ne!(loaded.location, made.location);
        verify(namespace, &store, &loaded);
        let here = SnapshotLocation::new(loaded.location.as_ref().unwrap().as_str());
        for (moved, original) in loaded.files().zip(made.files()) {
            assert!(moved.name.starts_with(here.as_str()), "{}", moved.name);
            assert_eq!(
                (moved.bytes, moved.crc32c),
                (original.bytes, original.crc32c)
            );
        }
        let elsewhere = CompletedCheckpoint {
            location: made.location.clone(),
            operators: made.operators.clone(),
            ..loaded
        };
        assert_eq!(elsewhere, made);
    });
}

// FS-07, BC-12: what is there is somebody's, whatever it is
#[test]
fn a_savepoint_folder_that_exists_is_refused() {
    on_each(|namespace| {
        let store = namespace.lead();
        let made = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        let file = folder(namespace, "file");
        fs::write(&file, "mine").unwrap();
        fs::create_dir(folder(namespace, "empty")).unwrap();
        for name in ["sp-7", "file", "empty"] {
            let prepared =
                namespace.run(store.prepare_savepoint(CheckpointId(7), &location(namespace, name)));
            let cause = cause(prepared);
            let path = folder(namespace, name);
            assert!(cause.contains(path.to_str().unwrap()), "{cause}");
            assert!(cause.contains("exists already"), "{cause}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"mine");
        assert_eq!(load(namespace, &folder(namespace, "sp-7")).unwrap(), made);
        // Published again: the same is the same write, anything else is refused.
        let again = namespace.run(store.publish_metadata(&made));
        assert_eq!(again, WriteOutcome::Done);
        let other = CompletedCheckpoint {
            id: CheckpointId(8),
            ..made.clone()
        };
        let cause = cause(namespace.run(store.publish_metadata(&other)));
        assert!(cause.contains("exists already"), "{cause}");
        assert_eq!(load(namespace, &folder(namespace, "sp-7")).unwrap(), made);
    });
}

// SP-12: a folder that can't be written to, or a scheme that isn't there
#[test]
fn a_savepoint_folder_that_cannot_be_made_is_named() {
    on_each(|namespace| {
        let store = namespace.lead();
        fs::write(namespace.place.dir.join("file"), "").unwrap();
        let inside = namespace.place.dir.join("file/sp-1");
        let url = parse_checkpoint_dir(inside.to_str().unwrap()).unwrap();
        let prepared = namespace
            .run(store.prepare_savepoint(CheckpointId(7), &SnapshotLocation::new(url.as_str())));
        let message = cause(prepared);
        let parent = inside.parent().unwrap().to_str().unwrap();
        assert!(message.contains(parent), "{message}");

        let read_only = inject("savepoint:prepare", Io::ReadOnlyFilesystem, 0..1);
        let prepared =
            namespace.run(store.prepare_savepoint(CheckpointId(7), &location(namespace, "sp-1")));
        let message = cause(prepared);
        let path = folder(namespace, "sp-1");
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        drop(read_only);
        assert!(!path.exists());

        let other = SnapshotLocation::new("gs://bucket/savepoints/sp-1");
        let message = cause(namespace.run(store.prepare_savepoint(CheckpointId(7), &other)));
        assert!(message.contains("`gs`"), "{message}");
        let message = cause(
            namespace.run(store.prepare_savepoint(CheckpointId(7), &SnapshotLocation::new("x"))),
        );
        assert!(message.contains("not a URL"), "{message}");
    });
}

// D16, BC-06, FS-12: with late files, with metadata, and what was never written
#[test]
fn a_savepoint_that_failed_leaves_no_folder() {
    on_each(|namespace| {
        let store = namespace.lead();
        let location = location(namespace, "sp-7");
        let path = folder(namespace, "sp-7");
        let id = CheckpointId(7);
        let discard = |files: &[_], metadata| {
            namespace.run(store.discard_files(id, Some(&location), files, metadata))
        };
        // Nothing was written.
        namespace.run(store.prepare_savepoint(CheckpointId(7), &location));
        discard(&[], true).unwrap();
        assert!(!path.exists());

        // Some files, and one that comes late.
        namespace.run(store.prepare_savepoint(CheckpointId(7), &location));
        let files = [
            write_at(&store, &location, "a[0]", b"a"),
            write_at(&store, &location, "b[0]", b"b"),
        ];
        discard(&files[..1], false).unwrap();
        assert_eq!(names_in(&path).len(), 1, "the late one");
        namespace
            .run(store.discard_state_file(id, &files[1]))
            .unwrap();
        assert!(!path.exists());

        // Its metadata, too, and again what is gone.
        let made = savepoint(&namespace.place, &store, 7, &location);
        let files: Vec<_> = made.files().cloned().collect();
        for _ in 0..2 {
            discard(&files, true).unwrap();
            assert!(!path.exists());
        }
        // A file that isn't the savepoint's keeps the folder.
        let made = savepoint(&namespace.place, &store, 7, &location);
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let files: Vec<_> = made.files().cloned().collect();
        discard(&files, true).unwrap();
        assert_eq!(names_in(&path), ["notes.txt"]);
    });
}

#[test]
fn discarding_stays_inside_the_savepoint() {
    on_each(|namespace| {
        let store = namespace.lead();
        let own = location(namespace, "sp-7");
        let other = savepoint(&namespace.place, &store, 6, &location(namespace, "sp-6"));
        let of_the_job = write(&store, 7, "count[0]", b"state");
        namespace.run(store.prepare_savepoint(CheckpointId(7), &own));
        let mut files: Vec<_> = other.files().cloned().collect();
        files.push(of_the_job);
        let discarded = store.discard_files(CheckpointId(7), Some(&own), &files, true);
        let error = namespace.run(discarded).unwrap_err();
        assert!(
            matches!(error, StorageError::Undeletable { count: 3, .. }),
            "{error}"
        );
        verify(namespace, &store, &other);
        assert_eq!(namespace.orphans(&store, &[]), 1);

        // Not the metadata of another snapshot, should the folder be somebody else's.
        let foreign = other.location.as_ref();
        let discarded = store.discard_files(CheckpointId(7), foreign, &[], true);
        let error = namespace.run(discarded).unwrap_err();
        assert!(
            matches!(error, StorageError::OtherCheckpoint { .. }),
            "{error}"
        );
        assert_eq!(load(namespace, &folder(namespace, "sp-6")).unwrap(), other);
    });
}

// CO-09, SP-10: a stop-with-savepoint is listed, and dropping it forgets it, no more
#[test]
fn a_savepoint_of_the_user_outlives_its_pointer() {
    on_each(|namespace| {
        let store = namespace.lead();
        let before = namespace.complete(&store, 6);
        let stop = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        let stored = namespace.run(store.store_pointer(&CheckpointPointer::to(&stop)));
        assert_eq!(stored, WriteOutcome::Done);
        let store = namespace.lead();
        let completed = namespace.recover(&store);
        assert_eq!(completed, [before.clone(), stop.clone()]);
        verify(namespace, &store, &stop);
        let report = namespace.run(store.sweep_orphans(&completed)).unwrap();
        assert_eq!((report.files, report.folders), (0, 0));
        assert_eq!(
            namespace.run(store.reserved_ids()).unwrap(),
            CheckpointId(7)
        );

        for snapshot in [&before, &stop] {
            namespace.run(store.drop_completed(snapshot, &[])).unwrap();
        }
        assert_eq!(namespace.recover(&store), []);
        assert_eq!(load(namespace, &folder(namespace, "sp-7")).unwrap(), stop);
        namespace.run(store.sweep_orphans(&[])).unwrap();
        verify(namespace, &store, &stop);
    });
}

// ST-09, FS-08: gone, damaged, or replaced by another one
#[test]
fn a_listed_savepoint_that_cannot_be_read_is_an_error() {
    on_each(|namespace| {
        let store = namespace.lead();
        namespace.complete(&store, 6);
        let stop = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        namespace.run(store.store_pointer(&CheckpointPointer::to(&stop)));
        let path = folder(namespace, "sp-7");
        let aside = folder(namespace, "aside");
        fs::rename(&path, &aside).unwrap();
        let recovery = |reason: &str| {
            let error = namespace.run(store.recover()).unwrap_err();
            let message = ErrorChain(&error).to_string();
            assert!(message.contains("`chk-7`"), "{message}");
            let file = path.join("_metadata");
            assert!(message.contains(file.to_str().unwrap()), "{message}");
            assert!(message.contains(reason), "{message}");
        };
        recovery("is missing");
        savepoint(&namespace.place, &store, 8, &location(namespace, "sp-7"));
        recovery("metadata of `chk-8`");
        fs::remove_dir_all(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        let whole = fs::read(path.join("_metadata")).unwrap();
        fs::write(path.join("_metadata"), &whole[..whole.len() - 1]).unwrap();
        recovery("truncated");
        fs::write(path.join("_metadata"), whole).unwrap();
        assert_eq!(namespace.recover(&store).len(), 2);
    });
}

// FS-08, SP-12: each thing that is no snapshot, or no whole one, has a message that names it.
#[test]
fn what_is_no_snapshot_is_refused_by_name() {
    on_each(|namespace| {
        let store = namespace.lead();
        let made = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        let path = folder(namespace, "sp-7");
        let metadata = path.join("_metadata");
        let state = path.join(
            made.files()
                .next()
                .unwrap()
                .name
                .rsplit('/')
                .next()
                .unwrap(),
        );

        let nowhere = folder(namespace, "sp-8");
        let text = refusal(namespace, &nowhere, ErrorKind::Corrupt);
        assert!(text.contains("is missing"), "{text}");
        let text = refusal(namespace, &nowhere.join("_metadata"), ErrorKind::Corrupt);
        assert!(text.contains("is missing"), "{text}");
        let text = refusal(namespace, &state, ErrorKind::Invalid);
        assert!(text.contains("it is a file"), "{text}");
        let text = refusal(namespace, path.parent().unwrap(), ErrorKind::Invalid);
        assert!(text.contains("give one of them: `sp-7`"), "{text}");
        let empty = folder(namespace, "empty");
        fs::create_dir(&empty).unwrap();
        let text = refusal(namespace, &empty, ErrorKind::Invalid);
        assert!(text.contains("did not complete"), "{text}");

        let whole = fs::read(&metadata).unwrap();
        let with = |bytes: &[u8], kind| {
            fs::write(&metadata, bytes).unwrap();
            refusal(namespace, &metadata, kind)
        };
        let text = with(b"a text that somebody has put here", ErrorKind::Corrupt);
        assert!(text.contains("doesn't start with `TIDEMETA`"), "{text}");
        let text = with(&whole[..whole.len() - 1], ErrorKind::Corrupt);
        assert!(text.contains("truncated"), "{text}");
        let mut flipped = whole.clone();
        flipped[40] ^= 1;
        let text = with(&flipped, ErrorKind::Corrupt);
        assert!(text.contains("CRC-32C"), "{text}");
        let mut newer = whole.clone();
        newer[8] = 9;
        let sum = crc32c::crc32c(&newer[..24]).to_le_bytes();
        newer[24..28].copy_from_slice(&sum);
        let text = with(&newer, ErrorKind::Incompatible);
        assert!(text.contains("version 9"), "{text}");
        fs::write(&metadata, &whole).unwrap();

        let bytes = fs::read(&state).unwrap();
        fs::write(&state, &bytes[1..]).unwrap();
        let error = load(namespace, &path).unwrap_err();
        let text = ErrorChain(&error).to_string();
        assert!(text.contains(state.to_str().unwrap()), "{text}");
        assert!(text.contains("4 bytes instead of 5"), "{text}");
        fs::remove_file(&state).unwrap();
        let error = load(namespace, &path).unwrap_err();
        let text = ErrorChain(&error).to_string();
        assert!(text.contains(state.to_str().unwrap()), "{text}");
        assert!(text.contains("is missing"), "{text}");
        fs::write(&state, bytes).unwrap();
        assert_eq!(load(namespace, &path).unwrap(), made);
    });
}

// FS-08: a checkpoint of a job, running or not
#[test]
fn a_checkpoint_comes_back_by_its_path() {
    on_each(|namespace| {
        if namespace.kind == Kind::Memory {
            return;
        }
        let store = namespace.lead();
        let root = store.folder().to_owned();
        let text = refusal(namespace, &root, ErrorKind::Invalid);
        assert!(!text.contains("chk-"), "{text}");
        let completed: Vec<_> = [9, 10].map(|id| namespace.complete(&store, id)).into();
        // One that did not complete isn't offered.
        write(&store, 11, "count[0]", b"state");
        let text = refusal(namespace, &root, ErrorKind::Invalid);
        assert!(text.contains("them: `chk-9`, `chk-10`"), "{text}");
        assert!(!text.contains("chk-11"), "{text}");

        for path in [root.join("chk-9"), root.join("chk-9/_metadata")] {
            let loaded = load(namespace, &path).unwrap();
            verify(namespace, &store, &loaded);
            assert_eq!((loaded.id, loaded.job), (completed[0].id, store.job()));
            assert_eq!(loaded.owner, Owner::User);
            let location = parse_snapshot_path(root.join("chk-9").to_str().unwrap()).unwrap();
            let url = |name: &str| location.child(name.rsplit('/').next().unwrap());
            for (file, own) in loaded.files().zip(completed[0].files()) {
                assert_eq!(file.name, url(&own.name).to_string());
            }
            assert_eq!(loaded.location, Some(location));
        }
    });
}

#[test]
fn a_savepoint_is_whole_or_it_is_not_written() {
    on_each(|namespace| {
        let store = namespace.lead();
        let here = location(namespace, "sp-7");
        namespace.run(store.prepare_savepoint(CheckpointId(7), &here));
        let inside = write_at(&store, &here, "count[0]", b"state");
        // A file of the namespace would be deleted with its checkpoint, one of another savepoint by
        // its user.
        let outside = write(&store, 7, "count[1]", b"state");
        let other = location(namespace, "sp-6");
        savepoint(&namespace.place, &store, 6, &other);
        let elsewhere = write_at(&store, &other, "count[1]", b"state");
        for foreign in [outside, elsewhere] {
            let made = savepoint_of(&store, 7, &here, vec![inside.clone(), foreign]);
            let message = cause(namespace.run(store.publish_metadata(&made)));
            assert!(message.contains("doesn't lie in"), "{message}");
        }
        refusal(namespace, &folder(namespace, "sp-7"), ErrorKind::Invalid);

        // A folder that is gone again.
        let gone = savepoint_of(&store, 8, &location(namespace, "sp-8"), vec![]);
        let message = cause(namespace.run(store.publish_metadata(&gone)));
        assert!(message.contains("is missing"), "{message}");
        let name = store.savepoint_file_name(
            &location(namespace, "sp-8"),
            tidegate_types::AttemptNumber(1),
            "count[0]",
        );
        let error = store.create_state_file(name).finish().unwrap_err();
        assert!(matches!(error, StorageError::Missing { .. }), "{error}");
    });
}

// BC-02, ST-16, FS-07: the outcome of a savepoint's metadata, as of a checkpoint's
#[test]
fn publishing_a_savepoint_has_three_outcomes() {
    on_each(|namespace| {
        let store = namespace.lead();
        let here = location(namespace, "sp-7");
        namespace.run(store.prepare_savepoint(CheckpointId(7), &here));
        let made = savepoint_of(&store, 7, &here, vec![]);
        let path = folder(namespace, "sp-7");
        let full = inject("metadata:write", Io::StorageFull, 0..1);
        let outcome = namespace.run(store.publish_metadata(&made));
        assert!(
            matches!(outcome, WriteOutcome::NotDone { .. }),
            "{outcome:?}"
        );
        drop(full);
        assert_eq!(names_in(&path), [""; 0]);
        let lost = [
            inject("metadata:reply", Io::TimedOut, 0..1),
            inject("metadata:read-back", Io::PermissionDenied, 0..1),
        ];
        let outcome = namespace.run(store.publish_metadata(&made));
        assert!(
            matches!(outcome, WriteOutcome::Unknown { .. }),
            "{outcome:?}"
        );
        drop(lost);
        assert_eq!(load(namespace, &path).unwrap(), made);
    });
}

#[test]
#[should_panic(expected = "place of `chk-7`")]
fn a_savepoint_in_the_namespace_is_a_bug() {
    on_each(|namespace| {
        let store = namespace.lead();
        let misplaced = CompletedCheckpoint {
            kind: SnapshotKind::Savepoint,
            ..checkpoint(&store, 7, vec![])
        };
        namespace.run(store.publish_metadata(&misplaced));
    });
}

#[test]
fn a_pointer_to_a_snapshot_of_another_job_needs_that_job() {
    on_each(|namespace| {
        let store = namespace.lead();
        let made = savepoint(&namespace.place, &store, 7, &location(namespace, "sp-7"));
        let pointer = CheckpointPointer {
            taken_by: JobId(made.job.0 ^ 1),
            ..CheckpointPointer::to(&made)
        };
        namespace.run(store.store_pointer(&pointer));
        let error = namespace.run(store.recover()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    });
}
