//! The world around a job: a store, subtasks, and a ledger of what the job has promised.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_coordinator::{
    CheckpointSettings, Job, JobAction, JobEnd, JobEvent, JobSettings, Now, Recovery, Request,
    RequestId, RestartStrategy,
};
use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::message::{
    AddressedReport, DeclineReason, Notice, Report, SnapshotMetrics, SubtaskFailure, WriteOutcome,
};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, JobId, Millis, OperatorId, Owner,
    SnapshotKind, SnapshotLocation, SubtaskId, SubtaskState, UnixMillis,
};

use crate::job::{graph, state};
use crate::ops::{Fate, Op};

/// The outside world, and what has been promised to it.
pub(crate) struct World {
    job: Job,
    graph: JobGraph,
    max_concurrent: usize,
    now: u64,
    /// Actions that have not been answered.
    pub(crate) outstanding: Vec<JobAction>,
    attempts_reserved: u64,
    ids_reserved: u64,
    /// The attempt that has been started last, and whether it may still send anything.
    attempt: u64,
    alive: bool,
    /// By id: the attempt it was triggered in, and its kind.
    triggered: BTreeMap<CheckpointId, (u64, SnapshotKind)>,
    under_way: BTreeSet<CheckpointId>,
    /// Acknowledgements by checkpoint and subtask, to be repeated.
    acknowledged: BTreeMap<(CheckpointId, SubtaskId), (u64, SubtaskState)>,
    metadata: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// What the store really lists.
    store: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// Writes of unknown outcome that may still come to pass.
    late: Vec<CheckpointId>,
    in_doubt: BTreeSet<CheckpointId>,
    announced: CheckpointId,
    discarded: BTreeSet<String>,
    /// Savepoints that have completed: the user's.
    savepoints: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// Folders of savepoints that are there.
    folders: BTreeSet<CheckpointId>,
    /// Requests that have not been answered.
    unanswered: BTreeSet<RequestId>,
    requests: u64,
    /// Whether sources of the running attempt have been told to stop.
    stopping: bool,
    /// Readers of the running attempt that have ended.
    sources_ended: BTreeSet<SubtaskId>,
    /// The last checkpoint that was triggered before the last of them did.
    ended_after: CheckpointId,
    pub(crate) end: Option<JobEnd>,
}

/// Whether nothing waits for it at the end of a job.
fn is_cleaning(action: &JobAction) -> bool {
    matches!(
        action,
        JobAction::ReserveIds { .. }
            | JobAction::PrepareSavepoint { .. }
            | JobAction::DropCompleted(_)
            | JobAction::DiscardFiles { .. }
    )
}

impl World {
    pub(crate) fn new(checkpoints: CheckpointSettings) -> Self {
        let max_concurrent = checkpoints.max_concurrent as usize;
        let restart = RestartStrategy::FixedDelay {
            attempts: u32::MAX,
            delay: Duration::from_millis(50),
        };
        let settings = JobSettings {
            checkpoints,
            restart,
            allow_non_restored_state: false,
        };
        let job = Job::new(JobId(1), graph(), settings, Recovery::default()).unwrap();
        let mut world = World {
            job,
            graph: graph(),
            max_concurrent,
            now: 0,
            outstanding: vec![],
            attempts_reserved: 0,
            ids_reserved: 0,
            attempt: 0,
            alive: false,
            triggered: BTreeMap::new(),
            under_way: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            metadata: BTreeMap::new(),
            store: BTreeMap::new(),
            late: vec![],
            in_doubt: BTreeSet::new(),
            announced: CheckpointId::NONE,
            discarded: BTreeSet::new(),
            savepoints: BTreeMap::new(),
            folders: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            requests: 0,
            stopping: false,
            sources_ended: BTreeSet::new(),
            ended_after: CheckpointId::NONE,
            end: None,
        };
        world.step(JobEvent::Start);
        world
    }

