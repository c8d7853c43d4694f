//! Rescaling: state is written by p1 subtasks, restored by p2, changed, written, and so on. No key
//! is lost or doubled, and every backend holds its own key groups only.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::prelude::*;
use tidegate_state::{HeapKeyedBackend, StateKey, ValueState, ValueStateDescriptor};
use tidegate_types::{KeyGroup, MaxParallelism};

struct Subtask {
    backend: HeapKeyedBackend<String>,
    counts: ValueState<String, u64>,
}

fn descriptor() -> ValueStateDescriptor<u64> {
    ValueStateDescriptor::new("count").with_default(0)
}

fn subtask(max: MaxParallelism, index: u32, parallelism: u32, files: &[Vec<u8>]) -> Subtask {
    let range = max.range(index, parallelism).unwrap();
    let mut backend = HeapKeyedBackend::new(max, range);
    // Binding before and after restoring must make no difference.
    if index.is_multiple_of(2) {
        backend.value_state(&descriptor()).unwrap();
    }
    for (at, file) in files.iter().enumerate() {
        backend
            .restore_file(&format!("file-{at}"), &mut Cursor::new(file))
            .unwrap();
    }
    let counts = backend.value_state(&descriptor()).unwrap();
    Subtask { backend, counts }
}

/// Entries per key group, order-independent.
fn checksums(max: MaxParallelism, subtasks: &[Subtask]) -> BTreeMap<KeyGroup, u64> {
    let mut sums = BTreeMap::new();
    for subtask in subtasks {
        for (key, count) in subtask.counts.borrow().iter() {
            let group = max.key_group(key.key_hash());
            assert!(
                subtask.backend.key_groups().contains(group),
                "{key} is out of place"
            );
            let sum: &mut u64 = sums.entry(group).or_default();
            *sum = sum.wrapping_add((key.clone(), *count).key_hash());
        }
    }
    sums
}

fn expected(max: MaxParallelism, model: &BTreeMap<String, u64>) -> BTreeMap<KeyGroup, u64> {
    let mut sums = BTreeMap::new();
    for (key, count) in model {
        let sum: &mut u64 = sums.entry(max.key_group(key.key_hash())).or_default();
        *sum = sum.wrapping_add((key.clone(), *count).key_hash());
    }
    sums
}

fn save(subtask: &mut Subtask) -> Vec<u8> {
    let frozen = subtask.backend.freeze();
    subtask.backend.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

fn walk(max: u32, parallelisms: &[u32], keys: u64) {
    let max = MaxParallelism::new(max).unwrap();
    let mut model = BTreeMap::new();
    let mut files = Vec::new();
    for (round, &wanted) in (0u64..).zip(parallelisms) {
        let parallelism = 1 + (wanted - 1) % max.get();
        let mut subtasks: Vec<_> = (0..parallelism)
            .map(|index| subtask(max, index, parallelism, &files))
            .collect();
        assert_eq!(
            checksums(max, &subtasks),
            expected(max, &model),
            "round {round}"
        );
        for key in (round * 37)..(round * 37 + keys) {
            let key = format!("key {key}");
            let owner = max.owner(max.key_group(key.key_hash()), parallelism);
            let mut counts = subtasks[owner as usize].counts.borrow_mut();
            counts
                .update(key.key_hash(), &key, |count| *count += 1)
                .unwrap();
            *model.entry(key).or_default() += 1;
        }
        files = subtasks.iter_mut().map(save).collect();
    }
}

// KS-13: up, down, uneven.
#[test]
fn walk_over_many_parallelisms() {
    walk(128, &[1, 2, 1, 3, 5, 2, 128, 7, 64, 1], 2000);
    walk(5, &[5, 1, 3, 2, 4], 500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_walks(
        max in 1u32..200,
        parallelisms in prop::collection::vec(1u32..40, 1..5),
        keys in 0u64..300,
    ) {
        walk(max, &parallelisms, keys);
    }
}

/// Only the chunks of the own key groups are read.
#[test]
fn a_backend_reads_no_more_than_its_share() {
    struct Counting(Cursor<Vec<u8>>, usize);
    impl std::io::Read for Counting {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1 += read;
            Ok(read)
        }
    }
    impl std::io::Seek for Counting {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let max = MaxParallelism::new(128).unwrap();
    let mut whole = subtask(max, 0, 1, &[]);
    for key in 0..20_000u32 {
        let key = key.to_string();
        whole.counts.borrow_mut().set(key.key_hash(), &key, 1);
    }
    let file = save(&mut whole);
    let length = file.len();
    let mut part = subtask(max, 3, 8, &[]);
    let mut input = Counting(Cursor::new(file), 0);
    part.backend.restore_file("whole", &mut input).unwrap();
    let share = part.counts.borrow().len();
    assert!((2000..3000).contains(&share), "{share}");
    assert!(input.1 < length / 4, "{} of {length} bytes", input.1);
}
