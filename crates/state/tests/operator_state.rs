//! Operator state: lists and broadcast maps, snapshots, restore at other parallelisms.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use proptest::prelude::*;
use tidegate_state::{ListStateDescriptor, MapStateDescriptor, OperatorStateBackend, StateError};
use tidegate_types::{ListState, Redistribution};

fn files() -> ListStateDescriptor<String> {
    ListStateDescriptor::new("files")
}

fn offsets() -> ListStateDescriptor<(u32, u64)> {
    ListStateDescriptor::new("offsets")
}

fn rules() -> MapStateDescriptor<String, Option<u32>> {
    MapStateDescriptor::new("rules")
}

/// Deals the lists of all subtasks out, as a restore does.
fn dealt(saved: &[Vec<ListState>], parallelism: usize) -> Vec<Vec<ListState>> {
    let mut all = BTreeMap::<String, (Redistribution, Vec<Vec<Vec<u8>>>)>::new();
    for list in saved.iter().flatten() {
        let place = all.entry(list.name.clone());
        let (mode, parts) = place.or_insert((list.redistribution, Vec::new()));
        assert_eq!(*mode, list.redistribution);
        parts.push(list.elements.clone());
    }
    let part = |mode, parts: &[Vec<Vec<u8>>], index: usize| match mode {
        Redistribution::Split => {
            let all = parts.concat().into_iter();
            all.skip(index).step_by(parallelism).collect()
        }
        Redistribution::Union => parts.concat(),
        Redistribution::Broadcast => parts[0].clone(),
    };
    let subtask = |index| {
        let lists = all.iter().map(|(name, (mode, parts))| ListState {
            name: name.clone(),
            redistribution: *mode,
            elements: part(*mode, parts, index),
        });
        lists.collect()
    };
    (0..parallelism).map(subtask).collect()
}

// OS-01: one name, one mode and one type, while bound and at restore.
#[test]
fn another_mode_or_type_is_refused() {
    let mut live = OperatorStateBackend::new(0);
    let list = live.split_list(&files()).unwrap();
    list.add("a".to_owned());
    assert_eq!(live.split_list(&files()).unwrap().get(), ["a"]);
    let error = live.union_list(&files()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "state `files` is already bound as `split list` version `1` of `string`, so it can't be \
         bound as `union list` version `1` of `string`"
    );
    let map = MapStateDescriptor::<String, u32>::new("files");
    assert!(matches!(
        live.broadcast_map(&map),
        Err(StateError::AlreadyBound(_))
    ));
    let numbers = ListStateDescriptor::<u64>::new("files");
    assert!(matches!(
        live.split_list(&numbers),
        Err(StateError::AlreadyBound(_))
    ));

    let saved = live.snapshot().unwrap();
    let mut restored = OperatorStateBackend::restore(0, &saved).unwrap();
    let error = restored.broadcast_map(&map).err().unwrap();
    assert_eq!(
        error.to_string(),
        "state `files` was saved as `split list` version `1` of `string`, but the job declares \
         `broadcast map` version `1` of `u32` by `string`"
    );
    for refused in [
        restored.union_list(&files()).err(),
        restored.split_list(&numbers).err(),
        restored.split_list(&files().with_version(2)).err(),
    ] {
        assert!(matches!(
            refused,
            Some(StateError::RestoredStateMismatch(_))
        ));
    }
    assert_eq!(restored.split_list(&files()).unwrap().get(), ["a"]);
}

/// A subtask that got no element of a list refuses another type like the others.
#[test]
fn a_subtask_without_elements_knows_the_type() {
    let mut live = OperatorStateBackend::new(0);
    live.split_list(&files()).unwrap().add("a".to_owned());
    let saved = live.snapshot().unwrap();
    for lists in dealt(&[saved], 3) {
        let mut restored = OperatorStateBackend::restore(0, &lists).unwrap();
        assert!(restored.union_list(&files()).is_err());
        assert!(restored.split_list(&files()).unwrap().len() <= 1);
    }
}

