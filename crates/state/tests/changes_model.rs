//! Snapshots of changes against a model: random operations, checkpoints that complete, overlap,
//! are aborted or subsumed, savepoints in between, restarts. Whatever chain of pieces a checkpoint
//! ends up with restores to exactly what the model held at its freeze.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::prelude::*;
use tidegate_state::{
    ChainPolicy, FrozenKeyedState, HeapKeyedBackend, LikelyPlace, PieceKind, StateKey, StateValue,
    TrackedSnapshot, ValueState, ValueStateDescriptor,
};
use tidegate_types::{CheckpointId, KeyGroupRange, MaxParallelism};

#[derive(Clone, Debug)]
enum Step {
    Update(u16),
    Set(u16, u8),
    Remove(u16),
    /// Many new keys in a row: tables grow.
    Fill(u16),
    /// Removes many keys in a row: tables have more to forget than to hold, or are rehashed.
    Sweep(u16),
    /// Looks where so many keys from here on are,
    LookAhead(u16),
    /// and changes them there, each where that one is said to be that comes so much later.
    UpdateThere(usize),
    /// Binds another state, if it isn't bound yet, and changes it.
    Late(u16),
    Trigger,
    Advance(usize),
    Complete(usize),
    Abort(usize),
    Cancel(usize),
    Savepoint,
    /// A new attempt, from the latest completed checkpoint.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0u16..3000).prop_map(Step::Update),
        4 => (0u16..3000, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        6 => (0u16..3000).prop_map(Step::Remove),
        1 => (0u16..3000).prop_map(Step::Fill),
        1 => (0u16..3000).prop_map(Step::Sweep),
        4 => (0u16..3000).prop_map(Step::LookAhead),
        4 => prop_oneof![4 => Just(0), 1 => 1usize..3].prop_map(Step::UpdateThere),
        2 => (0u16..3000).prop_map(Step::Late),
        6 => Just(Step::Trigger),
        4 => (0usize..12).prop_map(Step::Advance),
        5 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Abort),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => Just(Step::Savepoint),
        1 => Just(Step::Restart),
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

impl Modelled for Vec<String> {
    fn make(seed: u8) -> Self {
        vec!["x".repeat(seed.into())]
    }

    fn change(&mut self) {
        self.push(self.len().to_string());
    }
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

fn late() -> ValueStateDescriptor<u64> {
    ValueStateDescriptor::new("late").with_default(0)
}

/// What both states hold.
#[derive(Clone, Debug, PartialEq)]
struct Model<V> {
    main: BTreeMap<u16, V>,
    late: BTreeMap<u16, u64>,
}

fn contents<V: StateValue>(state: &ValueState<u16, V>) -> BTreeMap<u16, V> {
    let table = state.borrow();
    let entries: Vec<_> = table
        .iter()
        .map(|(key, value)| (*key, value.clone()))
        .collect();
    let map: BTreeMap<_, _> = entries.iter().cloned().collect();
    assert_eq!(map.len(), entries.len(), "no key twice");
    assert_eq!(map.len(), table.len());
    map
}

type Pieces = Vec<Vec<u8>>;

struct InFlight<V> {
    id: CheckpointId,
    frozen: FrozenKeyedState,
    /// Pieces of the base.
    below: Pieces,
    model: Model<V>,
}

struct Run<V: Modelled> {
    backend: HeapKeyedBackend<u16>,
    state: ValueState<u16, V>,
    late: Option<ValueState<u16, u64>>,
    /// Where keys were when that was last looked at.
    ahead: Vec<(u16, LikelyPlace)>,
    model: Model<V>,
    last: u64,
    /// The latest completed checkpoint.
    completed: Option<(CheckpointId, Pieces, Model<V>)>,
    /// Whether it is one of this attempt.
    is_own: bool,
    in_flight: Vec<InFlight<V>>,
    savepoints: Vec<(FrozenKeyedState, Model<V>)>,
    cancelled: Vec<FrozenKeyedState>,
    piece_bytes: [usize; 2],
}

impl<V: Modelled> Run<V> {
    fn new() -> Self {
        let mut backend = HeapKeyedBackend::new(max_parallelism(), all());
        let state = backend.value_state(&descriptor()).unwrap();
        Run {
            backend,
            state,
            late: None,
            ahead: Vec::new(),
            model: Model {
                main: BTreeMap::new(),
                late: BTreeMap::new(),
            },
            last: 0,
            completed: None,
            is_own: false,
            in_flight: Vec::new(),
            savepoints: Vec::new(),
            cancelled: Vec::new(),
            piece_bytes: [0; 2],
        }
    }

