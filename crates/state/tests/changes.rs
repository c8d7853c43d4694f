//! Pieces of changes: what they contain, in which order they restore, at any parallelism, and
//! damage of every kind.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Cursor;

use proptest::prelude::*;
use tidegate_state::format::{ChunkRole, FileError, FileIndex, KeyedFileReader};
use tidegate_state::{
    FrozenKeyedState, HeapKeyedBackend, KeyedFileSummary, PieceKind, StateError, StateKey,
    TrackedSnapshot, ValueState, ValueStateDescriptor,
};
use tidegate_types::{CheckpointId, KeyGroupRange, MaxParallelism};

fn descriptor() -> ValueStateDescriptor<u64> {
    ValueStateDescriptor::new("count").with_default(0)
}

/// Subtask `index` of `parallelism`, and its state.
struct Subtask {
    backend: HeapKeyedBackend<u64>,
    counts: ValueState<u64, u64>,
}

fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(16).unwrap()
}

impl Subtask {
    fn new(index: u32, parallelism: u32, chains: &[Vec<Vec<u8>>]) -> Result<Self, StateError> {
        let max = max_parallelism();
        let range = max.range(index, parallelism).unwrap();
        let mut backend = HeapKeyedBackend::new(max, range);
        for chain in chains {
            let mut restore = backend.restore_chain();
            for (at, piece) in chain.iter().enumerate() {
                restore.add_piece(&format!("piece-{at}"), &mut Cursor::new(piece))?;
            }
        }
        let counts = backend.value_state(&descriptor())?;
        Ok(Subtask { backend, counts })
    }

    fn add(&self, key: u64, by: u64) {
        let mut table = self.counts.borrow_mut();
        table.update(key.key_hash(), &key, |count| *count += by);
    }

    fn remove(&self, key: u64) {
        self.counts.borrow_mut().remove(key.key_hash(), &key);
    }

    fn freeze(&mut self, checkpoint: u64, base: u64) -> FrozenKeyedState {
        let snapshot = TrackedSnapshot {
            checkpoint: CheckpointId(checkpoint),
            base: (base > 0).then_some(CheckpointId(base)),
            whole: false,
        };
        self.backend.freeze_tracked(&snapshot)
    }

    fn piece(&mut self, checkpoint: u64, base: u64) -> (Vec<u8>, KeyedFileSummary) {
        let frozen = self.freeze(checkpoint, base);
        self.backend.finish_snapshots();
        write(frozen)
    }

    fn contents(&self) -> BTreeMap<u64, u64> {
        let table = self.counts.borrow();
        table.iter().map(|(key, count)| (*key, *count)).collect()
    }
}

fn write(frozen: FrozenKeyedState) -> (Vec<u8>, KeyedFileSummary) {
    let mut piece = Vec::new();
    let summary = frozen.write_to(&mut piece).unwrap();
    (piece, summary)
}

fn index(piece: &[u8]) -> FileIndex {
    let mut input = Cursor::new(piece);
    KeyedFileReader::open(&mut input).unwrap().index().clone()
}

/// One subtask with this many keys, all of which `chk-1` has.
fn filled(keys: u64) -> (Subtask, Vec<u8>) {
    let mut subtask = Subtask::new(0, 1, &[]).unwrap();
    (0..keys).for_each(|key| subtask.add(key, 1));
    let (piece, _) = subtask.piece(1, 0);
    (subtask, piece)
}

#[test]
fn a_piece_has_what_changed_and_nothing_else() {
    let (mut subtask, full) = filled(20_000);
    assert_eq!(index(&full).kind(), PieceKind::Full);
    (0..200).for_each(|key| subtask.add(key * 100, 5));
    (0..50).for_each(|key| subtask.remove(key * 100 + 1));
    let (changes, summary) = subtask.piece(2, 1);
    assert_eq!((summary.entries, summary.tombstones), (200, 50));
    assert!(changes.len() * 10 < full.len(), "{} bytes", changes.len());
    let index = index(&changes);
    assert_eq!(index.kind(), PieceKind::Changes);
    assert_eq!((index.checkpoint.0, index.base.0), (2, 1));
    assert!(index.replaced.is_empty());
    let (_, summary) = subtask.piece(3, 2);
    assert_eq!((summary.entries, summary.tombstones), (0, 0));
}

