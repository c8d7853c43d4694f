//! Checkpoints that refer to files of earlier ones: nothing that is in use is deleted, wherever the
//! deletion of another is cut off, and nothing that isn't in use is left.
//!
//! Every test runs on each kind of namespace.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::fs;
use std::io::ErrorKind as Io;

use support::namespace::{Kind, Namespace, on_each};
use support::{Place, checkpoint, write};
use tidegate_fault::inject;
use tidegate_storage::{
    CheckpointPointer, JobStore, RestoreFrom, StorageError, load_snapshot, parse_checkpoint_dir,
    parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{CompletedCheckpoint, FileHandle, RestoreMode};

/// Completes a checkpoint that refers to the files of `base` and to a new one.
fn on_top_of(
    place: &Place,
    store: &JobStore,
    id: u64,
    base: &CompletedCheckpoint,
) -> CompletedCheckpoint {
    let mut files = files(base);
    files.push(write(store, id, "count[0]", format!("{id}").as_bytes()));
    let completed = checkpoint(store, id, files);
    let published = place.run(store.publish_metadata(&completed));
    assert_eq!(published, WriteOutcome::Done);
    let stored = place.run(store.store_pointer(&CheckpointPointer::to(&completed)));
    assert_eq!(stored, WriteOutcome::Done);
    completed
}

/// Checkpoints 1, 2 and 3, each of which refers to all files before its own.
fn chain(namespace: &Namespace, store: &JobStore) -> [CompletedCheckpoint; 3] {
    let first = namespace.complete(store, 1);
    let second = on_top_of(&namespace.place, store, 2, &first);
    let third = on_top_of(&namespace.place, store, 3, &second);
    [first, second, third]
}

fn files(checkpoint: &CompletedCheckpoint) -> Vec<FileHandle> {
    checkpoint.files().cloned().collect()
}

/// Looks at the disk; in memory there is nothing to look at, and no folders.
fn assert_there(namespace: &Namespace, store: &JobStore, name: &str, there: bool) {
    if namespace.kind != Kind::Memory {
        assert_eq!(store.folder().join(name).exists(), there, "{name}");
    }
}

/// What is there is what `live` refer to, with their metadata; and none of that is missing.
fn assert_exactly(namespace: &Namespace, store: &JobStore, live: &[CompletedCheckpoint]) {
    for checkpoint in live {
        namespace.run(store.verify_files(checkpoint)).unwrap();
    }
    assert_eq!(namespace.orphans(store, live), 0);
}

// RX-01, RX-06, CO-01: the folder of a file lives as long as somebody refers to the file.
#[test]
fn what_is_shared_goes_with_the_last_that_refers_to_it() {
    on_each(|namespace| {
        let store = namespace.lead();
        let [first, second, third] = chain(namespace, &store);
        for (dropped, left) in [
            (&first, vec![second.clone(), third.clone()]),
            (&second, { vec![third.clone()] }),
        ] {
            let spared = files(&third);
            namespace
                .run(store.drop_completed(dropped, &spared))
                .unwrap();
            let metadata = format!("{}/_metadata", dropped.id);
            assert_there(namespace, &store, &metadata, false);
            assert_there(namespace, &store, &dropped.id.to_string(), true);
            assert_eq!(namespace.recover(&store), left);
            assert_exactly(namespace, &store, &left);
        }
        // As the coordinator does: first from the store, then, when nothing needs it, the files.
        let spared = files(&third);
        namespace
            .run(store.drop_completed(&third, &spared))
            .unwrap();
        assert_eq!(namespace.recover(&store), []);
        namespace.run(store.verify_files(&third)).unwrap();
        // Both may be repeated.
        for spared in [&spared[..], &[], &[]] {
            namespace.run(store.drop_completed(&third, spared)).unwrap();
        }
        assert_exactly(namespace, &store, &[]);
        for id in 1..=3 {
            assert_there(namespace, &store, &format!("chk-{id}"), false);
        }
    });
}

// RX-01, BC-12: as long as an older one is listed that could not be dropped, what it may refer to
// stays, whatever the caller knows of it.
#[test]
fn an_older_pointer_keeps_what_was_not_written_for_the_dropped_one() {
    on_each(|namespace| {
        let store = namespace.lead();
        let [first, second, third] = chain(namespace, &store);
        let own = third.files().find(|file| third.owns(file)).unwrap().clone();
        namespace.run(store.drop_completed(&third, &[])).unwrap();
        assert_there(namespace, &store, &own.name, false);
        let listed = [first, second];
        assert_eq!(namespace.recover(&store), listed);
        assert_exactly(namespace, &store, &listed);

        // Nor are they discarded: file by file, or all at once.
        let shared = files(&listed[1]);
        namespace
            .run(store.discard_files(third.id, None, &shared, false))
            .unwrap();
        for file in &shared {
            namespace
                .run(store.discard_state_file(third.id, file))
                .unwrap();
        }
        assert_exactly(namespace, &store, &listed);
        let [first, second] = &listed;
        namespace.run(store.drop_completed(first, &shared)).unwrap();
        namespace
            .run(store.drop_completed(second, &shared))
            .unwrap();
        // Now nobody is listed, and they are nobody's.
        assert_eq!(namespace.orphans(&store, &[]), 2);
        namespace
            .run(store.discard_files(third.id, None, &shared, false))
            .unwrap();
        assert_exactly(namespace, &store, &[]);
    });
}

// RX-01, CO-01
#[test]
fn a_discarded_history_leaves_none_of_what_it_shared() {
    on_each(|namespace| {
        let store = namespace.lead();
        let [first, second, third] = chain(namespace, &store);
        namespace
            .run(store.discard_history(&[third, first, second]))
            .unwrap();
        assert_eq!(namespace.recover(&store), []);
        assert_exactly(namespace, &store, &[]);
        for id in 1..=3 {
            assert_there(namespace, &store, &format!("chk-{id}"), false);
        }
    });
}

/// Lets every deletion from the `allowed`-th on fail, as if the process had died there; then makes
/// sure that what is listed is whole and that a sweep leaves nothing else. Returns whether all was
/// done.
fn cut_off(
    namespace: &Namespace,
    allowed: u64,
    work: impl FnOnce(&JobStore) -> Result<(), StorageError>,
) -> bool {
    let store = namespace.lead();
    let stuck = inject("delete:write", Io::PermissionDenied, allowed..10_000);
    let done = work(&store).is_ok();
    drop(stuck);
    let store = namespace.lead();
    let listed = namespace.run(store.resume(None)).unwrap().completed;
    for checkpoint in &listed {
        namespace.run(store.verify_files(checkpoint)).unwrap();
    }
    let report = namespace.run(store.sweep_orphans(&listed)).unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_exactly(namespace, &store, &listed);
    for folder in ["chk-1", "chk-2", "chk-3"] {
        let lies_in = |file: &FileHandle| file.name.starts_with(&format!("{folder}/"));
        let used = |checkpoint: &CompletedCheckpoint| {
            checkpoint.id.to_string() == folder || checkpoint.files().any(lies_in)
        };
        assert_there(namespace, &store, folder, listed.iter().any(used));
    }
    done
}

/// Repeats `work` on new chains, cut off at each of its deletions in turn.
fn cut_off_everywhere(
    work: impl Fn(&Namespace, &JobStore, &[CompletedCheckpoint; 3]) -> Result<(), StorageError>,
) {
    on_each(|outer| {
        for allowed in 0.. {
            let namespace = outer.another(&format!("cut-off-at-{allowed}"));
            let checkpoints = chain(&namespace, &namespace.lead());
            let work = |store: &JobStore| work(&namespace, store, &checkpoints);
            if cut_off(&namespace, allowed, work) {
                // Three metadata and three files; pointers, where they are files.
                let least = if outer.kind == Kind::Folder { 9 } else { 6 };
                assert!(allowed >= least, "{allowed}");
                break;
            }
        }
    });
}

// RX-01, RX-06, CO-01, BC-27: each from the store first, then its files; cut off at any deletion,
// also between the two.
#[test]
fn drops_may_be_cut_off_anywhere() {
    cut_off_everywhere(|namespace, store, [first, second, third]| {
        let spared = files(third);
        for checkpoint in [first, second, third] {
            namespace.run(store.drop_completed(checkpoint, &spared))?;
        }
        namespace.run(store.drop_completed(third, &[]))
    });
}

// RX-01, BC-12, BC-27: an older one that could not be dropped stays listed, and whole.
#[test]
fn a_drop_that_fails_does_not_break_the_ones_it_shares_with() {
    cut_off_everywhere(|namespace, store, [first, second, third]| {
        // The driver warns of each failure and goes on with the next.
        let spared = files(third);
        let drops = [(second, &spared[..]), (first, &spared[..]), (third, &[])];
        let dropped = drops
            .map(|(checkpoint, spared)| namespace.run(store.drop_completed(checkpoint, spared)));
        dropped.into_iter().collect()
    });
}

// RX-01, CO-01, BC-27
#[test]
fn a_discarded_history_that_shares_may_be_cut_off_anywhere() {
    cut_off_everywhere(|namespace, store, checkpoints| {
        namespace.run(store.discard_history(checkpoints))
    });
}

/// The newest of a chain in the namespace of another job, and how to begin from it.
fn foreign(namespace: &Namespace, mode: RestoreMode) -> (Place, RestoreFrom, Vec<FileHandle>) {
    let place = Place::at(&namespace.place.dir.join("others"));
    let (other, _) = place.try_open("other").unwrap();
    let first = place.complete(&other, 8);
    let second = on_top_of(&place, &other, 9, &first);
    let location = other.folder().join("chk-9");
    let location = parse_snapshot_path(location.to_str().unwrap()).unwrap();
    (place, RestoreFrom { location, mode }, files(&second))
}

// RX-08, RS-25: begun from a retained checkpoint without claiming it, a job deletes nothing of it
// whatever it deletes, and needs nothing of it, in any folder, once it has a checkpoint of its own.
#[test]
fn a_chain_of_another_job_is_never_touched_and_may_go() {
    on_each(|namespace| {
        let (place, from, _) = foreign(namespace, RestoreMode::NoClaim);
        let store = namespace.lead();
        let origin = namespace.run(store.resume(Some(&from))).unwrap().origin;
        let origin = origin.unwrap();
        assert_eq!(origin.files().count(), 2);
        namespace.run(store.verify_files(&origin)).unwrap();
        let first = namespace.complete(&store, 71);
        let second = on_top_of(&namespace.place, &store, 72, &first);
        let spared = files(&second);
        namespace
            .run(store.drop_completed(&first, &spared))
            .unwrap();
        let live = [second];
        let report = namespace.run(store.sweep_orphans(&live)).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        namespace.run(store.verify_files(&origin)).unwrap();
        let (other, _) = place.try_open("other").unwrap();
        assert_eq!(place.run(other.recover()).unwrap().len(), 2);

        fs::remove_dir_all(place.dir.join("other")).unwrap();
        let store = namespace.lead();
        let resumed = namespace.run(store.resume(None)).unwrap();
        assert_eq!((&resumed.completed[..], resumed.origin), (&live[..], None));
        assert_exactly(namespace, &store, &live);
    });
}

// BC-12: what was claimed stays as long as it is listed, in all its folders; only its own folder
// goes then, and the other checkpoint there is whole.
#[test]
fn a_claimed_chain_leaves_the_other_folders_as_they_are() {
    on_each(|namespace| {
        let (place, from, _) = foreign(namespace, RestoreMode::Claim);
        let store = namespace.lead();
        let claimed = namespace.run(store.resume(Some(&from))).unwrap().completed;
        namespace.complete(&store, 71);
        let live = namespace.recover(&store);
        let swept = namespace.run(store.sweep_orphans(&live)).unwrap();
        assert_eq!(swept.files, 0);
        let spared = files(&claimed[0]);
        namespace
            .run(store.drop_completed(&claimed[0], &spared))
            .unwrap();
        namespace.run(store.verify_files(&claimed[0])).unwrap();
        namespace
            .run(store.drop_completed(&claimed[0], &[]))
            .unwrap();
        assert!(!place.dir.join("other/chk-9").exists());
        let url = parse_checkpoint_dir(place.dir.join("other/chk-8").to_str().unwrap()).unwrap();
        let left = namespace.run(load_snapshot(&url)).unwrap();
        assert_eq!((left.id.0, left.files().count()), (8, 1));
    });
}

// BC-27: the files in its own folder that outlive its metadata are found by a sweep.
#[test]
fn a_claimed_chain_that_is_dropped_by_half_is_swept() {
    on_each(|namespace| {
        let (place, from, files) = foreign(namespace, RestoreMode::Claim);
        let store = namespace.lead();
        let claimed = namespace.run(store.resume(Some(&from))).unwrap().completed;
        let next = namespace.complete(&store, 71);
        let spared: Vec<_> = claimed[0].files().cloned().collect();
        assert_eq!(spared.len(), files.len());
        namespace
            .run(store.drop_completed(&claimed[0], &spared))
            .unwrap();
        let store = namespace.lead();
        let live = namespace.recover(&store);
        assert_eq!(live, [next]);
        let report = namespace.run(store.sweep_orphans(&live)).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert!(!place.dir.join("other/chk-9").exists());
    });
}