    pub(crate) fn step(&mut self, event: JobEvent) {
        let now = Now {
            monotonic: Millis(self.now),
            wall: UnixMillis(self.now),
        };
        let mut actions = Vec::new();
        self.job.step(now, event, &mut actions);
        assert!(
            self.job.next_deadline().is_none_or(|at| at.0 > self.now),
            "no busy waiting"
        );
        for action in actions {
            assert_eq!(self.end, None, "nothing follows the end");
            self.perform(action);
        }
        self.check();
    }

    fn check(&self) {
        let limited = |id: &&CheckpointId| self.triggered[id].1 == SnapshotKind::Checkpoint;
        let count = self.under_way.iter().filter(limited).count();
        assert!(count <= self.max_concurrent, "concurrency is limited");
        for completed in self.store.values().chain(self.savepoints.values()) {
            for file in completed.files() {
                let gone = self.discarded.contains(&file.name);
                assert!(!gone, "{} of {} is gone", file.name, completed.id);
            }
        }
    }

    fn perform(&mut self, action: JobAction) {
        match &action {
            JobAction::Notify {
                attempt, notice, ..
            } => {
                assert_eq!(attempt.0, self.attempt, "notices go to the running attempt");
                self.on_notice(notice.clone());
            }
            JobAction::DropCompleted(dropped) => {
                self.store.remove(&dropped.id);
                match dropped.owner {
                    Owner::Job => {
                        let files: Vec<FileHandle> = dropped.files().cloned().collect();
                        self.discard(dropped.id, &files);
                    }
                    Owner::User => {
                        self.savepoints.insert(dropped.id, (**dropped).clone());
                    }
                }
                self.outstanding.push(action);
            }
            JobAction::DiscardFiles {
                checkpoint,
                location,
                files,
                metadata,
            } => {
                self.under_way.remove(checkpoint);
                assert!(!metadata || !self.store.contains_key(checkpoint));
                assert!(!self.savepoints.contains_key(checkpoint));
                if location.is_some() {
                    self.folders.remove(checkpoint);
                }
                self.discard(*checkpoint, files);
                self.outstanding.push(action);
            }
            JobAction::StartAttempt {
                attempt, restore, ..
            } => self.on_start(*attempt, *restore),
            JobAction::StopAttempt { attempt } => {
                assert_eq!(attempt.0, self.attempt, "the last attempt is stopped");
                self.under_way.clear();
                self.outstanding.push(action);
            }
            JobAction::PublishMetadata(checkpoint) => {
                assert!(!self.store.contains_key(&checkpoint.id));
                self.outstanding.push(action);
            }
            JobAction::StorePointer { checkpoint, .. } => {
                assert!(
                    self.metadata.contains_key(checkpoint),
                    "metadata comes first"
                );
                self.outstanding.push(action);
            }
            JobAction::MarkFinished { checkpoint } => {
                assert_eq!(self.store.keys().next_back(), Some(checkpoint));
                let ended = self.sources_ended.len() == 2 && *checkpoint > self.ended_after;
                assert!(
                    ended || self.triggered[checkpoint].1.drains(),
                    "the last one was triggered after all sources had ended"
                );
                self.outstanding.push(action);
            }
            JobAction::End(end) => {
                let writes = |action: &&JobAction| !is_cleaning(action);
                let undecided: Vec<_> = self.outstanding.iter().filter(writes).collect();
                assert!(undecided.is_empty(), "ended while {undecided:?}");
                assert!(!self.alive, "ended while an attempt runs");
                assert_eq!(self.unanswered, BTreeSet::new(), "everybody is answered");
                let finished = match end {
                    JobEnd::Finished => true,
                    JobEnd::Stopped { drained, .. } => *drained,
                    JobEnd::Cancelled | JobEnd::Failed(_) => false,
                };
                assert!(!finished || self.store.keys().all(|id| self.in_doubt.contains(id)));
                self.end = Some(end.clone());
            }
            JobAction::ReserveAttempt
            | JobAction::ReserveIds { .. }
            | JobAction::PrepareSavepoint { .. }
            | JobAction::RecoverCompleted => self.outstanding.push(action),
            JobAction::Answer { request, .. } => {
                assert!(
                    self.unanswered.remove(request),
                    "{request} is answered once"
                );
            }
            JobAction::Note(_) => {}
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Trigger(barrier) => {
                let id = barrier.checkpoint;
                let last = self.triggered.keys().next_back();
                assert!(last.is_none_or(|last| *last < id), "ids grow");
                assert!(id.0 <= self.ids_reserved, "ids are reserved before use");
                assert!(!self.stopping, "nothing follows a stop");
                self.stopping = barrier.kind.stops();
                assert_eq!(self.folders.contains(&id), barrier.kind.is_savepoint());
                self.triggered.insert(id, (self.attempt, barrier.kind));
                self.under_way.insert(id);
            }
            Notice::Completed { checkpoint } => {
                assert!(
                    self.store.contains_key(&checkpoint) && self.triggered[&checkpoint].1.commits(),
                    "announced once it is stored"
                );
                assert!(self.announced < checkpoint, "completed ids only grow");
                self.announced = checkpoint;
                self.under_way.remove(&checkpoint);
            }
            Notice::Aborted { checkpoint, .. } => {
                assert!(self.under_way.remove(&checkpoint), "aborted once");
                assert!(!self.store.contains_key(&checkpoint));
            }
        }
    }