// OS-02: no state, and state without elements, leave nothing.
#[test]
fn nothing_is_saved_as_nothing() {
    let mut live = OperatorStateBackend::new(0);
    assert_eq!(live.snapshot().unwrap(), []);
    let list = live.split_list(&files()).unwrap();
    let union = live.union_list(&offsets()).unwrap();
    let map = live.broadcast_map(&rules()).unwrap();
    assert_eq!(live.snapshot().unwrap(), []);
    list.update(vec!["a".to_owned()]);
    union.add((1, 2));
    map.put("x".to_owned(), None);
    assert_eq!(live.snapshot().unwrap().len(), 6);
    list.clear();
    union.update(Vec::new());
    map.remove("x");
    assert_eq!(live.snapshot().unwrap(), []);
    let restored = OperatorStateBackend::restore(0, &[]).unwrap();
    assert_eq!(restored.snapshot().unwrap(), []);
}

// OS-03: a snapshot shares nothing with what goes on.
#[test]
fn a_snapshot_is_a_copy() {
    let mut live = OperatorStateBackend::new(0);
    let list = live.split_list(&files()).unwrap();
    let map = live.broadcast_map(&rules()).unwrap();
    list.add_all(["a".to_owned(), "b".to_owned()]);
    map.put("x".to_owned(), Some(1));
    let saved = live.snapshot().unwrap();
    list.add("c".to_owned());
    map.put("x".to_owned(), Some(2));
    map.put("y".to_owned(), None);
    let mut restored = OperatorStateBackend::restore(0, &saved).unwrap();
    assert_eq!(restored.split_list(&files()).unwrap().get(), ["a", "b"]);
    let map = restored.broadcast_map(&rules()).unwrap();
    assert_eq!(map.with(Clone::clone), [("x".to_owned(), Some(1))].into());
}

// OS-05, M19: all modes together, at another parallelism, with one of them empty.
#[test]
fn every_mode_is_dealt_out_in_its_way() {
    for with_rules in [true, false] {
        let saved: Vec<Vec<ListState>> = (0..3u32)
            .map(|index| {
                let mut live = OperatorStateBackend::new(index);
                let list = live.split_list(&files()).unwrap();
                list.add_all((0..index).map(|at| format!("{index}/{at}")));
                let offsets = live.union_list(&offsets()).unwrap();
                offsets.add((index, 100 + u64::from(index)));
                let rules = live.broadcast_map(&rules()).unwrap();
                if with_rules {
                    rules.put("🌊".to_owned(), Some(7));
                    rules.put(String::new(), None);
                }
                live.snapshot().unwrap()
            })
            .collect();
        let mut seen = Vec::new();
        for (index, lists) in (0..).zip(dealt(&saved, 2)) {
            let mut restored = OperatorStateBackend::restore(index, &lists).unwrap();
            seen.extend(restored.split_list(&files()).unwrap().get());
            let offsets = restored.union_list(&offsets()).unwrap();
            assert_eq!(offsets.get(), [(0, 100), (1, 101), (2, 102)]);
            assert_eq!(offsets.with(<[_]>::len), 3);
            let rules = restored.broadcast_map(&rules()).unwrap();
            assert_eq!(rules.get("🌊"), with_rules.then_some(Some(7)));
            assert_eq!(rules.contains_key(""), with_rules);
            assert_eq!(rules.len(), if with_rules { 2 } else { 0 });
            rules.retain(|key, value| {
                *value = Some(1);
                !key.is_empty()
            });
            assert_eq!(rules.is_empty(), !with_rules);
        }
        seen.sort_unstable();
        assert_eq!(seen, ["1/0", "2/0", "2/1"]);
    }
}

