//! The real coordinator as its driver sees it. With a bug put in it is wrapped in what the bug
//! would make of it: the production core itself knows of none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_coordinator::{
    Answer, Job, JobAction, JobEvent, JobNote, JobSettings, NoticeTarget, Now, Retention,
};
use tidegate_types::message::{Notice, Report, WriteOutcome};
use tidegate_types::{
    CheckpointId, CompletedCheckpoint, FileHandle, KeyedStateHandle, Owner, Redistribution,
    SnapshotKind, SubtaskId, SubtaskState,
};

use crate::mutation::Mutation;

/// A job, and what a bug has to remember.
pub(crate) struct Core {
    pub(crate) job: Job,
    mutation: Option<Mutation>,
    acknowledged: BTreeSet<(CheckpointId, SubtaskId)>,
    /// What it goes on from without owning it.
    origin: Option<CompletedCheckpoint>,
    /// The savepoint that was published last.
    savepoint: Option<CompletedCheckpoint>,
    /// Completed checkpoints that were dropped at least once.
    dropped: BTreeSet<CheckpointId>,
    smuggled: Smuggled,
}

/// Pieces of state that the coordinator would refuse.
#[derive(Default)]
struct Smuggled {
    completed: BTreeSet<CheckpointId>,
    hidden: BTreeMap<(CheckpointId, SubtaskId), KeyedStateHandle>,
}

impl Smuggled {
    /// Takes them out of an acknowledgement.
    fn hide(&mut self, event: &mut JobEvent) {
        let JobEvent::Report(report) = event else {
            return;
        };
        if let Report::Acknowledged {
            checkpoint,
            subtask,
            state,
            ..
        } = &mut report.report
            && let Some(keyed) = &mut state.keyed
        {
            let old = || self.completed.iter().chain([&*checkpoint]);
            let known =
                |file: &FileHandle| file.lies_elsewhere() || old().any(|id| file.is_of(*id, None));
            let whole = keyed.clone();
            keyed.pieces.retain(|piece| piece.file().is_none_or(known));
            if keyed.pieces.len() < whole.pieces.len() {
                self.hidden.insert((*checkpoint, *subtask), whole);
            }
        }
    }

    /// Puts them into the metadata.
    fn put_back(&mut self, actions: &mut [JobAction]) {
        for action in actions {
            match action {
                JobAction::PublishMetadata(checkpoint) => {
                    let mut changed = (**checkpoint).clone();
                    for ((id, subtask), whole) in &self.hidden {
                        let operator = &mut changed.operators[subtask.operator.0 as usize];
                        if *id == changed.id {
                            operator.subtasks[subtask.index as usize].keyed = Some(whole.clone());
                        }
                    }
                    *checkpoint = Arc::new(changed);
                }
                JobAction::Note(JobNote::CheckpointCompleted { checkpoint, .. }) => {
                    self.completed.insert(*checkpoint);
                }
                _ => {}
            }
        }
    }
}

/// Settings that don't reach the core.
pub(crate) fn misread(mut settings: JobSettings, mutation: Option<Mutation>) -> JobSettings {
    let checkpoints = &mut settings.checkpoints;
    match mutation {
        Some(Mutation::MinPauseIgnored) => checkpoints.min_pause = Duration::ZERO,
        Some(Mutation::RetentionIgnored) => checkpoints.retention = Retention::NoRetention,
        Some(Mutation::ConcurrencyIgnored) => checkpoints.max_concurrent += 1,
        Some(Mutation::IntervalIgnored) => {
            checkpoints.interval = checkpoints.interval.map(|interval| interval / 4);
        }
        _ => {}
    }
    settings
}

impl Core {
    pub(crate) fn new(
        job: Job,
        origin: Option<CompletedCheckpoint>,
        mutation: Option<Mutation>,
    ) -> Self {
        Core {
            job,
            mutation,
            acknowledged: BTreeSet::new(),
            origin,
            savepoint: None,
            dropped: BTreeSet::new(),
            smuggled: Smuggled::default(),
        }
    }

    pub(crate) fn step(&mut self, now: Now, event: JobEvent, actions: &mut Vec<JobAction>) {
        let event = match (self.mutation, event) {
            (Some(Mutation::FolderUnawaited), JobEvent::SavepointPrepared { checkpoint, .. }) => {
                JobEvent::SavepointPrepared {
                    checkpoint,
                    outcome: WriteOutcome::Done,
                }
            }
            (_, event) => event,
        };
        let repeated = match self.mutation {
            Some(Mutation::DuplicateAckDiscarded) => self.repeated(&event),
            _ => None,
        };
        let mut event = event;
        let smuggles = self.mutation == Some(Mutation::UnknownFileAccepted);
        if smuggles {
            self.smuggled.hide(&mut event);
        }
        self.job.step(now, event, actions);
        if smuggles {
            self.smuggled.put_back(actions);
        }
        actions.extend(repeated);
        if let Some(mutation) = self.mutation {
            distort(mutation, actions);
            self.meddle(mutation, actions);
        }
    }

