//! What a checkpoint that doesn't get on is waiting for.
//!
//! A subtask is held back by a sender that has not passed the barrier on, by data that it has not
//! worked off, or by its own snapshot. Followed from sender to sender this leads to the one that is
//! stuck: it is held back by no other.

use tidegate_types::{CheckpointId, OperatorId, SubtaskId};

use super::AttemptMetrics;
use super::checkpoints::{CheckpointProgress, SnapshotPhase};

/// A subtask that has not acknowledged a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// Which; [`JobGraph::display`](tidegate_types::graph::JobGraph::display) has its name.
    pub subtask: SubtaskId,
    /// What it is waiting for.
    pub by: HeldBackBy,
}

/// What a subtask is waiting for before it can acknowledge a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBackBy {
    /// It has no input and has not acted on the trigger: it, or another operator on its worker, is
    /// busy or stuck.
    Trigger,
    /// These senders have not sent the barrier on the channels to it; look there. In the order of
    /// the input channels.
    Senders(Vec<SubtaskId>),
    /// Every sender has sent the barrier. On the channels from these the subtask has not got to it,
    /// since it, or another operator on its worker, is busy or stuck. In the order of the input
    /// channels.
    Backlog(Vec<SubtaskId>),
    /// Its worker freezes its state; or works on what is in front of the barrier at an operator
    /// that is chained to it.
    Freezing,
    /// Its state is frozen and being written.
    Writing,
}

impl AttemptMetrics {
    /// Every subtask that has not acknowledged `checkpoint`, in the order of the job graph, with
    /// what it is waiting for. Subtasks that have declined it, or gone past it without taking it,
    /// aren't listed. To be asked about a checkpoint that has been triggered and not been decided.
    ///
    /// Reads what subtasks have left behind and waits for none of them, so it may be called from
    /// any thread at any time; while barriers move on, what it says of different subtasks may be
    /// some microseconds apart.
    pub fn held_back(&self, checkpoint: CheckpointId) -> Vec<HeldBack> {
        let mut held_back = Vec::new();
        for (operator, subtasks) in self.operators.iter().enumerate() {
            for (index, counters) in subtasks.iter().enumerate() {
                let subtask = SubtaskId {
                    operator: OperatorId(operator as u32),
                    index: index as u32,
                };
                if let Some(by) = self.held_back_by(checkpoint, &counters.checkpoints) {
                    held_back.push(HeldBack { subtask, by });
                }
            }
        }
        held_back
    }

    fn held_back_by(
        &self,
        checkpoint: CheckpointId,
        progress: &CheckpointProgress,
    ) -> Option<HeldBackBy> {
        // Ordering: first what is passed, then what is under way; see `checkpoints`.
        let passed = progress.passed();
        match progress.stage(checkpoint) {
            Some(SnapshotPhase::Freezing) => return Some(HeldBackBy::Freezing),
            Some(SnapshotPhase::Writing) => return Some(HeldBackBy::Writing),
            None if passed >= checkpoint => return None,
            None => {}
        }
        let owing: Vec<SubtaskId> = progress
            .channels()
            .filter(|(_, newest)| *newest < checkpoint)
            .map(|(origin, _)| origin)
            .collect();
        let mut senders = owing.clone();
        senders.retain(|origin| self.passed(*origin) < checkpoint);
        Some(if progress.channels().next().is_none() {
            HeldBackBy::Trigger
        } else if senders.is_empty() {
            HeldBackBy::Backlog(owing)
        } else {
            HeldBackBy::Senders(senders)
        })
    }
}

#[cfg(test)]
mod tests {
    use HeldBackBy::{Backlog, Freezing, Senders, Trigger, Writing};
    use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
    use tidegate_types::{MaxParallelism, OperatorUid};

    use super::*;
    use crate::alignment::ChannelIndex;

    const N: CheckpointId = CheckpointId(7);

