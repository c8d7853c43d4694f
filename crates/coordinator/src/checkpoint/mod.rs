//! The life of checkpoints: trigger, acknowledge, decline, expire, finalise, complete, subsume.
//!
//! A checkpoint is *pending* while subtasks acknowledge it; once all have, it is *finalised*, one
//! at a time and in order of ids: metadata is published, then the pointer is stored, and only then
//! it is *completed*, announced and retained, and what it supersedes is dropped. Anything else is
//! an abort, which discards every new file that was handed in, once.
//!
//! Invariants: *pending ids ≠ finalising id ≠ retained ids · retained ids ascend · only the id
//! being finalised can complete · nothing is discarded of a checkpoint in doubt*.
//!
//! The module knows nothing of attempts but the number of the one that runs.

mod abort;
mod deletions;
mod ended;
mod failures;
mod finalise;
mod ids;
mod pending;
mod queue;
mod schedule;
mod shared;
mod trigger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_types::graph::JobGraph;
use tidegate_types::message::{DeclineReason, Notice, SnapshotMetrics};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, JobId, Millis, SnapshotLocation,
    SubtaskId, SubtaskState,
};

use crate::action::{JobAction, NoticeTarget};
use crate::event::Now;
use crate::failure::{AbortReason, FailureReason, TriggerRefusal, decline_counts};
use crate::request::RequestId;
use crate::settings::CheckpointSettings;
use crate::statistics::{CompletedSummary, Statistics, SubtaskSnapshot};
use crate::subtasks::SubtaskTable;

use deletions::Deletions;
use ended::{Ended, Late};
use failures::Failures;
use finalise::Finalising;
use ids::Ids;
pub(crate) use pending::PendingCheckpoint;
use pending::{Ack, Stage};
use queue::RequestQueue;
use schedule::Schedule;
use shared::Kept;
pub(crate) use trigger::answer;
use trigger::refuse;

/// What the rest of the job has to react to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Signal {
    /// A checkpoint is durable.
    Completed(CheckpointId),
    /// The savepoint of a stop is durable.
    Stopped(Stop),
    /// The checkpoint that the job itself asked for came to nothing, and not because its attempt
    /// did, or because a newer one has completed.
    OwnAborted {
        checkpoint: CheckpointId,
        reason: String,
    },
    /// The attempt must not go on.
    Fail(FailureReason),
}

/// A stop whose savepoint is durable, but not yet committed everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) summary: CompletedSummary,
    pub(crate) request: Option<RequestId>,
}

/// What is known of the completed-checkpoint store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// It lists exactly the retained checkpoints.
    Known,
    /// The outcome of a write is unknown: it must be read before anything is restored.
    InDoubt,
}

/// One subtask's part of a checkpoint.
#[derive(Debug)]
pub(crate) struct Acknowledgement {
    pub(crate) attempt: AttemptNumber,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) subtask: SubtaskId,
    pub(crate) state: SubtaskState,
    pub(crate) metrics: SnapshotMetrics,
}

impl Acknowledgement {
    /// What statistics take of it, of a checkpoint that lies in `location` if that isn't the job's
    /// own namespace.
    fn snapshot(&self, location: Option<&SnapshotLocation>, at: Millis) -> SubtaskSnapshot {
        SubtaskSnapshot {
            checkpoint: self.checkpoint,
            subtask: self.subtask,
            metrics: self.metrics,
            bytes: self.state.bytes(),
            new_bytes: self.state.new_bytes(self.checkpoint, location),
            at,
        }
    }
}

