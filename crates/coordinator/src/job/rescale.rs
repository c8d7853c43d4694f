//! How parallel a job is, how parallel it should be, and how it gets from one to the other.
//!
//! A job is rescaled by a restart that is no failure: a checkpoint is taken, the attempt is
//! stopped, and the next one restores that checkpoint at another scale. Until the checkpoint has
//! completed nothing has changed, so a rescale that doesn't come about costs nothing. There are
//! three reasons: somebody asks for it; there are fewer slots than the job wants, and it may run
//! with fewer; or the missing slots are back. The latter two wait until the number of slots has
//! been what it is for a while (Flink's adaptive scheduler, and its stabilization timeout): a
//! TaskManager that is started again soon costs no rescale.
//!
//! Invariant: an attempt has one scale, from its start to its end.

use std::sync::Arc;

use tidegate_types::graph::JobGraph;
use tidegate_types::{CheckpointId, Millis, RestorePlan, Scale, Scaling};

use crate::action::{JobAction, JobNote};
use crate::checkpoint::answer;
use crate::failure::{RescaleReason, RescaleRefusal};
use crate::lifecycle::{Attempt, Next, Phase, Threads};
use crate::request::{Answer, RequestId, Rescaled};
use crate::restore::{RestoreError, plan_restore};
use crate::settings::ElasticSettings;

use super::Job;

/// What a job knows of its own size.
#[derive(Debug)]
pub(super) struct Elastic {
    scaling: Scaling,
    settings: ElasticSettings,
    /// Of the attempt that runs, or of the next one.
    scale: Scale,
    /// `None` as long as nobody has said that they are limited.
    slots: Option<Slots>,
    rescaling: Option<Rescaling>,
    /// What the first attempt has instead of the scale that the job was started with.
    recorded: Option<Scale>,
    /// What failed is not tried again by itself before this moment.
    quiet_until: Millis,
    /// Why the next attempt has another scale, unless it is being rescaled.
    because: RescaleReason,
}

/// The slots that attempts may use.
#[derive(Clone, Copy, Debug)]
struct Slots {
    count: u32,
    since: Millis,
    /// If some have gone since the attempt was begun: the fewest that there were.
    fewest: Option<u32>,
    /// How many of them the job would use.
    usable: u32,
}

#[derive(Debug)]
struct Rescaling {
    /// `None` if the job does it by itself.
    request: Option<RequestId>,
    reason: RescaleReason,
    /// The largest parallelism before.
    from: u32,
    before: Scale,
    to: Scale,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A checkpoint above this one is to complete.
    Checkpointing {
        above: CheckpointId,
        deadline: Millis,
    },
    /// No attempt has run at full since this moment.
    Restarting { since: Millis },
}

impl Elastic {
    pub(super) fn new(scaling: Scaling, settings: ElasticSettings) -> Self {
        Elastic {
            scaling,
            settings,
            scale: Scale::default(),
            slots: None,
            rescaling: None,
            recorded: None,
            quiet_until: Millis::default(),
            because: RescaleReason::Slots,
        }
    }

    /// Before the first attempt: what scales, and how large it was the last time.
    pub(super) fn begin(&mut self, scaling: Scaling, recorded: Option<Scale>) {
        self.scaling = scaling;
        self.recorded = recorded;
    }

    pub(super) fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    pub(super) fn scale(&self) -> Scale {
        self.scale
    }

    fn is_checkpointing(&self) -> bool {
        self.checkpoint_deadline().is_some()
    }

    /// Whether the attempt is the first at its scale, and has not run at full.
    pub(super) fn is_untried(&self) -> bool {
        self.rescaling.is_some() && !self.is_checkpointing()
    }

    /// Until when the checkpoint must have completed that a rescale waits for.
    fn checkpoint_deadline(&self) -> Option<Millis> {
        match self.rescaling.as_ref()?.stage {
            Stage::Checkpointing { deadline, .. } => Some(deadline),
            Stage::Restarting { .. } => None,
        }
    }

    /// The scale for so many slots, if the job may run with them.
    fn with_slots(&self, slots: u32) -> Option<Scale> {
        let scale = Scale {
            at_most: Some(slots),
            ..self.scale
        };
        (slots >= self.settings.parallelism_min?).then_some(scale)
    }

    /// The scale that the number of slots suggests, and from when on it may be believed. `None` if
    /// slots are no matter.
    fn suggested(&self) -> Option<(Scale, Millis)> {
        let slots = self.slots?;
        let believed = slots.since.after(self.settings.stabilization_timeout);
        Some((self.with_slots(slots.count)?, believed))
    }

