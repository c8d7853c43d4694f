//! The outcome of planning a restore.

use std::fmt;

use tidegate_types::{
    CheckpointId, KeyGroupRange, KeyedStateHandle, ListState, OperatorUid, SubtaskId,
};

/// What every subtask of an attempt starts from. Displays as one line per subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePlan {
    /// The checkpoint it is made of; `None` for an empty start.
    pub checkpoint: Option<CheckpointId>,
    /// By [`OperatorId`](tidegate_types::OperatorId).
    pub operators: Vec<OperatorRestore>,
}

/// What the subtasks of one operator start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRestore {
    /// The operator.
    pub uid: OperatorUid,
    /// By subtask index.
    pub subtasks: Vec<SubtaskRestore>,
}

/// What one subtask starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskRestore {
    /// The key groups it owns now.
    pub key_groups: KeyGroupRange,
    /// Handles that hold state of those key groups, and maybe of others: the subtask loads only
    /// what it owns. In order of the old subtasks.
    pub keyed: Vec<KeyedStateHandle>,
    /// Its operator list states, by name.
    pub lists: Vec<ListState>,
    /// Whether `finish()` has run before the checkpoint; it must not run again.
    pub finished: bool,
}

impl SubtaskRestore {
    /// A subtask without any state.
    pub(crate) fn empty(key_groups: KeyGroupRange) -> Self {
        SubtaskRestore {
            key_groups,
            keyed: Vec::new(),
            lists: Vec::new(),
            finished: false,
        }
    }
}

impl RestorePlan {
    /// What `subtask` starts from; `None` if the plan's graph has no such subtask.
    pub fn subtask(&self, subtask: SubtaskId) -> Option<&SubtaskRestore> {
        let operator = self.operators.get(subtask.operator.0 as usize)?;
        operator.subtasks.get(subtask.index as usize)
    }
}

impl fmt::Display for RestorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.checkpoint {
            Some(checkpoint) => writeln!(f, "restore {checkpoint}")?,
            None => writeln!(f, "start empty")?,
        }
        for operator in &self.operators {
            for (index, subtask) in operator.subtasks.iter().enumerate() {
                writeln!(f, "{}[{index}]: {subtask}", operator.uid)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for SubtaskRestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key groups {}", self.key_groups)?;
        for handle in &self.keyed {
            write!(f, ", {} ({})", handle.file.name, handle.key_groups)?;
        }
        for list in &self.lists {
            write!(f, ", {} elements of `{}`", list.elements.len(), list.name)?;
        }
        if self.finished {
            f.write_str(", finished")?;
        }
        Ok(())
    }
}