/// Decides about the checkpoints of one job, over all its attempts.
#[derive(Debug)]
pub(crate) struct CheckpointCoordinator {
    job: JobId,
    graph: Arc<JobGraph>,
    subtasks: Arc<SubtaskTable>,
    settings: CheckpointSettings,
    now: Now,
    /// The attempt all of whose subtasks run; the one that gets notices.
    attempt: Option<AttemptNumber>,
    ids: Ids,
    schedule: Schedule,
    queue: RequestQueue,
    /// What the job itself has asked for, if it is under way.
    own: Option<CheckpointId>,
    failures: Failures,
    pending: BTreeMap<CheckpointId, PendingCheckpoint>,
    /// Folders of savepoints that are being made, whether anybody still waits for them or not.
    preparing: BTreeMap<CheckpointId, SnapshotLocation>,
    finalising: Option<Finalising>,
    /// Completed checkpoints, ascending by id.
    retained: Vec<CompletedCheckpoint>,
    /// What is restored as long as nothing is retained. The user's.
    origin: Option<CompletedCheckpoint>,
    ended: Ended,
    kept: Kept,
    deletions: Deletions,
    store: Store,
    statistics: Statistics,
    signals: Vec<Signal>,
}

impl CheckpointCoordinator {
    /// `retained` ascends by id; `origin` is what to restore as long as there are none; `used` is
    /// at least every id ever used or reserved.
    pub(crate) fn new(
        job: JobId,
        graph: Arc<JobGraph>,
        settings: CheckpointSettings,
        retained: Vec<CompletedCheckpoint>,
        origin: Option<CompletedCheckpoint>,
        used: CheckpointId,
    ) -> Self {
        let restorable = retained.last().or(origin.as_ref());
        let newest = restorable.map_or(CheckpointId::NONE, |last| last.id);
        CheckpointCoordinator {
            job,
            subtasks: Arc::new(SubtaskTable::new(&graph)),
            graph,
            now: Now::default(),
            attempt: None,
            ids: Ids::above(used.max(newest)),
            schedule: Schedule::new(&settings),
            failures: Failures::new(settings.tolerable_failures),
            statistics: Statistics::new(settings.history as usize),
            settings,
            queue: RequestQueue::default(),
            own: None,
            pending: BTreeMap::new(),
            preparing: BTreeMap::new(),
            finalising: None,
            retained,
            origin,
            ended: Ended::default(),
            kept: Kept::default(),
            deletions: Deletions::default(),
            store: Store::Known,
            signals: Vec::new(),
        }
    }

    /// What an attempt is restored from.
    pub(crate) fn latest(&self) -> Option<&CompletedCheckpoint> {
        self.retained.last().or(self.origin.as_ref())
    }

    /// The newest that the store lists, as far as is known.
    pub(crate) fn newest_listed(&self) -> Option<CheckpointId> {
        self.retained.last().map(|newest| newest.id)
    }

    /// The last id that was handed out.
    pub(crate) fn last_id(&self) -> CheckpointId {
        self.ids.last()
    }

    /// Whether no write is under way whose outcome decides what is restored.
    pub(crate) fn is_settled(&self) -> bool {
        self.finalising.is_none()
    }

    /// Whether the folder of a savepoint is being made, whether anybody waits for it or not.
    pub(crate) fn is_preparing(&self) -> bool {
        !self.preparing.is_empty()
    }

    /// Whether the store must be read before anything is restored.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.store == Store::InDoubt
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(crate) fn statistics_mut(&mut self) -> &mut Statistics {
        &mut self.statistics
    }

    /// How long a checkpoint may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// The next attempt has other subtasks.
    ///
    /// # Panics
    /// If an attempt runs.
    pub(crate) fn set_graph(&mut self, graph: Arc<JobGraph>) {
        assert!(self.attempt.is_none(), "an attempt has one graph");
        assert!(self.pending.is_empty(), "pending ends with its attempt");
        self.subtasks = Arc::new(SubtaskTable::new(&graph));
        self.graph = graph;
    }

    /// What has to be reacted to since the last call.
    pub(crate) fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    /// Lets time pass: aborts and refuses what has expired.
    pub(crate) fn advance(&mut self, now: Now, actions: &mut Vec<JobAction>) {
        self.now = now;
        let expired: Vec<CheckpointId> = self
            .pending
            .values()
            .filter(|pending| pending.deadline().is_some_and(|at| at <= now.monotonic))
            .map(PendingCheckpoint::id)
            .collect();
        for id in expired {
            let pending = &self.pending[&id];
            let reason = match pending.stage {
                Stage::Preparing => AbortReason::NotPrepared {
                    cause: "it was not there in time".to_owned(),
                },
                Stage::Triggered => AbortReason::Expired {
                    waiting: pending.waiting(&self.graph),
                },
            };
            self.abort(id, reason, actions);
        }
        for request in self.queue.expire(now.monotonic) {
            refuse(request, TriggerRefusal::Expired, actions);
        }
    }

