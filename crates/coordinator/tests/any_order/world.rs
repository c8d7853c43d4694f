//! The world around a job: a store, subtasks, and a ledger of what the job has promised.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_coordinator::{
    CheckpointSettings, ElasticSettings, Job, JobAction, JobEnd, JobEvent, JobSettings, Now,
    Recovery, RequestId, RestartStrategy,
};
use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::message::{Notice, WriteOutcome};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, CompletedCheckpoint, FileHandle, JobId, Millis,
    Owner, RestorePlan, Scaling, SnapshotKind, SubtaskId, SubtaskState, UnixMillis,
};

use crate::job::graph;
use crate::ops::Fate;

/// The outside world, and what has been promised to it.
pub(crate) struct World {
    pub(crate) job: Job,
    pub(crate) graph: JobGraph,
    /// That of each attempt.
    pub(crate) graphs: BTreeMap<u64, JobGraph>,
    pub(crate) max_concurrent: usize,
    pub(crate) now: u64,
    /// Actions that have not been answered.
    pub(crate) outstanding: Vec<JobAction>,
    pub(crate) attempts_reserved: u64,
    pub(crate) ids_reserved: u64,
    /// The attempt that has been started last, and whether it may still send anything.
    pub(crate) attempt: u64,
    pub(crate) alive: bool,
    /// By id: the attempt it was triggered in, and its kind.
    pub(crate) triggered: BTreeMap<CheckpointId, (u64, SnapshotKind)>,
    pub(crate) barriers: BTreeMap<CheckpointId, CheckpointBarrier>,
    pub(crate) under_way: BTreeSet<CheckpointId>,
    /// Acknowledgements by checkpoint and subtask, to be repeated.
    pub(crate) acknowledged: BTreeMap<(CheckpointId, SubtaskId), (u64, SubtaskState)>,
    pub(crate) metadata: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// What the store really lists.
    pub(crate) store: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// Writes of unknown outcome that may still come to pass.
    pub(crate) late: Vec<CheckpointId>,
    pub(crate) in_doubt: BTreeSet<CheckpointId>,
    /// What was listed when the store was last read.
    pub(crate) listed: BTreeSet<CheckpointId>,
    pub(crate) announced: CheckpointId,
    pub(crate) discarded: BTreeSet<String>,
    /// Files of checkpoints that were dropped, spared for the time being.
    waiting: BTreeSet<String>,
    /// Savepoints that have completed: the user's.
    pub(crate) savepoints: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// Folders of savepoints that are there.
    pub(crate) folders: BTreeSet<CheckpointId>,
    /// Requests that have not been answered.
    pub(crate) unanswered: BTreeSet<RequestId>,
    pub(crate) requests: u64,
    /// Whether sources of the running attempt have been told to stop.
    pub(crate) stopping: bool,
    /// Readers of the running attempt that have ended.
    pub(crate) sources_ended: BTreeSet<SubtaskId>,
    /// The last checkpoint that was triggered before the last of them did.
    pub(crate) ended_after: CheckpointId,
    pub(crate) end: Option<JobEnd>,
}

/// Whether nothing waits for it at the end of a job.
fn is_cleaning(action: &JobAction) -> bool {
    matches!(
        action,
        JobAction::ReserveIds { .. }
            | JobAction::RecordParallelism { .. }
            | JobAction::PrepareSavepoint { .. }
            | JobAction::DropCompleted { .. }
            | JobAction::DiscardFiles { .. }
    )
}

