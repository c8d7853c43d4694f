//! A checkpoint that is being taken: collects acknowledgements and owns the files in them.
//!
//! Invariant: `missing` and `acknowledged` are disjoint and together are all subtasks of the graph.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::graph::JobGraph;
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, CompletedCheckpoint, FileHandle, HASH_ID,
    JobId, Millis, OperatorCheckpoint, Owner, SnapshotKind, SubtaskId, SubtaskState,
};

use crate::failure::Waiting;
use crate::request::RequestId;

/// What a checkpoint made of an acknowledgement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// It was missing; the state is owned now.
    Accepted,
    /// The subtask acknowledged before. The state may be the very same and is left alone.
    Duplicate,
    /// The subtask isn't part of the job: its files are nobody's.
    Unknown(SubtaskState),
}

/// How far a pending checkpoint has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The folder of a savepoint is being made. No subtask has heard of it.
    Preparing,
    /// Sources have been told.
    Triggered,
}

/// A checkpoint before its metadata is published.
#[derive(Debug)]
pub(crate) struct PendingCheckpoint {
    /// What travels through the job: says which snapshot this is, of what kind, and where it goes.
    pub(crate) barrier: CheckpointBarrier,
    pub(crate) attempt: AttemptNumber,
    /// When its id was taken.
    pub(crate) triggered: Millis,
    pub(crate) stage: Stage,
    /// Who is to be told what became of it.
    pub(crate) request: Option<RequestId>,
    deadline: Millis,
    missing: BTreeSet<SubtaskId>,
    acknowledged: BTreeMap<SubtaskId, SubtaskState>,
    /// Subtasks that acknowledged though they aren't part of the job.
    strangers: BTreeSet<SubtaskId>,
}

impl PendingCheckpoint {
    /// Waits for every subtask of `graph` until `deadline`. Triggered, unless its stage is set
    /// otherwise.
    pub(crate) fn new(
        barrier: CheckpointBarrier,
        attempt: AttemptNumber,
        triggered: Millis,
        deadline: Millis,
        graph: &JobGraph,
    ) -> Self {
        PendingCheckpoint {
            barrier,
            attempt,
            triggered,
            stage: Stage::Triggered,
            request: None,
            deadline,
            missing: graph.subtasks().into_iter().collect(),
            acknowledged: BTreeMap::new(),
            strangers: BTreeSet::new(),
        }
    }

    pub(crate) fn id(&self) -> CheckpointId {
        self.barrier.checkpoint
    }

    pub(crate) fn kind(&self) -> SnapshotKind {
        self.barrier.kind
    }

    /// Takes over a subtask's state.
    pub(crate) fn acknowledge(&mut self, subtask: SubtaskId, state: SubtaskState) -> Ack {
        if self.missing.remove(&subtask) {
            self.acknowledged.insert(subtask, state);
            return Ack::Accepted;
        }
        if self.acknowledged.contains_key(&subtask) || !self.strangers.insert(subtask) {
            return Ack::Duplicate;
        }
        Ack::Unknown(state)
    }

    /// Whether the subtask takes part in the checkpoint.
    pub(crate) fn involves(&self, subtask: SubtaskId) -> bool {
        self.missing.contains(&subtask) || self.acknowledged.contains_key(&subtask)
    }

    pub(crate) fn is_fully_acknowledged(&self) -> bool {
        self.missing.is_empty()
    }

