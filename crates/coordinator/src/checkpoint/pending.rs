//! A checkpoint that is being taken: collects acknowledgements and owns the files in them.
//!
//! States are kept by the subtasks' [positions](SubtaskTable) in [`Arrivals`]: an acknowledgement
//! takes constant time whatever the number of subtasks, and nothing walks over them before the
//! checkpoint ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_types::graph::JobGraph;
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, CompletedCheckpoint, FileHandle, HASH_ID,
    JobId, Millis, OperatorCheckpoint, Owner, SnapshotKind, SubtaskId, SubtaskState,
};

use crate::failure::Waiting;
use crate::request::RequestId;
use crate::subtasks::{Arrivals, SubtaskSet, SubtaskTable};

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
    pub(crate) subtasks: Arc<SubtaskTable>,
    deadline: Millis,
    /// Of those that have acknowledged.
    states: Arrivals<SubtaskState>,
    /// Subtasks that acknowledged though they aren't part of the job.
    strangers: BTreeSet<SubtaskId>,
}

impl PendingCheckpoint {
    /// Waits for every one of `subtasks` until `deadline`. Triggered, unless its stage is set
    /// otherwise.
    pub(crate) fn new(
        barrier: CheckpointBarrier,
        attempt: AttemptNumber,
        triggered: Millis,
        deadline: Millis,
        subtasks: &Arc<SubtaskTable>,
    ) -> Self {
        PendingCheckpoint {
            barrier,
            attempt,
            triggered,
            stage: Stage::Triggered,
            request: None,
            subtasks: subtasks.clone(),
            deadline,
            states: Arrivals::new(subtasks.count()),
            strangers: BTreeSet::new(),
        }
    }

    pub(crate) fn id(&self) -> CheckpointId {
        self.barrier.checkpoint
    }

    pub(crate) fn kind(&self) -> SnapshotKind {
        self.barrier.kind
    }

    /// Whether the file was written for this checkpoint.
    pub(crate) fn owns(&self, file: &FileHandle) -> bool {
        file.is_of(self.id(), self.barrier.location.as_ref())
    }

    /// Takes over a subtask's state.
    pub(crate) fn acknowledge(&mut self, subtask: SubtaskId, state: SubtaskState) -> Ack {
        let Some(position) = self.subtasks.position(subtask) else {
            return match self.strangers.insert(subtask) {
                true => Ack::Unknown(state),
                false => Ack::Duplicate,
            };
        };
        match self.states.insert(position, state) {
            true => Ack::Accepted,
            false => Ack::Duplicate,
        }
    }

    /// Whether the subtask takes part in the checkpoint.
    pub(crate) fn involves(&self, subtask: SubtaskId) -> bool {
        self.subtasks.position(subtask).is_some()
    }

    pub(crate) fn is_fully_acknowledged(&self) -> bool {
        self.states.missing() == 0
    }

    /// Whether a newer completed checkpoint makes it useless. A savepoint is the user's and goes
    /// on.
    pub(crate) fn can_be_subsumed(&self) -> bool {
        !self.kind().is_savepoint()
    }