    /// The scale that an attempt should rather have, and from when on.
    fn better(&self, attempt: &Attempt, workers: u32) -> Option<(Scale, Millis)> {
        let slots = self.slots?;
        let waited = attempt.since.after(self.settings.stabilization_timeout);
        if attempt.runs() {
            let (scale, believed) = self.suggested()?;
            let grows = slots.usable > workers && self.rescaling.is_none();
            return grows.then(|| (scale, believed.max(waited).max(self.quiet_until)));
        }
        if slots.count >= workers {
            return None;
        }
        // It waits for slots that may never be there. Some that come and go are as good as none.
        let (scale, believed) = match slots.fewest.and_then(|fewest| self.with_slots(fewest)) {
            Some(scale) => (scale, waited),
            None => self.suggested()?,
        };
        Some((scale, believed.max(waited)))
    }

    /// An attempt is begun.
    fn count_from_here(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.fewest = None;
        }
    }
}

impl Job {
    /// Somebody asks for another parallelism.
    pub(super) fn on_rescale_requested(
        &mut self,
        request: RequestId,
        parallelism: u32,
        actions: &mut Vec<JobAction>,
    ) {
        let to = Scale {
            parallelism: Some(parallelism),
            at_most: None,
        };
        let refusal = match parallelism {
            0 => Some(RescaleRefusal::Zero),
            _ => self.rescale_refusal(to),
        };
        if let Some(refusal) = refusal {
            return refuse(request, refusal, actions);
        }
        let from = self.graph.parallelism_max();
        if self.graph_at(to) == *self.graph {
            self.elastic.scale = to;
            self.count_usable_slots();
            let rescaled = Rescaled {
                from,
                to: from,
                ..Rescaled::default()
            };
            return self.record_parallelism(request, rescaled, actions);
        }
        self.begin_rescale(Some(request), RescaleReason::Requested, to, actions);
    }

    fn rescale_refusal(&self, to: Scale) -> Option<RescaleRefusal> {
        let runs = matches!(&self.phase, Phase::Active(attempt) if attempt.runs());
        if !runs {
            return Some(RescaleRefusal::NotRunning);
        }
        if self.elastic.rescaling.is_some() || self.record.is_being_written() {
            return Some(RescaleRefusal::AlreadyRescaling);
        }
        let graph = self.graph_at(to);
        if let Some(refusal) = self.too_few_slots(graph.parallelism_max()) {
            return Some(refusal);
        }
        let unfit = |cause: &dyn std::error::Error| RescaleRefusal::Unfit {
            cause: tidegate_types::ErrorChain(cause).to_string(),
        };
        if let Err(cause) = graph.validate() {
            return Some(unfit(&cause));
        }
        let latest = self.checkpoints.latest();
        let planned = plan_restore(&graph, latest, self.allow_non_restored_state);
        planned.err().map(|cause| unfit(&cause))
    }

    /// The job would stand still until there are more.
    fn too_few_slots(&self, needed: u32) -> Option<RescaleRefusal> {
        let slots = self.elastic.slots?.count;
        (slots < needed).then_some(RescaleRefusal::TooFewSlots { needed, slots })
    }

    fn graph_at(&self, scale: Scale) -> JobGraph {
        self.elastic.scaling.apply(&self.graph, scale)
    }

    fn begin_rescale(
        &mut self,
        request: Option<RequestId>,
        reason: RescaleReason,
        to: Scale,
        actions: &mut Vec<JobAction>,
    ) {
        let above = self.checkpoints.last_id();
        let (from, now) = (self.graph.parallelism_max(), self.now.monotonic);
        let deadline = now.after(self.checkpoints.timeout());
        self.elastic.rescaling = Some(Rescaling {
            request,
            reason,
            from,
            before: self.elastic.scale,
            to,
            stage: Stage::Checkpointing { above, deadline },
        });
        if let Err(refusal) = self.checkpoints.request_own() {
            let cause = refusal.to_string();
            self.not_rescaled(RescaleRefusal::NoCheckpoint { cause }, actions);
        }
    }

    /// A checkpoint has completed: if it is the one that a rescale waits for, the attempt makes
    /// room for the next.
    pub(super) fn rescale_if_checkpointed(&mut self, actions: &mut Vec<JobAction>) {
        let Some(rescaling) = &self.elastic.rescaling else {
            return;
        };
        let Stage::Checkpointing { above, .. } = rescaling.stage else {
            return;
        };
        let latest = self.checkpoints.latest().map(|latest| latest.id);
        let Phase::Active(attempt) = &self.phase else {
            return;
        };
        if latest <= Some(above) {
            return;
        }
        if self.checkpoints.stops() {
            return self.not_rescaled(RescaleRefusal::Stopping, actions);
        }
        if let Some(refusal) = self.too_few_slots(self.graph_at(rescaling.to).parallelism_max()) {
            return self.not_rescaled(refusal, actions);
        }
        // Nobody has asked for a rescale, but somebody for that.
        if rescaling.reason == RescaleReason::Slots && self.checkpoints.has_savepoints() {
            return;
        }
        let number = attempt.number;
        let next = Next::Restart {
            at: self.now.monotonic,
        };
        self.stop_attempt(number, Threads::Running, next, actions);
    }

