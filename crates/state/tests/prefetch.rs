//! Looking ahead: what decides whether it pays, and that it changes nothing.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use tidegate_state::{
    At, HashedKey, HeapKeyedBackend, LikelyPlace, ListStateDescriptor, StateKey,
    ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

/// Entries of 16 bytes from which on looking ahead pays.
const LARGE: u64 = 32_768;

fn backend(parallelism: u32) -> HeapKeyedBackend<u64> {
    let max = MaxParallelism::derive(parallelism);
    HeapKeyedBackend::new(max, max.range(0, parallelism).unwrap())
}

#[test]
fn a_table_outgrows_the_cache_by_what_is_in_it() {
    let mut backend = backend(1);
    let counts = backend
        .bind(&ValueStateDescriptor::<u64>::new("count"))
        .unwrap();
    for key in 0..LARGE {
        assert!(!counts.borrow().outgrows_cache() && !backend.outgrows_cache());
        counts.set(&At::key(&key), key).unwrap();
    }
    assert!(counts.borrow().outgrows_cache() && backend.outgrows_cache());
    counts.clear(&At::key(&7)).unwrap();
    assert!(!counts.borrow().outgrows_cache() && !backend.outgrows_cache());

    let lists = backend
        .bind(&ListStateDescriptor::<u64>::new("list"))
        .unwrap();
    (0..LARGE).for_each(|key| lists.add(&At::key(&key), key).unwrap());
    assert!(backend.outgrows_cache(), "one of the states is large");
}

#[test]
fn what_a_key_has_several_of_is_not_known_ahead() {
    let mut backend = backend(1);
    let sums = backend
        .bind_within::<u32, _>(&ValueStateDescriptor::<u64>::new("sum"))
        .unwrap();
    for key in 0..2 * LARGE {
        sums.set(&At::key(&key).within(&3), key).unwrap();
    }
    assert!(!backend.outgrows_cache());
    backend.prefetch(&[7_u64.key_hash()]);
}

// Keys that are there, keys that aren't, keys of other subtasks, and no keys; tables of all sizes,
// empty ones too, while they grow and after removals.
#[test]
fn whatever_is_asked_for_nothing_changes() {
    let max = MaxParallelism::derive(2);
    let groups = max.range(0, 2).unwrap();
    let mut backend = HeapKeyedBackend::<u64>::new(max, groups);
    let counts = backend
        .bind(&ValueStateDescriptor::<u64>::new("count"))
        .unwrap();
    let own = |key: &u64| groups.contains(max.key_group(key.key_hash()));
    let keys: Vec<u64> = (0..4 * LARGE).collect();
    let hashes: Vec<u64> = keys.iter().map(HashedKey::hash_key).collect();
    let mut places = [LikelyPlace::NOWHERE; 1000];
    let mut len = 0;
    for (keys, next) in keys.chunks(1000).zip(hashes.chunks(1000)) {
        counts.borrow().prefetch(next, &mut places);
        backend.prefetch(next);
        backend.prefetch(&[]);
        for key in keys.iter().filter(|key| own(key)) {
            counts.set(&At::key(key), *key).unwrap();
            len += 1;
        }
        for key in keys.iter().filter(|key| own(key) && **key % 5 == 0) {
            counts.clear(&At::key(key)).unwrap();
            len -= 1;
        }
    }
    assert!(backend.outgrows_cache());
    backend.prefetch(&hashes);
    counts.borrow().prefetch(&[0, u64::MAX], &mut places);
    assert_eq!(counts.entries_total(), len);
    for key in keys.iter().filter(|key| own(key)) {
        let expected = (key % 5 != 0).then_some(*key);
        assert_eq!(counts.get(&At::key(key)).unwrap(), expected);
    }
}