    fn on_start(&mut self, attempt: AttemptNumber, restore: Option<CheckpointId>) {
        assert!(!self.alive, "one attempt at a time");
        assert!(attempt.0 > self.attempt, "attempts grow");
        let deciding = |action: &JobAction| {
            matches!(
                action,
                JobAction::PublishMetadata(_) | JobAction::StorePointer { .. }
            )
        };
        assert!(
            !self.outstanding.iter().any(deciding),
            "restored from what is decided"
        );
        assert!(restore >= (self.announced > CheckpointId::NONE).then_some(self.announced));
        assert!(
            restore.is_none_or(|id| self.store.contains_key(&id)),
            "restored from the store"
        );
        // A write that came to pass late may have made the store newer than what was read.
        let newest = self
            .store
            .keys()
            .rfind(|id| !self.in_doubt.contains(id))
            .copied();
        assert!(restore >= newest, "restored from the latest");
        self.attempt = attempt.0;
        self.alive = true;
        self.stopping = false;
        self.sources_ended.clear();
    }

    fn discard(&mut self, checkpoint: CheckpointId, files: &[FileHandle]) {
        for file in files {
            let doubtful = self.in_doubt.contains(&checkpoint);
            let known = self.store.contains_key(&checkpoint);
            assert!(!doubtful || known || self.metadata.contains_key(&checkpoint));
            assert!(
                self.discarded.insert(file.name.clone()),
                "{} twice",
                file.name
            );
        }
    }

    pub(crate) fn answer(&mut self, index: usize, fate: Fate) {
        if self.outstanding.is_empty() {
            return;
        }
        let action = self.outstanding.remove(index % self.outstanding.len());
        let cause = "injected".to_owned();
        let outcome = match fate {
            Fate::Done => WriteOutcome::Done,
            Fate::NotDone => WriteOutcome::NotDone { cause },
            Fate::UnknownDone | Fate::UnknownNotDone => WriteOutcome::Unknown { cause },
        };
        let applied = matches!(fate, Fate::Done | Fate::UnknownDone);
        let event = self.outcome(action, outcome, applied);
        self.step(event);
    }