    /// The checkpoint that was taken for a rescale has come to nothing.
    pub(super) fn on_own_aborted(
        &mut self,
        checkpoint: CheckpointId,
        reason: &str,
        actions: &mut Vec<JobAction>,
    ) {
        if self.elastic.is_checkpointing() {
            let cause = format!("`{checkpoint}` failed: {reason}");
            self.not_rescaled(RescaleRefusal::NoCheckpoint { cause }, actions);
        }
    }

    /// The attempt stops and another follows, which has the new scale; unless there is no room for
    /// it any more, or this attempt had it and never ran: then the job goes back.
    pub(super) fn note_restart(&mut self, actions: &mut Vec<JobAction>) {
        let Some(rescaling) = &self.elastic.rescaling else {
            return;
        };
        let (before, needed) = (
            rescaling.before,
            self.graph_at(rescaling.to).parallelism_max(),
        );
        let too_few = self.too_few_slots(needed);
        if self.elastic.is_untried() {
            let refusal = too_few.unwrap_or(RescaleRefusal::DidNotRun);
            self.not_rescaled(refusal, actions);
            self.elastic.scale = before;
            self.elastic.because = RescaleReason::DidNotRun;
            return;
        }
        if let Some(refusal) = too_few {
            return self.not_rescaled(refusal, actions);
        }
        let since = self.now.monotonic;
        if let Some(rescaling) = &mut self.elastic.rescaling {
            rescaling.stage = Stage::Restarting { since };
        }
    }

    /// Decides how large the next attempt is, and plans what it restores.
    pub(super) fn plan_attempt(
        &mut self,
        actions: &mut Vec<JobAction>,
    ) -> Result<RestorePlan, RestoreError> {
        let before = self.elastic.scale;
        self.elastic.count_from_here();
        self.refuse_without_slots(actions);
        let recorded = self.elastic.recorded.take();
        if let Some(recorded) = recorded {
            self.elastic.scale = recorded;
            self.elastic.because = RescaleReason::Recorded;
        }
        self.set_scale(self.next_scale(), actions);
        let planned = self.plan_restore();
        let Err(cause) = planned else { return planned };
        if self.elastic.scale == before {
            return Err(cause);
        }
        // It was checked when it was asked for, and may fit no longer.
        let cause = tidegate_types::ErrorChain(&cause).to_string();
        let cause = RescaleRefusal::Unfit { cause };
        if recorded.is_some() {
            let cause = cause.clone();
            actions.push(JobAction::Note(JobNote::NotRescaled { cause }));
        }
        self.not_rescaled(cause, actions);
        self.elastic.because = RescaleReason::DidNotRun;
        self.set_scale(before, actions);
        self.plan_restore()
    }

    /// Slots that have gone since the last attempt was stopped: what was to have them is given up.
    fn refuse_without_slots(&mut self, actions: &mut Vec<JobAction>) {
        let to = self
            .elastic
            .rescaling
            .as_ref()
            .map(|rescaling| rescaling.to);
        let needed = to.map(|to| self.graph_at(to).parallelism_max());
        if let Some(refusal) = needed.and_then(|needed| self.too_few_slots(needed)) {
            self.not_rescaled(refusal, actions);
        }
    }

    fn plan_restore(&self) -> Result<RestorePlan, RestoreError> {
        let latest = self.checkpoints.latest();
        plan_restore(&self.graph, latest, self.allow_non_restored_state)
    }

    fn next_scale(&self) -> Scale {
        if let Some(rescaling) = &self.elastic.rescaling {
            return rescaling.to;
        }
        match self.elastic.suggested() {
            Some((scale, believed)) if believed <= self.now.monotonic => scale,
            _ => self.elastic.scale,
        }
    }

    fn set_scale(&mut self, scale: Scale, actions: &mut Vec<JobAction>) {
        self.elastic.scale = scale;
        let because = std::mem::replace(&mut self.elastic.because, RescaleReason::Slots);
        let graph = self.graph_at(scale);
        if graph == *self.graph {
            return self.count_usable_slots();
        }
        let reason = match &self.elastic.rescaling {
            Some(rescaling) => rescaling.reason,
            None => because,
        };
        actions.push(JobAction::Note(JobNote::Rescaling {
            from: self.graph.parallelism_max(),
            to: graph.parallelism_max(),
            reason,
        }));
        self.graph = Arc::new(graph);
        self.checkpoints.set_graph(Arc::clone(&self.graph));
        self.count_usable_slots();
    }

