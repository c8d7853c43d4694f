//! From something that is due, or asked for, to barriers in the sources.
//!
//! Ordering: an id is durable before anybody hears of it; the folder of a savepoint is there before
//! any source is told. Whatever answers late finds its snapshot gone and cleans up after itself;
//! nothing that hangs keeps the next trigger from being tried.

use tidegate_types::message::{Notice, WriteOutcome};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, JobId, Owner, SnapshotFormat, SnapshotKind,
    SnapshotLocation,
};

use crate::action::{JobAction, JobNote, NoticeTarget};
use crate::failure::{AbortReason, StorageStep, TriggerRefusal};
use crate::request::{Answer, Request, RequestId};

use super::finalise::Finalising;
use super::pending::{PendingCheckpoint, Stage};
use super::queue::Queued;
use super::{CheckpointCoordinator, Signal};

/// What is triggered next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The last checkpoint of a job whose sources have ended.
    Final,
    /// The first request in the queue.
    Request,
    /// A checkpoint that the interval asks for.
    Periodic,
}

impl CheckpointCoordinator {
    /// Takes a request: answers it, or queues it.
    pub(crate) fn on_requested(
        &mut self,
        request: RequestId,
        what: Request,
        actions: &mut Vec<JobAction>,
    ) {
        let queued = match what {
            Request::Abort { checkpoint } => {
                return self.on_abort_requested(request, checkpoint, actions);
            }
            _ if !self.may_trigger() => Err(TriggerRefusal::NotRunning),
            _ if self.stops() => Err(TriggerRefusal::AlreadyQueued),
            Request::Rescale { .. } => unreachable!("that is the job's own business"),
            Request::Checkpoint { format } => self.checkpoint(Some(request), format),
            Request::Savepoint { directory } => {
                self.savepoint(request, SnapshotKind::Savepoint, directory)
            }
            Request::StopWithSavepoint { directory, drain } => self.savepoint(
                request,
                SnapshotKind::StopWithSavepoint { drain },
                directory,
            ),
        };
        match queued {
            Ok(queued) if self.queue.has_room() => self.queue.push(queued),
            Ok(_) => {
                let queued = self.queue.len();
                refuse(request, TriggerRefusal::TooManyRequests { queued }, actions);
            }
            Err(refused) => refuse(request, refused, actions),
        }
    }

    /// Takes a checkpoint soon, for the job itself.
    ///
    /// # Errors
    /// As for a request.
    pub(crate) fn request_own(&mut self) -> Result<(), TriggerRefusal> {
        if !self.may_trigger() {
            return Err(TriggerRefusal::NotRunning);
        }
        if self.stops() {
            return Err(TriggerRefusal::AlreadyQueued);
        }
        if !self.queue.has_room() {
            let queued = self.queue.len();
            return Err(TriggerRefusal::TooManyRequests { queued });
        }
        let queued = self.checkpoint(None, None)?;
        self.queue.push(queued);
        Ok(())
    }

    /// Nobody needs it any more.
    pub(crate) fn withdraw_own(&mut self) {
        self.queue.withdraw_own();
        self.own = None;
    }

    /// Whether a savepoint waits or is under way.
    pub(crate) fn has_savepoints(&self) -> bool {
        let under_way = || self.kinds_under_way().any(SnapshotKind::is_savepoint);
        self.queue.has_savepoints() || under_way()
    }

    fn checkpoint(
        &self,
        request: Option<RequestId>,
        format: Option<SnapshotFormat>,
    ) -> Result<Queued, TriggerRefusal> {
        let format = format.unwrap_or(self.settings.format);
        if format == SnapshotFormat::Canonical {
            return Err(TriggerRefusal::Format);
        }
        Ok(Queued {
            request,
            kind: SnapshotKind::Checkpoint,
            format,
            directory: None,
            deadline: self.now.monotonic.after(self.settings.timeout),
        })
    }

    fn savepoint(
        &self,
        request: RequestId,
        kind: SnapshotKind,
        directory: Option<SnapshotLocation>,
    ) -> Result<Queued, TriggerRefusal> {
        let directory = directory.or_else(|| self.settings.savepoint_dir.clone());
        if directory.is_none() {
            return Err(TriggerRefusal::NoSavepointDirectory);
        }
        Ok(Queued {
            request: Some(request),
            kind,
            format: SnapshotFormat::Canonical,
            directory,
            deadline: self.now.monotonic.after(self.settings.timeout),
        })
    }

    fn on_abort_requested(
        &mut self,
        request: RequestId,
        checkpoint: CheckpointId,
        actions: &mut Vec<JobAction>,
    ) {
        if self.pending.contains_key(&checkpoint) {
            self.abort(checkpoint, AbortReason::Requested, actions);
            answer(request, Answer::Aborted { checkpoint }, actions);
        } else {
            refuse(request, TriggerRefusal::NotPending { checkpoint }, actions);
        }
    }