    /// Every subtask of `attempt` runs: checkpoints may be taken.
    pub(crate) fn start(&mut self, attempt: AttemptNumber, actions: &mut Vec<JobAction>) {
        assert!(
            self.pending.is_empty(),
            "an earlier attempt has left a pending checkpoint"
        );
        self.attempt = Some(attempt);
        self.failures.restart();
        self.schedule.start(self.now.monotonic);
        self.ids.ensure(actions);
    }

    /// Every source has ended: the final checkpoint is due.
    pub(crate) fn on_sources_ended(&mut self) {
        self.schedule.on_sources_ended(self.now.monotonic);
    }

    /// The last checkpoint of the job is durable: nothing else is taken any more.
    pub(crate) fn wind_down(&mut self, actions: &mut Vec<JobAction>) {
        self.schedule.stop();
        for request in self.queue.drain() {
            refuse(request, TriggerRefusal::NotRunning, actions);
        }
        let ids: Vec<CheckpointId> = self.pending.keys().copied().collect();
        for id in ids {
            self.abort(id, AbortReason::AttemptEnded, actions);
        }
    }

    /// The attempt gets no more notices. What is being finalised goes on: its outcome decides what
    /// the next attempt is restored from.
    pub(crate) fn end_attempt(&mut self, actions: &mut Vec<JobAction>) {
        self.attempt = None;
        self.wind_down(actions);
    }

    /// Takes a subtask's part of a checkpoint, from the running attempt or a dead one.
    pub(crate) fn on_acknowledged(&mut self, ack: Acknowledgement, actions: &mut Vec<JobAction>) {
        let id = ack.checkpoint;
        let Some(pending) = self.pending.get(&id) else {
            self.on_late_acknowledgement(ack, actions);
            return;
        };
        let location = pending.barrier.location.as_ref();
        let snapshot = ack.snapshot(location, self.now.monotonic);
        if pending.attempt != ack.attempt {
            return;
        }
        let unknown = self.unknown_file(pending, ack.subtask, &ack.state);
        let pending = self.pending.get_mut(&id).expect("it was just found");
        match pending.acknowledge(ack.subtask, ack.state) {
            Ack::Accepted if unknown.is_some() => {
                let reason = unknown.expect("this was just asked");
                self.abort(id, reason, actions);
            }
            Ack::Accepted => {
                self.statistics.on_snapshot(&snapshot);
                self.finalise_next(actions);
            }
            Ack::Duplicate => {}
            Ack::Unknown(state) => {
                let location = pending.barrier.location.clone();
                let own = state.files().filter(|file| pending.owns(file));
                let files: Vec<FileHandle> = own.cloned().collect();
                self.discard(id, location.filter(|_| !files.is_empty()), files, actions);
            }
        }
    }

    fn on_late_acknowledgement(&mut self, ack: Acknowledgement, actions: &mut Vec<JobAction>) {
        let id = ack.checkpoint;
        let finalising = self.finalising.as_ref().is_some_and(|f| f.id() == id);
        if finalising || self.retained.iter().any(|completed| completed.id == id) {
            return;
        }
        if let Some(entry) = self.statistics.checkpoint(id) {
            let snapshot = ack.snapshot(entry.location.as_ref(), self.now.monotonic);
            self.statistics.on_late_snapshot(&snapshot);
        }
        let location = match self.ended.claim_late(id, ack.subtask) {
            Late::Leave => return,
            Late::Discard(location) => location,
            Late::DiscardOwn => None,
        };
        // Others belong to the checkpoint that it would have rested on.
        let own = |file: &&FileHandle| file.is_of(id, location.as_ref());
        let files: Vec<FileHandle> = ack.state.files().filter(own).cloned().collect();
        if !files.is_empty() {
            self.discard(id, location, files, actions);
        }
    }

