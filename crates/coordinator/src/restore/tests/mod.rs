//! Restore plans for every way in which a job may have changed.

mod corrupt;
mod finished;
mod max_parallelism;
mod preview;

use proptest::prelude::*;

use tidegate_types::graph::{Edge, OperatorRole, Partitioning};
use tidegate_types::{
    AttemptNumber, CheckpointId, FileHandle, HASH_ID, JobId, KeyedPiece, KeyedStateHandle,
    ListState, MaxParallelism, OperatorId, Owner, Redistribution, SnapshotKind, SubtaskState,
    UnixMillis,
};

use super::*;

fn uid(name: &str) -> OperatorUid {
    OperatorUid(name.to_owned())
}

/// A source and these operators behind it, in a row.
fn graph(operators: &[(&str, u32)]) -> JobGraph {
    let named = [("source", 1)].into_iter().chain(operators.iter().copied());
    let operators: Vec<OperatorSpec> = named
        .enumerate()
        .map(|(index, (name, parallelism))| OperatorSpec {
            uid: uid(name),
            parallelism,
            max_parallelism: MaxParallelism::new(128).unwrap(),
            max_parallelism_derived: false,
            role: match index {
                0 => OperatorRole::Enumerator,
                _ => OperatorRole::Transform,
            },
        })
        .collect();
    let edges = (1..operators.len() as u32)
        .map(|to| Edge {
            from: OperatorId(to - 1),
            to: OperatorId(to),
            partitioning: Partitioning::Rebalance,
        })
        .collect();
    let graph = JobGraph { operators, edges };
    assert_eq!(graph.validate(), Ok(()));
    graph
}

fn checkpoint(operators: Vec<OperatorCheckpoint>) -> CompletedCheckpoint {
    CompletedCheckpoint {
        id: CheckpointId(7),
        job: JobId(1),
        attempt: AttemptNumber(1),
        kind: SnapshotKind::Checkpoint,
        location: None,
        owner: Owner::Job,
        triggered_at: UnixMillis(0),
        hash_id: HASH_ID.to_owned(),
        operators,
    }
}

fn operator(name: &str, subtasks: Vec<SubtaskState>) -> OperatorCheckpoint {
    OperatorCheckpoint {
        uid: uid(name),
        max_parallelism: MaxParallelism::new(128).unwrap(),
        subtasks,
    }
}

/// Keyed state of each of so many subtasks, in files `f0`, `f1`, …
fn keyed(parallelism: u32) -> Vec<SubtaskState> {
    let max = MaxParallelism::new(128).unwrap();
    (0..parallelism)
        .map(|index| SubtaskState {
            keyed: Some(KeyedStateHandle::of_file(
                FileHandle {
                    name: format!("f{index}"),
                    bytes: 1,
                    crc32c: 0,
                },
                max.range(index, parallelism).unwrap(),
            )),
            ..SubtaskState::default()
        })
        .collect()
}

/// The files that a subtask reads, in order.
fn names(subtask: &SubtaskRestore) -> Vec<&str> {
    let files = subtask.keyed.iter().flat_map(KeyedStateHandle::files);
    files.map(|file| file.name.as_str()).collect()
}

/// Subtasks with one list `l` of these elements each.
fn listed(redistribution: Redistribution, parts: &[&[&str]]) -> Vec<SubtaskState> {
    let state = |part: &&[&str]| SubtaskState {
        lists: vec![list("l", redistribution, part)],
        ..SubtaskState::default()
    };
    parts.iter().map(state).collect()
}

fn list(name: &str, redistribution: Redistribution, elements: &[&str]) -> ListState {
    ListState {
        name: name.to_owned(),
        redistribution,
        elements: elements.iter().map(|e| e.as_bytes().to_vec()).collect(),
    }
}

/// The elements each subtask of `op` gets of its `index`th list.
fn dealt(subtasks: Vec<SubtaskState>, parallelism: u32, index: usize) -> Vec<Vec<String>> {
    let saved = checkpoint(vec![operator("op", subtasks)]);
    let plan = plan_restore(&graph(&[("op", parallelism)]), Some(&saved), false).unwrap();
    let text = |element: &Vec<u8>| String::from_utf8(element.clone()).unwrap();
    plan.of(OperatorId(1))
        .iter()
        .map(|subtask| subtask.lists[index].elements.iter().map(text).collect())
        .collect()
}

#[test]
fn without_a_checkpoint_everything_starts_empty() {
    let graph = graph(&[("op", 2)]);
    let plan = plan_restore(&graph, None, false).unwrap();
    let shown = DisplayPlan {
        graph: &graph,
        plan: &plan,
    };
    let expected = "source[0]: key groups 0..=127\n\
                    op[0]: key groups 0..=63\n\
                    op[1]: key groups 64..=127\n";
    assert_eq!(shown.to_string(), expected);
}