    fn outcome(&mut self, action: JobAction, outcome: WriteOutcome, applied: bool) -> JobEvent {
        let unknown = matches!(outcome, WriteOutcome::Unknown { .. });
        match action {
            JobAction::ReserveAttempt => {
                self.attempts_reserved += u64::from(applied);
                let attempt = AttemptNumber(self.attempts_reserved);
                JobEvent::AttemptReserved { attempt, outcome }
            }
            JobAction::ReserveIds { up_to } => {
                let reserved = outcome == WriteOutcome::Done;
                self.ids_reserved = self.ids_reserved.max(up_to.0 * u64::from(reserved));
                JobEvent::IdsReserved { up_to, outcome }
            }
            JobAction::StopAttempt { attempt } => {
                self.alive = false;
                JobEvent::AttemptStopped { attempt }
            }
            JobAction::PublishMetadata(completed) => {
                let checkpoint = completed.id;
                if outcome == WriteOutcome::Done && completed.kind == SnapshotKind::Savepoint {
                    self.under_way.remove(&checkpoint);
                    self.savepoints.insert(checkpoint, (*completed).clone());
                }
                if applied {
                    self.metadata.insert(checkpoint, *completed);
                }
                if unknown {
                    self.in_doubt.insert(checkpoint);
                    self.under_way.remove(&checkpoint);
                }
                JobEvent::MetadataPublished {
                    checkpoint,
                    outcome,
                }
            }
            JobAction::StorePointer { checkpoint, .. } => {
                if applied {
                    let completed = self.metadata[&checkpoint].clone();
                    self.store.insert(checkpoint, completed);
                }
                if unknown {
                    self.in_doubt.insert(checkpoint);
                    self.under_way.remove(&checkpoint);
                    self.late.extend((!applied).then_some(checkpoint));
                }
                JobEvent::PointerStored {
                    checkpoint,
                    outcome,
                }
            }
            JobAction::RecoverCompleted => {
                let listed = self.store.values().cloned().collect();
                let completed = match outcome {
                    WriteOutcome::Done => Ok(listed),
                    _ => Err("injected".to_owned()),
                };
                JobEvent::Recovered { completed }
            }
            JobAction::MarkFinished { .. } => JobEvent::MarkedFinished { outcome },
            JobAction::PrepareSavepoint { checkpoint, .. } => {
                if applied {
                    self.folders.insert(checkpoint);
                }
                JobEvent::SavepointPrepared {
                    checkpoint,
                    outcome,
                }
            }
            JobAction::DropCompleted(checkpoint) => JobEvent::Deleted {
                checkpoint: checkpoint.id,
            },
            JobAction::DiscardFiles { checkpoint, .. } => JobEvent::Deleted { checkpoint },
            other => unreachable!("{other:?} expects no answer"),
        }
    }

    fn report(&mut self, attempt: u64, report: Report) {
        let attempt = AttemptNumber(attempt);
        self.step(JobEvent::Report(AddressedReport { attempt, report }));
    }

    fn pick_triggered(&self, index: usize) -> Option<(CheckpointId, u64)> {
        // The last few are the interesting ones.
        let (id, (attempt, _)) = self.triggered.iter().rev().nth(index % 4)?;
        Some((*id, *attempt))
    }

    fn pick_subtask(&self, index: usize) -> SubtaskId {
        let subtasks = self.graph.subtasks();
        subtasks[index % subtasks.len()]
    }

