//! What people are told before they restore.

use super::*;

#[test]
fn what_each_operator_gets() {
    let mut sink = listed(Redistribution::Split, &[&["abc"], &[]]);
    sink[0].finished = true;
    let mut source = vec![SubtaskState::default()];
    source[0].finished = true;
    let mut map = vec![SubtaskState::default(); 2];
    map[0].finished = true;
    let saved = checkpoint(vec![
        operator("source", source),
        operator("map", map),
        operator("count", keyed(2)),
        operator("offsets", listed(Redistribution::Union, &[&["x"]])),
    ]);
    let graph = graph(&[("map", 2), ("count", 3), ("print", 1)]);
    let preview = preview_restore(&graph, &saved, true);
    assert!(preview.is_possible());
    assert_eq!(
        preview.to_string(),
        "`chk-7` can be restored:\n  \
         `source`: parallelism 1, 0 bytes, finished\n  \
         `map`: parallelism 2, 0 bytes, 1 of 2 subtasks finished\n  \
         `count`: parallelism 2 -> 3, max parallelism 128, 2 bytes\n  \
         `print`: new, starts empty, parallelism 1\n  \
         `offsets`: dropped, parallelism 1, 1 byte\n"
    );
}

// I5, I6, BC-45: all at once, so that nobody has to try again and again.
#[test]
fn everything_that_is_wrong() {
    let mut lists = listed(Redistribution::Split, &[&["a"]]);
    lists.extend(listed(Redistribution::Union, &[&["a"]]));
    let mut saved = checkpoint(vec![
        operator("source", vec![]),
        operator("count", keyed(2)),
        operator("old", keyed(1)),
        operator("map", lists),
    ]);
    saved.hash_id = "md5/1".to_owned();
    let mut graph = graph(&[("count", 2), ("map", 1), ("new", 1)]);
    graph.operators[1].max_parallelism = MaxParallelism::new(64).unwrap();
    let preview = preview_restore(&graph, &saved, false);
    assert_eq!(
        preview.to_string(),
        "`chk-7` can't be restored, for 5 reasons:\n  \
         `chk-7` was made with the key hash `md5/1`, this version uses `xxh3-64/1`\n  \
         `chk-7` holds state of operators that the job doesn't have: `old`; operators of the job \
         that it knows nothing of: `new`; give an operator its old name back, or pass \
         --allow-non-restored-state to drop the state\n  \
         `chk-7` is corrupt: it lists no subtasks of operator `source`\n  \
         operator `count` has max parallelism `64`, but its keyed state in `chk-7` was made with \
         `128`; set it to `128`\n  \
         subtasks of `map` in `chk-7` disagree on how to redistribute `l`\n"
    );
}

// RS-04: the preview counts what would be adopted.
#[test]
fn a_derived_max_parallelism_counts_as_adopted() {
    let saved = checkpoint(vec![operator("count", keyed(2))]);
    let mut graph = graph(&[("count", 100)]);
    graph.operators[1].max_parallelism = MaxParallelism::derive(100);
    graph.operators[1].max_parallelism_derived = true;
    let before = graph.clone();
    let preview = preview_restore(&graph, &saved, false);
    assert!(preview.is_possible(), "{preview}");
    assert_eq!(preview.operators[1].max_parallelism.unwrap().get(), 128);
    assert_eq!(graph, before);
}

// One who has chosen too high a parallelism is told so, and so of what else is wrong.
#[test]
fn a_parallelism_too_high_is_one_problem_of_several() {
    let saved = checkpoint(vec![
        operator("count", keyed(2)),
        operator("gone", keyed(1)),
    ]);
    let mut graph = graph(&[("count", 1)]);
    graph.operators[1].parallelism = 300;
    graph.operators[1].max_parallelism = MaxParallelism::derive(300);
    graph.operators[1].max_parallelism_derived = true;
    let problems = preview_restore(&graph, &saved, false).problems;
    assert!(matches!(
        problems[..],
        [
            RestoreError::Unmatched { .. },
            RestoreError::ParallelismAboveMax {
                parallelism: 300,
                saved: 128,
                ..
            }
        ]
    ));
}
