//! All kinds of state and timers against a model: random operations on several subtasks, snapshots
//! in flight meanwhile, cancelled ones, restores at other parallelisms.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidegate_state::{
    AggregatingState, AggregatingStateDescriptor, At, Fold, ListState, ListStateDescriptor,
    MapState, MapStateDescriptor, ReducingState, ReducingStateDescriptor, Scope, StateKey, Timers,
    TimersDescriptor, ValueState, ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

use super::Backend;
use crate::under_test::{BackendUnderTest, Pieces};

/// What one key has in one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
    value: Option<u64>,
    list: Vec<String>,
    reduced: Option<u64>,
    folded: Option<Vec<u8>>,
    map: BTreeMap<String, u32>,
    timers: BTreeSet<i64>,
}

/// Everything, by key and namespace. Cells that are empty are left out.
type Model = BTreeMap<(String, u32), Cell>;

#[derive(Clone, Copy, Debug)]
enum Change {
    Set,
    Update,
    ClearValue,
    Append,
    AppendMany,
    Replace,
    ClearList,
    Reduce,
    ClearReduced,
    Fold,
    ClearFolded,
    Put,
    PutMany,
    RemoveMapKey,
    Retain,
    ClearMap,
    Register,
    Delete,
    Merge,
}

const CHANGES: [Change; 19] = [
    Change::Set,
    Change::Update,
    Change::ClearValue,
    Change::Append,
    Change::AppendMany,
    Change::Replace,
    Change::ClearList,
    Change::Reduce,
    Change::ClearReduced,
    Change::Fold,
    Change::ClearFolded,
    Change::Put,
    Change::PutMany,
    Change::RemoveMapKey,
    Change::Retain,
    Change::ClearMap,
    Change::Register,
    Change::Delete,
    Change::Merge,
];

#[derive(Clone, Debug)]
enum Step {
    Change(Change, u32, u32, u32),
    /// The same change to many keys in a row: tables grow, shrink, are rehashed.
    Sweep(Change, u32, u32),
    Fire(i64),
    Freeze,
    Advance(usize),
    Cancel(usize),
    /// Completes a snapshot in flight; later ones may rest on it.
    Complete(usize),
    /// Restores a snapshot in flight, or a new one, at a parallelism.
    Restore(usize, u32),
}

const KEYS: u32 = 120;
const WINDOWS: u32 = 3;
const MAX_PARALLELISM: u32 = 11;

fn step() -> impl Strategy<Value = Step> {
    let change = || prop::sample::select(&CHANGES[..]);
    prop_oneof![
        40 => (change(), 0..KEYS, 0..WINDOWS, 0u32..200)
            .prop_map(|(change, key, window, n)| Step::Change(change, key, window, n)),
        4 => (change(), 0..WINDOWS, 0u32..200)
            .prop_map(|(change, window, n)| Step::Sweep(change, window, n)),
        2 => (0i64..200).prop_map(Step::Fire),
        3 => Just(Step::Freeze),
        4 => (0usize..12).prop_map(Step::Advance),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => any::<usize>().prop_map(Step::Complete),
        2 => (any::<usize>(), 1..=MAX_PARALLELISM)
            .prop_map(|(which, parallelism)| Step::Restore(which, parallelism)),
    ]
}

fn max() -> MaxParallelism {
    MaxParallelism::new(MAX_PARALLELISM).unwrap()
}

fn owner(key: &str, parallelism: usize) -> usize {
    let group = max().key_group(key.to_owned().key_hash());
    max().owner(group, parallelism as u32) as usize
}

struct Subtask {
    backend: Backend<String>,
    values: ValueState<String, u64, u32>,
    lists: ListState<String, String, u32>,
    reduced: ReducingState<String, u64, u32>,
    folded: AggregatingState<String, Fold<u8, Vec<u8>>, u32>,
    maps: MapState<String, String, u32, u32>,
    timers: Timers<String, u32>,
}

