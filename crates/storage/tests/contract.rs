//! What a namespace promises whatever its records are kept in: every test runs on a locked folder,
//! in memory, and on folders whose records are in memory or in real services.
//!
//! Injections apply to the whole process, so these tests take turns.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::collections::BTreeSet;
use std::io::ErrorKind as Io;
use std::sync::Arc;

use bytes::Bytes;
use support::namespace::{Namespace, on_each_and_services as on_each};
use support::{checkpoint, write};
use tidegate_fault::inject;
use tidegate_storage::{
    CheckpointPointer, ErrorKind, Expected, NamespaceStatus, RecordStore, StorageError, Written,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, ErrorChain, LeaderEpoch, Owner,
    SnapshotLocation,
};

fn ids(checkpoints: &[CompletedCheckpoint]) -> Vec<u64> {
    checkpoints.iter().map(|c| c.id.0).collect()
}

fn is_not_done(outcome: &WriteOutcome) -> bool {
    matches!(outcome, WriteOutcome::NotDone { .. })
}

fn is_unknown(outcome: &WriteOutcome) -> bool {
    matches!(outcome, WriteOutcome::Unknown { .. })
}

/// That `error` says which epoch leads now.
fn fenced(error: &StorageError, newer: LeaderEpoch) {
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(error.to_string().contains(&newer.to_string()), "{error}");
}

fn outcome_fenced(outcome: &WriteOutcome, newer: LeaderEpoch) {
    let WriteOutcome::NotDone { cause } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(cause.contains(&newer.to_string()), "{cause}");
}

#[test]
fn records_are_written_on_condition() {
    on_each(|namespace| {
        let records = namespace.records();
        let write = |bytes: &'static str, expected| {
            namespace.run(records.write("completed/1", Bytes::from(bytes), expected))
        };
        let read = || namespace.run(records.read("completed/1")).unwrap();
        assert_eq!(read(), None);
        assert!(matches!(write("one", Expected::Absent), Written::Done));
        let first = read().unwrap();
        assert_eq!(first.bytes, "one");
        // The same again is the same write, repeated; another one is refused.
        assert!(matches!(write("one", Expected::Absent), Written::Done));
        let Written::NotDone(error) = write("two", Expected::Absent) else {
            panic!("it is there");
        };
        assert!(matches!(error, StorageError::Conflict { .. }), "{error}");

        let current = Expected::Version(first.version);
        assert!(matches!(write("two", current.clone()), Written::Done));
        let Written::NotDone(error) = write("three", current) else {
            panic!("it is another version");
        };
        assert!(matches!(error, StorageError::Conflict { .. }), "{error}");
        assert_eq!(read().unwrap().bytes, "two");
        let list = || namespace.run(records.list("completed")).unwrap();
        assert_eq!(list(), ["1"]);

        for _ in 0..2 {
            let removed = namespace.run(records.remove("completed/1"));
            assert!(matches!(removed, Written::Done), "{removed:?}");
        }
        assert_eq!((read(), list()), (None, Vec::new()));
    });
}

