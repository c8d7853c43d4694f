//! The parallelism that somebody asked for, and how it outlives this coordinator.
//!
//! A job that was rescaled on request is to stay so large whoever goes on with it: another leader,
//! or the same program after a crash. So whoever asked is answered only once that is recorded; an
//! answer that was never given promises nothing. The record names what the job had been started
//! with: started with something else, the job does what it is told now, and the record goes. So it
//! does when the job is stopped, cancelled or finished; but not when it has failed, since it may be
//! started again at once by what watches over its process.
//!
//! Flink keeps a job's resource requirements beside its graph in the same way.

use tidegate_types::message::WriteOutcome;
use tidegate_types::{AskedParallelism, Scale, Scaling};

use crate::action::{JobAction, JobEnd, JobNote};
use crate::checkpoint::answer;
use crate::request::{Answer, RequestId, Rescaled};

use super::Job;

/// What is recorded of the parallelism, and who waits for it.
#[derive(Debug)]
pub(super) struct Record {
    /// As it was found.
    found: Option<AskedParallelism>,
    /// Whether there may be one.
    exists: bool,
    /// Whether a write of it has no outcome yet.
    in_flight: bool,
    /// Who is to be told that it is durable, and of what.
    waiting: Option<(RequestId, Rescaled)>,
}

impl Record {
    pub(super) fn found(found: Option<AskedParallelism>) -> Record {
        Record {
            found,
            exists: found.is_some(),
            in_flight: false,
            waiting: None,
        }
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.in_flight
    }

    /// The scale that was recorded for a job as this is started, if there is one.
    pub(super) fn scale(&self, scaling: &Scaling) -> Option<Scale> {
        let asked = self.found?;
        let holds = scaling.followed() == Some(asked.declared);
        holds.then_some(Scale {
            parallelism: Some(asked.asked),
            at_most: None,
        })
    }
}

impl Job {
    /// A record that doesn't hold for the job as it was started is none.
    pub(super) fn forget_other_parallelism(&mut self, actions: &mut Vec<JobAction>) {
        let Some(found) = self.record.found else {
            return;
        };
        if self.record.scale(self.elastic.scaling()).is_none() {
            actions.push(JobAction::Note(JobNote::ParallelismForgotten(found)));
            self.record(None, actions);
        }
    }

    /// The job is as large as `request` wanted it: tells whoever asked when that is durable.
    pub(super) fn record_parallelism(
        &mut self,
        request: RequestId,
        rescaled: Rescaled,
        actions: &mut Vec<JobAction>,
    ) {
        let scale = self.elastic.scale();
        let declared = self.elastic.scaling().followed();
        let asked = declared.zip(scale.parallelism);
        let asked = asked.filter(|(declared, asked)| declared != asked);
        self.record.waiting = Some((request, rescaled));
        if asked.is_none() && !self.record.exists {
            return self.answer_rescaled(true, actions);
        }
        let asked = asked.map(|(declared, asked)| AskedParallelism { declared, asked });
        self.record(asked, actions);
    }

    fn record(&mut self, asked: Option<AskedParallelism>, actions: &mut Vec<JobAction>) {
        self.record.exists = true;
        self.record.in_flight = true;
        actions.push(JobAction::RecordParallelism { asked });
    }

    pub(super) fn on_parallelism_recorded(
        &mut self,
        outcome: WriteOutcome,
        actions: &mut Vec<JobAction>,
    ) {
        self.record.in_flight = false;
        let recorded = match outcome {
            WriteOutcome::Done => true,
            WriteOutcome::NotDone { cause } | WriteOutcome::Unknown { cause } => {
                actions.push(JobAction::Note(JobNote::ParallelismNotRecorded { cause }));
                false
            }
        };
        self.answer_rescaled(recorded, actions);
        self.record_end(actions);
    }

    fn answer_rescaled(&mut self, recorded: bool, actions: &mut Vec<JobAction>) {
        if let Some((request, rescaled)) = self.record.waiting.take() {
            let rescaled = Rescaled {
                recorded,
                ..rescaled
            };
            answer(request, Answer::Rescaled(rescaled), actions);
        }
    }

    /// The job has ended: nobody is told of the record any more. The record of an ordered end has
    /// taken it away; one that has finished needs it no more.
    pub(super) fn leave_record(&mut self, end: &JobEnd, actions: &mut Vec<JobAction>) {
        self.answer_rescaled(false, actions);
        let finished = matches!(
            end,
            JobEnd::Finished | JobEnd::Stopped { drained: true, .. }
        );
        // Ordering: two writes of the record are never under way at once.
        if finished && self.record.exists && !self.record.in_flight {
            self.record(None, actions);
        }
    }
}
