//! What a new subtask starts from: the pieces of a checkpoint that fall to it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::checkpoint::{KeyedStateHandle, ListState};
use crate::ids::{OperatorId, SubtaskId};
use crate::key_group::KeyGroupRange;

/// Who owns a snapshot of elsewhere once a job has been restored from it. Displays as users write
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum RestoreMode {
    /// It stays the user's: nothing of it is ever written or deleted, and the first checkpoint
    /// afterwards shares no file with it.
    #[default]
    NoClaim,
    /// The job owns it from then on: it is deleted, files and all, like any checkpoint that has
    /// been subsumed.
    Claim,
}

impl RestoreMode {
    /// Every one there is.
    pub const ALL: [RestoreMode; 2] = [RestoreMode::NoClaim, RestoreMode::Claim];
}

impl fmt::Display for RestoreMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoClaim => "no-claim",
            Self::Claim => "claim",
        })
    }
}

/// State of one subtask to be, whatever the parallelism was when the checkpoint was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskRestore {
    /// The key groups the subtask owns in this attempt.
    pub key_groups: KeyGroupRange,
    /// State that holds some of them, in parts that share no key group; the pieces of each are
    /// read in order. It may hold other key groups too; those are skipped.
    pub keyed: Vec<KeyedStateHandle>,
    /// Operator list states, already dealt out: every element here belongs to this subtask.
    pub lists: Vec<ListState>,
    /// Whether its data had come to its end before the checkpoint: `finish()` has run and must not
    /// run again; a source reads nothing any more, whatever is left in its state.
    pub finished: bool,
}

/// What every subtask of an attempt starts from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RestorePlan {
    /// Per operator in graph order, per subtask index.
    pub operators: Vec<Vec<SubtaskRestore>>,
}

impl RestorePlan {
    /// The part of one subtask.
    ///
    /// # Panics
    /// If the subtask is not of the graph the plan was made for.
    pub fn subtask(&self, subtask: SubtaskId) -> &SubtaskRestore {
        &self.of(subtask.operator)[subtask.index as usize]
    }

    /// The parts of all subtasks of an operator, by index.
    ///
    /// # Panics
    /// If the operator is not of the graph the plan was made for.
    pub fn of(&self, operator: OperatorId) -> &[SubtaskRestore] {
        &self.operators[operator.0 as usize]
    }
}

/// What the subtasks of one process start from, of all subtasks of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RestorePart {
    /// By subtask; those that run elsewhere may be missing.
    pub subtasks: BTreeMap<SubtaskId, SubtaskRestore>,
}

impl RestorePlan {
    /// The part of the subtasks with these indexes, whatever their operator: those of one process,
    /// since subtask *i* of every operator runs on worker *i*.
    pub fn part(&self, indexes: Range<u32>) -> RestorePart {
        let mut subtasks = BTreeMap::new();
        for (operator, restores) in (0..).map(OperatorId).zip(&self.operators) {
            let own = (indexes.start as usize).min(restores.len())
                ..(indexes.end as usize).min(restores.len());
            for (index, restore) in (indexes.start..).zip(&restores[own]) {
                subtasks.insert(SubtaskId { operator, index }, restore.clone());
            }
        }
        RestorePart { subtasks }
    }
}

impl From<RestorePlan> for RestorePart {
    /// The part of a process that runs all subtasks.
    fn from(plan: RestorePlan) -> RestorePart {
        let mut subtasks = BTreeMap::new();
        for (operator, restores) in (0..).map(OperatorId).zip(plan.operators) {
            for (index, restore) in (0..).zip(restores) {
                subtasks.insert(SubtaskId { operator, index }, restore);
            }
        }
        RestorePart { subtasks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_group::MaxParallelism;

    #[test]
    fn a_process_gets_the_part_of_its_workers() {
        let max = MaxParallelism::derive(4);
        let restores = |parallelism: u32| {
            let restore = |index| SubtaskRestore {
                key_groups: max.range(index, parallelism).unwrap(),
                keyed: Vec::new(),
                lists: Vec::new(),
                finished: false,
            };
            (0..parallelism).map(restore).collect::<Vec<_>>()
        };
        let plan = RestorePlan {
            operators: vec![restores(1), restores(4), restores(3)],
        };
        let of = |indexes: Range<u32>| -> Vec<String> {
            let part = plan.part(indexes);
            for (subtask, restore) in &part.subtasks {
                assert_eq!(restore, plan.subtask(*subtask));
            }
            part.subtasks.keys().map(ToString::to_string).collect()
        };
        assert_eq!(of(0..2), ["op0[0]", "op1[0]", "op1[1]", "op2[0]", "op2[1]"]);
        assert_eq!(of(2..4), ["op1[2]", "op1[3]", "op2[2]"]);
        assert_eq!(of(4..6), [""; 0]);
        assert_eq!(plan.part(0..4), RestorePart::from(plan.clone()));
    }
}