    fn acknowledge(&mut self, checkpoint: CheckpointId, attempt: u64, subtask: SubtaskId) {
        if self.end.is_some() {
            // Its file would be left to a sweep: nothing follows the end.
            return;
        }
        let state = self
            .acknowledged
            .entry((checkpoint, subtask))
            .or_insert_with(|| (attempt, state(checkpoint, subtask)))
            .1
            .clone();
        let metrics = SnapshotMetrics::default();
        let report = Report::Acknowledged {
            checkpoint,
            subtask,
            state,
            metrics,
        };
        self.report(attempt, report);
    }

    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Advance(millis) => {
                self.now += u64::from(millis);
                self.step(JobEvent::Tick);
            }
            Op::Answer(index, fate) => self.answer(index, fate),
            Op::Acknowledge(checkpoint, subtask) => {
                if let Some((id, attempt)) = self.pick_triggered(checkpoint) {
                    self.acknowledge(id, attempt, self.pick_subtask(subtask));
                }
            }
            Op::AcknowledgeAll(checkpoint) => {
                if let Some((id, attempt)) = self.pick_triggered(checkpoint) {
                    for subtask in self.graph.subtasks() {
                        self.acknowledge(id, attempt, subtask);
                    }
                }
            }
            Op::Repeat(index) => {
                let count = self.acknowledged.len().max(1);
                let found = self.acknowledged.iter().nth(index % count);
                if let Some(((checkpoint, subtask), (attempt, _))) = found {
                    let (checkpoint, subtask, attempt) = (*checkpoint, *subtask, *attempt);
                    self.acknowledge(checkpoint, attempt, subtask);
                }
            }
            Op::Decline(checkpoint, subtask, fault) => {
                if let Some((checkpoint, attempt)) = self.pick_triggered(checkpoint) {
                    self.decline(checkpoint, attempt, self.pick_subtask(subtask), fault);
                }
            }
            Op::Run(index) => {
                let subtask = self.pick_subtask(index);
                self.report(self.attempt, Report::Running { subtask });
            }
            Op::RunAll => self.run_all(),
            Op::EndSource(index) => {
                let (operator, index) = (OperatorId(1), index as u32 % 2);
                self.end_source(SubtaskId { operator, index });
            }
            Op::Commit(checkpoint, index) => {
                if let Some((checkpoint, attempt)) = self.pick_triggered(checkpoint)
                    && self.announced >= checkpoint
                {
                    self.commit(checkpoint, attempt, index as u32 % 2);
                }
            }
            Op::Fail(index) => {
                let subtask = Some(self.pick_subtask(index));
                let cause = "injected".to_owned();
                self.report(
                    self.attempt,
                    Report::Failed(SubtaskFailure { subtask, cause }),
                );
            }
            Op::LateWrite(index) => {
                if !self.late.is_empty() {
                    let id = self.late.remove(index % self.late.len());
                    self.store.insert(id, self.metadata[&id].clone());
                }
            }
            Op::Request(index) => self.request(index),
            Op::Nonsense(number) => self.nonsense(number),
        }
    }

    fn request(&mut self, index: usize) {
        if self.end.is_some() {
            return;
        }
        self.requests += 1;
        let request = RequestId(self.requests);
        self.unanswered.insert(request);
        let directory = Some(SnapshotLocation::new("file:///savepoints"));
        let what = match index % 8 {
            0..3 => Request::Checkpoint { format: None },
            3..5 => Request::Savepoint { directory },
            5 => Request::StopWithSavepoint {
                directory,
                drain: index % 16 == 5,
            },
            _ => Request::Abort {
                checkpoint: self
                    .pick_triggered(index)
                    .map_or(CheckpointId(99), |(id, _)| id),
            },
        };
        self.step(JobEvent::Requested { request, what });
    }

    fn decline(&mut self, checkpoint: CheckpointId, attempt: u64, subtask: SubtaskId, fault: bool) {
        let cause = "injected".to_owned();
        let reason = match fault {
            true => DeclineReason::WriteFailed { cause },
            false => DeclineReason::CancelledUpstream,
        };
        let report = Report::Declined {
            checkpoint,
            subtask,
            reason,
        };
        self.report(attempt, report);
    }

    fn commit(&mut self, checkpoint: CheckpointId, attempt: u64, index: u32) {
        let subtask = SubtaskId {
            operator: OperatorId(2),
            index,
        };
        let report = Report::Committed {
            checkpoint,
            subtask,
        };
        self.report(attempt, report);
    }

    fn subtasks_of(&self, role: OperatorRole) -> Vec<SubtaskId> {
        self.graph.subtasks_where(|op| op.role == role)
    }

    fn run_all(&mut self) {
        for subtask in self.graph.subtasks() {
            self.report(self.attempt, Report::Running { subtask });
        }
    }

    fn end_source(&mut self, subtask: SubtaskId) {
        let readers = self.subtasks_of(OperatorRole::Reader);
        if self.sources_ended.insert(subtask) && self.sources_ended.len() == readers.len() {
            let last = self.triggered.keys().next_back();
            self.ended_after = last.copied().unwrap_or(CheckpointId::NONE);
        }
        self.report(self.attempt, Report::SourceEnded { subtask });
    }

    /// Events that nobody could have caused.
    fn nonsense(&mut self, number: u64) {
        let checkpoint = CheckpointId(number.max(1 << 20));
        let attempt = AttemptNumber(number.max(1 << 20));
        let outcome = WriteOutcome::Done;
        let subtask = SubtaskId {
            operator: OperatorId(number as u32),
            index: 1 << 20,
        };
        self.step(JobEvent::Start);
        self.step(JobEvent::AttemptStopped { attempt });
        self.step(JobEvent::IdsReserved {
            up_to: checkpoint,
            outcome: outcome.clone(),
        });
        self.step(JobEvent::MetadataPublished {
            checkpoint,
            outcome: outcome.clone(),
        });
        self.step(JobEvent::PointerStored {
            checkpoint,
            outcome,
        });
        self.report(self.attempt, Report::Running { subtask });
        self.report(self.attempt, Report::SourceEnded { subtask });
        self.report(
            self.attempt,
            Report::Committed {
                checkpoint,
                subtask,
            },
        );
        self.report(
            self.attempt,
            Report::Declined {
                checkpoint,
                subtask,
                reason: DeclineReason::NotReady,
            },
        );
        self.report(attempt.0, Report::Running { subtask });
    }

    /// Lets everything go well until the job is over.
    pub(crate) fn heal(&mut self) {
        for _ in 0..200 {
            if self.end.is_some() {
                return;
            }
            while !self.outstanding.is_empty() {
                self.answer(0, Fate::Done);
            }
            self.run_all();
            for subtask in self.subtasks_of(OperatorRole::Reader) {
                self.end_source(subtask);
            }
            let under_way: Vec<CheckpointId> = self.under_way.iter().copied().collect();
            for id in under_way {
                for subtask in self.graph.subtasks() {
                    self.acknowledge(id, self.attempt, subtask);
                }
            }
            for subtask in self.subtasks_of(OperatorRole::CommittingSink) {
                let checkpoint = self.announced;
                let report = Report::Committed {
                    checkpoint,
                    subtask,
                };
                self.report(self.attempt, report);
            }
            let deadline = self.job.next_deadline();
            self.now = deadline.map_or(self.now, |at| at.0);
            self.step(JobEvent::Tick);
        }
        panic!("the job doesn't finish: {:?}", self.job);
    }

    /// Every file that was ever handed in is owned, discarded or in doubt.
    pub(crate) fn check_leaks(&mut self) {
        let owned: BTreeSet<&str> = self
            .store
            .values()
            .chain(self.savepoints.values())
            .flat_map(|completed| completed.files())
            .map(|file| file.name.as_str())
            .collect();
        for ((checkpoint, _), (_, state)) in &self.acknowledged {
            for file in state.files() {
                let name = file.name.as_str();
                let accounted = owned.contains(name) || self.discarded.contains(name);
                assert!(
                    accounted || self.in_doubt.contains(checkpoint),
                    "{name} is leaked"
                );
            }
        }
        let preparing = |id: &CheckpointId| {
            let prepares = |action: &JobAction| matches!(action, JobAction::PrepareSavepoint { checkpoint, .. } if checkpoint == id);
            self.outstanding.iter().any(prepares)
        };
        for id in &self.folders {
            let known = self.savepoints.contains_key(id) || self.metadata.contains_key(id);
            assert!(
                known || self.in_doubt.contains(id) || preparing(id),
                "the folder of {id} is leaked"
            );
        }
    }
}