// BC-62, BC-11, H8: the epoch rises with every leader, though nothing else is written, and the
// older one always loses.
#[test]
fn a_new_leader_fences_all_older_ones() {
    on_each(|namespace| {
        let leaders: Vec<_> = (0..3).map(|_| namespace.records()).collect();
        let epochs: Vec<_> = leaders.iter().map(|records| records.epoch()).collect();
        assert_eq!(epochs, [1, 2, 3].map(LeaderEpoch));
        let [older @ .., latest] = &leaders[..] else {
            panic!("there are three");
        };
        let done = namespace.run(latest.write("record", Bytes::from("1"), Expected::Absent));
        assert!(matches!(done, Written::Done), "{done:?}");
        let version = namespace
            .run(latest.read("record"))
            .unwrap()
            .unwrap()
            .version;
        for old in older {
            let conditions = [Expected::Absent, Expected::Version(version.clone())];
            for expected in conditions {
                let written = namespace.run(old.write("record", Bytes::from("2"), expected));
                let Written::NotDone(error) = written else {
                    panic!("{written:?}");
                };
                fenced(&error, LeaderEpoch(3));
            }
            let new = namespace.run(old.write("new", Bytes::from("2"), Expected::Absent));
            fenced(&new.into_result().unwrap_err(), LeaderEpoch(3));
            let Written::NotDone(error) = namespace.run(old.remove("record")) else {
                panic!("it doesn't lead");
            };
            fenced(&error, LeaderEpoch(3));
            fenced(&namespace.run(old.confirm()).unwrap_err(), LeaderEpoch(3));
        }
        namespace.run(latest.confirm()).unwrap();
        assert_eq!(
            namespace.run(latest.read("record")).unwrap().unwrap().bytes,
            "1"
        );
        assert_eq!(namespace.run(latest.read("new")).unwrap(), None);
    });
}

// BC-11, BC-62, ZK-02, H8, H10, P5, ST-14: A leads and pauses, B takes over and goes on,
// A wakes up.
#[test]
fn a_leader_that_wakes_up_late_changes_and_deletes_nothing() {
    on_each(|namespace| {
        let old = namespace.lead();
        let fourth = namespace.complete(&old, 4);
        let aborted = [write(&old, 6, "count[0]", b"aborted")];
        let new = namespace.lead();
        let fifth = namespace.complete(&new, 5);
        let now = new.epoch();
        assert!(now > old.epoch());

        let late = checkpoint(&old, 7, vec![]);
        outcome_fenced(&namespace.run(old.publish_metadata(&late)), now);
        let pointer = CheckpointPointer::to(&late);
        outcome_fenced(&namespace.run(old.store_pointer(&pointer)), now);
        outcome_fenced(&namespace.run(old.reserve_ids(CheckpointId(900))), now);
        outcome_fenced(&namespace.run(old.mark_finished(fourth.id)), now);
        fenced(&namespace.run(old.reserve_attempt()).unwrap_err(), now);
        for own in [&fourth, &fifth] {
            fenced(
                &namespace.run(old.drop_completed(own, &[])).unwrap_err(),
                now,
            );
        }
        let discarded = old.discard_files(CheckpointId(6), None, &aborted, true);
        fenced(&namespace.run(discarded).unwrap_err(), now);
        // Its view of what is live is from before its pause, and brings no harm.
        let live = [fourth.clone(), fifth.clone()];
        fenced(&namespace.run(old.sweep_orphans(&live)).unwrap_err(), now);

        assert_eq!(namespace.recover(&new), live);
        for completed in &live {
            namespace.run(new.verify_files(completed)).unwrap();
        }
        // The leader can drop what the old one completed, and only then are the files gone.
        namespace.run(new.drop_completed(&fourth, &[])).unwrap();
        assert_eq!(namespace.recover(&new), [fifth]);
        assert!(namespace.run(new.verify_files(&fourth)).is_err());
    });
}

// BC-04
#[test]
fn two_leaders_at_the_beginning_make_one_identity() {
    on_each(|namespace| {
        // The first one's identity is written, but it doesn't get to know.
        let answers = [
            inject("record:reply", Io::TimedOut, 2..4),
            inject("record:read-back", Io::PermissionDenied, 2..4),
        ];
        let failed = namespace.try_lead();
        drop(answers);
        assert!(failed.is_err(), "the outcome of its write is unknown");
        let first = namespace.lead();
        let second = namespace.lead();
        assert_eq!(first.job(), second.job());
        fenced(
            &namespace.run(first.reserve_attempt()).unwrap_err(),
            second.epoch(),
        );
        assert_eq!(
            namespace.run(second.reserve_attempt()).unwrap(),
            AttemptNumber(1)
        );
    });
}