    /// Triggers whatever is due and allowed.
    pub(crate) fn trigger_due(&mut self, actions: &mut Vec<JobAction>) {
        while let (Some(attempt), Some(due)) = (self.attempt, self.due()) {
            let Some(id) = self.ids.take() else {
                self.ids.ensure(actions);
                return;
            };
            let pending = self.take_up(due, attempt, id);
            self.begin(pending, actions);
            self.ids.ensure(actions);
        }
    }

    fn due(&self) -> Option<Due> {
        if !self.may_trigger() || self.is_stopping() || self.preparing_now().is_some() {
            return None;
        }
        let (now, has_room) = (self.now.monotonic, self.has_room());
        if self.schedule.final_due(now) {
            return Some(Due::Final);
        }
        if self.queue.first(has_room).is_some() {
            return Some(Due::Request);
        }
        (has_room && self.schedule.periodic_due(now)).then_some(Due::Periodic)
    }

    /// Makes a pending checkpoint of what is due.
    fn take_up(&mut self, due: Due, attempt: AttemptNumber, id: CheckpointId) -> PendingCheckpoint {
        let now = self.now.monotonic;
        let queued = match due {
            Due::Final => {
                self.schedule.on_final_triggered(id);
                None
            }
            Due::Periodic => {
                self.schedule.next_period(now);
                None
            }
            Due::Request => self.queue.pop(self.has_room()),
        };
        let folder = |queued: &Queued| {
            let directory = queued.directory.as_ref()?;
            Some(directory.child(&savepoint_name(self.job, id)))
        };
        let kind = match (&queued, due) {
            (Some(queued), _) => queued.kind,
            (None, Due::Final) => SnapshotKind::Final,
            (None, _) => SnapshotKind::Checkpoint,
        };
        let format = self.allowed(queued.as_ref().map_or(self.settings.format, |q| q.format));
        let barrier = CheckpointBarrier {
            checkpoint: id,
            kind,
            format,
            base: self.base(attempt, kind, format),
            location: queued.as_ref().and_then(folder),
            created: self.now.wall,
        };
        let deadline = now.after(self.settings.timeout);
        let mut pending = PendingCheckpoint::new(barrier, attempt, now, deadline, &self.subtasks);
        if let Some(queued) = queued {
            pending.request = queued.request;
            if queued.request.is_none() {
                self.own = Some(id);
            }
        }
        pending
    }

    /// A job that goes on from what it doesn't own must not refer to files of it: its checkpoints
    /// are full until one has completed that is its own.
    fn allowed(&self, format: SnapshotFormat) -> SnapshotFormat {
        let newest = self.retained.last();
        let owns_one = newest.is_some_and(|newest| newest.owner == Owner::Job);
        match format {
            SnapshotFormat::Incremental if !owns_one => SnapshotFormat::Full,
            format => format,
        }
    }

    fn begin(&mut self, mut pending: PendingCheckpoint, actions: &mut Vec<JobAction>) {
        let id = pending.id();
        self.statistics.on_triggered(&pending);
        match pending.barrier.location.clone() {
            Some(location) => {
                pending.stage = Stage::Preparing;
                self.preparing.insert(id, location.clone());
                actions.push(JobAction::PrepareSavepoint {
                    checkpoint: id,
                    location,
                });
            }
            None => actions.push(trigger(&pending)),
        }
        self.pending.insert(id, pending);
    }

    /// Takes the outcome of making a savepoint's folder. A folder that nobody waits for any more is
    /// removed.
    pub(crate) fn on_savepoint_prepared(
        &mut self,
        id: CheckpointId,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        let Some(location) = self.preparing.remove(&id) else {
            return;
        };
        match (self.pending.get_mut(&id), outcome) {
            (Some(pending), WriteOutcome::Done) => {
                pending.stage = Stage::Triggered;
                actions.push(trigger(pending));
                self.finalise_next(actions);
            }
            (Some(_), WriteOutcome::NotDone { cause }) => {
                self.abort(id, AbortReason::NotPrepared { cause }, actions);
            }
            (Some(_), WriteOutcome::Unknown { cause }) => {
                self.abort(id, AbortReason::NotPrepared { cause }, actions);
                self.discard(id, Some(location), Vec::new(), actions);
            }
            (None, WriteOutcome::NotDone { .. }) => {}
            (None, WriteOutcome::Done | WriteOutcome::Unknown { .. }) => {
                self.discard(id, Some(location), Vec::new(), actions);
            }
        }
    }

    /// Takes the outcome of a reservation of ids.
    pub(crate) fn on_ids_reserved(
        &mut self,
        up_to: CheckpointId,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        if let Some(cause) = self.ids.on_reserved(up_to, outcome)
            && let Some(due) = self.due()
        {
            self.on_not_triggered(due, cause, actions);
        }
    }

