//! One process of the simulated job: the real coordinator, the driver around it, and whatever
//! dies with them.
//!
//! The driver is as dull as the real one: actions are issued in order, storage calls run side by
//! side, whatever reports back does so exactly once. It stands still now and then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_coordinator::{JobAction, JobEnd, JobEvent, JobNote};
use tidegate_types::graph::JobGraph;
use tidegate_types::message::{AddressedReport, Notice, Report};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, RestorePlan, SnapshotKind,
};

use crate::attempt::{Attempt, Lane, Stopping, Stream};
use crate::core::Core;
use crate::invariants::{
    Checked, Watch, deletions_keep_up, ensure, no_busy_waiting, not_there, nothing_after_the_end,
    restored, stop_is_recorded,
};
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::storage::{Deletion, Op, Write};
use crate::store::{Pointer, shared_with_later};
use crate::trace::trace;

pub(crate) struct Process {
    pub(crate) core: Core,
    graph: JobGraph,
    pub(crate) attempt: Option<Attempt>,
    /// Attempts that count as stopped, but aren't: only with a bug put in.
    pub(crate) zombies: Vec<Attempt>,
    /// Reports on their way, in order per thread.
    pub(crate) reports: BTreeMap<(AttemptNumber, Lane), VecDeque<Report>>,
    /// Reports that will arrive a second time.
    pub(crate) echoes: Vec<AddressedReport>,
    /// What the driver will tell the job next.
    pub(crate) answers: VecDeque<JobEvent>,
    pub(crate) ops: Vec<Op>,
    /// Writes of unknown outcome that may still come to pass.
    pub(crate) late: Vec<Write>,
    /// Steps for which the driver stands still.
    pub(crate) asleep: u64,
    pub(crate) end: Option<JobEnd>,
    pub(crate) watch: Watch,
    /// Attempts up to this one were of other processes.
    before: AttemptNumber,
    /// It dies before it does anything else.
    pub(crate) doomed: bool,
    /// Notices of a former attempt that would be lost with it.
    stale: Vec<Notice>,
}

impl Process {
    pub(crate) fn new(core: Core, graph: JobGraph, outside: &Outside) -> Self {
        Process {
            core,
            graph,
            attempt: None,
            zombies: Vec::new(),
            reports: BTreeMap::new(),
            echoes: Vec::new(),
            answers: VecDeque::new(),
            ops: Vec::new(),
            late: Vec::new(),
            asleep: 0,
            end: None,
            watch: Watch::new(outside.scenario.settings.clone()),
            before: AttemptNumber(outside.store.attempts_reserved),
            doomed: false,
            stale: Vec::new(),
        }
    }

    /// Tells the job something and carries out what it says.
    pub(crate) fn feed(&mut self, event: JobEvent, outside: &mut Outside) -> Checked {
        if self.end.is_some() || self.dies(outside) {
            return Ok(());
        }
        let foreign = |report: &AddressedReport| report.attempt <= self.before;
        if !matches!(&event, JobEvent::Report(report) if foreign(report)) {
            self.watch.on_event(&event);
        }
        let now = outside.clocks();
        let mut actions = Vec::new();
        self.core.step(now, event.clone(), &mut actions);
        self.watch.on_actions(&event, &actions)?;
        self.core.job.check_invariants();
        no_busy_waiting(&self.core.job, now)?;
        for action in actions {
            let over = self.end.is_some();
            ensure(!over, "ends", || format!("{action:?} follows the end"))?;
            if self.dies(outside) {
                return Ok(());
            }
            self.watch.on_action(&action, now, &outside.store)?;
            outside.invariants.parallelism.on_action(&action)?;
            self.perform(action, outside)?;
        }
        match self.end {
            None => self.watch.after_step(&outside.store),
            Some(_) => Ok(()),
        }
    }

    fn dies(&mut self, outside: &mut Outside) -> bool {
        self.doomed |= outside.process_dies();
        self.doomed
    }

