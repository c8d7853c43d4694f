//! Checkpoints that rest on earlier ones: which pieces a subtask acknowledges, whatever became of
//! the checkpoints in between, and that a job goes on from them.

use std::collections::BTreeMap;

use tidegate_types::message::Notice;
use tidegate_types::{
    CheckpointBarrier, CheckpointId, KeyedPiece, SnapshotFormat, SnapshotKind, SubtaskState,
};

use crate::pipelines::{counted_by, wait_for_all_ends, wait_until};
use crate::support::{Driven, Files, Numbers, Options, States, barrier};

const NUMBERS: u64 = 2_000_000;
const KEYS: u64 = 20_000;
/// Keys that go on being counted when all have come once.
const HOT: u64 = 10;

fn key_of(number: u64) -> u64 {
    if number < KEYS { number } else { number % HOT }
}

fn trigger(driven: &Driven, checkpoint: u64, base: u64) {
    driven.notify(Notice::Trigger(CheckpointBarrier {
        format: SnapshotFormat::Incremental,
        base: (base > 0).then_some(CheckpointId(base)),
        ..barrier(checkpoint)
    }));
}

fn pieces(state: &SubtaskState) -> Vec<KeyedPiece> {
    let keyed = state.keyed.as_ref();
    keyed.map_or_else(Vec::new, |keyed| keyed.pieces.clone())
}

/// Pieces of each subtask that counts.
fn chains(driven: &Driven, states: &States) -> Vec<Vec<KeyedPiece>> {
    let names = ["count[0]", "count[1]"];
    let states = names.map(|name| &states[&driven.subtask(name)]);
    states.map(pieces).to_vec()
}

/// Asserts that each chain is what is below it and one piece more, far smaller than the first.
fn assert_on_top(chains: &[Vec<KeyedPiece>], below: &[Vec<KeyedPiece>]) {
    for (chain, below) in chains.iter().zip(below) {
        let (new, rest) = chain.split_last().unwrap();
        assert_eq!(rest, below);
        assert!(new.bytes() * 10 < chain[0].bytes(), "{chain:?}");
    }
}

#[test]
fn a_job_goes_on_from_changes() {
    let (plan, before) = counted_by(Numbers::up_to(NUMBERS), key_of, 2);
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| before.0.lock().unwrap().len() > 2 * KEYS as usize);
    trigger(&driven, 1, 0);
    let first = chains(&driven, &driven.acknowledgements(1));
    assert!(first.iter().all(|chain| chain.len() == 1), "{first:?}");
    driven.complete(1);

    trigger(&driven, 2, 1);
    let second = chains(&driven, &driven.acknowledgements(2));
    assert_on_top(&second, &first);
    driven.abort(2, 1);

    // RX-03, RX-09: not on top of the one that was aborted.
    trigger(&driven, 3, 1);
    let third = chains(&driven, &driven.acknowledgements(3));
    assert_on_top(&third, &first);
    assert_ne!(third, second);

    // RX-13: whole by itself, and nothing rests on it.
    driven.trigger_savepoint(4, SnapshotKind::Savepoint);
    let savepoint = chains(&driven, &driven.acknowledgements(4));
    for (savepoint, full) in savepoint.iter().zip(&first) {
        assert_eq!(savepoint.len(), 1);
        assert!(savepoint[0].bytes() > full[0].bytes() / 2);
    }
    driven.complete(3);
    trigger(&driven, 5, 3);
    let states = driven.acknowledgements(5);
    assert_on_top(&chains(&driven, &states), &third);
    driven.stop();

    goes_on(driven.files.clone(), &states);
}

fn goes_on(files: Files, states: &States) {
    let (plan, after) = counted_by(Numbers::up_to(NUMBERS), key_of, 2);
    let restored = Some((CheckpointId(5), states));
    let mut driven = Driven::start_from(plan, Options::default(), files, restored);
    // The pieces of another attempt are not rested on.
    trigger(&driven, 6, 5);
    let full = chains(&driven, &driven.acknowledgements(6));
    assert!(full.iter().all(|chain| chain.len() == 1), "{full:?}");
    wait_for_all_ends(&driven, 2);
    trigger(&driven, 7, 6);
    let chains = chains(&driven, &driven.acknowledgements(7));
    assert_on_top(&chains, &full);
    driven.stop();

    let mut last = BTreeMap::new();
    for (key, count) in after.0.lock().unwrap().iter() {
        if let Some(last) = last.insert(*key, *count) {
            assert_eq!(*count, last + 1, "counts of key {key} go up one by one");
        }
    }
    let hot: Vec<_> = last.into_iter().filter(|(key, _)| *key < HOT).collect();
    let total = 1 + (NUMBERS - KEYS) / HOT;
    let expected: Vec<_> = (0..HOT).map(|key| (key, total)).collect();
    assert_eq!(hot, expected);
}

/// A chain that is long enough begins anew.
#[test]
fn chains_are_bounded() {
    let (plan, collected) = counted_by(Numbers::up_to(NUMBERS), key_of, 2);
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| collected.0.lock().unwrap().len() > 2 * KEYS as usize);
    let mut lengths = Vec::new();
    for checkpoint in 1..=12 {
        trigger(&driven, checkpoint, checkpoint - 1);
        let chains = chains(&driven, &driven.acknowledgements(checkpoint));
        lengths.push(chains[0].len());
        driven.complete(checkpoint);
    }
    assert_eq!(lengths, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2]);
    driven.stop();
}