// RS-02: 2 -> 3 and 3 -> 2, every subtask gets the handles that intersect its range. RS-01, I4.
#[test]
fn keyed_state_goes_to_the_owners_of_its_key_groups() {
    let shown = |old, new| {
        let saved = checkpoint(vec![operator("op", keyed(old))]);
        let graph = graph(&[("op", new)]);
        let plan = plan_restore(&graph, Some(&saved), false).unwrap();
        let shown = DisplayPlan {
            graph: &graph,
            plan: &plan,
        };
        shown
            .to_string()
            .replace("source[0]: key groups 0..=127\n", "")
    };
    assert_eq!(
        shown(2, 3),
        "op[0]: key groups 0..=42, f0 (0..=63)\n\
         op[1]: key groups 43..=85, f0 (0..=63), f1 (64..=127)\n\
         op[2]: key groups 86..=127, f1 (64..=127)\n"
    );
    assert_eq!(
        shown(3, 2),
        "op[0]: key groups 0..=63, f0 (0..=42), f1 (43..=85)\n\
         op[1]: key groups 64..=127, f1 (43..=85), f2 (86..=127)\n"
    );
    assert_eq!(
        shown(2, 2),
        "op[0]: key groups 0..=63, f0 (0..=63)\nop[1]: key groups 64..=127, f1 (64..=127)\n"
    );
}

// RS-03, BC-45
#[test]
fn a_changed_max_parallelism_is_refused_with_both_numbers() {
    let mut changed = graph(&[("op", 2)]);
    changed.operators[1].max_parallelism = MaxParallelism::new(64).unwrap();
    let saved = checkpoint(vec![operator("op", keyed(2))]);
    let error = plan_restore(&changed, Some(&saved), true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operator `op` has max parallelism `64`, but its keyed state in `chk-7` was made with \
         `128`; set it to `128`"
    );
    let stateless = checkpoint(vec![operator("op", vec![SubtaskState::default()])]);
    assert!(plan_restore(&changed, Some(&stateless), false).is_ok());
}

#[test]
fn another_key_hash_is_refused() {
    let mut saved = checkpoint(vec![]);
    saved.hash_id = "md5/1".to_owned();
    let error = plan_restore(&graph(&[]), Some(&saved), true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`chk-7` was made with the key hash `md5/1`, this version uses `xxh3-64/1`"
    );
}

// RS-05, RS-06
#[test]
fn state_of_a_removed_operator_is_refused_unless_allowed() {
    let saved = checkpoint(vec![
        operator("source", vec![SubtaskState::default()]),
        operator("count", keyed(2)),
        operator("offsets", listed(Redistribution::Split, &[&["1"]])),
        operator("printer", vec![SubtaskState::default()]),
        operator("empty", listed(Redistribution::Split, &[&[]])),
    ]);
    let renamed = graph(&[("counts", 2)]);
    let error = plan_restore(&renamed, Some(&saved), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`chk-7` holds state of operators that the job doesn't have: `count`, `offsets`; \
         operators of the job that it knows nothing of: `counts`; give an operator its old name \
         back, or pass --allow-non-restored-state to drop the state"
    );
    assert!(plan_restore(&renamed, Some(&saved), true).is_ok());
}

// RS-08, RS-09
#[test]
fn state_follows_the_uid_and_new_operators_start_empty() {
    let saved = checkpoint(vec![
        operator("b", keyed(1)),
        operator("source", vec![SubtaskState::default()]),
    ]);
    let plan = plan_restore(&graph(&[("a", 1), ("b", 1)]), Some(&saved), false).unwrap();
    assert_eq!(plan.of(OperatorId(1))[0].keyed, []);
    assert_eq!(names(&plan.of(OperatorId(2))[0]), ["f0"]);
}

// RS-02: whatever the parallelism, all pieces of a handle come, oldest first.
#[test]
fn pieces_stay_together_in_their_order() {
    let mut subtasks = keyed(2);
    for (subtask, changed) in subtasks.iter_mut().zip(["g0", "g1"]) {
        let keyed = subtask.keyed.as_mut().unwrap();
        keyed.pieces.push(KeyedPiece::Inline([7; 5].into()));
        keyed.pieces.push(KeyedPiece::File(FileHandle {
            name: changed.to_owned(),
            bytes: 1,
            crc32c: 0,
        }));
    }
    let saved = checkpoint(vec![operator("op", subtasks)]);
    for (parallelism, expected) in [(1, vec!["f0", "g0", "f1", "g1"]), (4, vec!["f0", "g0"])] {
        let graph = graph(&[("op", parallelism)]);
        let plan = plan_restore(&graph, Some(&saved), false).unwrap();
        let first = &plan.of(OperatorId(1))[0];
        assert_eq!(names(first), expected);
        assert!(first.keyed.iter().all(|handle| handle.pieces.len() == 3));
        let (graph, plan) = (&graph, &plan);
        let text = DisplayPlan { graph, plan }.to_string();
        let shown = "f0 + 5 bytes inline + g0 (0..=63)";
        assert!(text.contains(shown), "{text}");
    }
}