    /// When it expires: never once everything is acknowledged, since all that is left to do is
    /// the coordinator's.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        (!self.missing.is_empty()).then_some(self.deadline)
    }

    /// Who has not acknowledged.
    pub(crate) fn waiting(&self, graph: &JobGraph) -> Waiting {
        Waiting {
            named: self
                .missing
                .iter()
                .take(Waiting::NAMED_MAX)
                .map(|subtask| graph.display(*subtask).to_string())
                .collect(),
            count: self.missing.len(),
        }
    }

    /// Gives up the files: which subtasks they came from (strangers' are discarded already).
    pub(crate) fn into_files(self) -> (BTreeSet<SubtaskId>, Vec<FileHandle>) {
        let states = self.acknowledged.values();
        let files = states.flat_map(SubtaskState::files).cloned().collect();
        let mut subtasks = self.strangers;
        subtasks.extend(self.acknowledged.into_keys());
        (subtasks, files)
    }

    /// Hands all state over to a completed checkpoint. No file is copied or deleted.
    ///
    /// # Panics
    /// Unless every subtask has acknowledged.
    pub(crate) fn into_completed(mut self, job: JobId, graph: &JobGraph) -> CompletedCheckpoint {
        let id = self.id();
        assert!(
            self.missing.is_empty(),
            "{id} is finalised before all have acknowledged"
        );
        let mut take = |subtask| {
            let state = self.acknowledged.remove(&subtask);
            state.expect("every subtask of the graph has acknowledged")
        };
        let operators = graph
            .operator_ids()
            .map(|operator| OperatorCheckpoint {
                uid: graph.operator(operator).uid.clone(),
                max_parallelism: graph.operator(operator).max_parallelism,
                subtasks: graph.subtasks_of(operator).map(&mut take).collect(),
            })
            .collect();
        CompletedCheckpoint {
            id,
            job,
            attempt: self.attempt,
            kind: self.barrier.kind,
            owner: match self.barrier.kind.is_savepoint() {
                true => Owner::User,
                false => Owner::Job,
            },
            location: self.barrier.location,
            triggered_at: self.barrier.created,
            hash_id: HASH_ID.to_owned(),
            operators,
        }
    }

    pub(crate) fn check_invariants(&self, graph: &JobGraph) {
        let count = self.missing.len() + self.acknowledged.len();
        assert_eq!(
            count,
            graph.subtasks().len(),
            "every subtask is missing or has acknowledged"
        );
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::graph::{OperatorRole, OperatorSpec};
    use tidegate_types::{MaxParallelism, OperatorId, OperatorUid, SnapshotFormat, UnixMillis};

    use super::*;

    fn graph() -> JobGraph {
        JobGraph {
            operators: vec![OperatorSpec {
                uid: OperatorUid("source".to_owned()),
                parallelism: 2,
                max_parallelism: MaxParallelism::derive(2),
                max_parallelism_derived: true,
                role: OperatorRole::Enumerator,
            }],
            edges: vec![],
        }
    }

    fn pending() -> PendingCheckpoint {
        let barrier = CheckpointBarrier {
            checkpoint: CheckpointId(1),
            kind: SnapshotKind::Checkpoint,
            format: SnapshotFormat::Full,
            location: None,
            created: UnixMillis(0),
        };
        PendingCheckpoint::new(barrier, AttemptNumber(1), Millis(0), Millis(10), &graph())
    }

    fn subtask(index: u32) -> SubtaskId {
        let operator = OperatorId(0);
        SubtaskId { operator, index }
    }

    fn ack(pending: &mut PendingCheckpoint, index: u32) -> Ack {
        pending.acknowledge(subtask(index), SubtaskState::default())
    }

    // CC-06, CC-20, G2
    #[test]
    fn each_subtask_is_counted_once() {
        let mut pending = pending();
        assert_eq!(ack(&mut pending, 1), Ack::Accepted);
        assert_eq!(ack(&mut pending, 1), Ack::Duplicate);
        assert_eq!(ack(&mut pending, 2), Ack::Unknown(SubtaskState::default()));
        assert_eq!(ack(&mut pending, 2), Ack::Duplicate);
        pending.check_invariants(&graph());
        assert_eq!(pending.waiting(&graph()).to_string(), "`source[0]`");
        assert!(!pending.is_fully_acknowledged());
        assert_eq!(ack(&mut pending, 0), Ack::Accepted);
        assert!(pending.is_fully_acknowledged());
        assert_eq!(pending.deadline(), None);
    }

    // PC-05
    #[test]
    fn stateless_subtasks_are_recorded_with_their_parallelism() {
        let mut pending = pending();
        ack(&mut pending, 0);
        ack(&mut pending, 1);
        let completed = pending.into_completed(JobId(9), &graph());
        assert_eq!(
            completed.operators[0].subtasks,
            vec![SubtaskState::default(); 2]
        );
        assert_eq!(completed.operators[0].max_parallelism.get(), 128);
    }

    // PC-03
    #[test]
    #[should_panic(expected = "chk-1 is finalised before all have acknowledged")]
    fn finalising_early_is_a_bug() {
        pending().into_completed(JobId(9), &graph());
    }
}
