//! Value state and backend contracts, scenario by scenario.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::{self, Cursor, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use tidegate_state::{
    FrozenKeyedState, HashedKey, HeapKeyedBackend, SnapshotProgress, StateError, StateKey,
    ValueStateDescriptor,
};
use tidegate_types::{KeyGroupRange, MaxParallelism};

fn max() -> MaxParallelism {
    MaxParallelism::derive(1)
}

fn backend<K: StateKey>() -> HeapKeyedBackend<K> {
    HeapKeyedBackend::new(max(), max().range(0, 1).unwrap())
}

fn counter(name: &str) -> ValueStateDescriptor<u64> {
    ValueStateDescriptor::new(name).with_default(0)
}

/// Completes and writes a snapshot.
fn save<K: StateKey>(backend: &mut HeapKeyedBackend<K>) -> Vec<u8> {
    let frozen = backend.freeze();
    backend.finish_snapshots();
    write(frozen)
}

fn write(frozen: FrozenKeyedState) -> Vec<u8> {
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

fn restore<K: StateKey>(backend: &mut HeapKeyedBackend<K>, file: &[u8]) -> Result<(), StateError> {
    backend.restore_file("state-1", &mut Cursor::new(file))
}

// KS-01
#[test]
fn restore_gives_the_values_of_the_snapshot() {
    let mut live = backend::<String>();
    let counts = live.value_state(&counter("count")).unwrap();
    counts
        .borrow_mut()
        .update("a".hash_key(), "a", |count| *count = 1);
    counts
        .borrow_mut()
        .update("b".hash_key(), "b", |count| *count = 2);
    let frozen = live.freeze();
    counts
        .borrow_mut()
        .update("a".hash_key(), "a", |count| *count = 10);
    counts.borrow_mut().remove("b".hash_key(), "b");
    counts
        .borrow_mut()
        .update("c".hash_key(), "c", |count| *count = 30);
    live.finish_snapshots();

    let mut restored = backend::<String>();
    restore(&mut restored, &write(frozen)).unwrap();
    let counts = restored.value_state(&counter("count")).unwrap();
    let table = counts.borrow();
    assert_eq!(table.get("a".hash_key(), "a"), Some(&1));
    assert_eq!(table.get("b".hash_key(), "b"), Some(&2));
    assert!(!table.contains("c".hash_key(), "c"));
}

// KS-02: what was removed reads as unset and is in no later snapshot.
#[test]
fn removed_values_are_gone() {
    let mut live = backend::<u32>();
    let state = live
        .value_state(&ValueStateDescriptor::<String>::new("name"))
        .unwrap();
    state
        .borrow_mut()
        .set(7u32.hash_key(), &7, "seven".to_owned());
    assert_eq!(
        state.borrow_mut().remove(7u32.hash_key(), &7).as_deref(),
        Some("seven")
    );
    assert_eq!(state.borrow_mut().remove(7u32.hash_key(), &7), None);
    assert_eq!(state.borrow().get(7u32.hash_key(), &7), None);
    assert_eq!(live.entries(), 0);
    let mut restored = backend::<u32>();
    restore(&mut restored, &save(&mut live)).unwrap();
    assert_eq!(restored.entries(), 0);
}

// KS-03, KS-07: the default comes back after a removal, and is a copy for each key.
#[test]
fn default_is_copied_for_each_key() {
    let mut live = backend::<u32>();
    let descriptor = ValueStateDescriptor::new("list").with_default(vec![1u8]);
    let state = live.value_state(&descriptor).unwrap();
    let mut table = state.borrow_mut();
    table.update(1u32.hash_key(), &1, |list| list.push(2));
    assert_eq!(table.get(1u32.hash_key(), &1), Some(&vec![1, 2]));
    assert_eq!(table.get(2u32.hash_key(), &2), Some(&vec![1]));
    table.remove(1u32.hash_key(), &1);
    assert_eq!(table.get(1u32.hash_key(), &1), Some(&vec![1]));
    assert!(!table.contains(1u32.hash_key(), &1));
}

#[test]
fn update_without_value_or_default_does_nothing() {
    let mut live = backend::<u32>();
    let state = live
        .value_state(&ValueStateDescriptor::<u64>::new("n"))
        .unwrap();
    let mut table = state.borrow_mut();
    assert_eq!(table.update(1u32.hash_key(), &1, |n| *n += 1), None);
    assert_eq!(*table.entry_or_insert_with(1u32.hash_key(), &1, || 5), 5);
    assert_eq!(
        table.update(1u32.hash_key(), &1, |n| std::mem::replace(n, 6)),
        Some(5)
    );
    assert_eq!(table.set(1u32.hash_key(), &1, 7), Some(6));
    assert_eq!(table.set(2u32.hash_key(), &2, 8), None);
    assert_eq!(table.len(), 2);
}

// KS-09, KS-19
#[test]
fn states_are_independent_and_entries_are_counted() {
    let mut live = backend::<u32>();
    let (a, b) = (
        live.value_state(&counter("a")).unwrap(),
        live.value_state(&ValueStateDescriptor::<String>::new("b"))
            .unwrap(),
    );
    for key in 0..1000u32 {
        a.borrow_mut()
            .update(key.key_hash(), &key, |count| *count += u64::from(key));
        b.borrow_mut().set(key.key_hash(), &key, key.to_string());
        b.borrow_mut().set(key.key_hash(), &key, key.to_string());
    }
    a.borrow_mut().remove(3u32.hash_key(), &3);
    assert_eq!(
        (a.borrow().len(), b.borrow().len(), live.entries()),
        (999, 1000, 1999)
    );

    let mut restored = backend::<u32>();
    restore(&mut restored, &save(&mut live)).unwrap();
    assert_eq!(restored.entries(), 1999);
    let b = restored
        .value_state(&ValueStateDescriptor::<String>::new("b"))
        .unwrap();
    let a = restored.value_state(&counter("a")).unwrap();
    assert_eq!(a.borrow().get(4u32.hash_key(), &4), Some(&4));
    assert_eq!(
        b.borrow().get(3u32.hash_key(), &3).map(String::as_str),
        Some("3")
    );
}

// L9
#[test]
fn binding_twice_gives_the_same_state() {
    let mut live = backend::<u32>();
    let first = live.value_state(&counter("count")).unwrap();
    first
        .borrow_mut()
        .update(1u32.hash_key(), &1, |count| *count += 1);
    let second = live.value_state(&counter("count")).unwrap();
    assert_eq!(second.borrow().get(1u32.hash_key(), &1), Some(&1));
}

#[test]
fn binding_a_name_with_another_type_is_an_error() {
    let mut live = backend::<u32>();
    live.value_state(&counter("count")).unwrap();
    let error = live
        .value_state(&ValueStateDescriptor::<String>::new("count"))
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "state `count` is already bound as `value state` version `1` of `u64`, so it can't be \
         bound as `value state` version `1` of `string`"
    );
    let newer = ValueStateDescriptor {
        version: 2,
        ..counter("count")
    };
    assert!(matches!(
        live.value_state(&newer),
        Err(StateError::AlreadyBound(_))
    ));
}