// RS-11
#[test]
fn split_lists_are_cut_evenly_in_order() {
    let parts: &[&[&str]] = &[&["a", "b", "c", "d"], &["e"]];
    let three = dealt(listed(Redistribution::Split, parts), 3, 0);
    assert_eq!(three, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    let one = dealt(listed(Redistribution::Split, parts), 1, 0);
    assert_eq!(one, [vec!["a", "b", "c", "d", "e"]]);
}

// RS-01
#[test]
fn split_lists_stay_where_they_are_if_parallelism_does() {
    let parts: &[&[&str]] = &[&["a", "b", "c"], &[]];
    let same = dealt(listed(Redistribution::Split, parts), 2, 0);
    assert_eq!(same, [vec!["a", "b", "c"], vec![]]);
}

// RS-12
#[test]
fn union_lists_go_to_everybody_also_without_a_rescale() {
    let parts: &[&[&str]] = &[&["a"], &["b", "c"]];
    for parallelism in [1, 2, 3] {
        let all = dealt(listed(Redistribution::Union, parts), parallelism, 0);
        assert_eq!(all, vec![vec!["a", "b", "c"]; parallelism as usize]);
    }
}

// RS-13, RS-14
#[test]
fn broadcast_lists_are_copied_never_concatenated() {
    let everywhere: &[&[&str]] = &[&["a", "b"], &["a", "b"]];
    let only_first: &[&[&str]] = &[&["a", "b"], &[]];
    let only_last: &[&[&str]] = &[&[], &["a", "b"]];
    for parts in [everywhere, only_first, only_last] {
        for parallelism in [1, 2, 5] {
            let copies = dealt(listed(Redistribution::Broadcast, parts), parallelism, 0);
            assert_eq!(copies, vec![vec!["a", "b"]; parallelism as usize]);
        }
    }
    let mut unreported = listed(Redistribution::Broadcast, &[&["a"]]);
    unreported.push(SubtaskState::default());
    assert_eq!(dealt(unreported, 2, 0), [["a"], ["a"]]);
}

// RS-15, I4
#[test]
fn each_list_is_dealt_out_by_its_own_mode() {
    let state = |suffix: &str| SubtaskState {
        lists: vec![
            list("b", Redistribution::Broadcast, &["b"]),
            list("s", Redistribution::Split, &[suffix]),
            list("u", Redistribution::Union, &[suffix]),
        ],
        ..SubtaskState::default()
    };
    let states = || vec![state("0"), state("1")];
    assert_eq!(dealt(states(), 1, 0), [["b"]]);
    assert_eq!(dealt(states(), 1, 1), [["0", "1"]]);
    assert_eq!(dealt(states(), 3, 1), [vec!["0"], vec!["1"], vec![]]);
    assert_eq!(dealt(states(), 3, 2), [["0", "1"], ["0", "1"], ["0", "1"]]);
}

proptest! {
    // RS-02, RS-16: every key group is restored from exactly the file that covers it.
    #[test]
    fn every_key_group_finds_its_file(old in 1u32..=128, new in 1u32..=128) {
        let saved = checkpoint(vec![operator("op", keyed(old))]);
        let plan = plan_restore(&graph(&[("op", new)]), Some(&saved), false).unwrap();
        let mut seen = 0;
        for subtask in plan.of(OperatorId(1)) {
            for group in subtask.key_groups.iter() {
                let covers = |h: &&KeyedStateHandle| h.key_groups.contains(group);
                prop_assert_eq!(subtask.keyed.iter().filter(covers).count(), 1);
                seen += 1;
            }
        }
        prop_assert_eq!(seen, 128);
    }

    // RS-11, BC-44: along a walk of rescales, no element is lost or doubled.
    #[test]
    fn split_lists_survive_rescales(
        lengths in prop::collection::vec(0usize..20, 1..6),
        walk in prop::collection::vec(1u32..9, 1..5),
    ) {
        let mut next = 0;
        let mut states: Vec<SubtaskState> = lengths.iter().map(|length| {
            let elements = (next..next + length).map(|e| e.to_string().into_bytes()).collect();
            next += length;
            let list = ListState { elements, ..list("l", Redistribution::Split, &[]) };
            SubtaskState { lists: vec![list], ..SubtaskState::default() }
        }).collect();
        let all: Vec<String> = (0..next).map(|e| e.to_string()).collect();
        for parallelism in walk {
            let unchanged = states.len() == parallelism as usize;
            let parts = dealt(states, parallelism, 0);
            prop_assert_eq!(parts.concat(), all.clone());
            let lengths = parts.iter().map(Vec::len);
            let (min, max) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            prop_assert!(unchanged || max - min <= 1);
            states = parts.iter().map(|part| {
                let elements: Vec<&str> = part.iter().map(String::as_str).collect();
                let list = list("l", Redistribution::Split, &elements);
                SubtaskState { lists: vec![list], ..SubtaskState::default() }
            }).collect();
        }
    }
}
