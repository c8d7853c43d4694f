//! Background threads: snapshots are written, sealed and acknowledged here; transactions are
//! committed. One step of the simulation does one thing that a crash can come after.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_types::message::{DeclineReason, Report, SnapshotMetrics, SubtaskFailure};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, KeyGroupRange, KeyedPiece, KeyedStateHandle,
    ListState, SnapshotLocation, SubtaskId, SubtaskState,
};

use crate::external::{State, TransactionId};
use crate::invariants::Checked;
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::store::{Counts, Target, encode_counts};
use crate::topology::Kind;
use crate::trace::trace;

use super::barriers::commit_later;
use super::increments::TakenState;
use super::logic::{Frozen, Logic};
use super::subtask::{Cancelled, Subtask};
use super::{Attempt, Hands, Lane, Stop, Thread};

pub(crate) enum Task {
    Snapshot(SnapshotJob),
    Commit(Commit),
}

impl Task {
    fn subtask(&self) -> SubtaskId {
        match self {
            Task::Snapshot(job) => job.subtask,
            Task::Commit(commit) => commit.subtask,
        }
    }
}

/// How far a keyed state file has got.
enum Keyed {
    Absent,
    ToWrite(Counts),
    Writing { name: String, counts: Counts },
    Written(KeyedStateHandle),
}

/// What needs no file: because nothing has changed, or little.
fn written_at_once(
    base: &[KeyedPiece],
    changed: Option<Counts>,
    key_groups: KeyGroupRange,
    outside: &mut Outside,
) -> Keyed {
    let mut pieces = base.to_vec();
    match changed {
        Some(changed) if changed.len() <= 2 && outside.rng.chance(0.5) => {
            pieces.push(KeyedPiece::Inline(encode_counts(&changed).into()));
        }
        Some(changed) => return Keyed::ToWrite(changed),
        None => {}
    }
    Keyed::Written(KeyedStateHandle { pieces, key_groups })
}

/// One subtask's part of one checkpoint, between freezing and acknowledging.
pub(crate) struct SnapshotJob {
    subtask: SubtaskId,
    checkpoint: CheckpointId,
    location: Option<SnapshotLocation>,
    keyed: Keyed,
    /// Older pieces that it refers to.
    base: Vec<KeyedPiece>,
    taken: Rc<RefCell<TakenState>>,
    lists: Vec<ListState>,
    finished: bool,
    seals: VecDeque<TransactionId>,
    cancelled: Cancelled,
    is_sink: bool,
    key_groups: KeyGroupRange,
    hung: bool,
}

/// Commits everything of a subtask up to a checkpoint.
pub(crate) struct Commit {
    subtask: SubtaskId,
    checkpoint: CheckpointId,
    cleans_up: bool,
    due: Option<VecDeque<TransactionId>>,
    failed: Option<String>,
}

#[derive(PartialEq, Eq)]
enum Progress {
    More,
    Ended,
}

/// Makes a transaction visible, unless it is already.
pub(super) fn commit(
    id: TransactionId,
    attempt: AttemptNumber,
    outside: &mut Outside,
) -> Result<(), Stop> {
    let fails = outside.rng.chance(outside.faults.commit);
    let before = fails && outside.rng.chance(0.5);
    if !before {
        publish(id, attempt, outside)?;
    }
    match fails {
        true => Err(Stop::Failed(format!("commit of {id} failed"))),
        false => Ok(()),
    }
}

fn publish(id: TransactionId, attempt: AttemptNumber, outside: &mut Outside) -> Checked {
    let state = outside.external.state(id);
    if state == Some(State::Committed) && !outside.has(Mutation::CommitTwice) {
        return Ok(());
    }
    let invariants = &mut outside.invariants;
    invariants
        .attempts
        .on_effect(attempt, "commits a transaction")?;
    invariants.transactions.on_commit(id, state)?;
    let transaction = &outside.external.transactions[&id];
    invariants
        .output
        .on_commit(&outside.scenario, id.operator, &transaction.records)?;
    outside.external.set(id, State::Committed);
    outside.tally.commits += 1;
    trace!(outside, "{attempt} commits {id}");
    Ok(())
}

