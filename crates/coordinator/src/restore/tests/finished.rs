//! Operators that had finished, in part or as a whole.

use super::*;

fn ended(flags: &[bool]) -> Vec<SubtaskState> {
    let state = |finished: &bool| SubtaskState {
        finished: *finished,
        ..SubtaskState::default()
    };
    flags.iter().map(state).collect()
}

/// Which subtasks of the last operator of a row are still finished after a restore. The row is a
/// source, an operator `map` and an operator `sink`.
fn restored(
    saved: [&[bool]; 3],
    parallelism: [u32; 2],
    partitioning: Partitioning,
) -> [Vec<bool>; 2] {
    let [source, map, sink] = saved;
    let saved = checkpoint(vec![
        operator("source", ended(source)),
        operator("map", ended(map)),
        operator("sink", ended(sink)),
    ]);
    let mut graph = graph(&[("map", parallelism[0]), ("sink", parallelism[1])]);
    graph.edges[1].partitioning = partitioning;
    assert_eq!(graph.validate(), Ok(()));
    let plan = plan_restore(&graph, Some(&saved), false).unwrap();
    [1, 2].map(|id| plan.of(OperatorId(id)).iter().map(|s| s.finished).collect())
}

use Partitioning::{Forward, Rebalance};

// RS-18, FT-06
#[test]
fn a_finished_operator_stays_finished_at_any_parallelism() {
    let all: [&[bool]; 3] = [&[true], &[true, true], &[true, true]];
    for (map, sink, partitioning) in [(2, 2, Forward), (3, 1, Rebalance), (1, 4, Rebalance)] {
        let expected = [vec![true; map as usize], vec![true; sink as usize]];
        assert_eq!(restored(all, [map, sink], partitioning), expected);
    }
}

// RS-18: some subtasks of `map` had all their input, and so those of `sink` behind them.
#[test]
fn a_partly_finished_operator_stays_so_where_nothing_has_changed() {
    let partly: [&[bool]; 3] = [&[true], &[true, false], &[true, false]];
    let expected = [vec![true, false], vec![true, false]];
    assert_eq!(restored(partly, [2, 2], Forward), expected);
}

// After a rescale nobody's input is what it was: `finish()` runs again, when all have ended. To
// refuse that would make the last checkpoints of a job restorable at one parallelism only.
#[test]
fn a_partly_finished_operator_finishes_anew_after_a_rescale() {
    let partly: [&[bool]; 3] = [&[true], &[true, false], &[true, false]];
    assert_eq!(
        restored(partly, [3, 3], Forward),
        [vec![false; 3], vec![false; 3]]
    );
    assert_eq!(
        restored(partly, [1, 2], Rebalance),
        [vec![false; 1], vec![false; 2]]
    );
}

// PL-13, of subtasks: `sink[0]` had finished, but now gets data of `map[1]`, which goes on.
#[test]
fn whoever_gets_data_again_is_no_longer_finished() {
    let partly: [&[bool]; 3] = [&[true], &[true, false], &[true, false]];
    let expected = [vec![true, false], vec![false, false]];
    assert_eq!(restored(partly, [2, 2], Rebalance), expected);
    // At least once, `sink[0]` may finish before a barrier that `map[1]` sent before its end.
    let early: [&[bool]; 3] = [&[true], &[true, false], &[true, true]];
    let expected = [vec![true, false], vec![false, false]];
    assert_eq!(restored(early, [2, 2], Rebalance), expected);
    // And what is behind one that goes on goes on as well.
    let source: [&[bool]; 3] = [&[true, false], &[true, true], &[true, true]];
    assert_eq!(
        restored(source, [2, 2], Forward),
        [vec![false; 2], vec![false; 2]]
    );
}

fn refused(operators: Vec<OperatorCheckpoint>) -> Vec<String> {
    let saved = checkpoint(operators);
    let graph = graph(&[("map", 2), ("sink", 2)]);
    let preview = preview_restore(&graph, &saved, true);
    preview.problems.iter().map(ToString::to_string).collect()
}