// RX-03: what was in a piece that nobody confirmed is in the next one again.
#[test]
fn changes_are_repeated_until_they_are_confirmed() {
    let (mut subtask, full) = filled(20_000);
    subtask.add(7, 1);
    subtask.remove(8);
    drop(subtask.freeze(2, 1));
    subtask.add(9, 1);
    let (changes, summary) = subtask.piece(3, 1);
    assert_eq!((summary.entries, summary.tombstones), (2, 1));
    let restored = Subtask::new(0, 1, &[vec![full, changes]]).unwrap();
    assert_eq!(restored.contents(), subtask.contents());
}

// RX-09: of two at once the first is aborted, the second confirmed.
#[test]
fn an_aborted_one_below_a_confirmed_one_is_not_missed() {
    let (mut subtask, full) = filled(20_000);
    subtask.add(7, 1);
    let second = subtask.freeze(2, 1);
    subtask.add(9, 1);
    let third = subtask.freeze(3, 1);
    subtask.backend.cancel_snapshot(second.ticket());
    subtask.add(11, 1);
    subtask.backend.finish_snapshots();
    let (third, _) = write(third);
    let (fourth, summary) = subtask.piece(4, 3);
    // Key 11, and possibly what the cancelled one would have had.
    assert!((1..=3).contains(&summary.entries), "{summary:?}");
    let restored = Subtask::new(0, 1, &[vec![full, third, fourth]]).unwrap();
    assert_eq!(restored.contents(), subtask.contents());
}

// RX-13: whole by itself, and the windows of changes don't notice.
#[test]
fn a_savepoint_is_whole_and_leaves_no_traces() {
    let (mut subtask, full) = filled(20_000);
    subtask.add(7, 1);
    let savepoint = subtask.backend.freeze();
    subtask.backend.finish_snapshots();
    assert_eq!(
        (savepoint.kind(), savepoint.base()),
        (PieceKind::Full, None)
    );
    let (savepoint, summary) = write(savepoint);
    assert_eq!((summary.entries, summary.tombstones), (20_000, 0));
    let restored = Subtask::new(0, 1, &[vec![savepoint]]).unwrap();
    assert_eq!(restored.contents(), subtask.contents());

    let (changes, summary) = subtask.piece(3, 1);
    assert_eq!(summary.entries, 1, "also what the savepoint has");
    let restored = Subtask::new(0, 1, &[vec![full, changes]]).unwrap();
    assert_eq!(restored.contents(), subtask.contents());
}

// A savepoint and a checkpoint that are copied together want different entries of the same pages.
#[test]
fn a_savepoint_beside_a_checkpoint_makes_it_no_larger() {
    let (mut subtask, full) = filled(20_000);
    (0..100).for_each(|key| subtask.add(key * 200, 1));
    let before = subtask.backend.freeze();
    let changes = subtask.freeze(3, 1);
    let after = subtask.backend.freeze();
    let expected = subtask.contents();
    (0..500).for_each(|key| subtask.add(key, 1));
    subtask.backend.finish_snapshots();
    let (changes, summary) = write(changes);
    assert_eq!(summary.entries, 100);
    for chain in [
        vec![write(before).0],
        vec![write(after).0],
        vec![full, changes],
    ] {
        let restored = Subtask::new(0, 1, &[chain]).unwrap();
        assert_eq!(restored.contents(), expected);
    }
}

#[test]
fn tables_that_grew_are_replaced() {
    let (mut subtask, full) = filled(1000);
    (1000..50_000).for_each(|key| subtask.add(key, 1));
    let (changes, _) = subtask.piece(2, 1);
    let index = index(&changes);
    let all = KeyGroupRange { start: 0, end: 15 };
    let replaced: Vec<_> = index
        .replaced
        .iter()
        .map(|tables| tables.key_groups)
        .collect();
    assert_eq!(replaced, [all]);
    let restored = Subtask::new(0, 1, &[vec![full, changes]]).unwrap();
    assert_eq!(restored.contents(), subtask.contents());
}