    fn update(&mut self, key: u16) {
        let mut table = self.state.borrow_mut();
        table.update(key.key_hash(), &key, V::change).unwrap();
        let value = self.model.main.entry(key);
        value.or_insert_with(|| V::make(0)).change();
    }

    fn look_ahead(&mut self, from: u16) {
        let keys = from..from + FILL / 4;
        let hashes: Vec<u64> = keys.clone().map(|key| key.key_hash()).collect();
        let mut places = vec![LikelyPlace::NOWHERE; hashes.len()];
        self.state.borrow().prefetch(&hashes, &mut places);
        self.ahead = keys.zip(places).collect();
    }

    fn update_there(&mut self, shift: usize) {
        let places = self.ahead.iter().map(|(_, place)| *place);
        let places = places.cycle().skip(shift);
        for ((key, _), place) in self.ahead.iter().zip(places) {
            let mut table = self.state.borrow_mut();
            let make = || V::make(0);
            let value = table.entry_at_or_insert_with(place, key.key_hash(), key, make);
            value.change();
            let value = self.model.main.entry(*key);
            value.or_insert_with(|| V::make(0)).change();
        }
    }

    fn remove(&mut self, key: u16) {
        let removed = self.state.borrow_mut().remove(key.key_hash(), &key);
        assert_eq!(removed, self.model.main.remove(&key));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Update(key) => self.update(key),
            Step::Remove(key) => self.remove(key),
            Step::Set(key, seed) => {
                let value = V::make(seed);
                let mut table = self.state.borrow_mut();
                let old = table.set(key.key_hash(), &key, value.clone());
                assert_eq!(old, self.model.main.insert(key, value));
            }
            Step::Fill(from) => (from..from + FILL).for_each(|key| self.update(key)),
            Step::Sweep(from) => (from..from + FILL).for_each(|key| self.remove(key)),
            Step::LookAhead(from) => self.look_ahead(from),
            Step::UpdateThere(shift) => self.update_there(shift),
            Step::Late(key) => self.change_late(key),
            Step::Trigger => self.trigger(),
            Step::Advance(budget) => _ = self.backend.advance_snapshots(budget),
            Step::Complete(which) if !self.in_flight.is_empty() => {
                self.complete(which % self.in_flight.len());
            }
            Step::Abort(which) if !self.in_flight.is_empty() => {
                self.in_flight.remove(which % self.in_flight.len());
            }
            Step::Cancel(which) if !self.in_flight.is_empty() => {
                let snapshot = self.in_flight.remove(which % self.in_flight.len());
                self.backend.cancel_snapshot(snapshot.frozen.ticket());
                self.cancelled.push(snapshot.frozen);
            }
            Step::Savepoint => {
                let frozen = self.backend.freeze();
                self.savepoints.push((frozen, self.model.clone()));
            }
            Step::Restart => self.restart(),
            Step::Complete(_) | Step::Abort(_) | Step::Cancel(_) => {}
        }
    }

    fn change_late(&mut self, key: u16) {
        if self.late.is_none() {
            // While a snapshot is being copied, what was restored can't be bound.
            self.backend.finish_snapshots();
            self.late = Some(self.backend.value_state(&late()).unwrap());
            let restored = contents(self.late.as_ref().unwrap());
            assert_eq!(restored, self.model.late);
        }
        let state = self.late.as_ref().unwrap();
        if key.is_multiple_of(3) {
            let removed = state.borrow_mut().remove(key.key_hash(), &key);
            assert_eq!(removed, self.model.late.remove(&key));
        } else {
            let mut table = state.borrow_mut();
            table.update(key.key_hash(), &key, |value| *value += 1);
            *self.model.late.entry(key).or_insert(0) += 1;
        }
    }

    fn trigger(&mut self) {
        self.last += 1;
        let checkpoint = CheckpointId(self.last);
        let base = self.completed.as_ref().map(|(id, ..)| *id);
        let below = match &self.completed {
            Some((_, pieces, _)) if self.is_own => pieces.clone(),
            _ => Vec::new(),
        };
        let lengths = below.iter().map(|piece| piece.len() as u64);
        // A base of an earlier attempt is recognised without being told.
        let whole = self.is_own && !ChainPolicy { pieces_max: 5 }.may_grow(lengths);
        let snapshot = TrackedSnapshot {
            checkpoint,
            base,
            whole,
        };
        let frozen = self.backend.freeze_tracked(&snapshot);
        if whole || !self.is_own {
            assert_eq!(frozen.kind(), PieceKind::Full);
        }
        self.in_flight.push(InFlight {
            id: checkpoint,
            frozen,
            below,
            model: self.model.clone(),
        });
    }

