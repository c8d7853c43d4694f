//! Pieces of changes of lists and maps within namespaces: what has changed replaces all there was,
//! bound or kept as bytes.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::prelude::*;
use tidegate_state::{
    At, HeapKeyedBackend, ListState, ListStateDescriptor, MapState, MapStateDescriptor, PieceKind,
    TimersDescriptor, TrackedSnapshot,
};
use tidegate_types::{CheckpointId, MaxParallelism};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, u16),
    RemoveMapKey(u8, u8, u16),
    ClearMap(u8, u8),
    Add(u8, u8, u32),
    ClearList(u8, u8),
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    // Few of each, so that they meet; keys of which one's text begins as another's.
    let (key, namespace, map_key) = (0u8..6, 0u8..3, 0u16..12);
    prop_oneof![
        8 => (key.clone(), namespace.clone(), map_key.clone())
            .prop_map(|(key, namespace, map_key)| Step::Put(key, namespace, map_key)),
        4 => (key.clone(), namespace.clone(), map_key)
            .prop_map(|(key, namespace, map_key)| Step::RemoveMapKey(key, namespace, map_key)),
        1 => (key.clone(), namespace.clone()).prop_map(|(key, within)| Step::ClearMap(key, within)),
        4 => (key.clone(), namespace.clone(), any::<u32>())
            .prop_map(|(key, within, element)| Step::Add(key, within, element)),
        1 => (key, namespace).prop_map(|(key, within)| Step::ClearList(key, within)),
        3 => Just(Step::Checkpoint),
    ]
}

fn key(key: u8) -> String {
    "k".repeat(key.into())
}

fn map_key(key: u16) -> String {
    "m".repeat(key.into())
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    maps: BTreeMap<(u8, u8), BTreeMap<String, u32>>,
    lists: BTreeMap<(u8, u8), Vec<u32>>,
}

impl Model {
    fn of(maps: &MapState<String, String, u32, u8>, lists: &ListState<String, u32, u8>) -> Self {
        let mut model = Model::default();
        for (name, namespace) in (0..6).flat_map(|key| (0..3).map(move |within| (key, within))) {
            let text = key(name);
            let at = At::key(text.as_str()).within(&namespace);
            let map: BTreeMap<_, _> = maps.entries(&at).unwrap().into_iter().collect();
            if !map.is_empty() {
                model.maps.insert((name, namespace), map);
            }
            let list = lists.get(&at).unwrap();
            if !list.is_empty() {
                model.lists.insert((name, namespace), list);
            }
        }
        model
    }
}

struct Run {
    backend: HeapKeyedBackend<String>,
    maps: MapState<String, String, u32, u8>,
    lists: ListState<String, u32, u8>,
    model: Model,
    pieces: Vec<Vec<u8>>,
    changes: usize,
}

fn backend() -> HeapKeyedBackend<String> {
    let max = MaxParallelism::new(2).unwrap();
    HeapKeyedBackend::new(max, max.range(0, 1).unwrap())
}

fn maps() -> MapStateDescriptor<String, u32> {
    MapStateDescriptor::new("maps")
}

fn lists() -> ListStateDescriptor<u32> {
    ListStateDescriptor::new("lists")
}

impl Run {
    fn new() -> Self {
        let mut backend = backend();
        let maps = backend.bind_within::<u8, _>(&maps()).unwrap();
        let lists = backend.bind_within::<u8, _>(&lists()).unwrap();
        let mut run = Run {
            backend,
            maps,
            lists,
            model: Model::default(),
            pieces: Vec::new(),
            changes: 0,
        };
        // Tables large enough that a few changes don't rewrite them.
        for name in 0..6 {
            for within in 0..3 {
                run.step(Step::Put(name, within, 0));
                run.step(Step::Add(name, within, 0));
            }
        }
        run
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(name, within, map) => {
                let value = self.pieces.len() as u32;
                let text = key(name);
                let at = At::key(text.as_str()).within(&within);
                self.maps.put(&at, map_key(map), value).unwrap();
                let model = self.model.maps.entry((name, within)).or_default();
                model.insert(map_key(map), value);
            }
            Step::RemoveMapKey(name, within, map) => {
                let text = key(name);
                let at = At::key(text.as_str()).within(&within);
                let removed = self.maps.remove(&at, map_key(map).as_str()).unwrap();
                let model = self.model.maps.entry((name, within)).or_default();
                assert_eq!(removed, model.remove(&map_key(map)));
                self.model.maps.retain(|_, map| !map.is_empty());
            }
            Step::ClearMap(name, within) => {
                let text = key(name);
                let at = At::key(text.as_str()).within(&within);
                self.maps.clear(&at).unwrap();
                self.model.maps.remove(&(name, within));
            }
            Step::Add(name, within, element) => {
                let text = key(name);
                let at = At::key(text.as_str()).within(&within);
                self.lists.add(&at, element).unwrap();
                let model = self.model.lists.entry((name, within)).or_default();
                model.push(element);
            }
            Step::ClearList(name, within) => {
                let text = key(name);
                let at = At::key(text.as_str()).within(&within);
                self.lists.clear(&at).unwrap();
                self.model.lists.remove(&(name, within));
            }
            Step::Checkpoint => self.checkpoint(),
        }
    }

    fn checkpoint(&mut self) {
        let id = self.pieces.len() as u64 + 1;
        let snapshot = TrackedSnapshot {
            checkpoint: CheckpointId(id),
            base: (id > 1).then(|| CheckpointId(id - 1)),
            whole: false,
        };
        let frozen = self.backend.freeze_tracked(&snapshot);
        self.backend.finish_snapshots();
        self.changes += usize::from(frozen.kind() == PieceKind::Changes);
        let mut piece = Vec::new();
        frozen.write_to(&mut piece).unwrap();
        self.pieces.push(piece);
        self.check();
    }

    fn check(&self) {
        assert_eq!(Model::of(&self.maps, &self.lists), self.model);
        // Bound before, and only the half of it.
        let mut restored = backend();
        let maps_state = restored.bind_within::<u8, _>(&maps()).unwrap();
        restore(&mut restored, &self.pieces);
        let saved = save(&mut restored);
        let lists_state = restored.bind_within::<u8, _>(&lists()).unwrap();
        assert_eq!(Model::of(&maps_state, &lists_state), self.model);
        // From what was saved while the other half was bytes.
        assert_eq!(bind(std::slice::from_ref(&saved)), self.model);
        // All as bytes, saved as bytes.
        let mut restored = backend();
        restore(&mut restored, &self.pieces);
        assert_eq!(bind(&[save(&mut restored)]), self.model);
        // All as bytes, then bound.
        assert_eq!(bind(&self.pieces), self.model);
    }
}