impl World {
    pub(crate) fn new((checkpoints, elastic): (CheckpointSettings, ElasticSettings)) -> Self {
        let max_concurrent = checkpoints.max_concurrent as usize;
        let restart = RestartStrategy::FixedDelay {
            attempts: u32::MAX,
            delay: Duration::from_millis(50),
        };
        let settings = JobSettings {
            checkpoints,
            restart,
            allow_non_restored_state: false,
            elastic,
        };
        let job = Job::new(JobId(1), graph(), settings, Recovery::default()).unwrap();
        let job = job.with_scaling(Scaling::new(graph(), vec![], &[]));
        let mut world = World {
            job,
            graph: graph(),
            graphs: BTreeMap::new(),
            max_concurrent,
            now: 0,
            outstanding: vec![],
            attempts_reserved: 0,
            ids_reserved: 0,
            attempt: 0,
            alive: false,
            triggered: BTreeMap::new(),
            barriers: BTreeMap::new(),
            under_way: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            metadata: BTreeMap::new(),
            store: BTreeMap::new(),
            late: vec![],
            listed: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            announced: CheckpointId::NONE,
            discarded: BTreeSet::new(),
            waiting: BTreeSet::new(),
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

    pub(crate) fn subtasks_in(&self, attempt: u64) -> Vec<SubtaskId> {
        self.graphs[&attempt].subtasks()
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
        // One that appears after the store was read came too late to count.
        let counts = |completed: &&CompletedCheckpoint| {
            let id = &completed.id;
            !self.in_doubt.contains(id) || self.listed.contains(id)
        };
        let listed = self.store.values().filter(counts);
        for completed in listed.chain(self.savepoints.values()) {
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
            JobAction::DropCompleted { .. } | JobAction::DiscardFiles { .. } => {
                self.delete(action);
            }
            JobAction::DiscardHistory(completed) => {
                let ascending = completed.windows(2).all(|pair| pair[0].id < pair[1].id);
                assert!(ascending && !completed.is_empty());
                for (index, dropped) in completed.iter().enumerate() {
                    let later = completed[index + 1..].iter();
                    let spared: Vec<FileHandle> =
                        later.flat_map(|later| later.files()).cloned().collect();
                    self.drop_completed(dropped, &spared);
                }
            }
            JobAction::StartAttempt {
                attempt,
                restore,
                plan,
                ..
            } => {
                self.on_scale(*attempt, plan);
                self.on_start(*attempt, *restore);
            }
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
                self.on_mark(*checkpoint);
                self.outstanding.push(action);
            }
            JobAction::End(end) => self.on_end(end),
            JobAction::ReserveAttempt
            | JobAction::ReserveIds { .. }
            | JobAction::PrepareSavepoint { .. }
            | JobAction::RecordParallelism { .. }
            | JobAction::RecordEnd { .. }
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

    fn delete(&mut self, action: JobAction) {
        match &action {
            JobAction::DropCompleted { checkpoint, spared } => {
                self.drop_completed(checkpoint, spared);
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
            }
            other => unreachable!("{other:?} deletes nothing"),
        }
        self.outstanding.push(action);
    }

    fn drop_completed(&mut self, dropped: &CompletedCheckpoint, spared: &[FileHandle]) {
        self.store.remove(&dropped.id);
        let waiting = spared.iter().map(|file| file.name.clone());
        self.waiting.extend(waiting);
        match dropped.owner {
            Owner::Job => {
                let files = dropped.files().filter(|file| !spared.contains(file));
                let files: Vec<FileHandle> = files.cloned().collect();
                self.discard(dropped.id, &files);
            }
            Owner::User => {
                self.savepoints.insert(dropped.id, dropped.clone());
            }
        }
    }

    fn on_end(&mut self, end: &JobEnd) {
        let writes = |action: &&JobAction| !is_cleaning(action);
        let undecided: Vec<_> = self.outstanding.iter().filter(writes).collect();
        assert!(undecided.is_empty(), "ended while {undecided:?}");
        assert!(!self.alive, "ended while an attempt runs");
        assert_eq!(self.unanswered, BTreeSet::new(), "everybody is answered");
        self.end = Some(end.clone());
        let in_doubt = self.store.keys().all(|id| self.in_doubt.contains(id));
        assert!(!self.is_finished() || in_doubt);
    }

    /// Whether the job is done for good.
    fn is_finished(&self) -> bool {
        match &self.end {
            Some(JobEnd::Finished) => true,
            Some(JobEnd::Stopped { drained, .. }) => *drained,
            Some(JobEnd::Cancelled | JobEnd::Suspended | JobEnd::Failed(_)) | None => false,
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
                if let Some(base) = barrier.base {
                    let base = &self.store[&base];
                    assert_eq!(base.attempt.0, self.attempt, "rests on what runs");
                    assert_eq!(base.owner, Owner::Job);
                }
                self.barriers.insert(id, barrier);
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

    fn on_scale(&mut self, attempt: AttemptNumber, plan: &RestorePlan) {
        self.graph = JobGraph::clone(self.job.graph());
        self.graphs.insert(attempt.0, self.graph.clone());
        let subtasks = plan.operators.iter().map(Vec::len);
        let operators = self.graph.operators.iter();
        let parallelism = operators.map(|op| op.parallelism as usize);
        assert!(subtasks.eq(parallelism), "everybody knows what to restore");
    }

    /// The job is to be marked as finished.
    fn on_mark(&self, checkpoint: CheckpointId) {
        assert_eq!(self.store.keys().next_back(), Some(&checkpoint));
        let readers = self.subtasks_of(OperatorRole::Reader);
        let ended = self.sources_ended.len() == readers.len() && checkpoint > self.ended_after;
        assert!(
            ended || self.triggered[&checkpoint].1.drains(),
            "the last one was triggered after all sources had ended"
        );
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
                self.publish((*completed).clone(), outcome, applied)
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
                let completed = match outcome {
                    WriteOutcome::Done => {
                        // What isn't listed now never will be: that is what reading promises.
                        self.late.clear();
                        self.listed = self.store.keys().copied().collect();
                        Ok(self.store.values().cloned().collect())
                    }
                    _ => Err("injected".to_owned()),
                };
                JobEvent::Recovered { completed }
            }
            JobAction::MarkFinished { .. } => JobEvent::MarkedFinished { outcome },
            JobAction::RecordParallelism { .. } => JobEvent::ParallelismRecorded { outcome },
            JobAction::RecordEnd { .. } => JobEvent::EndRecorded { outcome },
            JobAction::PrepareSavepoint { checkpoint, .. } => {
                if applied {
                    self.folders.insert(checkpoint);
                }
                JobEvent::SavepointPrepared {
                    checkpoint,
                    outcome,
                }
            }
            JobAction::DropCompleted { checkpoint, .. } => JobEvent::Deleted {
                checkpoint: checkpoint.id,
            },
            JobAction::DiscardFiles { checkpoint, .. } => JobEvent::Deleted { checkpoint },
            other => unreachable!("{other:?} expects no answer"),
        }
    }

    fn publish(
        &mut self,
        completed: CompletedCheckpoint,
        outcome: WriteOutcome,
        applied: bool,
    ) -> JobEvent {
        let checkpoint = completed.id;
        if outcome == WriteOutcome::Done && completed.kind == SnapshotKind::Savepoint {
            self.under_way.remove(&checkpoint);
            self.savepoints.insert(checkpoint, completed.clone());
        }
        if applied {
            self.metadata.insert(checkpoint, completed);
        }
        if matches!(outcome, WriteOutcome::Unknown { .. }) {
            self.in_doubt.insert(checkpoint);
            self.under_way.remove(&checkpoint);
        }
        JobEvent::MetadataPublished {
            checkpoint,
            outcome,
        }
    }

    /// Every new file that was ever handed in is owned, discarded or in doubt, or something in
    /// doubt rests on it. A job that ends with its checkpoints kept leaves files of those that were
    /// dropped, and whose files had to wait, to the sweep that its next start begins with.
    pub(crate) fn check_leaks(&mut self) {
        let owned: BTreeSet<&str> = self
            .store
            .values()
            .chain(self.savepoints.values())
            .chain(self.in_doubt.iter().filter_map(|id| self.metadata.get(id)))
            .flat_map(|completed| completed.files())
            .map(|file| file.name.as_str())
            .collect();
        for ((checkpoint, _), (_, state)) in &self.acknowledged {
            for file in state.files() {
                let name = file.name.as_str();
                let swept = !self.is_finished() && self.waiting.contains(name);
                let accounted = owned.contains(name) || self.discarded.contains(name) || swept;
                assert!(
                    accounted || self.in_doubt.contains(checkpoint),
                    "{name} is leaked"
                );
            }
        }
        let prepared = |action: &JobAction| match action {
            JobAction::PrepareSavepoint { checkpoint, .. } => Some(*checkpoint),
            _ => None,
        };
        let preparing: Vec<CheckpointId> = self.outstanding.iter().filter_map(prepared).collect();
        for id in &self.folders {
            let known = self.savepoints.contains_key(id) || self.metadata.contains_key(id);
            assert!(
                known || self.in_doubt.contains(id) || preparing.contains(id),
                "the folder of {id} is leaked"
            );
        }
    }
}