// KS-10
#[test]
fn restored_state_that_is_never_bound_stays_in_snapshots() {
    let mut first = backend::<String>();
    let old = first.value_state(&counter("old")).unwrap();
    for word in ["to", "be", "or"] {
        old.borrow_mut()
            .update(word.hash_key(), word, |count| *count += 1);
    }
    let file = save(&mut first);

    let mut second = backend::<String>();
    restore(&mut second, &file).unwrap();
    second.value_state(&counter("new")).unwrap();
    let file = save(&mut second);

    let mut third = backend::<String>();
    restore(&mut third, &file).unwrap();
    assert_eq!(third.entries(), 3);
    let old = third.value_state(&counter("old")).unwrap();
    assert_eq!(old.borrow().get("be".hash_key(), "be"), Some(&1));
    assert_eq!(third.entries(), 3);
}

// KS-11
#[test]
fn a_backend_without_states_has_an_empty_file() {
    let mut live = backend::<u32>();
    let frozen = live.freeze();
    assert!(!frozen.has_states());
    assert!(!live.has_pending_snapshots());
    let mut restored = backend::<u32>();
    restore(&mut restored, &write(frozen)).unwrap();
    assert_eq!(restored.entries(), 0);
}

// KS-12: types are compared before any data is read.
#[test]
fn restoring_with_another_type_is_an_error() {
    let mut live = backend::<u32>();
    live.value_state(&counter("count"))
        .unwrap()
        .borrow_mut()
        .set(1u32.hash_key(), &1, 5);
    let file = save(&mut live);

    let error = restore(&mut backend::<u64>(), &file).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(error.to_string(), "restore keyed state from file `state-1`");
    assert_eq!(
        cause,
        "keys were saved as `u32`, but the job's key type is `u64`"
    );

    let declared = [
        ValueStateDescriptor::<u64>::new("count"),
        ValueStateDescriptor {
            version: 2,
            ..counter("count")
        },
    ];
    let mut late = backend::<u32>();
    restore(&mut late, &file).unwrap();
    let error = late.value_state(&declared[1]).err().unwrap();
    assert!(
        matches!(error, StateError::RestoredStateMismatch(_)),
        "{error}"
    );
    let error = late
        .value_state(&ValueStateDescriptor::<(u64, u8)>::new("count"))
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "state `count` was saved as `value state` version `1` of `u64`, but the job declares \
         `value state` version `1` of `(u64,u8)`"
    );
    late.value_state(&declared[0]).unwrap();

    let mut early = backend::<u32>();
    early.value_state(&declared[1]).unwrap();
    let error = restore(&mut early, &file).unwrap_err();
    assert!(
        matches!(error, StateError::RestoredStateMismatch(_)),
        "{error}"
    );
}

