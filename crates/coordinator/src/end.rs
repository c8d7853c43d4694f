//! How an attempt of a bounded job comes to its end.
//!
//! Once every reader has read its last record, one more checkpoint must complete: the first one
//! *triggered after* that holds nothing but the outcome. Then every committing sink must have
//! published up to it. Only then is the job over (Flink's FLIP-147).

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::{CheckpointId, SubtaskId};

use crate::checkpoint::Stop;

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// These readers may still have records. A job without readers never ends by itself.
    Reading { left: BTreeSet<SubtaskId> },
    /// A checkpoint with a larger id than this one is the last.
    Ended { after: CheckpointId },
    /// The last checkpoint is durable; sinks publish up to it.
    Committing {
        last: CheckpointId,
        /// How many sinks have not published it yet. Counted, since there may be very many.
        behind: usize,
        stop: Option<Stop>,
        /// Whether every source had come to its end before it.
        ended: bool,
    },
}

/// What an attempt comes to once everything is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// Nothing is left to do, ever. With the stop that came at the same time, if one did.
    Finished(Option<Stop>),
    /// The job can go on from the savepoint.
    Suspended(Stop),
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
                self.state = State::Committing {
                    last: checkpoint,
                    behind: self.behind(checkpoint),
                    stop: None,
                    ended: true,
                };
                true
            }
            _ => false,
        }
    }

    /// The savepoint of a stop has completed: it is the last checkpoint.
    pub(crate) fn on_stopped(&mut self, stop: Stop) {
        let last = stop.summary.checkpoint;
        let ended = matches!(self.state, State::Ended { after } if last > after);
        self.state = State::Committing {
            last,
            behind: self.behind(last),
            ended: ended || stop.summary.kind.drains(),
            stop: Some(stop),
        };
    }

    /// Takes out the stop that is being committed, since it will not be.
    pub(crate) fn take_stop(&mut self) -> Option<Stop> {
        match &mut self.state {
            State::Committing { stop, .. } => stop.take(),
            State::Reading { .. } | State::Ended { .. } => None,
        }
    }

    /// How many sinks have not published a checkpoint.
    fn behind(&self, checkpoint: CheckpointId) -> usize {
        let committed = self.committed.values();
        committed.filter(|id| **id < checkpoint).count()
    }

    /// A sink has published everything up to a checkpoint.
    pub(crate) fn on_committed(&mut self, subtask: SubtaskId, checkpoint: CheckpointId) {
        let Some(committed) = self.committed.get_mut(&subtask) else {
            return;
        };
        let before = std::mem::replace(committed, checkpoint.max(*committed));
        if let State::Committing { last, behind, .. } = &mut self.state
            && before < *last
            && checkpoint >= *last
        {
            *behind -= 1;
        }
    }

    /// What the attempt has come to, if everything is durable and published.
    pub(crate) fn conclusion(&self) -> Option<Conclusion> {
        let State::Committing {
            behind: 0,
            stop,
            ended,
            ..
        } = &self.state
        else {
            return None;
        };
        Some(match stop {
            Some(stop) if !ended => Conclusion::Suspended(stop.clone()),
            stop => Conclusion::Finished(stop.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_types::graph::OperatorSpec;
    use tidegate_types::{MaxParallelism, OperatorId, OperatorUid, SnapshotKind};

    use super::*;
    use crate::statistics::CompletedSummary;

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
        assert_eq!(end.conclusion(), None);
        assert!(end.on_completed(CheckpointId(6)));
        assert_eq!(end.conclusion(), Some(Conclusion::Finished(None)));
    }

    #[test]
    fn every_committing_sink_must_have_published_the_last_checkpoint() {
        let mut end = end(&[Reader, CommittingSink, CommittingSink]);
        end.on_source_ended(subtask(0), CheckpointId(0));
        end.on_completed(CheckpointId(2));
        end.on_committed(subtask(1), CheckpointId(2));
        end.on_committed(subtask(2), CheckpointId(1));
        assert_eq!(end.conclusion(), None);
        end.on_committed(subtask(2), CheckpointId(3));
        end.on_committed(subtask(2), CheckpointId(1));
        assert_eq!(end.conclusion(), Some(Conclusion::Finished(None)));
    }

    fn stop(id: u64, drain: bool) -> Stop {
        Stop {
            summary: CompletedSummary {
                checkpoint: CheckpointId(id),
                kind: SnapshotKind::StopWithSavepoint { drain },
                location: None,
                bytes: 0,
                new_bytes: 0,
                duration: Duration::ZERO,
            },
            request: None,
        }
    }

    // SP-07, SP-08
    #[test]
    fn a_stop_ends_the_attempt_wherever_its_readers_are() {
        let stopped = |drain| {
            let mut end = end(&[Reader, CommittingSink]);
            end.on_stopped(stop(5, drain));
            assert_eq!(end.conclusion(), None);
            end.on_committed(subtask(1), CheckpointId(5));
            end.conclusion()
        };
        assert_eq!(stopped(false), Some(Conclusion::Suspended(stop(5, false))));
        assert_eq!(
            stopped(true),
            Some(Conclusion::Finished(Some(stop(5, true))))
        );
    }

    // FT-03
    #[test]
    fn a_stop_triggered_after_the_end_of_all_readers_finishes_the_job() {
        let stopped_after = |last| {
            let mut end = end(&[Reader]);
            end.on_source_ended(subtask(0), CheckpointId(last));
            end.on_stopped(stop(5, false));
            end.conclusion()
        };
        let suspended = Conclusion::Suspended(stop(5, false));
        assert_eq!(
            stopped_after(4),
            Some(Conclusion::Finished(Some(stop(5, false))))
        );
        assert_eq!(stopped_after(5), Some(suspended));
    }

    #[test]
    fn whoever_has_published_already_is_not_waited_for() {
        let mut end = end(&[Reader, CommittingSink]);
        end.on_committed(subtask(1), CheckpointId(5));
        end.on_stopped(stop(5, false));
        assert_eq!(
            end.conclusion(),
            Some(Conclusion::Suspended(stop(5, false)))
        );
    }

    #[test]
    fn a_stop_that_will_not_be_committed_is_handed_out_once() {
        let mut end = end(&[Reader, CommittingSink]);
        assert_eq!(end.take_stop(), None);
        end.on_stopped(stop(5, false));
        assert_eq!(end.take_stop(), Some(stop(5, false)));
        assert_eq!(end.take_stop(), None);
    }
}
