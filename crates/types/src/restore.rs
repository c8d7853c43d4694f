//! What a new subtask starts from: the pieces of a checkpoint that fall to it.

use std::fmt;

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