#[test]
fn restoring_with_another_max_parallelism_is_an_error() {
    let file = save(&mut backend::<u32>());
    let other = MaxParallelism::new(64).unwrap();
    let mut restored = HeapKeyedBackend::<u32>::new(other, other.range(0, 1).unwrap());
    let error = restore(&mut restored, &file).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        cause,
        "state has max parallelism `128`, but the operator has `64`"
    );
}

#[test]
fn restoring_the_same_file_twice_is_an_error() {
    let mut live = backend::<u32>();
    live.value_state(&counter("count"))
        .unwrap()
        .borrow_mut()
        .set(1u32.hash_key(), &1, 5);
    let file = save(&mut live);
    let mut restored = backend::<u32>();
    restored.value_state(&counter("count")).unwrap();
    restore(&mut restored, &file).unwrap();
    assert!(matches!(
        restore(&mut restored, &file),
        Err(StateError::Load { .. })
    ));
}

// KG-07: never a silent write.
#[test]
fn keys_of_another_subtask_are_refused() {
    let own = KeyGroupRange { start: 10, end: 20 };
    let mut live = HeapKeyedBackend::<u32>::new(max(), own);
    let state = live.value_state(&counter("count")).unwrap();
    let (inside, outside): (Vec<u32>, Vec<u32>) =
        (0..1000).partition(|key| own.contains(max().key_group(key.key_hash())));
    assert!(!inside.is_empty());
    for key in inside {
        state
            .borrow_mut()
            .update(key.key_hash(), &key, |count| *count += 1);
    }
    for key in outside {
        let refused = catch_unwind(AssertUnwindSafe(|| {
            state
                .borrow_mut()
                .update(key.key_hash(), &key, |count| *count += 1);
        }));
        assert!(refused.is_err(), "key {key}");
    }
}

// KS-14, M18: the writer runs beside the worker, which goes on.
#[test]
fn snapshot_is_written_while_writes_continue() {
    let mut live = backend::<u64>();
    let state = live.value_state(&counter("count")).unwrap();
    let bump = |key: u64| {
        state
            .borrow_mut()
            .update(key.key_hash(), &key, |count| *count += 1);
    };
    (0..100_000).for_each(bump);
    let frozen = live.freeze();
    let writer = thread::spawn(move || write(frozen));
    let mut key = 0;
    while !live.advance_snapshots(4).is_done() {
        (key..key + 100).for_each(bump);
        key += 100;
    }
    (0..200_000).for_each(bump);

    let mut restored = backend::<u64>();
    restore(&mut restored, &writer.join().unwrap()).unwrap();
    let state = restored.value_state(&counter("count")).unwrap();
    assert_eq!(state.borrow().len(), 100_000);
    assert!(state.borrow().iter().all(|(_, count)| *count == 1));
}