impl Subtask {
    /// Some bind before they restore, some after: that must make no difference.
    fn new(index: u32, parallelism: u32, saved: &[Pieces]) -> Self {
        let mut backend = Backend::make(max(), max().range(index, parallelism).unwrap());
        if index.is_multiple_of(2) {
            let bound = Subtask::bind(backend);
            backend = bound.backend;
        }
        for pieces in saved {
            backend.restore(pieces).unwrap();
        }
        Subtask::bind(backend)
    }

    fn bind(mut backend: Backend<String>) -> Self {
        let reduce = ReducingStateDescriptor::new("reduced", |all: &mut u64, n| {
            *all = all.wrapping_mul(7).wrapping_add(n)
        });
        let fold = AggregatingStateDescriptor::folding("folded", vec![1u8], Vec::push);
        let within = &mut backend;
        Subtask {
            values: within
                .bind_within(&ValueStateDescriptor::new("values"))
                .unwrap(),
            lists: within
                .bind_within(&ListStateDescriptor::new("lists"))
                .unwrap(),
            reduced: within.bind_within(&reduce).unwrap(),
            folded: within.bind_within(&fold).unwrap(),
            maps: within
                .bind_within(&MapStateDescriptor::new("maps"))
                .unwrap(),
            timers: within
                .bind_within(&TimersDescriptor::event_time("timers"))
                .unwrap(),
            backend,
        }
    }

    /// All states, the hard way: every key of every namespace. The timers are taken.
    fn contents(&self) -> Model {
        let mut model = Model::new();
        for window in 0..WINDOWS {
            let mut keys: BTreeSet<String> =
                self.values.keys(&window).unwrap().into_iter().collect();
            keys.extend(self.lists.keys(&window).unwrap());
            keys.extend(self.reduced.keys(&window).unwrap());
            keys.extend(self.folded.keys(&window).unwrap());
            keys.extend(self.maps.keys(&window).unwrap());
            for key in keys {
                let at = At::key(&key).within(&window);
                let cell = Cell {
                    value: self.values.get(&at).unwrap(),
                    list: self.lists.get(&at).unwrap(),
                    reduced: self.reduced.get(&at).unwrap(),
                    folded: self.folded.get(&at).unwrap(),
                    map: self.maps.entries(&at).unwrap().into_iter().collect(),
                    timers: BTreeSet::new(),
                };
                model.insert((key, window), cell);
            }
        }
        while let Some((key, window, time)) = self.timers.next_due(i64::MAX).unwrap() {
            let cell = model.entry((key, window)).or_default();
            assert!(cell.timers.insert(time), "no timer twice");
        }
        model
    }

    fn change(&self, change: Change, at: &impl Scope<String, u32>, n: u32) {
        let text = |n: u32| format!("{n:03}");
        match change {
            Change::Set => self.values.set(at, n.into()),
            Change::Update => self.values.update_or(at, 5, |value| *value += u64::from(n)),
            Change::ClearValue => self.values.clear(at),
            Change::Append => self.lists.add(at, text(n)),
            Change::AppendMany => self.lists.add_all(at, (0..n).map(text)),
            Change::Replace => self.lists.update(at, (0..n % 9).map(text).collect()),
            Change::ClearList => self.lists.clear(at),
            Change::Reduce => self.reduced.add(at, u64::from(n % 3)),
            Change::ClearReduced => self.reduced.clear(at),
            Change::Fold => self.folded.add(at, n as u8),
            Change::ClearFolded => self.folded.clear(at),
            Change::Put => self.maps.put(at, text(n), n),
            Change::PutMany => self.maps.put_all(at, (0..n).map(|n| (text(n), n + 1))),
            Change::RemoveMapKey => self.maps.remove(at, &*text(n)).map(drop),
            Change::Retain => self.maps.retain(at, |_, value| {
                *value += 1;
                !value.is_multiple_of(n % 5 + 1)
            }),
            Change::ClearMap => self.maps.clear(at),
            Change::Register => self.timers.register(at, n.into()).map(drop),
            Change::Delete => self.timers.delete(at, n.into()).map(drop),
            Change::Merge => {
                let sources = [
                    (at.namespace() + 1) % WINDOWS,
                    (at.namespace() + 2) % WINDOWS,
                ];
                self.lists
                    .merge_namespaces(at, &sources)
                    .and_then(|()| self.reduced.merge_namespaces(at, &sources))
            }
        }
        .unwrap();
    }
}