    /// The chain of a snapshot that is complete.
    fn write(&mut self, snapshot: InFlight<V>) -> Pieces {
        let kind = snapshot.frozen.kind();
        let mut piece = Vec::new();
        let summary = snapshot.frozen.write_to(&mut piece).unwrap();
        assert_eq!(summary.bytes, piece.len() as u64);
        self.piece_bytes[kind as usize] += piece.len();
        let mut pieces = match kind {
            PieceKind::Full => Vec::new(),
            PieceKind::Changes => snapshot.below,
        };
        pieces.push(piece);
        assert_restores(&pieces, &snapshot.model);
        pieces
    }

    fn complete(&mut self, which: usize) {
        self.backend.finish_snapshots();
        let snapshot = self.in_flight.remove(which);
        let (id, model) = (snapshot.id, snapshot.model.clone());
        let pieces = self.write(snapshot);
        if self.completed.as_ref().is_none_or(|(last, ..)| *last < id) {
            self.completed = Some((id, pieces, model));
            self.is_own = true;
        }
        // Older ones are subsumed.
        self.in_flight.retain(|other| other.id > id);
    }

    fn restart(&mut self) {
        let Some((_, pieces, model)) = &self.completed else {
            return;
        };
        self.backend = HeapKeyedBackend::new(max_parallelism(), all());
        restore(&mut self.backend, pieces);
        self.state = self.backend.value_state(&descriptor()).unwrap();
        self.late = None;
        self.model = model.clone();
        self.is_own = false;
        self.in_flight.clear();
        assert_eq!(contents(&self.state), self.model.main);
    }

    /// Completes all that is left.
    fn check(mut self) -> [usize; 2] {
        assert_eq!(contents(&self.state), self.model.main);
        self.backend.finish_snapshots();
        assert!(!self.backend.has_pending_snapshots());
        for snapshot in std::mem::take(&mut self.in_flight) {
            self.write(snapshot);
        }
        for (frozen, model) in self.savepoints {
            // RX-13: whole by itself.
            assert_eq!((frozen.kind(), frozen.base()), (PieceKind::Full, None));
            let mut file = Vec::new();
            if frozen.write_to(&mut file).is_ok() {
                assert_restores(&[file], &model);
            }
        }
        self.piece_bytes
    }
}

fn restore(backend: &mut HeapKeyedBackend<u16>, pieces: &[Vec<u8>]) {
    let mut chain = backend.restore_chain();
    for (at, piece) in pieces.iter().enumerate() {
        let name = format!("piece {at} of {}", pieces.len());
        chain.add_piece(&name, &mut Cursor::new(piece)).unwrap();
    }
}

fn assert_holds<V: Modelled>(backend: &mut HeapKeyedBackend<u16>, model: &Model<V>) {
    let entries = model.main.len() + model.late.len();
    assert_eq!(backend.entries(), entries, "before anything is bound");
    let main = backend.value_state(&descriptor::<V>()).unwrap();
    assert_eq!(contents(&main), model.main);
    let late = backend.value_state(&late()).unwrap();
    assert_eq!(contents(&late), model.late);
}

fn assert_restores<V: Modelled>(pieces: &[Vec<u8>], model: &Model<V>) {
    // Bound first.
    let mut backend = HeapKeyedBackend::new(max_parallelism(), all());
    backend.value_state(&descriptor::<V>()).unwrap();
    backend.value_state(&late()).unwrap();
    restore(&mut backend, pieces);
    assert_holds(&mut backend, model);
    // Kept as bytes, bound later.
    let mut backend = HeapKeyedBackend::new(max_parallelism(), all());
    restore(&mut backend, pieces);
    // KS-10: kept as bytes, saved again.
    let frozen = backend.freeze();
    assert_holds(&mut backend, model);
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    let mut backend = HeapKeyedBackend::new(max_parallelism(), all());
    restore(&mut backend, &[file]);
    assert_holds(&mut backend, model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // RX-03, RX-09, KS-14, KS-15
    #[test]
    fn chains_of_plain_values_are_those_of_their_instant(
        steps in prop::collection::vec(step(), 1..160),
    ) {
        let mut run = Run::<u64>::new();
        steps.into_iter().for_each(|step| run.step(step));
        run.check();
    }

    #[test]
    fn chains_of_owning_values_are_those_of_their_instant(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let mut run = Run::<Vec<String>>::new();
        steps.into_iter().for_each(|step| run.step(step));
        run.check();
    }
}