// KS-14
#[test]
fn cancelled_and_orphaned_snapshots_fail_to_write() {
    let mut live = backend::<u64>();
    let state = live.value_state(&counter("count")).unwrap();
    state.borrow_mut().set(1u64.hash_key(), &1, 1);
    let cancelled = live.freeze();
    live.cancel_snapshot(cancelled.ticket());
    assert!(!live.has_pending_snapshots());
    let error = cancelled.write_to(&mut Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the snapshot of key groups `0..=127` was cancelled before it was complete"
    );
    let orphaned = live.freeze();
    drop((live, state));
    let error = orphaned.write_to(&mut Vec::new()).unwrap_err();
    assert!(matches!(error, StateError::SnapshotCancelled { .. }));
}

#[test]
fn dropped_snapshots_stop_the_copying() {
    let mut live = backend::<u64>();
    let state = live.value_state(&counter("count")).unwrap();
    for key in 0..50_000u64 {
        state.borrow_mut().set(key.key_hash(), &key, key);
    }
    drop(live.freeze());
    assert!(live.has_pending_snapshots());
    assert_eq!(live.advance_snapshots(1), SnapshotProgress::Done);
    assert!(!live.has_pending_snapshots());
}

/// A slow disk must not make the worker pile up copies.
#[test]
fn background_copying_waits_for_the_writer() {
    let mut live = backend::<u64>();
    let state = live.value_state(&counter("count")).unwrap();
    // Nothing of a key that begins with all bits set can be left out.
    for key in u64::MAX - 599_999..=u64::MAX {
        state.borrow_mut().set(key.key_hash(), &key, key);
    }
    let frozen = live.freeze();
    assert_eq!(
        live.advance_snapshots(100_000),
        SnapshotProgress::WritersBehind
    );
    assert_eq!(
        live.advance_snapshots(100_000),
        SnapshotProgress::WritersBehind
    );
    let writer = thread::spawn(move || write(frozen));
    while !live.advance_snapshots(100).is_done() {
        thread::yield_now();
    }
    let mut restored = backend::<u64>();
    restore(&mut restored, &writer.join().unwrap()).unwrap();
    assert_eq!(restored.entries(), 600_000);
}

/// One thread that writes one snapshot after the other must not bring copying to a standstill.
#[test]
fn snapshots_in_flight_can_be_written_one_after_the_other() {
    let mut live = backend::<u64>();
    let state = live.value_state(&counter("count")).unwrap();
    for key in 0..600_000u64 {
        state.borrow_mut().set(key.key_hash(), &key, key);
    }
    let frozen: Vec<_> = (0..3).map(|_| live.freeze()).collect();
    let writer = thread::spawn(move || frozen.into_iter().map(write).collect::<Vec<_>>());
    while !live.advance_snapshots(100).is_done() {
        thread::yield_now();
    }
    for file in writer.join().unwrap() {
        let mut restored = backend::<u64>();
        restore(&mut restored, &file).unwrap();
        assert_eq!(restored.entries(), 600_000);
    }
}

// KS-16, BC-52: a state registered between snapshots in flight is in the later ones only.
#[test]
fn states_registered_while_snapshots_are_pending() {
    let mut live = backend::<u64>();
    let first = live.value_state(&counter("first")).unwrap();
    first.borrow_mut().set(1u64.hash_key(), &1, 1);
    let before: Vec<_> = (0..5).map(|_| live.freeze()).collect();
    let second = live.value_state(&counter("second")).unwrap();
    second.borrow_mut().set(2u64.hash_key(), &2, 2);
    first.borrow_mut().set(1u64.hash_key(), &1, 10);
    let after: Vec<_> = (0..5).map(|_| live.freeze()).collect();
    second.borrow_mut().remove(2u64.hash_key(), &2);
    live.finish_snapshots();
    let read = |frozen, name: &str| {
        let mut restored = backend::<u64>();
        restore(&mut restored, &write(frozen)).unwrap();
        let entries = restored.entries();
        let state = restored.value_state(&counter(name)).unwrap();
        let key = if name == "first" { 1u64 } else { 2 };
        let value = *state.borrow().get(key.key_hash(), &key).unwrap();
        (entries, value)
    };
    for frozen in before {
        assert_eq!(read(frozen, "first"), (1, 1));
    }
    for (at, frozen) in (0..).zip(after) {
        let (name, expected) = if at % 2 == 0 {
            ("first", (2, 10))
        } else {
            ("second", (2, 2))
        };
        assert_eq!(read(frozen, name), expected);
    }
}

