//! Snapshots against a model: random operations, freezes and background copying, compared with a
//! copy of a `BTreeMap` taken at each freeze.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::prelude::*;
use tidegate_state::{
    FrozenKeyedState, HeapKeyedBackend, StateError, StateKey, StateTable, StateValue, ValueState,
    ValueStateDescriptor,
};
use tidegate_types::{KeyGroupRange, MaxParallelism};

#[derive(Clone, Debug)]
enum Step {
    Update(u16),
    Set(u16, u8),
    Remove(u16),
    /// Many new keys in a row: tables grow.
    Fill(u16),
    /// Removes many keys in a row: tables get tombstones, and are rehashed in place.
    Sweep(u16),
    Freeze,
    Advance(usize),
    Finish,
    Drop(usize),
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..3000).prop_map(Step::Update),
        4 => (0u16..3000, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        4 => (0u16..3000).prop_map(Step::Remove),
        2 => (0u16..3000).prop_map(Step::Fill),
        2 => (0u16..3000).prop_map(Step::Sweep),
        3 => Just(Step::Freeze),
        4 => (0usize..12).prop_map(Step::Advance),
        1 => Just(Step::Finish),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

/// A value type that the model can make and change.
trait Modelled: StateValue + PartialEq + std::fmt::Debug {
    fn make(seed: u8) -> Self;
    fn change(&mut self);
}

impl Modelled for u64 {
    fn make(seed: u8) -> Self {
        seed.into()
    }

    fn change(&mut self) {
        *self += 1;
    }
}

/// Too large for the short way to encode an entry.
impl Modelled for [u32; 8] {
    fn make(seed: u8) -> Self {
        [seed.into(); 8]
    }

    fn change(&mut self) {
        self[7] += 0x0100_0001;
    }
}

impl Modelled for Vec<String> {
    fn make(seed: u8) -> Self {
        vec!["x".repeat(seed.into())]
    }

    fn change(&mut self) {
        self.push(self.len().to_string());
    }
}

struct Run<V: Modelled> {
    backend: HeapKeyedBackend<u16>,
    state: ValueState<u16, V>,
    model: BTreeMap<u16, V>,
    frozen: Vec<(FrozenKeyedState, BTreeMap<u16, V>)>,
    cancelled: Vec<FrozenKeyedState>,
}

const FILL: u16 = 400;

fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(3).unwrap()
}

fn all() -> KeyGroupRange {
    max_parallelism().range(0, 1).unwrap()
}

fn descriptor<V: Modelled>() -> ValueStateDescriptor<V> {
    ValueStateDescriptor::new("model").with_default(V::make(0))
}

fn contents<V: Modelled>(table: &StateTable<u16, V>) -> BTreeMap<u16, V> {
    let entries: Vec<_> = table
        .iter()
        .map(|(key, value)| (*key, value.clone()))
        .collect();
    let count = entries.len();
    let map: BTreeMap<_, _> = entries.into_iter().collect();
    assert_eq!(map.len(), count, "no key twice");
    map
}

impl<V: Modelled> Run<V> {
    fn new() -> Self {
        let mut backend = HeapKeyedBackend::new(max_parallelism(), all());
        let state = backend.value_state(&descriptor()).unwrap();
        Run {
            backend,
            state,
            model: BTreeMap::new(),
            frozen: Vec::new(),
            cancelled: Vec::new(),
        }
    }

    fn update(&mut self, key: u16) {
        let mut table = self.state.borrow_mut();
        table.update(key.key_hash(), &key, V::change).unwrap();
        self.model.entry(key).or_insert_with(|| V::make(0)).change();
    }

    fn remove(&mut self, key: u16) {
        let removed = self.state.borrow_mut().remove(key.key_hash(), &key);
        assert_eq!(removed, self.model.remove(&key));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Update(key) => self.update(key),
            Step::Remove(key) => self.remove(key),
            Step::Set(key, seed) => {
                let old = self
                    .state
                    .borrow_mut()
                    .set(key.key_hash(), &key, V::make(seed));
                assert_eq!(old, self.model.insert(key, V::make(seed)));
            }
            Step::Fill(from) => (from..from + FILL).for_each(|key| self.update(key)),
            Step::Sweep(from) => (from..from + FILL).for_each(|key| self.remove(key)),
            Step::Freeze => self
                .frozen
                .push((self.backend.freeze(), self.model.clone())),
            Step::Advance(budget) => {
                self.backend.advance_snapshots(budget);
            }
            Step::Finish => self.backend.finish_snapshots(),
            Step::Drop(which) if !self.frozen.is_empty() => {
                drop(self.frozen.remove(which % self.frozen.len()));
            }
            Step::Cancel(which) if !self.frozen.is_empty() => {
                let (frozen, _) = self.frozen.remove(which % self.frozen.len());
                if self.backend.has_pending_snapshots() {
                    self.backend.cancel_snapshot(frozen.ticket());
                    self.cancelled.push(frozen);
                }
            }
            Step::Drop(_) | Step::Cancel(_) => {}
        }
    }

    /// Completes all snapshots and compares each with the model as it was.
    fn check(mut self) {
        assert_eq!(contents(&self.state.borrow()), self.model);
        assert_eq!(self.state.borrow().len(), self.model.len());
        self.backend.finish_snapshots();
        assert!(!self.backend.has_pending_snapshots());
        for (frozen, expected) in self.frozen {
            assert_eq!(restored(frozen), expected);
        }
        for frozen in self.cancelled {
            // One that was complete before may still be written.
            match frozen.write_to(&mut Vec::new()) {
                Ok(_) | Err(StateError::SnapshotCancelled { .. }) => {}
                Err(other) => panic!("unexpected: {other}"),
            }
        }
    }
}

fn restored<V: Modelled>(frozen: FrozenKeyedState) -> BTreeMap<u16, V> {
    let mut file = Vec::new();
    let summary = frozen.write_to(&mut file).unwrap();
    assert_eq!(summary.bytes, file.len() as u64);
    let mut backend = HeapKeyedBackend::<u16>::new(max_parallelism(), all());
    let state = backend.value_state(&descriptor::<V>()).unwrap();
    backend
        .restore_file("model", &mut Cursor::new(file))
        .unwrap();
    assert_eq!(summary.entries, backend.entries() as u64);
    let table = state.borrow();
    contents(&table)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // KS-01, KS-14, KS-15, KS-19: small pages of plain entries, many steps.
    #[test]
    fn snapshots_of_plain_values_are_those_of_their_instant(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut run = Run::<u64>::new();
        steps.into_iter().for_each(|step| run.step(step));
        run.check();
    }

    // KS-01, KS-14: the worker encodes entries of any length, if they own nothing.
    #[test]
    fn snapshots_of_large_plain_values_are_those_of_their_instant(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut run = Run::<[u32; 8]>::new();
        steps.into_iter().for_each(|step| run.step(step));
        run.check();
    }

    // KS-07: values that own memory are cloned, never shared with a snapshot.
    #[test]
    fn snapshots_of_owning_values_are_those_of_their_instant(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut run = Run::<Vec<String>>::new();
        steps.into_iter().for_each(|step| run.step(step));
        run.check();
    }
}
