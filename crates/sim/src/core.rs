//! The real coordinator as its driver sees it. With a bug put in it is wrapped in what the bug
//! would make of it: the production core itself knows of none.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_coordinator::{Job, JobAction, JobEvent, JobNote, JobSettings, Now};
use tidegate_types::message::{Notice, Report};
use tidegate_types::{CheckpointId, Redistribution, SubtaskId, SubtaskState};

use crate::mutation::Mutation;

/// A job, and what a bug has to remember.
pub(crate) struct Core {
    pub(crate) job: Job,
    mutation: Option<Mutation>,
    acknowledged: BTreeSet<(CheckpointId, SubtaskId)>,
}

/// Settings that don't reach the core.
pub(crate) fn misread(mut settings: JobSettings, mutation: Option<Mutation>) -> JobSettings {
    let checkpoints = &mut settings.checkpoints;
    match mutation {
        Some(Mutation::MinPauseIgnored) => checkpoints.min_pause = Duration::ZERO,
        Some(Mutation::ConcurrencyIgnored) => checkpoints.max_concurrent += 1,
        Some(Mutation::IntervalIgnored) => {
            checkpoints.interval = checkpoints.interval.map(|interval| interval / 4);
        }
        _ => {}
    }
    settings
}

impl Core {
    pub(crate) fn new(job: Job, mutation: Option<Mutation>) -> Self {
        Core {
            job,
            mutation,
            acknowledged: BTreeSet::new(),
        }
    }

    pub(crate) fn step(&mut self, now: Now, event: JobEvent, actions: &mut Vec<JobAction>) {
        let repeated = match self.mutation {
            Some(Mutation::DuplicateAckDiscarded) => self.repeated(&event),
            _ => None,
        };
        self.job.step(now, event, actions);
        actions.extend(repeated);
        if let Some(mutation) = self.mutation {
            distort(mutation, actions);
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
        Mutation::AnnouncedTwice => repeat(actions, |action| {
            let completed = |notice: &Notice| matches!(notice, Notice::Completed { .. });
            matches!(action, JobAction::Notify { notice, .. } if completed(notice))
        }),
        Mutation::AnsweredTwice => {
            repeat(actions, |action| matches!(action, JobAction::Answer { .. }));
        }
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
