//! The number of key groups when a job's parallelism has changed.

use super::*;

/// A job whose operator `op` has this parallelism, nobody having chosen a max parallelism.
fn derived(parallelism: u32) -> JobGraph {
    let mut graph = graph(&[("op", 1)]);
    let spec = &mut graph.operators[1];
    spec.parallelism = parallelism;
    spec.max_parallelism = MaxParallelism::derive(parallelism);
    spec.max_parallelism_derived = true;
    graph
}

// RS-04: derived from a parallelism of 200 it would be 512.
#[test]
fn a_derived_one_gives_way_to_the_checkpoints() {
    let saved = checkpoint(vec![operator("op", keyed(2))]);
    let mut graph = derived(100);
    assert_eq!(graph.operators[1].max_parallelism.get(), 256);
    assert!(plan_restore(&graph, Some(&saved), false).is_err());
    adopt_max_parallelism(&mut graph, &saved).unwrap();
    assert_eq!(graph.operators[1].max_parallelism.get(), 128);
    let plan = plan_restore(&graph, Some(&saved), false).unwrap();
    assert_eq!(
        plan.of(OperatorId(1))[99].key_groups.to_string(),
        "127..=127"
    );
    assert_eq!(graph.operators[0], self::graph(&[]).operators[0]);
}

#[test]
fn a_parallelism_of_just_the_checkpoints_max_is_fine() {
    let saved = checkpoint(vec![operator("op", keyed(2))]);
    let mut graph = derived(128);
    adopt_max_parallelism(&mut graph, &saved).unwrap();
    assert!(plan_restore(&graph, Some(&saved), false).is_ok());
}

// RS-04
#[test]
fn without_keyed_state_there_is_nothing_to_adopt() {
    let saved = checkpoint(vec![operator(
        "op",
        listed(Redistribution::Split, &[&["a"]]),
    )]);
    let mut graph = derived(200);
    adopt_max_parallelism(&mut graph, &saved).unwrap();
    assert_eq!(graph, derived(200));
    assert!(plan_restore(&graph, Some(&saved), false).is_ok());
}

// BC-45
#[test]
fn a_parallelism_above_the_checkpoints_max_is_refused_with_both_numbers() {
    let saved = checkpoint(vec![operator("op", keyed(2))]);
    let mut graph = derived(129);
    let error = adopt_max_parallelism(&mut graph, &saved).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operator `op` has parallelism `129`, but its keyed state in `chk-7` was made with max \
         parallelism `128`, which it can never exceed"
    );
    assert_eq!(graph, derived(129));
    assert_eq!(plan_restore(&graph, Some(&saved), true), Err(error));
}

// RS-03: what a user chose is never changed behind their back.
#[test]
fn a_chosen_one_is_left_alone() {
    let saved = checkpoint(vec![operator("op", keyed(2))]);
    let mut graph = derived(2);
    graph.operators[1].max_parallelism = MaxParallelism::new(64).unwrap();
    graph.operators[1].max_parallelism_derived = false;
    let before = graph.clone();
    adopt_max_parallelism(&mut graph, &saved).unwrap();
    assert_eq!(graph, before);
    let error = plan_restore(&graph, Some(&saved), false).unwrap_err();
    assert!(error.to_string().ends_with("set it to `128`"));
}
