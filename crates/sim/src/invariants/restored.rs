//! A restore loses nothing of its checkpoint and doubles nothing: each element of a split list goes
//! to one subtask, broadcast lists go to all, and each key group to the one subtask that owns it.
//!
//! Source: Flink's `StateAssignmentOperation`; BC-27, the parts that are there are the parts that
//! are used; BC-44, no split at two readers.

use std::collections::BTreeMap;

use tidegate_types::graph::JobGraph;
use tidegate_types::{
    CompletedCheckpoint, KeyGroup, ListState, OperatorCheckpoint, Redistribution, RestorePlan,
    SubtaskRestore,
};

use super::{Checked, ensure};

const NAME: &str = "restored";

/// An attempt is to start from `checkpoint` by `plan`.
pub(crate) fn restored(
    checkpoint: &CompletedCheckpoint,
    plan: &RestorePlan,
    graph: &JobGraph,
) -> Checked {
    let parts = checkpoint.operators.iter().zip(&plan.operators);
    for ((operator, parts), spec) in parts.zip(&graph.operators) {
        let (id, uid) = (checkpoint.id, &operator.uid);
        ensure(*uid == spec.uid, NAME, || {
            format!("{id} has `{uid}` where the job has `{}`", spec.uid)
        })?;
        lists(operator, parts)?;
        key_groups(operator, parts, spec.max_parallelism.get())?;
    }
    Ok(())
}

type Elements<'a> = BTreeMap<&'a str, Vec<&'a [u8]>>;

fn gather<'a>(into: &mut Elements<'a>, lists: &'a [ListState], kind: Redistribution) {
    for list in lists.iter().filter(|list| list.redistribution == kind) {
        let elements = list.elements.iter().map(Vec::as_slice);
        into.entry(list.name.as_str()).or_default().extend(elements);
    }
}

fn lists(operator: &OperatorCheckpoint, parts: &[SubtaskRestore]) -> Checked {
    let uid = &operator.uid;
    let (mut saved, mut dealt) = (Elements::new(), Elements::new());
    for subtask in &operator.subtasks {
        gather(&mut saved, &subtask.lists, Redistribution::Split);
    }
    for part in parts {
        gather(&mut dealt, &part.lists, Redistribution::Split);
    }
    for elements in saved.values_mut().chain(dealt.values_mut()) {
        elements.sort_unstable();
    }
    saved.retain(|_, elements| !elements.is_empty());
    dealt.retain(|_, elements| !elements.is_empty());
    ensure(saved == dealt, NAME, || {
        format!("split lists of `{uid}` are dealt out as {dealt:?}, not {saved:?}")
    })?;
    let mut first = Elements::new();
    for subtask in operator.subtasks.iter().take(1) {
        gather(&mut first, &subtask.lists, Redistribution::Broadcast);
    }
    for part in parts {
        let mut copy = Elements::new();
        gather(&mut copy, &part.lists, Redistribution::Broadcast);
        ensure(copy == first, NAME, || {
            format!("a subtask of `{uid}` gets {copy:?}, not {first:?}")
        })?;
    }
    Ok(())
}

fn key_groups(operator: &OperatorCheckpoint, parts: &[SubtaskRestore], count: u32) -> Checked {
    let uid = &operator.uid;
    for group in (0..count as u16).map(KeyGroup) {
        let owners = parts.iter().filter(|part| part.key_groups.contains(group));
        let owners: Vec<&SubtaskRestore> = owners.collect();
        ensure(owners.len() == 1, NAME, || {
            format!("key group {group:?} of `{uid}` has {} owners", owners.len())
        })?;
        let saved = operator.subtasks.iter().filter_map(|s| s.keyed.as_ref());
        for handle in saved.filter(|handle| handle.key_groups.contains(group)) {
            let given = owners[0]
                .keyed
                .iter()
                .filter(|file| *file == handle)
                .count();
            ensure(given == 1, NAME, || {
                let (pieces, whose) = (&handle.pieces, format!("key group {group:?} of `{uid}`"));
                format!("the owner of {whose} gets {pieces:?} {given} times")
            })?;
        }
    }
    Ok(())
}