// KS-10: what nobody binds stays; of a union list, each element once.
#[test]
fn unbound_state_stays_in_snapshots() {
    let mut live = OperatorStateBackend::new(0);
    live.split_list(&files()).unwrap().add("a".to_owned());
    live.union_list(&offsets()).unwrap().add((1, 1));
    live.broadcast_map(&rules())
        .unwrap()
        .put("x".to_owned(), None);
    let mut saved = vec![live.snapshot().unwrap()];
    for parallelism in [3, 2, 4] {
        let next = dealt(&saved, parallelism);
        let next = (0..).zip(&next).map(|(index, lists)| {
            let backend = OperatorStateBackend::restore(index, lists).unwrap();
            backend.snapshot().unwrap()
        });
        saved = next.collect();
    }
    let lists = &dealt(&saved, 1)[0];
    let mut restored = OperatorStateBackend::restore(0, lists).unwrap();
    assert_eq!(restored.split_list(&files()).unwrap().get(), ["a"]);
    assert_eq!(restored.union_list(&offsets()).unwrap().get(), [(1, 1)]);
    let rules = restored.broadcast_map(&rules()).unwrap();
    assert_eq!(rules.get("x"), Some(None));
}

#[test]
fn damage_is_told_by_name() {
    let mut live = OperatorStateBackend::new(0);
    live.split_list(&files()).unwrap().add("abc".to_owned());
    live.broadcast_map(&rules())
        .unwrap()
        .put("x".to_owned(), None);
    let saved = live.snapshot().unwrap();
    let names: Vec<&str> = saved.iter().map(|list| &*list.name).collect();
    assert_eq!(names, ["files", "files/type", "rules", "rules/type"]);

    let cause = |lists: &[ListState]| {
        let error = match OperatorStateBackend::restore(0, lists) {
            Ok(mut backend) => {
                let list = backend.split_list(&files()).err();
                list.or_else(|| backend.broadcast_map(&rules()).err())
                    .unwrap()
            }
            Err(error) => error,
        };
        assert!(matches!(error, StateError::LoadOperator { .. }), "{error}");
        format!("{error}: {}", error.source().unwrap())
    };
    let untyped =
        "load operator state `files`: its type is missing: it isn't state of this backend";
    assert_eq!(cause(&saved[..1]), untyped);
    let altered = |at: usize, element: &[u8]| {
        let mut lists = saved.clone();
        lists[at].elements[0] = element.to_vec();
        cause(&lists)
    };
    let layout = "load operator state `files`: its type has the unknown layout `9`";
    assert_eq!(altered(1, &[9]), layout);
    altered(1, &[]);
    altered(1, &[1, 0]);
    altered(0, &[]);
    altered(0, &[5, b'a']);
    altered(0, &[1, b'a', b'b']);
    altered(2, &[]);
    altered(2, &[9, 9]);
    let mut twice = saved.clone();
    let entry = twice[2].elements[0].clone();
    twice[2].elements.push(entry);
    cause(&twice);
}

/// A name that would be taken for the type of another state.
#[test]
fn names_of_types_are_not_for_states() {
    let mut live = OperatorStateBackend::new(0);
    let descriptor = ListStateDescriptor::<u8>::new("files/type");
    assert!(matches!(
        live.split_list(&descriptor),
        Err(StateError::AlreadyBound(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// From p1 to p2 to … subtasks: no element is lost or doubled.
    #[test]
    fn random_walks_over_parallelisms(
        parallelisms in prop::collection::vec(1usize..9, 1..5),
        added in 0u64..30,
    ) {
        let (mut saved, mut expected) = (Vec::new(), BTreeSet::new());
        for (round, parallelism) in (0u32..).zip(parallelisms) {
            let (mut next, mut all) = (Vec::new(), Vec::new());
            for (index, lists) in (0u32..).zip(dealt(&saved, parallelism)) {
                let mut backend = OperatorStateBackend::restore(index, &lists).unwrap();
                let list = backend.split_list(&offsets()).unwrap();
                all.extend(list.get());
                let new = (0..added).map(move |at| (round, u64::from(index) * 1000 + at));
                list.add_all(new.clone());
                next.push((backend, new));
            }
            prop_assert_eq!(all.len(), expected.len());
            prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected.clone());
            saved.clear();
            for (backend, new) in next {
                expected.extend(new);
                saved.push(backend.snapshot().unwrap());
            }
        }
    }
}