    fn perform(&mut self, action: JobAction, outside: &mut Outside) -> Checked {
        match action {
            JobAction::DropCompleted { checkpoint, spared } => {
                self.drop_completed(&checkpoint, spared, outside);
            }
            JobAction::DiscardHistory(completed) => {
                let newest = completed.last().map(|newest| newest.id);
                outside.store.discarded = outside.store.discarded.max(newest);
                let each = completed.iter().enumerate().map(|(index, checkpoint)| {
                    let spared = shared_with_later(&completed[index..]);
                    trace!(outside, "discard {}", checkpoint.id);
                    mutated(
                        Deletion::completed(checkpoint, &spared),
                        checkpoint,
                        outside,
                    )
                });
                if let Some(all) = each.reduce(Deletion::then) {
                    self.delete(all, outside);
                }
            }
            JobAction::DiscardFiles {
                checkpoint,
                location,
                files,
                metadata,
            } => {
                trace!(outside, "discard {} files of {checkpoint}", files.len());
                if location.is_some() {
                    outside.invariants.savepoints.on_discard(checkpoint);
                }
                if outside.has(Mutation::DiscardIgnored) {
                    self.answers.push_back(JobEvent::Deleted { checkpoint });
                } else {
                    let of = (checkpoint, location);
                    self.delete(Deletion::discarded(of, files, metadata), outside);
                }
            }
            JobAction::Notify {
                attempt, notice, ..
            } => self.notify(attempt, notice, outside)?,
            JobAction::StartAttempt {
                attempt,
                restore,
                plan,
                ..
            } => self.start(attempt, restore, &plan, outside)?,
            JobAction::StopAttempt { attempt } => self.stop(attempt, outside),
            JobAction::Answer { request, answer } => {
                trace!(outside, "{request} is answered: {answer:?}");
                outside.invariants.savepoints.on_answer(&answer)?;
                stop_is_recorded(&answer, &outside.store)?;
                outside.tally.answers += 1;
            }
            JobAction::Note(note) => self.on_note(&note, outside)?,
            JobAction::End(end) => {
                trace!(outside, "the job ends: {end:?}");
                let newest = AttemptNumber(outside.store.attempts_reserved);
                nothing_after_the_end(&mut self.core.job, outside.clocks(), newest)?;
                self.end = Some(end);
            }
            action => self.write(action, outside)?,
        }
        Ok(())
    }

    /// Issues a write, or a read, whose outcome the job waits for.
    fn write(&mut self, action: JobAction, outside: &mut Outside) -> Checked {
        let write = match action {
            JobAction::ReserveAttempt => Write::Attempt,
            JobAction::ReserveIds { up_to } => Write::Ids(up_to),
            JobAction::PublishMetadata(checkpoint) => {
                trace!(outside, "publish {}", checkpoint.id);
                Write::Metadata(checkpoint)
            }
            JobAction::PrepareSavepoint {
                checkpoint,
                location,
            } => Write::Folder(checkpoint, location),
            JobAction::StorePointer {
                checkpoint,
                location,
                owner,
            } => {
                if outside.has(Mutation::DropBeforePointer)
                    && let Some(latest) = self.core.job.latest_completed()
                {
                    let deletion = Deletion::completed(latest, &[]).unasked();
                    self.ops.push(Op::Delete(deletion));
                }
                Write::Pointer(checkpoint, Pointer { location, owner })
            }
            JobAction::MarkFinished { checkpoint } => {
                let last = outside.store.completed(checkpoint);
                let last = last.ok_or_else(|| not_there(checkpoint))?;
                outside.invariants.output.on_last(last);
                Write::Finished(checkpoint)
            }
            JobAction::RecordParallelism { asked } => Write::Parallelism(asked, None),
            JobAction::RecordEnd { end } => Write::End(end),
            JobAction::RecoverCompleted => {
                self.ops.push(Op::Recover(None));
                return Ok(());
            }
            other => unreachable!("{other:?} is no write"),
        };
        self.ops.push(Op::Write(write));
        Ok(())
    }