#[test]
fn removals_are_bounded_by_what_is_left() {
    let (mut subtask, full) = filled(50_000);
    (100..50_000).for_each(|key| subtask.remove(key));
    let (changes, summary) = subtask.piece(2, 1);
    assert_eq!((summary.entries, summary.tombstones), (100, 0));
    assert!(changes.len() < 10_000, "{} bytes", changes.len());
    let restored = Subtask::new(0, 1, &[vec![full, changes]]).unwrap();
    assert_eq!(restored.contents(), subtask.contents());
}

#[test]
fn the_first_piece_after_a_restore_is_full() {
    let (_, full) = filled(100);
    let mut restored = Subtask::new(0, 1, &[vec![full]]).unwrap();
    restored.add(3, 1);
    assert_eq!(restored.freeze(2, 1).kind(), PieceKind::Full);
    restored.add(4, 1);
    assert_eq!(restored.freeze(3, 1).kind(), PieceKind::Full);
    restored.add(5, 1);
    assert_eq!(restored.freeze(4, 3).kind(), PieceKind::Changes);
}

/// What is restored into a backend after its first checkpoint is new to that, bound or not.
#[test]
fn what_is_restored_late_is_in_the_next_piece() {
    for bound in [true, false] {
        let (_, other) = filled(1000);
        let max = max_parallelism();
        let mut backend = HeapKeyedBackend::<u64>::new(max, max.range(0, 1).unwrap());
        if bound {
            backend.value_state(&descriptor()).unwrap();
        }
        let freeze = |backend: &mut HeapKeyedBackend<u64>, checkpoint, base: u64| {
            let frozen = backend.freeze_tracked(&TrackedSnapshot {
                checkpoint: CheckpointId(checkpoint),
                base: (base > 0).then_some(CheckpointId(base)),
                whole: false,
            });
            backend.finish_snapshots();
            let kind = frozen.kind();
            (kind, write(frozen).1.entries)
        };
        for id in 1..4 {
            freeze(&mut backend, id, id - 1);
        }
        backend
            .restore_file("other", &mut Cursor::new(other))
            .unwrap();
        assert_eq!(freeze(&mut backend, 4, 3), (PieceKind::Changes, 1000));
        assert_eq!(freeze(&mut backend, 5, 3), (PieceKind::Changes, 1000));
        assert_eq!(freeze(&mut backend, 6, 5), (PieceKind::Changes, 0));
        let counts = backend.value_state(&descriptor()).unwrap();
        assert_eq!(counts.borrow().len(), 1000);
    }
}

/// Three pieces, and what they restore to.
fn chain() -> (Vec<Vec<u8>>, BTreeMap<u64, u64>) {
    let (mut subtask, full) = filled(600);
    let mut chain = vec![full];
    for id in 2..4 {
        (0..20).for_each(|key| subtask.add(key * id, id));
        (0..5).for_each(|key| subtask.remove(key * 7 + id));
        chain.push(subtask.piece(id, id - 1).0);
    }
    (chain, subtask.contents())
}

fn cause(chain: &[Vec<u8>]) -> String {
    let error = Subtask::new(0, 1, &[chain.to_vec()]).err().unwrap();
    error.source().unwrap().to_string()
}

