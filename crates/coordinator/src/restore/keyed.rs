//! Keyed state: what of it a subtask needs, and whether all handles together are sound. The pieces
//! of a handle stay together, in their order.

use tidegate_types::{
    CheckpointId, KeyGroupRange, KeyedStateHandle, MaxParallelism, OperatorCheckpoint,
    SubtaskRestore,
};

use super::{KeyGroupFault, RestoreError};

/// Whether the operator has keyed state in the checkpoint.
pub(super) fn is_keyed(saved: &OperatorCheckpoint) -> bool {
    saved.subtasks.iter().any(|subtask| subtask.keyed.is_some())
}

/// Gives every new subtask the state that holds any of its key groups. It must have been
/// [checked](check).
pub(super) fn deal_out(saved: &OperatorCheckpoint, subtasks: &mut [SubtaskRestore]) {
    let handles = sorted(saved);
    for subtask in subtasks {
        let KeyGroupRange { start, end } = subtask.key_groups;
        let first = handles.partition_point(|handle| handle.key_groups.end < start);
        let meets = |handle: &&&KeyedStateHandle| handle.key_groups.start <= end;
        let shared = handles[first..].iter().take_while(meets);
        subtask.keyed = shared.map(|handle| (*handle).clone()).collect();
    }
}

/// Every key group is in exactly one handle, or there are none at all.
pub(super) fn check(checkpoint: CheckpointId, saved: &OperatorCheckpoint) -> Option<RestoreError> {
    let fault = fault(&sorted(saved), saved.max_parallelism)?;
    Some(RestoreError::KeyGroups {
        checkpoint,
        operator: saved.uid.clone(),
        fault,
    })
}

fn sorted(saved: &OperatorCheckpoint) -> Vec<&KeyedStateHandle> {
    let handles = saved.subtasks.iter().filter_map(|old| old.keyed.as_ref());
    let mut handles: Vec<_> = handles.collect();
    handles.sort_by_key(|handle| handle.key_groups.start);
    handles
}

fn fault(handles: &[&KeyedStateHandle], max: MaxParallelism) -> Option<KeyGroupFault> {
    if handles.is_empty() {
        return None;
    }
    let count = max.get();
    // The first key group that no handle so far has.
    let mut next = 0u32;
    for handle in handles {
        let claimed = handle.key_groups;
        let (start, end) = (claimed.start, claimed.end);
        if start > end {
            return Some(KeyGroupFault::Reversed { start, end });
        }
        if u32::from(end) >= count {
            return Some(KeyGroupFault::Outside { claimed, count });
        }
        if u32::from(start) < next {
            let end = u32::from(end).min(next - 1);
            let shared = range(start.into(), end);
            return Some(KeyGroupFault::Overlap { shared });
        }
        if u32::from(start) > next {
            let missing = range(next, u32::from(start) - 1);
            return Some(KeyGroupFault::Gap { missing });
        }
        next = u32::from(end) + 1;
    }
    (next < count).then(|| KeyGroupFault::Gap {
        missing: range(next, count - 1),
    })
}

/// Both ends are key groups of some operator, so they fit.
fn range(start: u32, end: u32) -> KeyGroupRange {
    KeyGroupRange {
        start: start as u16,
        end: end as u16,
    }
}