    /// What was due got no id: it comes to nothing, or waits for its next turn.
    fn on_not_triggered(&mut self, due: Due, cause: String, actions: &mut Vec<JobAction>) {
        let last = format!("{} failed: {cause}", StorageStep::ReserveIds);
        self.statistics.on_not_triggered(last.clone());
        actions.push(JobAction::Note(JobNote::TriggerFailed {
            cause: cause.clone(),
        }));
        let now = self.now.monotonic;
        let mut counts = true;
        match due {
            Due::Final => self.schedule.on_final_not_triggered(now),
            Due::Periodic => self.schedule.next_period(now),
            Due::Request => {
                if let Some(queued) = self.queue.pop(self.has_room()) {
                    counts = !queued.kind.is_savepoint();
                    match queued.request {
                        Some(request) => refuse(request, TriggerRefusal::NoId { cause }, actions),
                        None => self.signals.push(Signal::OwnAborted {
                            checkpoint: self.ids.last().next(),
                            reason: cause,
                        }),
                    }
                }
            }
        }
        if counts {
            let counted = self.failures.on_failed_without_id();
            self.fail_if_too_many(counted, last);
        }
    }

    /// Whether the last checkpoint of the job is durable or on its way, and it only has to end.
    pub(crate) fn is_winding_down(&self) -> bool {
        self.schedule.is_stopped() || self.stops()
    }

    /// Whether every subtask runs and the job isn't as good as over.
    fn may_trigger(&self) -> bool {
        self.attempt.is_some() && !self.schedule.is_stopped()
    }

    /// Whether a stop with savepoint waits or is under way.
    pub(crate) fn stops(&self) -> bool {
        self.queue.stops() || self.is_stopping()
    }

    /// Whether a stop with savepoint is under way. Sources emit nothing after its barrier, so
    /// nothing else is triggered.
    fn is_stopping(&self) -> bool {
        self.kinds_under_way().any(SnapshotKind::stops)
    }

    /// What is pending or being finalised.
    fn kinds_under_way(&self) -> impl Iterator<Item = SnapshotKind> {
        let pending = self.pending.values().map(PendingCheckpoint::kind);
        pending.chain(self.finalising.iter().map(Finalising::kind))
    }

    /// The savepoint whose folder is being made. Barriers must reach the sources in the order of
    /// their ids, so nothing else is triggered until its own has, or never will.
    fn preparing_now(&self) -> Option<CheckpointId> {
        let preparing = |pending: &&PendingCheckpoint| pending.stage == Stage::Preparing;
        self.pending
            .values()
            .find(preparing)
            .map(PendingCheckpoint::id)
    }

    /// How many checkpoints are under way that the limit applies to.
    pub(super) fn limited(&self) -> usize {
        let limited = |kind: &SnapshotKind| *kind == SnapshotKind::Checkpoint;
        self.kinds_under_way().filter(limited).count()
    }

    /// Whether one more checkpoint may be under way.
    pub(super) fn has_room(&self) -> bool {
        let max = self.settings.max_concurrent as usize;
        self.limited() < max && self.deletions.checkpoints() <= max
    }

    /// What keeps periodic checkpoints from being triggered at this moment, if anything does.
    pub(crate) fn held_back(&self) -> Option<TriggerRefusal> {
        let max = self.settings.max_concurrent as usize;
        let (pending, deleting) = (self.limited(), self.deletions.checkpoints());
        if !self.may_trigger() {
            Some(TriggerRefusal::NotRunning)
        } else if self.is_stopping() {
            Some(TriggerRefusal::AlreadyQueued)
        } else if let Some(savepoint) = self.preparing_now() {
            Some(TriggerRefusal::TriggerInProgress { savepoint })
        } else if !self.schedule.is_periodic() {
            Some(TriggerRefusal::PeriodicOff)
        } else if pending >= max {
            Some(TriggerRefusal::TooManyConcurrent { pending })
        } else if deleting > max {
            Some(TriggerRefusal::TooManyDeleting { deleting })
        } else {
            let left = self.schedule.pause_left(self.now.monotonic)?;
            Some(TriggerRefusal::MinPause { left })
        }
    }
}

/// The folder's name: ids are never reused within a job, and jobs are told apart by their ids.
fn savepoint_name(job: JobId, checkpoint: CheckpointId) -> String {
    let job = job.to_string();
    format!("savepoint-{}-{}", &job[..8], checkpoint.0)
}

fn trigger(pending: &PendingCheckpoint) -> JobAction {
    JobAction::Notify {
        attempt: pending.attempt,
        notice: Notice::Trigger(pending.barrier.clone()),
        to: NoticeTarget::Enumerators,
    }
}

pub(super) fn refuse(request: RequestId, reason: TriggerRefusal, actions: &mut Vec<JobAction>) {
    answer(request, Answer::Refused(reason), actions);
}

pub(crate) fn answer(request: RequestId, answer: Answer, actions: &mut Vec<JobAction>) {
    let answer = Box::new(answer);
    actions.push(JobAction::Answer { request, answer });
}