impl SnapshotJob {
    pub(super) fn new(
        subtask: &Subtask,
        barrier: CheckpointBarrier,
        frozen: Frozen,
        cancelled: Cancelled,
        outside: &mut Outside,
    ) -> Self {
        let mut base = Vec::new();
        let keyed = match frozen.keyed {
            None => Keyed::Absent,
            Some(counts) => {
                let mut taken = subtask.taken.borrow_mut();
                let changed;
                (base, changed) = taken.changes(&barrier, counts, outside);
                written_at_once(&base, changed, subtask.key_groups, outside)
            }
        };
        SnapshotJob {
            subtask: subtask.id,
            checkpoint: barrier.checkpoint,
            location: barrier.location,
            keyed,
            base,
            taken: Rc::clone(&subtask.taken),
            lists: frozen.lists,
            finished: subtask.finished,
            seals: frozen.seals,
            cancelled,
            is_sink: subtask.kind == Kind::Sink,
            key_groups: subtask.key_groups,
            hung: false,
        }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_instant(&self) -> bool {
        matches!(self.keyed, Keyed::Absent | Keyed::Written(_)) && self.seals.is_empty()
    }

    fn run(&mut self, hands: &mut Hands<'_>) -> Result<Progress, Stop> {
        if self.hung && hands.outside.rng.chance(0.95) {
            return Ok(Progress::More);
        }
        self.hung = false;
        match std::mem::replace(&mut self.keyed, Keyed::Absent) {
            Keyed::ToWrite(counts) => self.create(counts, hands),
            Keyed::Writing { name, counts } => self.finish_file(name, counts, hands),
            keyed => {
                self.keyed = keyed;
                self.seal(hands)
            }
        }
    }

    fn create(&mut self, counts: Counts, hands: &mut Hands<'_>) -> Result<Progress, Stop> {
        if self.cancelled.get() {
            return Ok(Progress::Ended);
        }
        let outside = &mut *hands.outside;
        outside
            .invariants
            .attempts
            .on_effect(hands.attempt, "writes a state file")?;
        if outside.rng.chance(outside.faults.file) {
            self.decline("creating the file failed", hands);
            return Ok(Progress::Ended);
        }
        let location = match outside.has(Mutation::SavepointInNamespace) {
            true => None,
            false => self.location.as_ref(),
        };
        let (store, savepoints) = (&mut outside.store, &outside.invariants.savepoints);
        let created = store.create(self.checkpoint, hands.attempt, location);
        let Some(name) = created else {
            savepoints.folder_missing(self.checkpoint)?;
            self.decline("the folder is gone", hands);
            return Ok(Progress::Ended);
        };
        savepoints.may_write(&name)?;
        self.keyed = Keyed::Writing { name, counts };
        Ok(Progress::More)
    }

    fn finish_file(
        &mut self,
        name: String,
        counts: Counts,
        hands: &mut Hands<'_>,
    ) -> Result<Progress, Stop> {
        let outside = &mut *hands.outside;
        if self.cancelled.get() {
            outside.store.delete(&Target::File(name));
            return Ok(Progress::Ended);
        }
        if outside.rng.chance(outside.faults.file) {
            match outside.rng.below(3) {
                0 => {
                    self.hung = true;
                    self.keyed = Keyed::Writing { name, counts };
                    return Ok(Progress::More);
                }
                // Nothing usable is left.
                1 => outside.store.delete(&Target::File(name)),
                // Done, but reported as failed: an orphan.
                _ => {
                    outside.store.finish(&name, counts);
                }
            }
            self.decline("syncing the file failed", hands);
            return Ok(Progress::Ended);
        }
        outside
            .invariants
            .attempts
            .on_effect(hands.attempt, "writes a state file")?;
        let file = outside
            .store
            .finish(&name, counts)
            .expect("a file under way is there");
        let mut pieces = self.base.clone();
        pieces.push(KeyedPiece::File(file));
        let key_groups = self.key_groups;
        self.keyed = Keyed::Written(KeyedStateHandle { pieces, key_groups });
        Ok(Progress::More)
    }

    fn seal(&mut self, hands: &mut Hands<'_>) -> Result<Progress, Stop> {
        let Some(id) = self.seals.pop_front() else {
            let lane = (Thread::Snapshots, self.subtask.index);
            self.acknowledge(lane, hands);
            return Ok(Progress::Ended);
        };
        let outside = &mut *hands.outside;
        match outside.external.state(id) {
            Some(State::Written) if outside.rng.chance(outside.faults.seal) => {
                outside.external.set(id, State::Spoilt);
            }
            Some(State::Written) => {
                outside
                    .invariants
                    .attempts
                    .on_effect(hands.attempt, "seals a transaction")?;
                outside.external.set(id, State::Sealed);
            }
            _ => {}
        }
        if matches!(
            outside.external.state(id),
            Some(State::Sealed | State::Committed)
        ) {
            return Ok(Progress::More);
        }
        if let Keyed::Written(handle) = &self.keyed {
            let old: Vec<_> = self.base.iter().filter_map(KeyedPiece::file).collect();
            for file in handle.files().filter(|file| !old.contains(file)) {
                outside.store.delete(&Target::File(file.name.clone()));
            }
        }
        self.decline("sealing failed", hands);
        if !hands.outside.has(Mutation::SpoiltForEver) {
            // The transaction is part of every later snapshot, and can't be trusted any more: only
            // the next attempt can write its records anew.
            let (subtask, cause) = (Some(self.subtask), format!("{id} is spoilt"));
            let lane = (Thread::Snapshots, self.subtask.index);
            hands.report(lane, Report::Failed(SubtaskFailure::here(subtask, cause)));
        }
        Ok(Progress::Ended)
    }

    fn decline(&self, cause: &str, hands: &mut Hands<'_>) {
        if self.cancelled.get() {
            return;
        }
        let (checkpoint, subtask) = (self.checkpoint, self.subtask);
        trace!(
            hands.outside,
            "{} {subtask} declines {checkpoint}: {cause}", hands.attempt
        );
        let reason = DeclineReason::WriteFailed {
            cause: cause.to_owned(),
        };
        let lane = (Thread::Snapshots, subtask.index);
        hands.report(
            lane,
            Report::Declined {
                checkpoint,
                subtask,
                reason,
            },
        );
    }

    pub(super) fn acknowledge(&mut self, lane: Lane, hands: &mut Hands<'_>) {
        let (checkpoint, subtask) = (self.checkpoint, self.subtask);
        let keyed = match std::mem::replace(&mut self.keyed, Keyed::Absent) {
            Keyed::Written(handle) => {
                self.taken.borrow_mut().acknowledged(checkpoint, &handle);
                Some(handle)
            }
            _ => None,
        };
        let lists = std::mem::take(&mut self.lists);
        let state = SubtaskState {
            keyed,
            lists,
            finished: self.finished,
        };
        let metrics = SnapshotMetrics::default();
        hands.report(
            lane,
            Report::Acknowledged {
                checkpoint,
                subtask,
                state,
                metrics,
            },
        );
        if self.is_sink && hands.outside.has(Mutation::CommitOnAck) {
            commit_later(subtask, checkpoint, false, hands);
        }
    }
}

impl Commit {
    pub(super) fn new(subtask: SubtaskId, checkpoint: CheckpointId, cleans_up: bool) -> Self {
        Commit {
            subtask,
            checkpoint,
            cleans_up,
            due: None,
            failed: None,
        }
    }

