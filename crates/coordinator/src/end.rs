//! How an attempt of a bounded job comes to its end.
//!
//! Once every reader has read its last record, one more checkpoint must complete: the first one
//! *triggered after* that holds nothing but the outcome. Then every committing sink must have
//! published up to it. Only then is the job over (Flink's FLIP-147).

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::{CheckpointId, SubtaskId};

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// These readers may still have records. A job without readers never ends by itself.
    Reading { left: BTreeSet<SubtaskId> },
    /// A checkpoint with a larger id than this one is the last.
    Ended { after: CheckpointId },
    /// The last checkpoint is durable; sinks publish up to it.
    Committing { last: CheckpointId },
}

/// Where one attempt stands on its way to the end.
#[derive(Debug)]
pub(crate) struct AttemptEnd {
    state: State,
    /// How far each committing sink has published in this attempt.
    committed: BTreeMap<SubtaskId, CheckpointId>,
}

impl AttemptEnd {
    pub(crate) fn new(graph: &JobGraph) -> Self {
        let readers = graph.subtasks_where(|op| op.role == OperatorRole::Reader);
        let sinks = graph.subtasks_where(|op| op.role == OperatorRole::CommittingSink);
        AttemptEnd {
            state: State::Reading {
                left: readers.into_iter().collect(),
            },
            committed: sinks
                .into_iter()
                .map(|subtask| (subtask, CheckpointId::NONE))
                .collect(),
        }
    }

    /// Whether every reader has ended.
    pub(crate) fn sources_ended(&self) -> bool {
        !matches!(self.state, State::Reading { .. })
    }

    /// A reader has ended; `last` is the last checkpoint id in use. Returns whether that was the
    /// last reader.
    pub(crate) fn on_source_ended(&mut self, subtask: SubtaskId, last: CheckpointId) -> bool {
        let State::Reading { left } = &mut self.state else {
            return false;
        };
        if !left.remove(&subtask) || !left.is_empty() {
            return false;
        }
        self.state = State::Ended { after: last };
        true
    }

    /// A checkpoint has completed. Returns whether it is the last one.
    pub(crate) fn on_completed(&mut self, checkpoint: CheckpointId) -> bool {
        match self.state {
            State::Ended { after } if checkpoint > after => {
                self.state = State::Committing { last: checkpoint };
                true
            }
            _ => false,
        }
    }

    /// A sink has published everything up to a checkpoint.
    pub(crate) fn on_committed(&mut self, subtask: SubtaskId, checkpoint: CheckpointId) {
        if let Some(committed) = self.committed.get_mut(&subtask) {
            *committed = checkpoint.max(*committed);
        }
    }

    /// Whether everything is read, durable and published.
    pub(crate) fn is_over(&self) -> bool {
        match self.state {
            State::Committing { last } => self.committed.values().all(|id| *id >= last),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::graph::OperatorSpec;
    use tidegate_types::{MaxParallelism, OperatorId, OperatorUid};

    use super::*;

    fn end(roles: &[OperatorRole]) -> AttemptEnd {
        let operator = |(index, role): (usize, &OperatorRole)| OperatorSpec {
            uid: OperatorUid(format!("op{index}")),
            parallelism: 1,
            max_parallelism: MaxParallelism::derive(1),
            max_parallelism_derived: true,
            role: *role,
        };
        AttemptEnd::new(&JobGraph {
            operators: roles.iter().enumerate().map(operator).collect(),
            edges: vec![],
        })
    }

    fn subtask(operator: u32) -> SubtaskId {
        SubtaskId {
            operator: OperatorId(operator),
            index: 0,
        }
    }

    use OperatorRole::{CommittingSink, Reader, Sink};

    // FT-01, FT-02
    #[test]
    fn only_a_checkpoint_triggered_after_the_end_of_all_readers_counts() {
        let mut end = end(&[Reader, Reader, Sink]);
        assert!(!end.on_source_ended(subtask(0), CheckpointId(3)));
        assert!(!end.on_source_ended(subtask(0), CheckpointId(3)));
        assert!(!end.on_source_ended(subtask(2), CheckpointId(3)));
        assert!(end.on_source_ended(subtask(1), CheckpointId(4)));
        assert!(!end.on_completed(CheckpointId(4)));
        assert!(!end.is_over());
        assert!(end.on_completed(CheckpointId(6)));
        assert!(end.is_over());
    }

    #[test]
    fn every_committing_sink_must_have_published_the_last_checkpoint() {
        let mut end = end(&[Reader, CommittingSink, CommittingSink]);
        end.on_source_ended(subtask(0), CheckpointId(0));
        end.on_completed(CheckpointId(2));
        end.on_committed(subtask(1), CheckpointId(2));
        end.on_committed(subtask(2), CheckpointId(1));
        assert!(!end.is_over());
        end.on_committed(subtask(2), CheckpointId(3));
        end.on_committed(subtask(2), CheckpointId(1));
        assert!(end.is_over());
    }
}