    fn drop_completed(
        &mut self,
        checkpoint: &CompletedCheckpoint,
        mut spared: Vec<FileHandle>,
        outside: &mut Outside,
    ) {
        trace!(outside, "drop {} sparing {}", checkpoint.id, spared.len());
        match outside.mutation {
            Some(Mutation::SharedFileDeleted) => spared.clear(),
            Some(Mutation::BaseNotHeld) => {
                let store = &outside.store;
                let others = store.pointers.keys().filter(|id| **id != checkpoint.id);
                let needed: BTreeSet<&FileHandle> = others
                    .filter_map(|id| store.completed(*id))
                    .flat_map(CompletedCheckpoint::files)
                    .collect();
                spared.retain(|file| needed.contains(file));
            }
            _ => {}
        }
        let deletion = Deletion::completed(checkpoint, &spared);
        self.delete(mutated(deletion, checkpoint, outside), outside);
    }

    fn delete(&mut self, deletion: Deletion, outside: &Outside) {
        let deletion = match outside.has(Mutation::DeletionsUnawaited) {
            true => {
                let checkpoint = deletion.of;
                self.answers.push_back(JobEvent::Deleted { checkpoint });
                deletion.unasked()
            }
            false => deletion,
        };
        self.ops.push(Op::Delete(deletion));
    }

    /// Checkpoints whose files are being deleted.
    fn deleting(&self) -> BTreeSet<CheckpointId> {
        let of = |op: &Op| match op {
            Op::Delete(deletion) => Some(deletion.of),
            _ => None,
        };
        self.ops.iter().filter_map(of).collect()
    }

    fn notify(&mut self, attempt: AttemptNumber, notice: Notice, outside: &mut Outside) -> Checked {
        trace!(outside, "notify {attempt}: {}", short(&notice));
        match &notice {
            Notice::Trigger(barrier) => {
                outside
                    .invariants
                    .ids
                    .on_triggered(barrier.checkpoint, attempt)?;
                let announced = &mut outside.invariants.announced;
                announced.on_triggered(barrier.checkpoint, attempt);
                if barrier.kind == SnapshotKind::Checkpoint {
                    let max = outside.scenario.settings.checkpoints.max_concurrent;
                    deletions_keep_up(&self.deleting(), max)?;
                }
            }
            Notice::Completed { checkpoint } => {
                outside
                    .invariants
                    .announced
                    .on_completed(*checkpoint, attempt, &outside.store)?;
                outside.tally.completed += 1;
            }
            Notice::Aborted { .. } => {}
        }
        if let Some(running) = self
            .attempt
            .as_mut()
            .filter(|running| running.number == attempt)
        {
            running.notify(notice);
        }
        Ok(())
    }

    fn start(
        &mut self,
        number: AttemptNumber,
        restore: Option<CheckpointId>,
        plan: &RestorePlan,
        outside: &mut Outside,
    ) -> Checked {
        let graph = JobGraph::clone(self.core.job.graph());
        outside.tally.rescales += u64::from(graph != self.graph);
        self.graph = graph;
        trace!(outside, "start {number} from {restore:?}");
        outside.invariants.attempts.on_start(number)?;
        outside.invariants.announced.on_restore(restore)?;
        if let Some(id) = restore {
            let latest = outside.store.latest().filter(|latest| latest.id == id);
            let latest = latest.ok_or_else(|| not_there(id))?;
            restored(latest, plan, &self.graph)?;
        }
        outside.tally.attempts += 1;
        if outside.rng.chance(outside.faults.launch) {
            let cause = "injected".to_owned();
            self.answers.push_back(JobEvent::AttemptLaunchFailed {
                attempt: number,
                cause,
            });
            return Ok(());
        }
        let mut attempt = Attempt::new(number, &self.graph, plan, outside);
        if outside.has(Mutation::StaleNotice) {
            self.stale
                .drain(..)
                .for_each(|notice| attempt.notify(notice));
        }
        self.attempt = Some(attempt);
        Ok(())
    }

