//! The life of checkpoints: trigger, acknowledge, decline, expire, finalise, complete, subsume.
//!
//! A checkpoint is *pending* while subtasks acknowledge it; once all have, it is *finalised*, one
//! at a time and in order of ids: metadata is published, then the pointer is stored, and only then
//! it is *completed*, announced and retained, and what it supersedes is dropped. Anything else is
//! an abort, which discards every file that was handed in, once.
//!
//! Invariants: *pending ids ≠ finalising id ≠ retained ids · retained ids ascend · only the id
//! being finalised can complete · nothing is discarded of a checkpoint in doubt*.
//!
//! The module knows nothing of attempts but the number of the one that runs.

mod ended;
mod failures;
mod finalise;
mod ids;
mod pending;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_types::graph::JobGraph;
use tidegate_types::message::{DeclineReason, Notice, SnapshotMetrics, WriteOutcome};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, CompletedCheckpoint, FileHandle, JobId, Millis,
    SnapshotKind, SubtaskId, SubtaskState,
};

use crate::action::{JobAction, JobNote, NoticeTarget};
use crate::event::Now;
use crate::failure::{AbortReason, FailureReason, StorageStep, TriggerRefusal, decline_counts};
use crate::request::{Answer, Request, RequestId};
use crate::settings::CheckpointSettings;
use crate::statistics::{Statistics, SubtaskSnapshot};
use crate::subtasks::SubtaskTable;

use ended::Ended;
use failures::{Failures, TooMany};
use finalise::Finalising;
use ids::Ids;
use pending::Ack;
pub(crate) use pending::PendingCheckpoint;
use schedule::Schedule;