    /// Does to snapshots of the user's what is done to checkpoints only.
    fn meddle(&mut self, mutation: Mutation, actions: &mut Vec<JobAction>) {
        self.savepoint = actions.iter().find_map(published).or(self.savepoint.take());
        let newer = completed(SnapshotKind::Checkpoint, actions);
        match mutation {
            Mutation::SavepointCommitted => {
                let checkpoint = completed(SnapshotKind::Savepoint, actions);
                let savepoint = self.savepoint.as_ref();
                if let Some((checkpoint, savepoint)) = checkpoint.zip(savepoint) {
                    actions.push(JobAction::Notify {
                        attempt: savepoint.attempt,
                        notice: Notice::Completed { checkpoint },
                        to: NoticeTarget::All,
                    });
                }
            }
            Mutation::SavepointSubsumed => {
                if let Some(old) = self.savepoint.take_if(|old| newer > Some(old.id)) {
                    actions.push(JobAction::DiscardFiles {
                        checkpoint: old.id,
                        location: old.location.clone(),
                        files: old.files().cloned().collect(),
                        metadata: true,
                    });
                }
            }
            Mutation::OriginDropped => {
                if let Some(mut origin) = self.origin.take_if(|_| newer.is_some()) {
                    origin.owner = Owner::Job;
                    actions.push(JobAction::DropCompleted {
                        checkpoint: Box::new(origin),
                        spared: Vec::new(),
                    });
                }
            }
            Mutation::SharedFileForgotten => self.forget_shared(actions),
            _ => {}
        }
    }

    /// Spares everything once more when it is its turn.
    fn forget_shared(&mut self, actions: &mut [JobAction]) {
        for action in actions {
            if let JobAction::DropCompleted { checkpoint, spared } = action
                && !self.dropped.insert(checkpoint.id)
            {
                *spared = checkpoint.files().cloned().collect();
            }
        }
    }

    /// Deletes what a repeated acknowledgement brings.
    fn repeated(&mut self, event: &JobEvent) -> Option<JobAction> {
        let JobEvent::Report(report) = event else {
            return None;
        };
        let Report::Acknowledged {
            checkpoint,
            subtask,
            state,
            ..
        } = &report.report
        else {
            return None;
        };
        let first = self.acknowledged.insert((*checkpoint, *subtask));
        let files: Vec<_> = SubtaskState::files(state).cloned().collect();
        (!first && !files.is_empty()).then_some(JobAction::DiscardFiles {
            checkpoint: *checkpoint,
            location: None,
            files,
            metadata: false,
        })
    }
}

/// The plain savepoint whose metadata is being published.
fn published(action: &JobAction) -> Option<CompletedCheckpoint> {
    match action {
        JobAction::PublishMetadata(snapshot) if snapshot.kind == SnapshotKind::Savepoint => {
            Some((**snapshot).clone())
        }
        _ => None,
    }
}

/// The snapshot of this kind that completes.
fn completed(wanted: SnapshotKind, actions: &[JobAction]) -> Option<CheckpointId> {
    actions.iter().find_map(|action| match action {
        JobAction::Note(JobNote::CheckpointCompleted {
            checkpoint, kind, ..
        }) if *kind == wanted => Some(*checkpoint),
        _ => None,
    })
}

fn distort(mutation: Mutation, actions: &mut Vec<JobAction>) {
    match mutation {
        Mutation::AbortNotTold => actions.retain(|action| !is_abort_notice(action)),
        Mutation::EndsTwice => repeat(actions, |action| {
            matches!(
                action,
                JobAction::Note(
                    JobNote::CheckpointAborted { .. } | JobNote::CheckpointCompleted { .. }
                )
            )
        }),
        Mutation::SharedFileDroppedTwice => repeat(actions, |action| {
            let shares = |spared: &[FileHandle]| !spared.is_empty();
            matches!(action, JobAction::DropCompleted { spared, .. } if shares(spared))
        }),
        Mutation::AnnouncedTwice => repeat(actions, |action| {
            let completed = |notice: &Notice| matches!(notice, Notice::Completed { .. });
            matches!(action, JobAction::Notify { notice, .. } if completed(notice))
        }),
        Mutation::AnsweredTwice => {
            repeat(actions, |action| matches!(action, JobAction::Answer { .. }));
        }
        Mutation::FailureUnanswered => actions.retain(|action| {
            let failed = |answer: &Answer| matches!(answer, Answer::Failed { .. });
            !matches!(action, JobAction::Answer { answer, .. } if failed(answer))
        }),
        Mutation::SplitDealtTwice => actions.iter_mut().for_each(deal_twice),
        _ => {}
    }
}

fn is_abort_notice(action: &JobAction) -> bool {
    let aborted = |notice: &Notice| matches!(notice, Notice::Aborted { .. });
    matches!(action, JobAction::Notify { notice, .. } if aborted(notice))
}

fn repeat(actions: &mut Vec<JobAction>, which: impl Fn(&JobAction) -> bool) {
    let again: Vec<JobAction> = actions
        .iter()
        .filter(|action| which(action))
        .cloned()
        .collect();
    actions.extend(again);
}

/// Gives the first element of a split list to the last subtask as well.
fn deal_twice(action: &mut JobAction) {
    let JobAction::StartAttempt { plan, .. } = action else {
        return;
    };
    for parts in &mut plan.operators {
        let lists = parts.iter().flat_map(|part| &part.lists);
        let split = |list: &&tidegate_types::ListState| {
            list.redistribution == Redistribution::Split && !list.elements.is_empty()
        };
        let Some(list) = lists.clone().find(split).cloned() else {
            continue;
        };
        let last = parts
            .last_mut()
            .and_then(|part| part.lists.iter_mut().find(|other| other.name == list.name));
        if let Some(last) = last {
            last.elements.push(list.elements[0].clone());
        }
    }
}
