//! What the subtasks of a process start from.

use tidegate_types::{KeyGroupRange, KeyedStateHandle, OperatorId, SubtaskId};

use super::{BadMessage, KeyedState, ListState, SubtaskRestore, required};

impl SubtaskRestore {
    pub(crate) fn new(subtask: SubtaskId, restore: tidegate_types::SubtaskRestore) -> Self {
        SubtaskRestore {
            operator: subtask.operator.0,
            subtask: subtask.index,
            key_groups: Some(restore.key_groups.into()),
            keyed: restore.keyed.into_iter().map(KeyedState::from).collect(),
            lists: restore.lists.into_iter().map(ListState::from).collect(),
            finished: restore.finished,
        }
    }
}

impl TryFrom<SubtaskRestore> for (SubtaskId, tidegate_types::SubtaskRestore) {
    type Error = BadMessage;

    fn try_from(restore: SubtaskRestore) -> Result<Self, BadMessage> {
        let subtask = SubtaskId {
            operator: OperatorId(restore.operator),
            index: restore.subtask,
        };
        let key_groups = required(restore.key_groups, "a subtask without key groups")?;
        let keyed = restore.keyed.into_iter().map(KeyedStateHandle::try_from);
        let lists = restore.lists.into_iter();
        let lists = lists.map(tidegate_types::ListState::try_from);
        let restore = tidegate_types::SubtaskRestore {
            key_groups: KeyGroupRange::try_from(key_groups)?,
            keyed: keyed.collect::<Result<_, _>>()?,
            lists: lists.collect::<Result<_, _>>()?,
            finished: restore.finished,
        };
        Ok((subtask, restore))
    }
}