    fn stop(&mut self, number: AttemptNumber, outside: &mut Outside) {
        trace!(outside, "stop {number}");
        match self.attempt.take() {
            Some(mut zombie) if outside.has(Mutation::StopWithoutJoin) => {
                zombie.stopping = Stopping::Draining;
                self.zombies.push(zombie);
            }
            Some(mut attempt) => {
                attempt.stopping = Stopping::Asked;
                self.attempt = Some(attempt);
                return;
            }
            None => {}
        }
        self.answers
            .push_back(JobEvent::AttemptStopped { attempt: number });
        outside.invariants.attempts.on_stopped();
    }

    /// The last thread of the attempt has ended.
    pub(crate) fn on_gone(&mut self, outside: &mut Outside) {
        if let Some(attempt) = self.attempt.take() {
            let attempt = attempt.number;
            trace!(outside, "{attempt} has stopped");
            outside.invariants.attempts.on_stopped();
            self.answers.push_back(JobEvent::AttemptStopped { attempt });
        }
    }

    /// The workers notice that they are to stop.
    pub(crate) fn on_stop_seen(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            self.stale = attempt.undelivered();
            attempt.stopping = Stopping::Draining;
        }
    }

    /// Takes what subtasks have reported.
    pub(crate) fn collect_reports(&mut self, outside: &mut Outside) {
        let Process {
            attempt,
            zombies,
            reports,
            ..
        } = self;
        for attempt in attempt.iter_mut().chain(zombies) {
            let is_lost = attempt.stream == Stream::Lost;
            for (lane, report) in attempt.reports.drain(..).filter(|_| !is_lost) {
                outside.trace.mix(u64::from(lane.1));
                reports
                    .entry((attempt.number, lane))
                    .or_default()
                    .push_back(report);
            }
        }
    }

    /// The stream to the subtasks breaks: what is on it gets lost from some point on, in both
    /// directions, and the attempt can't go on.
    pub(crate) fn lose_stream(&mut self, outside: &mut Outside) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        let number = attempt.number;
        trace!(outside, "{number} loses its stream");
        attempt.disconnect(outside);
        self.reports.retain(|(of, _), queue| {
            if *of == number {
                queue.truncate(outside.rng.below(queue.len() + 1));
            }
            !queue.is_empty()
        });
        let failure = tidegate_types::message::SubtaskFailure::here(None, "the stream broke");
        let report = AddressedReport {
            attempt: number,
            report: Report::Failed(failure),
        };
        self.answers.push_back(JobEvent::Report(report));
    }

    fn on_note(&mut self, note: &JobNote, outside: &mut Outside) -> Checked {
        match note {
            JobNote::CheckpointAborted {
                checkpoint, reason, ..
            } => {
                outside.tally.aborted += 1;
                trace!(outside, "{checkpoint} is aborted: {reason}");
            }
            JobNote::AttemptFailed {
                attempt,
                reason,
                decision,
            } => {
                trace!(outside, "{attempt:?} failed: {reason}; {decision:?}");
            }
            JobNote::Rescaling { from, to, reason } => {
                trace!(outside, "rescaling from {from} to {to} {reason}");
            }
            JobNote::Rescaled(rescaled) => trace!(outside, "{rescaled:?}"),
            JobNote::NotRescaled { cause } => trace!(outside, "not rescaled: {cause}"),
            JobNote::EndNotRecorded { cause } => trace!(outside, "end not recorded: {cause}"),
            JobNote::ParallelismForgotten(asked) => trace!(outside, "forgotten: {asked:?}"),
            JobNote::ParallelismNotRecorded { cause } => trace!(outside, "not recorded: {cause}"),
            JobNote::TriggerFailed { cause } => trace!(outside, "no trigger: {cause}"),
            JobNote::CheckpointCompleted {
                checkpoint, kind, ..
            } if kind.is_savepoint() => {
                trace!(outside, "{checkpoint} is complete: {kind:?}");
                outside.tally.savepoints += 1;
                let store = &outside.store;
                let of = |snapshot: &&CompletedCheckpoint| {
                    (snapshot.job, snapshot.id) == (store.job(), *checkpoint)
                };
                let location = store.elsewhere.values().find(of);
                let location = location.and_then(|found| found.location.clone());
                let location = location.ok_or_else(|| not_there(*checkpoint))?;
                outside.invariants.savepoints.keep(location, store)?;
            }
            JobNote::CheckpointCompleted { .. } => {}
        }
        Ok(())
    }

    /// Whether somebody may wait for a message that never comes.
    pub(crate) fn is_damaged(&self) -> bool {
        let attempt = self.attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.stream == Stream::Damaged)
    }

    /// The next report of a thread arrives, or another one in its place, or none.
    pub(crate) fn take_report(
        &mut self,
        (attempt, lane): (AttemptNumber, Lane),
        outside: &mut Outside,
    ) -> Option<AddressedReport> {
        let Outside { rng, faults, .. } = outside;
        let queue = self.reports.get_mut(&(attempt, lane))?;
        let reordered = queue.len() > 1 && rng.chance(faults.reorder_report);
        if reordered {
            let later = rng.below(queue.len());
            queue.swap(0, later);
        }
        let report = queue.pop_front()?;
        if queue.is_empty() {
            self.reports.remove(&(attempt, lane));
        }
        let lost = rng.chance(faults.lose_report);
        let running = self
            .attempt
            .as_mut()
            .filter(|running| running.number == attempt);
        if let Some(running) = running.filter(|_| reordered || lost) {
            running.damage(outside);
        }
        if lost {
            trace!(outside, "a report of {attempt} is lost: {}", name(&report));
            return None;
        }
        let report = AddressedReport { attempt, report };
        if outside.rng.chance(outside.faults.duplicate_report) {
            self.echoes.push(report.clone());
        }
        Some(report)
    }

    /// All threads of the attempt end by themselves.
    pub(crate) fn stop_silently(&mut self, outside: &mut Outside) {
        if let Some(attempt) = &mut self.attempt {
            trace!(outside, "{} stops silently", attempt.number);
            attempt.stopping = Stopping::Draining;
        }
    }

    pub(crate) fn describe(&self) -> String {
        let attempt = self.attempt.as_ref().map(Attempt::describe);
        let end = &self.end;
        format!("end {end:?}, {} ops, attempt {attempt:?}", self.ops.len())
    }
}

fn name(report: &Report) -> &'static str {
    match report {
        Report::Running { .. } => "running",
        Report::Acknowledged { .. } => "acknowledged",
        Report::Declined { .. } => "declined",
        Report::SourceEnded { .. } => "source ended",
        Report::Committed { .. } => "committed",
        Report::Restored(_) => "restored",
        Report::Failed(_) => "failed",
    }
}

fn short(notice: &Notice) -> String {
    match notice {
        Notice::Trigger(barrier) => format!("trigger {} {:?}", barrier.checkpoint, barrier.kind),
        Notice::Completed { checkpoint } => format!("{checkpoint} is completed"),
        Notice::Aborted { checkpoint, .. } => format!("{checkpoint} is aborted"),
    }
}

/// What a bug makes of it.
fn mutated(deletion: Deletion, of: &CompletedCheckpoint, outside: &Outside) -> Deletion {
    match outside.mutation {
        Some(Mutation::FilesBeforePointer) => deletion.reversed(),
        Some(Mutation::ClaimedIsKept) if of.location.is_some() => deletion.pointer_only(),
        _ => deletion,
    }
}
