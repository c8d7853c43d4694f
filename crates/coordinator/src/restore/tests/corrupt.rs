//! Checkpoints that no job can have written: refused with their fault, never a panic.

use super::*;

/// What is wrong with these operators, restored at parallelism 2.
fn refused(operators: Vec<OperatorCheckpoint>) -> String {
    let saved = checkpoint(operators);
    let error = plan_restore(&graph(&[("op", 2)]), Some(&saved), true).unwrap_err();
    error.to_string()
}

/// Subtasks whose files claim these key groups.
fn claiming(ranges: &[(u16, u16)]) -> Vec<SubtaskState> {
    let mut subtasks = keyed(ranges.len() as u32);
    for (subtask, (start, end)) in subtasks.iter_mut().zip(ranges) {
        let handle = subtask.keyed.as_mut().unwrap();
        (handle.key_groups.start, handle.key_groups.end) = (*start, *end);
    }
    subtasks
}

// RS-17, RS-02
#[test]
fn key_groups_are_covered_once_each() {
    let fault = |ranges: &[(u16, u16)]| {
        let text = refused(vec![operator("op", claiming(ranges))]);
        let prefix = "keyed state of operator `op` in `chk-7` is corrupt: ";
        text.strip_prefix(prefix).unwrap().to_owned()
    };
    assert_eq!(
        fault(&[(0, 70), (64, 127)]),
        "two files hold key groups `64..=70`"
    );
    assert_eq!(
        fault(&[(0, 127), (3, 9)]),
        "two files hold key groups `3..=9`"
    );
    assert_eq!(
        fault(&[(0, 127), (0, 127)]),
        "two files hold key groups `0..=127`"
    );
    assert_eq!(
        fault(&[(0, 60), (64, 127)]),
        "no file holds key groups `61..=63`"
    );
    assert_eq!(fault(&[(64, 127)]), "no file holds key groups `0..=63`");
    assert_eq!(
        fault(&[(64, 126), (0, 63)]),
        "no file holds key groups `127..=127`"
    );
    let outside = "a file holds key groups `64..=128`, but there are `128`";
    assert_eq!(fault(&[(0, 63), (64, 128)]), outside);
    assert_eq!(fault(&[(9, 8)]), "a file holds key groups from `9` to `8`");
    assert_eq!(
        fault(&[(0, 65535)]),
        "a file holds key groups `0..=65535`, but there are `128`"
    );
}

// RS-17: a subtask without its file.
#[test]
fn a_lost_file_is_a_gap() {
    let mut subtasks = keyed(4);
    subtasks[1].keyed = None;
    let text = refused(vec![operator("op", subtasks)]);
    assert!(
        text.ends_with("no file holds key groups `32..=63`"),
        "{text}"
    );
}

// Files needn't be listed in the order of their key groups.
#[test]
fn order_does_not_matter() {
    let saved = checkpoint(vec![operator("op", claiming(&[(64, 127), (0, 63)]))]);
    let plan = plan_restore(&graph(&[("op", 1)]), Some(&saved), false).unwrap();
    assert_eq!(names(&plan.of(OperatorId(1))[0]), ["f1", "f0"]);
}

#[test]
fn an_operator_has_subtasks_and_is_listed_once() {
    let none = refused(vec![operator("op", vec![])]);
    assert_eq!(
        none,
        "`chk-7` is corrupt: it lists no subtasks of operator `op`"
    );
    let twice = refused(vec![operator("op", keyed(1)), operator("op", keyed(1))]);
    assert_eq!(
        twice,
        "`chk-7` is corrupt: it lists operator `op` more than once"
    );
}

#[test]
fn lists_agree_and_have_their_names_to_themselves() {
    let mut subtasks = listed(Redistribution::Split, &[&["a"]]);
    subtasks.extend(listed(Redistribution::Union, &[&["a"]]));
    assert_eq!(
        refused(vec![operator("op", subtasks)]),
        "subtasks of `op` in `chk-7` disagree on how to redistribute `l`"
    );
    let mut subtasks = listed(Redistribution::Split, &[&["a"]]);
    subtasks[0]
        .lists
        .push(list("l", Redistribution::Split, &["b"]));
    assert_eq!(
        refused(vec![operator("op", subtasks)]),
        "a subtask of `op` in `chk-7` has the list `l` more than once"
    );
}

// What is dropped may be as odd as it likes.
#[test]
fn only_what_is_restored_must_be_sound() {
    let saved = checkpoint(vec![operator("gone", claiming(&[(9, 8), (0, 65535)]))]);
    assert!(plan_restore(&graph(&[("op", 2)]), Some(&saved), true).is_ok());
}

fn any_state() -> impl Strategy<Value = SubtaskState> {
    let range = || (any::<u16>(), 0u16..200);
    let handle = prop::option::of(range()).prop_map(|claimed| {
        let file = FileHandle {
            name: "f".to_owned(),
            bytes: 1,
            crc32c: 0,
        };
        claimed.map(|(start, end)| {
            let start = start % 200;
            KeyedStateHandle::of_file(file, KeyGroupRange { start, end })
        })
    });
    let mode = prop::sample::select(vec![
        Redistribution::Split,
        Redistribution::Union,
        Redistribution::Broadcast,
    ]);
    let lists = prop::collection::vec(mode.prop_map(|mode| list("l", mode, &["a"])), 0..3);
    (handle, lists, any::<bool>()).prop_map(|(keyed, lists, finished)| SubtaskState {
        keyed,
        lists,
        finished,
    })
}

proptest! {
    // RS-17: whatever a checkpoint holds, the answer is a plan or an error, and the preview knows.
    #[test]
    fn nothing_panics(
        subtasks in prop::collection::vec(any_state(), 0..4),
        source in prop::collection::vec(any_state(), 0..3),
        parallelism in 1u32..5,
        allow: bool,
    ) {
        let saved = checkpoint(vec![operator("op", subtasks), operator("source", source)]);
        let mut graph = graph(&[("op", parallelism)]);
        graph.operators[1].max_parallelism_derived = true;
        let _ = adopt_max_parallelism(&mut graph, &saved);
        let plan = plan_restore(&graph, Some(&saved), allow);
        let preview = preview_restore(&graph, &saved, allow);
        prop_assert_eq!(plan.err(), preview.problems.first().cloned());
        prop_assert!(!preview.to_string().is_empty());
    }
}