    /// Takes a subtask's refusal to take part in a checkpoint of the running attempt.
    pub(crate) fn on_declined(
        &mut self,
        checkpoint: CheckpointId,
        subtask: SubtaskId,
        reason: DeclineReason,
        actions: &mut Vec<JobAction>,
    ) {
        match self.pending.get(&checkpoint) {
            Some(pending) if pending.is_fully_acknowledged() || !pending.involves(subtask) => {}
            Some(_) => {
                let subtask = self.graph.display(subtask).to_string();
                let reason = AbortReason::Declined { subtask, reason };
                self.abort(checkpoint, reason, actions);
            }
            // Whoever passed a cancellation on may be heard before the subtask with the fault.
            None if self.ended.is_aborted_checkpoint(checkpoint) && decline_counts(&reason) => {
                self.count_failure(checkpoint, reason.to_string());
            }
            None => {}
        }
    }

    /// Tells every subtask of the running attempt, if there is one.
    fn notify(&self, notice: Notice, actions: &mut Vec<JobAction>) {
        if let Some(attempt) = self.attempt {
            actions.push(JobAction::Notify {
                attempt,
                notice,
                to: NoticeTarget::All,
            });
        }
    }

    /// What the completed-checkpoint store really lists.
    pub(crate) fn on_recovered(&mut self, completed: Vec<CompletedCheckpoint>) {
        assert!(
            self.finalising.is_none(),
            "the store is read while nothing is written"
        );
        if let Some(newest) = completed.iter().map(|completed| completed.id).max() {
            self.ids.skip_to(newest);
            self.failures.on_completed(newest);
        }
        self.retained = completed;
        self.retained.sort_by_key(|completed| completed.id);
        self.retained.dedup_by_key(|completed| completed.id);
        self.on_kept_recovered();
        self.store = Store::Known;
    }

    /// When something happens by itself next.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let expiries = self
            .pending
            .values()
            .filter_map(PendingCheckpoint::deadline);
        let trigger = match self.attempt {
            Some(_) => self.schedule.deadline(self.has_room()),
            None => None,
        };
        // What is due already waits for something else, an id for instance.
        let in_future = |at: &Millis| *at > self.now.monotonic;
        let waits = self.queue.deadline();
        expiries.chain(trigger).chain(waits).filter(in_future).min()
    }

    pub(crate) fn check_invariants(&self) {
        self.ids.check_invariants();
        self.statistics.check_invariants();
        for pending in self.pending.values() {
            pending.check_invariants(&self.graph);
            assert_eq!(
                Some(pending.attempt),
                self.attempt,
                "pending ends with its attempt"
            );
        }
        let ascending = self.retained.windows(2).all(|pair| pair[0].id < pair[1].id);
        assert!(ascending, "retained checkpoints ascend");
        let finalising = self
            .finalising
            .as_ref()
            .filter(|finalising| finalising.kind().commits())
            .map(Finalising::id);
        let newest = self.latest().map(|latest| latest.id);
        assert!(
            finalising.is_none() || newest < finalising,
            "completed ids only grow"
        );
        let checkpoints = self
            .pending
            .values()
            .filter(|pending| !pending.kind().is_savepoint());
        let oldest_pending = checkpoints.map(PendingCheckpoint::id).next();
        assert!(
            oldest_pending.is_none() || newest < oldest_pending,
            "older ones are subsumed"
        );
        assert!(
            self.limited() <= self.settings.max_concurrent as usize,
            "concurrency is limited"
        );
        let in_progress = self.pending.len() + usize::from(self.finalising.is_some());
        assert_eq!(
            self.statistics.in_progress, in_progress as u64,
            "progress is counted"
        );
        assert!(self.signals.is_empty(), "signals are reacted to");
        self.check_shared();
    }
}