/// The same on the model.
fn change(model: &mut Model, change: Change, key: &str, window: u32, n: u32) {
    let text = |n: u32| format!("{n:03}");
    let reduce =
        |all: Option<u64>, n: u64| Some(all.map_or(n, |all| all.wrapping_mul(7).wrapping_add(n)));
    let sources = [(window + 1) % WINDOWS, (window + 2) % WINDOWS];
    if matches!(change, Change::Merge) {
        for source in sources {
            let from = model.entry((key.to_owned(), source)).or_default();
            let (list, reduced) = (std::mem::take(&mut from.list), from.reduced.take());
            let into = model.entry((key.to_owned(), window)).or_default();
            into.list.extend(list);
            if let Some(n) = reduced {
                into.reduced = reduce(into.reduced, n);
            }
        }
    }
    let cell = model.entry((key.to_owned(), window)).or_default();
    match change {
        Change::Set => cell.value = Some(n.into()),
        Change::Update => cell.value = Some(cell.value.unwrap_or(5) + u64::from(n)),
        Change::ClearValue => cell.value = None,
        Change::Append => cell.list.push(text(n)),
        Change::AppendMany => cell.list.extend((0..n).map(text)),
        Change::Replace => cell.list = (0..n % 9).map(text).collect(),
        Change::ClearList => cell.list.clear(),
        Change::Reduce => cell.reduced = reduce(cell.reduced, u64::from(n % 3)),
        Change::ClearReduced => cell.reduced = None,
        Change::Fold => cell.folded.get_or_insert_with(|| vec![1]).push(n as u8),
        Change::ClearFolded => cell.folded = None,
        Change::Put => drop(cell.map.insert(text(n), n)),
        Change::PutMany => cell.map.extend((0..n).map(|n| (text(n), n + 1))),
        Change::RemoveMapKey => drop(cell.map.remove(&text(n))),
        Change::Retain => cell.map.retain(|_, value| {
            *value += 1;
            !value.is_multiple_of(n % 5 + 1)
        }),
        Change::ClearMap => cell.map.clear(),
        Change::Register => drop(cell.timers.insert(n.into())),
        Change::Delete => drop(cell.timers.remove(&n.into())),
        Change::Merge => {}
    }
    model.retain(|_, cell| *cell != Cell::default());
}

type Pending = <Backend<String> as BackendUnderTest<String>>::Pending;

struct Run {
    subtasks: Vec<Subtask>,
    model: Model,
    in_flight: Vec<(Vec<Pending>, Model)>,
}

/// Starts subtasks from snapshots.
fn start(parallelism: u32, saved: &[Pieces]) -> Vec<Subtask> {
    let subtask = |index| Subtask::new(index, parallelism, saved);
    (0..parallelism).map(subtask).collect()
}

/// That subtasks hold exactly what the model has, each its own keys.
fn check(subtasks: &[Subtask], model: &Model) {
    let entries: usize = subtasks
        .iter()
        .map(|subtask| subtask.backend.entries())
        .sum();
    let of_cell = |cell: &Cell| {
        usize::from(cell.value.is_some())
            + usize::from(!cell.list.is_empty())
            + usize::from(cell.reduced.is_some())
            + usize::from(cell.folded.is_some())
            + usize::from(!cell.map.is_empty())
            + cell.timers.len()
    };
    assert_eq!(entries, model.values().map(of_cell).sum::<usize>());
    let mut found = Model::new();
    for (index, subtask) in subtasks.iter().enumerate() {
        for ((key, window), cell) in subtask.contents() {
            assert_eq!(
                owner(&key, subtasks.len()),
                index,
                "`{key}` is out of place"
            );
            let twice = found.insert((key, window), cell);
            assert!(twice.is_none(), "no key on two subtasks");
        }
    }
    assert_eq!(found, *model);
}