// PL-12, PL-13: a running operator before a finished or a partly finished one.
#[test]
fn a_running_operator_before_a_finished_one_is_refused() {
    for sink in [[true, true], [false, true]] {
        let texts = refused(vec![
            operator("source", ended(&[true])),
            operator("map", ended(&[false, false])),
            operator("sink", ended(&sink)),
        ]);
        assert_eq!(
            texts,
            [
                "operator `sink` had finished in `chk-7`, but its input `map` had not: a finished \
              operator takes no more input; restore an earlier checkpoint"
            ]
        );
    }
}

// PL-12, PL-13: an operator that the checkpoint doesn't know runs, of course.
#[test]
fn a_new_operator_before_a_finished_one_is_refused() {
    for sink in [[true, true], [false, true]] {
        let texts = refused(vec![
            operator("source", ended(&[true])),
            operator("sink", ended(&sink)),
        ]);
        assert_eq!(texts.len(), 1);
        assert!(texts[0].contains("its input `map` had not"), "{}", texts[0]);
    }
    // Behind the finished ones there is room for it.
    let behind = refused(vec![
        operator("source", ended(&[true])),
        operator("map", ended(&[true, true])),
    ]);
    assert_eq!(behind, [""; 0]);
}

/// A savepoint that a job was drained into while its source had more to read.
fn drained() -> CompletedCheckpoint {
    let mut drained = checkpoint(vec![
        operator("source", ended(&[false])),
        operator("map", ended(&[true, true])),
    ]);
    drained.kind = SnapshotKind::StopWithSavepoint { drain: true };
    drained
}

// SP-07, SP-10, BC-22: whoever restores it commits what is left to commit and ends; nobody reads
// on, and nobody finishes twice, at any parallelism.
#[test]
fn a_drained_job_is_restored_at_its_end() {
    for parallelism in [1, 2, 3] {
        let graph = graph(&[("map", parallelism), ("new", 1)]);
        let plan = plan_restore(&graph, Some(&drained()), false).unwrap();
        let finished = |id| plan.of(OperatorId(id)).iter().map(|s| s.finished);
        assert!(finished(0).chain(finished(1)).all(|finished| finished));
        assert!(
            finished(2).all(|finished| !finished),
            "it has yet to finish"
        );
    }
    // Without drain the same is no checkpoint of ours.
    let mut stopped = drained();
    stopped.kind = SnapshotKind::StopWithSavepoint { drain: false };
    assert!(plan_restore(&graph(&[("map", 2)]), Some(&stopped), false).is_err());
}

// SP-07: draining is for good.
#[test]
fn no_other_job_begins_from_a_drained_one() {
    let drained = drained();
    assert_eq!(refuse_drained(drained.job, &drained), Ok(()));
    let error = refuse_drained(JobId(77), &drained).unwrap_err().to_string();
    assert!(
        error.starts_with("`chk-7` was taken by draining"),
        "{error}"
    );
    assert_eq!(refuse_drained(JobId(77), &checkpoint(vec![])), Ok(()));
}

// The order of edges says nothing about the way of the data.
#[test]
fn what_is_taken_back_is_taken_back_all_the_way() {
    let saved = checkpoint(vec![
        operator("source", ended(&[true])),
        operator("map", ended(&[true, false])),
        operator("sink", ended(&[true, false])),
        operator("log", ended(&[true, false])),
    ]);
    let mut graph = graph(&[("map", 2), ("sink", 2), ("log", 2)]);
    graph.edges[1].partitioning = Rebalance;
    graph.edges[2].partitioning = Forward;
    graph.edges.reverse();
    let plan = plan_restore(&graph, Some(&saved), false).unwrap();
    for operator in [2, 3].map(OperatorId) {
        assert!(plan.of(operator).iter().all(|subtask| !subtask.finished));
    }
}