#[test]
fn loading_while_a_snapshot_is_pending_is_an_error() {
    let mut live = backend::<u64>();
    live.value_state(&counter("count"))
        .unwrap()
        .borrow_mut()
        .set(1u64.hash_key(), &1, 1);
    let file = save(&mut live);
    let _frozen = live.freeze();
    assert!(matches!(
        restore(&mut live, &file),
        Err(StateError::SnapshotPending { pending: 1 })
    ));
}

// BC-50: NUL, 0xFF, emoji and right-to-left text in keys and names.
#[test]
fn any_text_is_a_key_and_a_name() {
    let keys: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0, 0],
        vec![0xff; 3],
        "🌊 \u{202e}שלום".as_bytes().to_vec(),
        b"a".to_vec(),
        b"ab".to_vec(),
    ];
    let name = "nüm\0bers/../🌊";
    let mut live = backend::<Vec<u8>>();
    let state = live.value_state(&counter(name)).unwrap();
    for (at, key) in (0..).zip(&keys) {
        state.borrow_mut().set(key.key_hash(), key, at);
    }
    let mut restored = backend::<Vec<u8>>();
    restore(&mut restored, &save(&mut live)).unwrap();
    let state = restored.value_state(&counter(name)).unwrap();
    for (at, key) in (0u64..).zip(&keys) {
        assert_eq!(
            state.borrow().get(key.key_hash(), key.as_slice()),
            Some(&at)
        );
    }
    assert_eq!(restored.entries(), keys.len());
}

/// Refuses to take more than so many bytes, like a full disk.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_fails_the_snapshot_and_nothing_else() {
    let mut live = backend::<u64>();
    let state = live.value_state(&counter("count")).unwrap();
    for key in 0..10_000u64 {
        state.borrow_mut().set(key.key_hash(), &key, key);
    }
    let frozen = live.freeze();
    live.finish_snapshots();
    let error = frozen.write_to(&mut FullDisk(5000)).unwrap_err();
    assert!(matches!(error, StateError::Write { .. }), "{error}");
    let mut restored = backend::<u64>();
    restore(&mut restored, &save(&mut live)).unwrap();
    assert_eq!(restored.entries(), 10_000);
}

/// A value that can't be serialised.
#[derive(Clone, serde::Deserialize)]
struct Unserialisable;

impl serde::Serialize for Unserialisable {
    fn serialize<S: serde::Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no"))
    }
}

// L13: if the second of three states can't be written, the first doesn't count either.
#[test]
fn a_state_that_cannot_be_written_fails_the_whole_snapshot() {
    let mut live = backend::<u64>();
    let first = live.value_state(&counter("first")).unwrap();
    let bad = ValueStateDescriptor::<Unserialisable>::new("second");
    let second = live.value_state(&bad).unwrap();
    let third = live.value_state(&counter("third")).unwrap();
    first.borrow_mut().set(1u64.hash_key(), &1, 1);
    second.borrow_mut().set(1u64.hash_key(), &1, Unserialisable);
    third.borrow_mut().set(1u64.hash_key(), &1, 3);
    let frozen = live.freeze();
    live.finish_snapshots();
    let mut file = Vec::new();
    let error = frozen.write_to(&mut file).unwrap_err();
    let group = max().key_group(1u64.hash_key());
    assert_eq!(
        error.to_string(),
        format!("serialise a value of state `second`, key group `{group}`")
    );
    assert!(restore(&mut backend::<u64>(), &file).is_err());
    second.borrow_mut().remove(1u64.hash_key(), &1);
    let mut restored = backend::<u64>();
    restore(&mut restored, &save(&mut live)).unwrap();
    assert_eq!(restored.entries(), 2);
}