#[test]
fn pieces_restore_in_their_order_only() {
    let (chain, expected) = chain();
    let restored = Subtask::new(0, 1, std::slice::from_ref(&chain)).unwrap();
    assert_eq!(restored.contents(), expected);
    let [first, second, third] = &chain[..] else {
        panic!("three pieces")
    };
    let order = |pieces: &[&Vec<u8>]| {
        let pieces: Vec<_> = pieces.iter().copied().cloned().collect();
        cause(&pieces)
    };
    assert_eq!(
        order(&[first, third]),
        "the changes of `chk-3` to `chk-2` can't follow the piece of `chk-1`"
    );
    assert_eq!(
        order(&[second]),
        "the changes of `chk-2` to `chk-1` can't follow nothing"
    );
    assert_eq!(
        order(&[first, second, second]),
        "the changes of `chk-2` to `chk-1` can't follow the piece of `chk-2`"
    );
    assert_eq!(
        order(&[first, first]),
        "a full piece can't follow the piece of `chk-1`"
    );
}

// RX-12: 1 -> 2 -> 1, 2 -> 8, 8 -> 2, 7 -> 2, 3 -> 2, each with changes of its own.
#[test]
fn chains_restore_at_any_parallelism() {
    let mut model = BTreeMap::new();
    let mut chains = Vec::new();
    let mut checkpoint = 0;
    for (round, parallelism) in (0u64..).zip([1, 2, 1, 2, 8, 2, 7, 2, 3, 2, 16, 1]) {
        let subtasks = 0..parallelism;
        let mut subtasks: Vec<_> = subtasks
            .map(|index| Subtask::new(index, parallelism, &chains).unwrap())
            .collect();
        let restored: Vec<_> = subtasks.iter().map(Subtask::contents).collect();
        let keys: usize = restored.iter().map(BTreeMap::len).sum();
        assert_eq!(keys, model.len(), "no key twice in round {round}");
        assert_eq!(
            restored.into_iter().flatten().collect::<BTreeMap<_, _>>(),
            model
        );

        chains = vec![Vec::new(); parallelism as usize];
        for piece in 0..4 {
            for key in 0..300 {
                let key = (key * 7919 * (piece + 1) + round) % 5000;
                let group = max_parallelism().key_group(key.key_hash());
                let owner = max_parallelism().owner(group, parallelism) as usize;
                if key % 4 == 3 {
                    subtasks[owner].remove(key);
                    model.remove(&key);
                } else {
                    subtasks[owner].add(key, piece + 1);
                    *model.entry(key).or_default() += piece + 1;
                }
            }
            checkpoint += 1;
            let base = if piece == 0 { 0 } else { checkpoint - 1 };
            for (subtask, chain) in subtasks.iter_mut().zip(&mut chains) {
                chain.push(subtask.piece(checkpoint, base).0);
            }
        }
    }
}

/// Recomputes the checksums of footer and trailer, as a forger would.
fn reseal(file: &mut [u8]) {
    let trailer = file.len() - 24;
    let length = u64::from_le_bytes(file[trailer..trailer + 8].try_into().unwrap()) as usize;
    let footer = crc32c::crc32c(&file[trailer - length..trailer]);
    file[trailer + 8..trailer + 12].copy_from_slice(&footer.to_le_bytes());
    let own = crc32c::crc32c(&file[trailer..trailer + 12]);
    file[trailer + 12..trailer + 16].copy_from_slice(&own.to_le_bytes());
}

#[test]
fn every_flipped_byte_of_changes_is_detected() {
    let (chain, _) = chain();
    for at in 0..chain[1].len() {
        for bit in [0x01, 0xff] {
            let mut altered = chain.clone();
            altered[1][at] ^= bit;
            assert!(
                Subtask::new(0, 1, &[altered]).is_err(),
                "byte {at} xor {bit:#x}"
            );
        }
    }
}

#[test]
fn every_truncation_of_changes_is_detected() {
    let (chain, _) = chain();
    for length in 0..chain[2].len() {
        let mut altered = chain.clone();
        altered[2].truncate(length);
        assert!(Subtask::new(0, 1, &[altered]).is_err(), "{length} bytes");
    }
}