    /// When it expires: never once everything is acknowledged, since all that is left to do is
    /// the coordinator's.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let waits = !self.is_fully_acknowledged() || self.stage == Stage::Preparing;
        waits.then_some(self.deadline)
    }

    /// Who has not acknowledged. Walks over the subtasks until it has enough names.
    pub(crate) fn waiting(&self, graph: &JobGraph) -> Waiting {
        let count = self.states.missing();
        let states = self.states.all().iter().enumerate();
        let named = states
            .filter(|(_, state)| state.is_none())
            .take(Waiting::NAMED_MAX.min(count))
            .map(|(position, _)| graph.display(self.subtasks.subtask(position)).to_string());
        Waiting {
            named: named.collect(),
            count,
        }
    }

    /// Gives up the files that were written for it: which subtasks they came from (strangers' are
    /// discarded already).
    pub(crate) fn into_files(self) -> (SubtaskSet, Vec<FileHandle>) {
        let (id, location) = (self.id(), self.barrier.location.as_ref());
        let states = self.states.all();
        let acknowledged = states.iter().enumerate().filter(|(_, s)| s.is_some());
        let mut subtasks = SubtaskSet::new(Arc::clone(&self.subtasks));
        subtasks.extend(acknowledged.map(|(position, _)| self.subtasks.subtask(position)));
        subtasks.extend(self.strangers);
        let files = states.iter().flatten().flat_map(SubtaskState::files);
        let files = files.filter(|file| file.is_of(id, location)).cloned();
        let files = files.collect();
        (subtasks, files)
    }

    /// Hands all state over to a completed checkpoint. No file is copied or deleted.
    ///
    /// # Panics
    /// Unless every subtask has acknowledged.
    pub(crate) fn into_completed(self, job: JobId, graph: &JobGraph) -> CompletedCheckpoint {
        let id = self.id();
        assert!(
            self.is_fully_acknowledged(),
            "{id} is finalised before all have acknowledged"
        );
        let mut states = self.states.into_ordered();
        let operators = graph
            .operators
            .iter()
            .map(|spec| OperatorCheckpoint {
                uid: spec.uid.clone(),
                max_parallelism: spec.max_parallelism,
                subtasks: states.by_ref().take(spec.parallelism as usize).collect(),
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
        let missing = self.states.all().iter().filter(Option::is_none).count();
        assert_eq!(
            self.states.missing(),
            missing,
            "every subtask is missing or has acknowledged"
        );
        let parallelisms = graph.operators.iter().map(|op| op.parallelism as usize);
        assert_eq!(
            self.states.positions(),
            parallelisms.sum::<usize>(),
            "the places are those of the graph"
        );
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::graph::{OperatorRole, OperatorSpec};
    use tidegate_types::{
        KeyGroupRange, KeyedStateHandle, MaxParallelism, OperatorId, OperatorUid, SnapshotFormat,
        SnapshotLocation, UnixMillis,
    };

    use super::*;

    /// Two enumerators and a reader of parallelism 6.
    fn graph() -> JobGraph {
        let operator = |uid: &str, parallelism, role| OperatorSpec {
            uid: OperatorUid(uid.to_owned()),
            parallelism,
            max_parallelism: MaxParallelism::derive(parallelism),
            max_parallelism_derived: true,
            role,
        };
        JobGraph {
            operators: vec![
                operator("orders", 1, OperatorRole::Enumerator),
                operator("rates", 1, OperatorRole::Enumerator),
                operator("read", 6, OperatorRole::Reader),
            ],
            edges: vec![],
        }
    }

    fn pending_of(kind: SnapshotKind) -> PendingCheckpoint {
        let barrier = CheckpointBarrier {
            checkpoint: CheckpointId(1),
            kind,
            format: SnapshotFormat::Full,
            base: None,
            location: kind
                .is_savepoint()
                .then(|| SnapshotLocation::new("file:///s")),
            created: UnixMillis(5),
        };
        let subtasks = Arc::new(SubtaskTable::new(&graph()));
        let (triggered, deadline) = (Millis(0), Millis(10));
        PendingCheckpoint::new(barrier, AttemptNumber(1), triggered, deadline, &subtasks)
    }

    fn pending() -> PendingCheckpoint {
        pending_of(SnapshotKind::Checkpoint)
    }

    fn subtask(operator: u32, index: u32) -> SubtaskId {
        let operator = OperatorId(operator);
        SubtaskId { operator, index }
    }

    fn ack(pending: &mut PendingCheckpoint, operator: u32, index: u32) -> Ack {
        pending.acknowledge(subtask(operator, index), SubtaskState::default())
    }

    fn ack_all(pending: &mut PendingCheckpoint, state: impl Fn(SubtaskId) -> SubtaskState) {
        for subtask in graph().subtasks() {
            assert_eq!(pending.acknowledge(subtask, state(subtask)), Ack::Accepted);
            pending.check_invariants(&graph());
        }
    }

    fn with_file(name: &str) -> SubtaskState {
        SubtaskState {
            keyed: Some(KeyedStateHandle::of_file(
                FileHandle {
                    name: name.to_owned(),
                    bytes: 1,
                    crc32c: 0,
                },
                KeyGroupRange { start: 0, end: 0 },
            )),
            ..SubtaskState::default()
        }
    }

    // CC-06, G2, PC-11: an enumerator is acknowledged like any subtask.
    #[test]
    fn each_subtask_is_counted_once() {
        let mut pending = pending();
        assert_eq!(ack(&mut pending, 1, 0), Ack::Accepted);
        assert_eq!(ack(&mut pending, 1, 0), Ack::Duplicate);
        for (operator, index) in [(0, 1), (2, 6), (3, 0)] {
            let stranger = ack(&mut pending, operator, index);
            assert_eq!(stranger, Ack::Unknown(SubtaskState::default()));
            assert_eq!(ack(&mut pending, operator, index), Ack::Duplicate);
            assert!(!pending.involves(subtask(operator, index)));
        }
        assert_eq!(pending.states.missing(), 7);
        pending.check_invariants(&graph());
    }

    // PC-10: enumerators are Flink's operator coordinators.
    #[test]
    fn it_is_full_once_enumerators_and_tasks_have_acknowledged_in_whatever_order() {
        let mut pending = pending();
        (0..6).for_each(|index| assert_eq!(ack(&mut pending, 2, index), Ack::Accepted));
        assert_eq!(ack(&mut pending, 1, 0), Ack::Accepted);
        assert!(!pending.is_fully_acknowledged());
        assert_eq!(pending.deadline(), Some(Millis(10)));
        assert_eq!(pending.waiting(&graph()).to_string(), "`orders[0]`");
        assert_eq!(ack(&mut pending, 0, 0), Ack::Accepted);
        assert!(pending.is_fully_acknowledged());
        assert_eq!(pending.deadline(), None);
    }

    #[test]
    fn at_most_five_of_those_it_waits_for_are_named() {
        let mut pending = pending();
        ack(&mut pending, 0, 0);
        let waiting = pending.waiting(&graph());
        assert_eq!(
            waiting.to_string(),
            "`rates[0]`, `read[0]`, `read[1]`, `read[2]`, `read[3]` and 2 more"
        );
    }

    // PC-05: a subtask without state is recorded all the same.
    #[test]
    fn stateless_subtasks_are_recorded_with_their_parallelism() {
        let mut pending = pending();
        ack_all(&mut pending, |_| SubtaskState::default());
        let completed = pending.into_completed(JobId(9), &graph());
        let read = &completed.operators[2];
        assert_eq!(read.uid.0, "read");
        assert_eq!(read.subtasks, vec![SubtaskState::default(); 6]);
        assert_eq!(read.max_parallelism.get(), 128);
    }

    // PC-13, PL-09, PL-10: whoever had finished is recorded as finished, and nobody else.
    #[test]
    fn states_keep_their_places() {
        let mut pending = pending();
        ack_all(&mut pending, |subtask| SubtaskState {
            finished: subtask.operator.0 == 1 || subtask.index == 4,
            ..with_file(&subtask.to_string())
        });
        let completed = pending.into_completed(JobId(9), &graph());
        for (operator, saved) in completed.operators.iter().enumerate() {
            for (index, state) in saved.subtasks.iter().enumerate() {
                let name = &state.files().next().unwrap().name;
                assert_eq!(*name, format!("op{operator}[{index}]"));
                assert_eq!(state.finished, operator == 1 || index == 4);
            }
        }
    }

    // PC-04, PC-12
    #[test]
    fn an_abort_gives_up_every_file_once() {
        let mut pending = pending();
        pending.acknowledge(subtask(0, 0), with_file("chk-1/enumerator"));
        pending.acknowledge(subtask(2, 3), with_file("chk-1/reader"));
        pending.acknowledge(subtask(2, 3), with_file("chk-1/again"));
        // A file of an earlier checkpoint isn't this one's to give up.
        pending.acknowledge(subtask(2, 1), with_file("chk-0/base"));
        pending.acknowledge(subtask(7, 0), with_file("chk-1/stranger"));
        let (mut subtasks, files) = pending.into_files();
        for known in [subtask(0, 0), subtask(2, 1), subtask(2, 3), subtask(7, 0)] {
            assert!(!subtasks.insert(known), "{known}");
        }
        assert!(subtasks.insert(subtask(2, 2)) && subtasks.insert(subtask(7, 1)));
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["chk-1/enumerator", "chk-1/reader"]);
    }

    #[test]
    fn savepoints_are_the_users_and_lie_where_their_barrier_says() {
        let stop = SnapshotKind::StopWithSavepoint { drain: false };
        for kind in [SnapshotKind::Savepoint, stop] {
            let mut pending = pending_of(kind);
            assert!(!pending.can_be_subsumed());
            ack_all(&mut pending, |_| SubtaskState::default());
            let completed = pending.into_completed(JobId(9), &graph());
            assert_eq!(completed.owner, Owner::User);
            assert_eq!(completed.location, Some(SnapshotLocation::new("file:///s")));
        }
        let mut pending = pending();
        assert!(pending.can_be_subsumed());
        ack_all(&mut pending, |_| SubtaskState::default());
        let completed = pending.into_completed(JobId(9), &graph());
        assert_eq!((completed.owner, completed.location), (Owner::Job, None));
    }

    // PC-03
    #[test]
    #[should_panic(expected = "chk-1 is finalised before all have acknowledged")]
    fn finalising_early_is_a_bug() {
        let mut pending = pending();
        ack(&mut pending, 0, 0);
        pending.into_completed(JobId(9), &graph());
    }
}