    /// Every subtask of the attempt runs.
    pub(super) fn on_all_running(&mut self, actions: &mut Vec<JobAction>) {
        let Some(rescaling) = self.elastic.rescaling.take() else {
            return;
        };
        let Stage::Restarting { since } = rescaling.stage else {
            unreachable!("an attempt that starts is not waited for with a checkpoint");
        };
        let rescaled = Rescaled {
            from: rescaling.from,
            to: self.graph.parallelism_max(),
            checkpoint: self.checkpoints.latest().map(|latest| latest.id),
            downtime: self.now.monotonic.since(since),
            recorded: false,
        };
        actions.push(JobAction::Note(JobNote::Rescaled(rescaled)));
        if let Some(request) = rescaling.request {
            self.record_parallelism(request, rescaled, actions);
        }
    }

    /// What was to be rescaled stays as it is.
    pub(super) fn not_rescaled(&mut self, cause: RescaleRefusal, actions: &mut Vec<JobAction>) {
        let Some(rescaling) = self.elastic.rescaling.take() else {
            return;
        };
        self.checkpoints.withdraw_own();
        let patience = self.elastic.settings.stabilization_timeout;
        self.elastic.quiet_until = self.now.monotonic.after(patience);
        actions.push(JobAction::Note(JobNote::NotRescaled {
            cause: cause.clone(),
        }));
        if let Some(request) = rescaling.request {
            refuse(request, cause, actions);
        }
    }

    /// So many workers find room.
    pub(super) fn on_slots(&mut self, count: u32) {
        let before = self.elastic.slots;
        if before.is_some_and(|slots| slots.count == count) {
            return;
        }
        let fewest = before.and_then(|slots| match slots.fewest {
            Some(fewest) => Some(fewest.min(count)),
            None => (count < slots.count).then_some(count),
        });
        self.elastic.slots = Some(Slots {
            count,
            since: self.now.monotonic,
            fewest,
            usable: 0,
        });
        self.count_usable_slots();
    }

    fn count_usable_slots(&mut self) {
        let Some(Slots { count, .. }) = self.elastic.slots else {
            return;
        };
        let scale = Scale {
            at_most: Some(count),
            ..self.elastic.scale
        };
        let usable = self.graph_at(scale).parallelism_max();
        if let Some(slots) = &mut self.elastic.slots {
            slots.usable = usable;
        }
    }

    /// Rescales what has waited for slots, or without them, for long enough; gives up a rescale
    /// whose checkpoint doesn't come.
    pub(super) fn adapt(&mut self, actions: &mut Vec<JobAction>) {
        let now = self.now.monotonic;
        let deadline = self.elastic.checkpoint_deadline();
        if deadline.is_some_and(|deadline| deadline <= now) {
            let cause = "none has completed within the checkpoint timeout".to_owned();
            self.not_rescaled(RescaleRefusal::NoCheckpoint { cause }, actions);
        }
        let Phase::Active(attempt) = &self.phase else {
            return;
        };
        let (number, workers) = (attempt.number, self.graph.parallelism_max());
        let next = Next::Restart { at: now };
        if self.elastic.is_untried() && self.too_few_slots(workers).is_some() {
            // It would wait for slots that the job did without.
            return self.stop_attempt(number, Threads::Running, next, actions);
        }
        let better = self.elastic.better(attempt, workers);
        let Some((scale, _)) = better.filter(|(_, due)| *due <= now) else {
            return;
        };
        match attempt.runs() {
            true if self.checkpoints.is_winding_down() || self.checkpoints.has_savepoints() => {}
            true => self.begin_rescale(None, RescaleReason::Slots, scale, actions),
            false => {
                self.elastic.scale = scale;
                self.stop_attempt(number, Threads::Running, next, actions);
            }
        }
    }

    /// When [`adapt`](Self::adapt) has something to do next.
    pub(super) fn adapt_deadline(&self) -> Option<Millis> {
        let Phase::Active(attempt) = &self.phase else {
            return None;
        };
        let waits = self.elastic.checkpoint_deadline();
        let better = self.elastic.better(attempt, self.graph.parallelism_max());
        let due = better.map(|(_, due)| due);
        let in_future = |at: &Millis| *at > self.now.monotonic;
        waits.into_iter().chain(due).filter(in_future).min()
    }
}

fn refuse(request: RequestId, cause: RescaleRefusal, actions: &mut Vec<JobAction>) {
    answer(request, Answer::NotRescaled(cause), actions);
}