    fn subtask(operator: u32, index: u32) -> SubtaskId {
        let operator = OperatorId(operator);
        SubtaskId { operator, index }
    }

    /// Operators 0 (one subtask) and 1 (two) into 2 (two), that forward to 3.
    fn metrics() -> AttemptMetrics {
        let operator = |(index, parallelism): (usize, u32)| OperatorSpec {
            uid: OperatorUid(format!("op{index}")),
            parallelism,
            max_parallelism: MaxParallelism::derive(parallelism),
            max_parallelism_derived: true,
            role: OperatorRole::Transform,
        };
        let edge = |from, to, partitioning| Edge {
            from: OperatorId(from),
            to: OperatorId(to),
            partitioning,
        };
        AttemptMetrics::new(&JobGraph {
            operators: [1, 2, 2, 2].into_iter().enumerate().map(operator).collect(),
            edges: vec![
                edge(0, 2, Partitioning::KeyGroups),
                edge(1, 2, Partitioning::Rebalance),
                edge(2, 3, Partitioning::Forward),
            ],
        })
    }

    fn by(metrics: &AttemptMetrics, of: SubtaskId) -> Option<HeldBackBy> {
        let held_back = metrics.held_back(N).into_iter();
        let mut found = held_back.filter(|held| held.subtask == of);
        found.next().map(|held| held.by)
    }

    #[test]
    fn channels_are_those_of_the_inputs_in_order() {
        let metrics = metrics();
        let origins =
            |of| -> Vec<SubtaskId> { metrics.channels(of).map(|(from, _)| from).collect() };
        assert_eq!(
            origins(subtask(2, 1)),
            [subtask(0, 0), subtask(1, 0), subtask(1, 1)]
        );
        assert_eq!(origins(subtask(3, 1)), [subtask(2, 1)]);
        assert_eq!(origins(subtask(0, 0)), []);
    }

    #[test]
    fn a_subtask_is_followed_through_a_checkpoint() {
        let metrics = metrics();
        let (keyed, last) = (subtask(2, 0), subtask(3, 0));
        let own = metrics.of(keyed);
        assert_eq!(metrics.held_back(N).len(), 7);
        assert_eq!(by(&metrics, subtask(0, 0)), Some(Trigger));

        // Two of three senders have sent it; one of these channels has delivered it.
        metrics.of(subtask(0, 0)).on_passed(N);
        metrics.of(subtask(1, 0)).on_passed(CheckpointId(8));
        own.on_barrier(ChannelIndex(0), N);
        assert_eq!(by(&metrics, subtask(0, 0)), None);
        assert_eq!(by(&metrics, keyed), Some(Senders(vec![subtask(1, 1)])));
        assert_eq!(by(&metrics, last), Some(Senders(vec![keyed])));

        metrics.of(subtask(1, 1)).on_passed(N);
        let backlog = vec![subtask(1, 0), subtask(1, 1)];
        assert_eq!(by(&metrics, keyed), Some(Backlog(backlog)));
        own.on_barrier(ChannelIndex(1), CheckpointId(8));
        own.on_barrier(ChannelIndex(2), CheckpointId(6));
        assert_eq!(by(&metrics, keyed), Some(Backlog(vec![subtask(1, 1)])));

        own.on_barrier(ChannelIndex(2), N);
        let stage = own.begin_snapshot(N);
        assert_eq!(by(&metrics, keyed), Some(Freezing));
        own.on_passed(N);
        assert_eq!(by(&metrics, keyed), Some(Freezing));
        assert_eq!(by(&metrics, last), Some(Backlog(vec![keyed])));
        stage.begin_write();
        let newer = own.begin_snapshot(CheckpointId(8));
        own.on_passed(CheckpointId(8));
        assert_eq!(by(&metrics, keyed), Some(Writing));
        drop(stage);
        assert_eq!(by(&metrics, keyed), None);
        drop(newer);
    }
}