// ST-02, ST-08, ZK-01, H1, H2, H6
#[test]
fn completed_checkpoints_are_listed_by_number() {
    on_each(|namespace| {
        let store = namespace.lead();
        assert_eq!(namespace.recover(&store), []);
        for id in [10, 9, 100, 11] {
            namespace.complete(&store, id);
        }
        assert_eq!(ids(&namespace.recover(&store)), [9, 10, 11, 100]);
        let reopened = namespace.lead();
        assert_eq!(ids(&namespace.recover(&reopened)), [9, 10, 11, 100]);
    });
}

// ST-09, H6, ZK-05: a pointer that is damaged, one that leads nowhere, metadata or a list that
// can't be read.
#[test]
fn recovery_fails_if_any_completed_checkpoint_cannot_be_read() {
    on_each(|namespace| {
        let store = namespace.lead();
        let completed: Vec<_> = (1..=3).map(|id| namespace.complete(&store, id)).collect();
        let name = |id: u64| format!("completed/{id:020}");
        for injected in ["metadata:read", "record:list"] {
            let unreachable = inject(injected, Io::TimedOut, 0..1000);
            let error = namespace.run(store.recover()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Retryable, "{error}");
            drop(unreachable);
        }

        let records = namespace.records();
        let whole = namespace.run(records.read(&name(2))).unwrap().unwrap();
        let mut damaged = whole.bytes.to_vec();
        damaged[20] ^= 1;
        let damaged = records.write_now(namespace, &name(2), damaged);
        let store = namespace.lead();
        let error = namespace.run(store.recover()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = ErrorChain(&error).to_string();
        assert!(
            text.contains("`chk-2`") && text.contains(&name(2)),
            "{text}"
        );
        assert!(text.contains("CRC-32C"), "{text}");
        assert_ne!(damaged, whole.bytes);

        let records = namespace.records();
        records.write_now(namespace, &name(2), whole.bytes.to_vec());
        let store = namespace.lead();
        assert_eq!(namespace.recover(&store), completed);
        let mut nowhere = CheckpointPointer::to(&completed[2]);
        nowhere.checkpoint = CheckpointId(4);
        let done = namespace.run(store.store_pointer(&nowhere));
        assert_eq!(done, WriteOutcome::Done);
        let error = namespace.run(store.recover()).unwrap_err();
        let text = ErrorChain(&error).to_string();
        assert!(
            text.contains("`chk-4`") && text.contains("is missing"),
            "{text}"
        );
    });
}

trait WriteNow {
    /// Replaces a record, whatever it holds.
    fn write_now(&self, namespace: &Namespace, name: &str, bytes: Vec<u8>) -> Bytes;
}

impl WriteNow for Arc<dyn RecordStore> {
    fn write_now(&self, namespace: &Namespace, name: &str, bytes: Vec<u8>) -> Bytes {
        let found = namespace.run(self.read(name)).unwrap().unwrap();
        let expected = Expected::Version(found.version);
        let written = namespace.run(self.write(name, bytes.into(), expected));
        assert!(matches!(written, Written::Done), "{written:?}");
        namespace.run(self.read(name)).unwrap().unwrap().bytes
    }
}

// ST-10, ST-11, H5: there is never less than one completed checkpoint.
#[test]
fn a_pointer_that_cannot_be_added_leaves_the_old_one() {
    on_each(|namespace| {
        let store = namespace.lead();
        let old = namespace.complete(&store, 1);
        let new = checkpoint(&store, 2, vec![write(&store, 2, "count[0]", b"new")]);
        namespace.run(store.publish_metadata(&new));
        let pointer = CheckpointPointer::to(&new);
        let full = inject("pointer:write", Io::StorageFull, 0..1);
        let outcome = namespace.run(store.store_pointer(&pointer));
        assert!(is_not_done(&outcome), "{outcome:?}");
        assert_eq!(namespace.recover(&store), std::slice::from_ref(&old));
        drop(full);

        // Added before the old one goes.
        assert_eq!(
            namespace.run(store.store_pointer(&pointer)),
            WriteOutcome::Done
        );
        assert_eq!(namespace.recover(&store), [old.clone(), new.clone()]);
        namespace.run(store.drop_completed(&old, &[])).unwrap();
        assert_eq!(namespace.recover(&store), [new]);
    });
}

// BC-02, ST-16
#[test]
fn a_pointer_that_was_written_though_nobody_said_so_counts() {
    on_each(|namespace| {
        let store = namespace.lead();
        let new = checkpoint(&store, 1, vec![write(&store, 1, "count[0]", b"new")]);
        namespace.run(store.publish_metadata(&new));
        let pointer = CheckpointPointer::to(&new);
        let lost = [
            inject("pointer:reply", Io::TimedOut, 0..1),
            inject("pointer:read-back", Io::PermissionDenied, 0..1),
        ];
        let outcome = namespace.run(store.store_pointer(&pointer));
        assert!(is_unknown(&outcome), "{outcome:?}");
        drop(lost);
        // Whoever takes it for a failure can't break it, and a restart finds it.
        let files: Vec<_> = new.files().cloned().collect();
        let discarded = store.discard_files(new.id, None, &files, true);
        let error = namespace.run(discarded).unwrap_err();
        assert!(
            matches!(error, StorageError::StillReferenced { .. }),
            "{error}"
        );
        let store = namespace.lead();
        assert_eq!(namespace.recover(&store), std::slice::from_ref(&new));
        namespace.run(store.verify_files(&new)).unwrap();
        // Adding it again, since nobody knows, is the same write.
        assert_eq!(
            namespace.run(store.store_pointer(&pointer)),
            WriteOutcome::Done
        );

        let lost = inject("pointer:reply", Io::TimedOut, 0..1);
        let other = checkpoint(&store, 2, vec![]);
        namespace.run(store.publish_metadata(&other));
        let pointer = CheckpointPointer::to(&other);
        assert_eq!(
            namespace.run(store.store_pointer(&pointer)),
            WriteOutcome::Done
        );
        assert_eq!(lost.remaining(), 0, "reading back has settled it");
    });
}

// ST-18
#[test]
fn a_pointer_that_cannot_be_removed_keeps_its_checkpoint() {
    on_each(|namespace| {
        let store = namespace.lead();
        let old = namespace.complete(&store, 1);
        let new = namespace.complete(&store, 2);
        let stuck = inject("delete:write", Io::PermissionDenied, 0..1);
        namespace.run(store.drop_completed(&old, &[])).unwrap_err();
        drop(stuck);
        assert_eq!(namespace.recover(&store), [old.clone(), new.clone()]);
        namespace.run(store.verify_files(&old)).unwrap();
        // Tried again, it goes.
        namespace.run(store.drop_completed(&old, &[])).unwrap();
        assert_eq!(namespace.recover(&store), std::slice::from_ref(&new));
        assert_eq!(namespace.orphans(&store, &[new]), 0);
    });
}

// BC-06, ST-15, ST-17: what failed half-way leaves nothing once it was discarded.
#[test]
fn checkpoints_that_fail_leave_nothing() {
    on_each(|namespace| {
        let store = namespace.lead();
        let files = [
            write(&store, 1, "a[0]", b"a"),
            write(&store, 1, "b[0]", b"b"),
        ];
        namespace.run(store.publish_metadata(&checkpoint(&store, 1, files.to_vec())));
        assert_eq!(namespace.orphans(&store, &[]), 3);
        let discarded = store.discard_files(CheckpointId(1), None, &files, true);
        namespace.run(discarded).unwrap();
        assert_eq!(namespace.orphans(&store, &[]), 0);
        let mut latest = None;
        for id in 2..12 {
            let new = namespace.complete(&store, id);
            if let Some(old) = latest.replace(new) {
                namespace.run(store.drop_completed(&old, &[])).unwrap();
            }
        }
        let latest = latest.unwrap();
        namespace.run(store.drop_completed(&latest, &[])).unwrap();
        assert_eq!(namespace.recover(&store), []);
        assert_eq!(namespace.orphans(&store, &[]), 0);
    });
}

// H4, O6: a crash between the two writes of a completion leaves orphans, which a sweep finds.
#[test]
fn metadata_without_a_pointer_is_an_orphan() {
    on_each(|namespace| {
        let store = namespace.lead();
        let live = namespace.complete(&store, 1);
        let cut_off = checkpoint(&store, 2, vec![write(&store, 2, "count[0]", b"12")]);
        namespace.run(store.publish_metadata(&cut_off));
        write(&store, 1, "late[0]", b"1234");

        let store = namespace.lead();
        let recovered = namespace.recover(&store);
        assert_eq!(recovered, std::slice::from_ref(&live));
        let found = namespace.run(store.find_orphans(&recovered)).unwrap();
        let names: Vec<_> = found.iter().map(|orphan| &orphan.name[..6]).collect();
        assert_eq!(names, ["chk-1/", "chk-2/", "chk-2/"]);
        let report = namespace.run(store.sweep_orphans(&recovered)).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        let bytes: u64 = found.iter().map(|orphan| orphan.bytes).sum();
        assert_eq!((report.files, report.bytes), (3, bytes));
        namespace.run(store.verify_files(&live)).unwrap();
        assert_eq!(namespace.orphans(&store, &[live]), 0);
    });
}

// BC-12, ST-13, ZK-03, CO-02: a leader that goes away, however, takes nothing with it.
#[test]
fn what_a_leader_completed_outlives_it() {
    on_each(|namespace| {
        let store = namespace.lead();
        let completed: Vec<_> = (1..=3).map(|id| namespace.complete(&store, id)).collect();
        drop(store);
        for _ in 0..3 {
            let store = namespace.lead();
            assert_eq!(namespace.recover(&store), completed);
            for checkpoint in &completed {
                namespace.run(store.verify_files(checkpoint)).unwrap();
            }
            let report = namespace.run(store.sweep_orphans(&completed)).unwrap();
            assert_eq!(report.files, 0);
        }
    });
}

// ST-12, ZK-04: dropped at a terminal end, everything is gone, and stays gone.
#[test]
fn a_finished_job_can_drop_everything() {
    on_each(|namespace| {
        let store = namespace.lead();
        let completed: Vec<_> = (1..=3).map(|id| namespace.complete(&store, id)).collect();
        // Marking again is no conflict, nor is a marker of unknown outcome that has landed.
        for end in [2, 3, 3] {
            let marked = namespace.run(store.mark_finished(CheckpointId(end)));
            assert_eq!(marked, WriteOutcome::Done);
        }
        for checkpoint in &completed {
            namespace
                .run(store.drop_completed(checkpoint, &[]))
                .unwrap();
        }
        drop(store);
        let (store, status) = namespace.try_lead().unwrap();
        let checkpoint = CheckpointId(3);
        assert_eq!(status, NamespaceStatus::Finished { checkpoint });
        assert_eq!(namespace.recover(&store), []);
        assert_eq!(namespace.orphans(&store, &[]), 0);
    });
}

// ID-01, ID-02, ID-03, ID-06, H8: counters go on over leaders.
#[test]
fn numbers_are_never_given_out_twice() {
    on_each(|namespace| {
        let mut attempts = BTreeSet::new();
        for round in 1..=3 {
            let store = namespace.lead();
            let known = namespace.run(store.reserved_ids()).unwrap();
            assert_eq!(known, CheckpointId(100 * (round - 1)));
            let up_to = CheckpointId(100 * round);
            for id in [up_to, CheckpointId(up_to.0 - 50)] {
                assert_eq!(namespace.run(store.reserve_ids(id)), WriteOutcome::Done);
            }
            assert_eq!(namespace.run(store.reserved_ids()).unwrap(), up_to);
            let reserved = namespace.run(async {
                let reserve = || store.reserve_attempt();
                tokio::join!(reserve(), reserve(), reserve())
            });
            attempts.extend([reserved.0, reserved.1, reserved.2].map(Result::unwrap));
            let last = namespace.run(store.last_attempt()).unwrap();
            assert_eq!(Some(&last), attempts.last());
        }
        assert_eq!(attempts, (1..=9).map(AttemptNumber).collect());
        // Somebody brought back old counters: what is completed has its numbers, too.
        let store = namespace.lead();
        namespace.complete(&store, 777);
        let known = namespace.run(store.reserved_ids()).unwrap();
        assert_eq!(known, CheckpointId(777));
    });
}

// BC-10, ID-05, ID-02
#[test]
fn counters_work_again_once_their_store_does() {
    on_each(|namespace| {
        let store = namespace.lead();
        let mut latest = namespace.run(store.reserve_attempt()).unwrap();
        for (fault, up_to) in [("record:write", 64), ("record:read-back", 192)] {
            let down = inject(fault, Io::NotConnected, 0..2);
            namespace.run(store.reserve_attempt()).unwrap_err();
            let outcome = namespace.run(store.reserve_ids(CheckpointId(up_to)));
            assert_ne!(outcome, WriteOutcome::Done);
            assert_eq!(down.remaining(), 0);
            drop(down);
            let next = namespace.run(store.reserve_attempt()).unwrap();
            assert!(next > latest);
            latest = next;
            let up_to = CheckpointId(up_to + 64);
            assert_eq!(namespace.run(store.reserve_ids(up_to)), WriteOutcome::Done);
            assert_eq!(namespace.run(store.reserved_ids()).unwrap(), up_to);
        }
    });
}

// H3: records are small, whatever the state.
#[test]
fn a_pointer_takes_less_than_a_kilobyte() {
    on_each(|namespace| {
        let store = namespace.lead();
        let files = (0..100).map(|_| write(&store, 1, "count[0]", b"state"));
        let large = checkpoint(&store, 1, files.collect());
        namespace.run(store.publish_metadata(&large));
        let mut pointer = CheckpointPointer::to(&large);
        assert_eq!(
            namespace.run(store.store_pointer(&pointer)),
            WriteOutcome::Done
        );
        let long = format!("file:///{}", "a-long-folder/".repeat(40));
        pointer.checkpoint = CheckpointId(2);
        pointer.location = Some(SnapshotLocation::new(&long));
        pointer.owner = Owner::User;
        assert_eq!(
            namespace.run(store.store_pointer(&pointer)),
            WriteOutcome::Done
        );
        let records = namespace.records();
        for id in 1..=2 {
            let name = format!("completed/{id:020}");
            let record = namespace.run(records.read(&name)).unwrap().unwrap();
            assert!(record.bytes.len() < 1000, "{} bytes", record.bytes.len());
        }
    });
}

// BC-02, ST-19: what is completed is never discarded, also if its files are asked for by name.
#[test]
fn a_completed_checkpoint_is_not_discarded() {
    on_each(|namespace| {
        let store = namespace.lead();
        let completed = namespace.complete(&store, 1);
        let files: Vec<_> = completed.files().cloned().collect();
        let discarded = store.discard_files(completed.id, None, &files, true);
        let error = namespace.run(discarded).unwrap_err();
        assert!(
            matches!(error, StorageError::StillReferenced { .. }),
            "{error}"
        );
        let error = namespace.run(store.sweep_orphans(&[])).unwrap_err();
        assert!(
            matches!(error, StorageError::StillReferenced { .. }),
            "{error}"
        );
        namespace.run(store.verify_files(&completed)).unwrap();
    });
}