fn save(backend: &mut HeapKeyedBackend<String>) -> Vec<u8> {
    let frozen = backend.freeze();
    backend.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

fn restore(backend: &mut HeapKeyedBackend<String>, pieces: &[Vec<u8>]) {
    let mut chain = backend.restore_chain();
    for (at, piece) in pieces.iter().enumerate() {
        let name = format!("piece-{at}");
        chain.add_piece(&name, &mut Cursor::new(piece)).unwrap();
    }
}

fn bind(pieces: &[Vec<u8>]) -> Model {
    let mut restored = backend();
    restore(&mut restored, pieces);
    let maps = restored.bind_within::<u8, _>(&maps()).unwrap();
    let lists = restored.bind_within::<u8, _>(&lists()).unwrap();
    Model::of(&maps, &lists)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // KS-10, KS-21
    #[test]
    fn chains_of_lists_and_maps_are_those_of_their_instant(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut run = Run::new();
        run.checkpoint();
        steps.into_iter().for_each(|step| run.step(step));
        run.checkpoint();
        prop_assert_eq!(run.changes, run.pieces.len() - 1);
    }
}

/// Timers that were set, deleted and fired since the base: each fires once after a restore, also if
/// their order was known before the last piece.
#[test]
fn changes_of_timers_are_fired_once() {
    let descriptor = TimersDescriptor::event_time("timers");
    let mut live = backend();
    let timers = live.bind(&descriptor).unwrap();
    for time in 0..1000 {
        timers.register(&At::key("a"), time).unwrap();
    }
    // So that the table of `b` need not grow later, and be replaced.
    timers.register(&At::key("b"), 5000).unwrap();
    let mut pieces = Vec::new();
    for id in 1..4u64 {
        let snapshot = TrackedSnapshot {
            checkpoint: CheckpointId(id),
            base: (id > 1).then(|| CheckpointId(id - 1)),
            whole: false,
        };
        let frozen = live.freeze_tracked(&snapshot);
        live.finish_snapshots();
        let mut piece = Vec::new();
        frozen.write_to(&mut piece).unwrap();
        pieces.push(piece);
        let from = id as i64 * 100;
        while timers.next_due(from).unwrap().is_some() {}
        timers.delete(&At::key("a"), from + 50).unwrap();
        timers.register(&At::key("b"), from + 60).unwrap();
    }
    let mut restored = backend();
    let timers = restored.bind(&descriptor).unwrap();
    let mut chain = restored.restore_chain();
    for piece in &pieces {
        chain.add_piece("piece", &mut Cursor::new(piece)).unwrap();
        assert!(timers.earliest().is_some());
    }
    let fired = std::iter::from_fn(|| timers.next_due(i64::MAX).unwrap());
    let fired: Vec<_> = fired.map(|(key, (), time)| (key, time)).collect();
    let a = (201..1000).filter(|time| *time != 250);
    let mut expected: Vec<_> = a.map(|time| ("a".to_owned(), time)).collect();
    expected.extend([260, 5000].map(|time| ("b".to_owned(), time)));
    expected.sort_by_key(|(key, time)| (*time, key.clone()));
    assert_eq!(fired.len(), expected.len());
    let mut sorted = fired.clone();
    sorted.sort_by_key(|(key, time)| (*time, key.clone()));
    assert_eq!(sorted, expected);
    assert!(fired.is_sorted_by_key(|(_, time)| *time));
}