/// What the rest of the job has to react to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Signal {
    /// A checkpoint is durable.
    Completed(CheckpointId),
    /// The attempt must not go on.
    Fail(FailureReason),
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
    fn snapshot(&self, at: Millis) -> SubtaskSnapshot {
        SubtaskSnapshot {
            checkpoint: self.checkpoint,
            subtask: self.subtask,
            metrics: self.metrics,
            bytes: self.state.bytes(),
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
    failures: Failures,
    pending: BTreeMap<CheckpointId, PendingCheckpoint>,
    finalising: Option<Finalising>,
    /// Completed checkpoints, ascending by id.
    retained: Vec<CompletedCheckpoint>,
    /// What is restored as long as nothing is retained. The user's.
    origin: Option<CompletedCheckpoint>,
    ended: Ended,
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
            pending: BTreeMap::new(),
            finalising: None,
            retained,
            origin,
            ended: Ended::default(),
            store: Store::Known,
            signals: Vec::new(),
        }
    }

    /// What an attempt is restored from.
    pub(crate) fn latest(&self) -> Option<&CompletedCheckpoint> {
        self.retained.last().or(self.origin.as_ref())
    }

    /// The last id that was handed out.
    pub(crate) fn last_id(&self) -> CheckpointId {
        self.ids.last()
    }

    /// Whether no write is under way whose outcome decides what is restored.
    pub(crate) fn is_settled(&self) -> bool {
        self.finalising.is_none()
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

    /// What has to be reacted to since the last call.
    pub(crate) fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    /// Lets time pass: aborts what has expired.
    pub(crate) fn advance(&mut self, now: Now, actions: &mut Vec<JobAction>) {
        self.now = now;
        let expired: Vec<CheckpointId> = self
            .pending
            .values()
            .filter(|pending| pending.deadline().is_some_and(|at| at <= now.monotonic))
            .map(PendingCheckpoint::id)
            .collect();
        for id in expired {
            let waiting = self.pending[&id].waiting(&self.graph);
            self.abort(id, AbortReason::Expired { waiting }, actions);
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
        if let Some(request) = self.schedule.stop() {
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

    /// Takes a request for a checkpoint.
    pub(crate) fn on_requested(
        &mut self,
        request: RequestId,
        what: Request,
        actions: &mut Vec<JobAction>,
    ) {
        if !matches!(what, Request::Checkpoint { .. }) {
            refuse(request, TriggerRefusal::NoSavepointDirectory, actions);
        } else if self.attempt.is_none() {
            refuse(request, TriggerRefusal::NotRunning, actions);
        } else if !self.schedule.request(request) {
            refuse(request, TriggerRefusal::AlreadyQueued, actions);
        }
    }

    /// Triggers whatever is due and allowed.
    pub(crate) fn trigger_due(&mut self, actions: &mut Vec<JobAction>) {
        let Some(attempt) = self.attempt else {
            return;
        };
        while let Some(kind) = self.schedule.due(self.now.monotonic, self.has_room()) {
            let Some(id) = self.ids.take() else {
                self.ids.ensure(actions);
                return;
            };
            self.schedule.on_triggered(self.now.monotonic, id);
            self.trigger(attempt, id, kind, actions);
            self.ids.ensure(actions);
        }
    }

    fn trigger(
        &mut self,
        attempt: AttemptNumber,
        id: CheckpointId,
        kind: SnapshotKind,
        actions: &mut Vec<JobAction>,
    ) {
        let deadline = self.now.monotonic.after(self.settings.timeout);
        let barrier = CheckpointBarrier {
            checkpoint: id,
            kind,
            format: self.settings.format,
            location: None,
            created: self.now.wall,
        };
        let now = self.now.monotonic;
        let subtasks = &self.subtasks;
        let pending = PendingCheckpoint::new(barrier.clone(), attempt, now, deadline, subtasks);
        self.statistics.on_triggered(&pending);
        self.pending.insert(id, pending);
        actions.push(JobAction::Notify {
            attempt,
            notice: Notice::Trigger(barrier),
            to: NoticeTarget::Enumerators,
        });
    }

    /// Whether another checkpoint that isn't the final one may be under way.
    fn has_room(&self) -> bool {
        let pending = self.pending.values().map(PendingCheckpoint::kind);
        let finalising = self.finalising.iter().map(Finalising::kind);
        let limited = |kind: &SnapshotKind| *kind != SnapshotKind::Final;
        let count = pending.chain(finalising).filter(limited).count();
        count < self.settings.max_concurrent as usize
    }

    /// Takes the outcome of a reservation of ids.
    pub(crate) fn on_ids_reserved(
        &mut self,
        up_to: CheckpointId,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        let Some(cause) = self.ids.on_reserved(up_to, outcome) else {
            return;
        };
        let has_room = self.has_room();
        if self.attempt.is_none() || self.schedule.due(self.now.monotonic, has_room).is_none() {
            return;
        }
        if let Some(request) = self.schedule.on_trigger_failed(self.now.monotonic) {
            let cause = cause.clone();
            refuse(request, TriggerRefusal::NoId { cause }, actions);
        }
        let last = format!("{} failed: {cause}", StorageStep::ReserveIds);
        self.statistics.on_not_triggered(last.clone());
        actions.push(JobAction::Note(JobNote::TriggerFailed { cause }));
        let counted = self.failures.on_failed_without_id();
        self.fail_if_too_many(counted, last);
    }

    /// Takes a subtask's part of a checkpoint, from the running attempt or a dead one.
    pub(crate) fn on_acknowledged(&mut self, ack: Acknowledgement, actions: &mut Vec<JobAction>) {
        let id = ack.checkpoint;
        let snapshot = ack.snapshot(self.now.monotonic);
        let Some(pending) = self.pending.get_mut(&id) else {
            self.on_late_acknowledgement(ack, actions);
            return;
        };
        if pending.attempt != ack.attempt {
            return;
        }
        match pending.acknowledge(ack.subtask, ack.state) {
            Ack::Accepted => {
                self.statistics.on_snapshot(&snapshot);
                self.finalise_next(actions);
            }
            Ack::Duplicate => {}
            Ack::Unknown(state) => {
                discard(id, state.files().cloned().collect(), actions);
            }
        }
    }

    fn on_late_acknowledgement(&mut self, ack: Acknowledgement, actions: &mut Vec<JobAction>) {
        let id = ack.checkpoint;
        let finalising = self.finalising.as_ref().is_some_and(|f| f.id() == id);
        if finalising || self.retained.iter().any(|completed| completed.id == id) {
            return;
        }
        self.statistics
            .on_late_snapshot(&ack.snapshot(self.now.monotonic));
        if self.ended.claim_late(id, ack.subtask) {
            discard(id, ack.state.files().cloned().collect(), actions);
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
            None if self.ended.is_aborted(checkpoint) && decline_counts(&reason) => {
                self.count_failure(checkpoint, reason.to_string());
            }
            None => {}
        }
    }

    /// Aborts a pending checkpoint: discards its files, tells the subtasks, counts the failure.
    fn abort(&mut self, id: CheckpointId, reason: AbortReason, actions: &mut Vec<JobAction>) {
        let pending = self
            .pending
            .remove(&id)
            .expect("only pending checkpoints are aborted");
        let kind = pending.kind();
        let (subtasks, files) = pending.into_files();
        self.notify_aborted(id, actions);
        discard(id, files, actions);
        self.ended.abort(id, subtasks);
        self.on_aborted(id, kind, reason, actions);
    }

    /// What every abort has in common, whatever became of the files.
    fn on_aborted(
        &mut self,
        checkpoint: CheckpointId,
        kind: SnapshotKind,
        reason: AbortReason,
        actions: &mut Vec<JobAction>,
    ) {
        self.statistics
            .on_aborted(checkpoint, reason.to_string(), self.now.monotonic);
        self.schedule.on_aborted(self.now.monotonic, checkpoint);
        if reason.counts() {
            self.count_failure(checkpoint, reason.to_string());
        }
        actions.push(JobAction::Note(JobNote::CheckpointAborted {
            checkpoint,
            kind,
            reason,
        }));
    }

    fn count_failure(&mut self, checkpoint: CheckpointId, last: String) {
        let counted = self.failures.on_failed(checkpoint);
        self.fail_if_too_many(counted, format!("`{checkpoint}`: {last}"));
    }

    fn fail_if_too_many(&mut self, counted: Result<(), TooMany>, last: String) {
        if let Err(TooMany { failed, tolerable }) = counted {
            self.signals.push(Signal::Fail(FailureReason::Checkpoints {
                failed,
                tolerable,
                last,
            }));
        }
    }

    fn notify_aborted(&self, checkpoint: CheckpointId, actions: &mut Vec<JobAction>) {
        let latest_completed = self.latest().map_or(CheckpointId::NONE, |latest| latest.id);
        let notice = Notice::Aborted {
            checkpoint,
            latest_completed,
        };
        self.notify(notice, actions);
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
        expiries.chain(trigger).filter(in_future).min()
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
        let finalising = self.finalising.as_ref().map(Finalising::id);
        let newest = self.latest().map(|latest| latest.id);
        assert!(
            finalising.is_none() || newest < finalising,
            "completed ids only grow"
        );
        let oldest_pending = self.pending.keys().next().copied();
        assert!(
            oldest_pending.is_none() || newest < oldest_pending,
            "older ones are subsumed"
        );
        let limited = |pending: &&PendingCheckpoint| pending.kind() != SnapshotKind::Final;
        let under_way = self.pending.values().filter(limited).count();
        assert!(
            under_way <= self.settings.max_concurrent as usize,
            "concurrency is limited"
        );
        let in_progress = self.pending.len() + usize::from(self.finalising.is_some());
        assert_eq!(
            self.statistics.in_progress, in_progress as u64,
            "progress is counted"
        );
        assert!(self.signals.is_empty(), "signals are reacted to");
    }
}

fn refuse(request: RequestId, reason: TriggerRefusal, actions: &mut Vec<JobAction>) {
    let answer = Box::new(Answer::Refused(reason));
    actions.push(JobAction::Answer { request, answer });
}

/// Discards files of a checkpoint that has no metadata.
fn discard(checkpoint: CheckpointId, files: Vec<FileHandle>, actions: &mut Vec<JobAction>) {
    if !files.is_empty() {
        actions.push(JobAction::DiscardFiles {
            checkpoint,
            location: None,
            files,
            metadata: false,
        });
    }
}