impl Run {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Change(change, key, window, n) => self.change(change, key, window, n),
            Step::Sweep(change, window, n) => {
                (0..KEYS).for_each(|key| self.change(change, key, window, n));
            }
            Step::Fire(limit) => self.fire(limit),
            Step::Freeze => {
                let begin = |subtask: &mut Subtask| subtask.backend.begin_snapshot();
                let pending = self.subtasks.iter_mut().map(begin).collect();
                self.in_flight.push((pending, self.model.clone()));
            }
            Step::Advance(budget) => {
                let subtasks = self.subtasks.iter_mut();
                subtasks.for_each(|subtask| subtask.backend.advance(budget));
            }
            Step::Cancel(which) if !self.in_flight.is_empty() => {
                let (pending, _) = self.in_flight.remove(which % self.in_flight.len());
                for (subtask, pending) in self.subtasks.iter_mut().zip(pending) {
                    subtask.backend.cancel(pending);
                }
            }
            Step::Complete(which) if !self.in_flight.is_empty() => {
                let (pending, model) = self.in_flight.remove(which % self.in_flight.len());
                check(&start(3, &self.complete(pending)), &model);
            }
            Step::Cancel(_) | Step::Complete(_) => {}
            Step::Restore(which, parallelism) => self.restore(which, parallelism),
        }
    }

    fn change(&mut self, what: Change, key: u32, window: u32, n: u32) {
        let key = format!("key {key}");
        let subtask = &self.subtasks[owner(&key, self.subtasks.len())];
        subtask.change(what, &At::key(&key).within(&window), n);
        change(&mut self.model, what, &key, window, n);
    }

    fn fire(&mut self, limit: i64) {
        for subtask in &self.subtasks {
            let mut last = i64::MIN;
            while let Some((key, window, time)) = subtask.timers.next_due(limit).unwrap() {
                assert!(last <= time && time <= limit);
                last = time;
                let cell = self.model.get_mut(&(key, window)).unwrap();
                assert!(cell.timers.remove(&time));
            }
        }
        self.model.retain(|_, cell| *cell != Cell::default());
        let left = self.model.values().flat_map(|cell| &cell.timers);
        assert!(left.into_iter().all(|time| *time > limit));
    }

    /// Writes a snapshot of all subtasks.
    fn complete(&mut self, pending: Vec<Pending>) -> Vec<Pieces> {
        let subtasks = self.subtasks.iter_mut().zip(pending);
        let saved = subtasks.map(|(subtask, pending)| subtask.backend.complete(pending));
        saved.collect()
    }

    /// Ends the attempt, and starts the next one from a snapshot.
    fn restore(&mut self, which: usize, parallelism: u32) {
        self.step(&Step::Freeze);
        let (pending, model) = self.in_flight.swap_remove(which % self.in_flight.len());
        let saved = self.complete(pending);
        self.in_flight.clear();
        check(&start(parallelism, &saved), &model);
        self.subtasks = start(parallelism, &saved);
        self.model = model;
    }

    /// Every snapshot in flight has what there was at its instant.
    fn finish(mut self) {
        self.step(&Step::Freeze);
        for (pending, model) in std::mem::take(&mut self.in_flight) {
            check(&start(2, &self.complete(pending)), &model);
        }
        check(&self.subtasks, &self.model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // KS-01, KS-10, KS-13, KS-14, KS-15, KS-19, KS-20, BC-39: nothing is lost, nothing doubled.
    #[test]
    fn all_kinds_behave_as_the_model(
        parallelism in 1..=MAX_PARALLELISM,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let subtasks = start(parallelism, &[]);
        let mut run = Run { subtasks, model: Model::new(), in_flight: Vec::new() };
        steps.iter().for_each(|step| run.step(step));
        run.finish();
    }
}