    fn run(&mut self, sink: &mut Subtask, hands: &mut Hands<'_>) -> Result<Progress, Stop> {
        let Some(Logic::Sink(sink)) = sink.logic() else {
            return Ok(Progress::Ended);
        };
        let checkpoint = self.checkpoint;
        let everything = hands.outside.has(Mutation::StaleNotice);
        let is_due = |id: &&TransactionId| everything || id.checkpoint <= checkpoint;
        let due = self
            .due
            .get_or_insert_with(|| sink.pending.iter().filter(is_due).copied().collect());
        if hands.outside.has(Mutation::CommitReportedEarly) {
            due.clear();
        }
        if let Some(id) = due.pop_front() {
            match commit(id, hands.attempt, hands.outside) {
                Err(Stop::Failed(cause)) => self.failed = Some(cause),
                outcome => outcome?,
            }
            return Ok(Progress::More);
        }
        let (subtask, lane) = (self.subtask, (Thread::Commits, self.subtask.index));
        if let Some(cause) = self.failed.take() {
            trace!(hands.outside, "{} {subtask} fails: {cause}", hands.attempt);
            let subtask = Some(subtask);
            hands.report(lane, Report::Failed(SubtaskFailure::here(subtask, cause)));
            return Ok(Progress::Ended);
        }
        sink.pending.retain(|id| id.checkpoint > checkpoint);
        if self.cleans_up {
            clean_up(subtask, hands)?;
        }
        hands.report(
            lane,
            Report::Committed {
                checkpoint,
                subtask,
            },
        );
        Ok(Progress::Ended)
    }
}

/// Removes what earlier attempts have left at this sink.
fn clean_up(subtask: SubtaskId, hands: &mut Hands<'_>) -> Checked {
    let Outside {
        external,
        invariants,
        store,
        ..
    } = hands.outside;
    for id in external.leftovers(store.namespace, hands.attempt) {
        if id.operator == subtask.operator.0 {
            invariants.transactions.on_discard(id, store)?;
            external.transactions.remove(&id);
        }
    }
    Ok(())
}

impl Attempt {
    /// One step of a background thread.
    pub(crate) fn work_in_background(&mut self, lane: Lane, outside: &mut Outside) -> Checked {
        let Some(mut task) = self.tasks.get_mut(&lane).and_then(VecDeque::pop_front) else {
            return Ok(());
        };
        if outside.subtask_dies() {
            // Whatever the thread was doing is left as it is.
            let subtask = task.subtask();
            let at = self.subtasks.iter().position(|other| other.id == subtask);
            self.fail(
                at.expect("tasks are of subtasks"),
                "killed".to_owned(),
                outside,
            );
            return Ok(());
        }
        let (subtasks, mut hands) = self.subtasks_and_hands(outside);
        let progress = match &mut task {
            Task::Snapshot(job) => job.run(&mut hands),
            Task::Commit(commit) => {
                let sink = subtasks
                    .iter_mut()
                    .find(|subtask| subtask.id == commit.subtask);
                commit.run(
                    sink.expect("a commit is of one of its subtasks"),
                    &mut hands,
                )
            }
        };
        match progress {
            Ok(Progress::More) => self.tasks.entry(lane).or_default().push_front(task),
            Ok(Progress::Ended) => {}
            Err(Stop::Violated(violation)) => return Err(violation),
            Err(Stop::Failed(cause)) => unreachable!("background work reports failures: {cause}"),
        }
        Ok(())
    }
}