#[test]
fn what_a_full_piece_cannot_say_is_refused() {
    let (chain, _) = chain();
    let index = index(&chain[1]);
    assert!(
        index
            .chunks
            .iter()
            .any(|chunk| chunk.role == ChunkRole::Tombstones)
    );
    // Without its base it would be a full piece that removes.
    let mut forged = chain[1].clone();
    let trailer = forged.len() - 24;
    let length = u64::from_le_bytes(forged[trailer..trailer + 8].try_into().unwrap()) as usize;
    forged[trailer - length + 8..trailer - length + 16].fill(0);
    reseal(&mut forged);
    let mut input = Cursor::new(&forged);
    let error = KeyedFileReader::open(&mut input).err().unwrap();
    assert_eq!(
        error.to_string(),
        "footer is malformed: a full piece says what it removes"
    );
}

// BC-48: a forged footer ends in an error or in some state, never in a panic.
#[test]
fn forged_footers_of_changes_are_harmless() {
    let (mut subtask, full) = filled(40);
    (40..600).for_each(|key| subtask.add(key, 1));
    (0..5).for_each(|key| subtask.remove(key));
    let (changes, _) = subtask.piece(2, 1);
    assert!(!index(&changes).replaced.is_empty());
    let trailer = changes.len() - 24;
    let length = u64::from_le_bytes(changes[trailer..trailer + 8].try_into().unwrap()) as usize;
    for at in trailer - length..trailer {
        for bit in [0x01, 0x02, 0x80, 0xff] {
            let mut forged = changes.clone();
            forged[at] ^= bit;
            reseal(&mut forged);
            let restored = Subtask::new(0, 1, &[vec![full.clone(), forged]]);
            if let Err(error) = restored {
                let known = matches!(
                    error,
                    StateError::Restore { .. }
                        | StateError::Load { .. }
                        | StateError::RestoredStateMismatch(_)
                );
                assert!(known, "{error}");
            }
        }
    }
}

/// A key that a piece has twice is an error, whatever came before.
#[test]
fn a_key_comes_once_within_a_piece() {
    let (mut subtask, full) = filled(20_000);
    subtask.add(7, 1);
    let (changes, _) = subtask.piece(2, 1);
    let chunk = index(&changes).chunks[0];
    let at = chunk.offset as usize;
    let payload = changes[at + 24..at + 24 + chunk.payload_bytes as usize].to_vec();
    assert_eq!(chunk.role, ChunkRole::ShortEntries);
    // The same chunk with its entry twice, behind the width of keys.
    let doubled = [&payload[..], &payload[1..]].concat();
    let mut forged = changes[..at].to_vec();
    let mut header = changes[at..at + 20].to_vec();
    header[8..12].copy_from_slice(&2u32.to_le_bytes());
    header[12..20].copy_from_slice(&(doubled.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header), &doubled);
    forged.extend([&header[..], &crc.to_le_bytes(), &doubled].concat());
    forged.extend(&changes[at + 24 + payload.len()..]);
    let entry = forged.len() - 24 - 28;
    forged[entry + 8..entry + 12].copy_from_slice(&2u32.to_le_bytes());
    forged[entry + 20..entry + 28].copy_from_slice(&(doubled.len() as u64).to_le_bytes());
    reseal(&mut forged);
    let error = Subtask::new(0, 1, &[vec![full, forged]]).err().unwrap();
    let cause = error.source().unwrap().to_string();
    assert_eq!(cause, "the key of entry `1` has been loaded before");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens to the bytes of a piece, restoring ends in an error.
    #[test]
    fn random_damage_is_detected(
        which in 0usize..3,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut chain, _) = chain();
        let original = chain[which].clone();
        for (at, xor) in damage {
            let at = at.index(original.len());
            chain[which][at] ^= xor;
        }
        if let Some(cut) = cut {
            let length = cut.index(original.len());
            chain[which].truncate(length);
        }
        prop_assume!(chain[which] != original);
        match Subtask::new(0, 1, &[chain]) {
            Ok(_) => prop_assert!(false, "damage was not detected"),
            Err(StateError::Restore { cause, .. }) => {
                prop_assert!(!matches!(*cause, FileError::OutOfOrder { .. }), "{}", cause);
            }
            Err(other) => prop_assert!(false, "unexpected: {}", other),
        }
    }
}
