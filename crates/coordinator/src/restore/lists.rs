//! Redistribution of operator list state over a changed number of subtasks.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{CheckpointId, ListState, OperatorCheckpoint, Redistribution, SubtaskRestore};

use super::RestoreError;

/// One list state of an operator, with what each old subtask had of it.
struct Gathered<'a> {
    redistribution: Redistribution,
    /// By old subtask; empty where a subtask did not have the list.
    parts: Vec<&'a [Vec<u8>]>,
}

/// Gives every new subtask its part of every list state of the operator, in order of the names.
/// The lists must have been [checked](check).
pub(super) fn deal_out(saved: &OperatorCheckpoint, subtasks: &mut [SubtaskRestore]) {
    for (name, list) in gather(saved) {
        let parts = match list.redistribution {
            Redistribution::Split => split(&list.parts, subtasks.len()),
            Redistribution::Union => copies(list.parts.concat(), subtasks.len()),
            Redistribution::Broadcast => copies(one_copy(&list.parts), subtasks.len()),
        };
        for (subtask, elements) in subtasks.iter_mut().zip(parts) {
            subtask.lists.push(ListState {
                name: name.to_owned(),
                redistribution: list.redistribution,
                elements,
            });
        }
    }
}

/// Each list is there once per subtask at most, and dealt out in the same way by all. What
/// broadcast lists hold is not compared: the same state may be serialised in several orders.
pub(super) fn check(
    checkpoint: CheckpointId,
    saved: &OperatorCheckpoint,
    problems: &mut Vec<RestoreError>,
) {
    let mut modes = BTreeMap::new();
    let (mut twice, mut disagree) = (BTreeSet::new(), BTreeSet::new());
    for subtask in &saved.subtasks {
        let mut names = BTreeSet::new();
        for list in &subtask.lists {
            let mode = modes.entry(&list.name).or_insert(list.redistribution);
            if *mode != list.redistribution {
                disagree.insert(&list.name);
            }
            if !names.insert(&list.name) {
                twice.insert(&list.name);
            }
        }
    }
    let operator = &saved.uid;
    problems.extend(twice.into_iter().map(|list| RestoreError::DuplicateList {
        checkpoint,
        operator: operator.clone(),
        list: list.clone(),
    }));
    problems.extend(
        disagree
            .into_iter()
            .map(|list| RestoreError::Redistribution {
                checkpoint,
                operator: operator.clone(),
                list: list.clone(),
            }),
    );
}

fn gather(saved: &OperatorCheckpoint) -> BTreeMap<&str, Gathered<'_>> {
    let count = saved.subtasks.len();
    let mut gathered: BTreeMap<&str, Gathered<'_>> = BTreeMap::new();
    for (index, subtask) in saved.subtasks.iter().enumerate() {
        for list in &subtask.lists {
            let entry = gathered.entry(&list.name).or_insert_with(|| Gathered {
                redistribution: list.redistribution,
                parts: vec![&[]; count],
            });
            entry.parts[index] = &list.elements;
        }
    }
    gathered
}

/// Keeps the lists as they are if parallelism is unchanged; otherwise cuts the concatenation into
/// runs whose lengths differ by at most one.
fn split(parts: &[&[Vec<u8>]], parallelism: usize) -> Vec<Vec<Vec<u8>>> {
    if parts.len() == parallelism {
        return parts.iter().map(|part| part.to_vec()).collect();
    }
    let all = parts.concat();
    let (base, larger) = (all.len() / parallelism, all.len() % parallelism);
    let mut elements = all.into_iter();
    (0..parallelism)
        .map(|index| {
            let length = base + usize::from(index < larger);
            elements.by_ref().take(length).collect()
        })
        .collect()
}

/// All subtasks hold the same list, except those that did not report it.
fn one_copy(parts: &[&[Vec<u8>]]) -> Vec<Vec<u8>> {
    let reported = parts.iter().find(|part| !part.is_empty());
    reported.map(|part| part.to_vec()).unwrap_or_default()
}

fn copies(elements: Vec<Vec<u8>>, count: usize) -> Vec<Vec<Vec<u8>>> {
    vec![elements; count]
}
