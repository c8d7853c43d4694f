//! What happens to a job: reports, requests, time, and nonsense.

use tidegate_coordinator::{JobEvent, Request, RequestId};
use tidegate_types::graph::OperatorRole;
use tidegate_types::message::{
    AddressedReport, DeclineReason, Report, SnapshotMetrics, SubtaskFailure, WriteOutcome,
};
use tidegate_types::{AttemptNumber, CheckpointId, OperatorId, SnapshotLocation, SubtaskId};

use crate::job::state;
use crate::ops::{Fate, Op};
use crate::world::World;

impl World {
    fn report(&mut self, attempt: u64, report: Report) {
        let attempt = AttemptNumber(attempt);
        self.step(JobEvent::Report(AddressedReport { attempt, report }));
    }

    fn pick_triggered(&self, index: usize) -> Option<(CheckpointId, u64)> {
        // The last few are the interesting ones.
        let (id, (attempt, _)) = self.triggered.iter().rev().nth(index % 4)?;
        Some((*id, *attempt))
    }

    fn pick_subtask(&self, index: usize) -> SubtaskId {
        let subtasks = self.graph.subtasks();
        subtasks[index % subtasks.len()]
    }

    fn acknowledge(&mut self, checkpoint: CheckpointId, attempt: u64, subtask: SubtaskId) {
        if self.end.is_some() {
            // Its file would be left to a sweep: nothing follows the end.
            return;
        }
        let state = match self.acknowledged.get(&(checkpoint, subtask)) {
            Some((_, state)) => state.clone(),
            None => {
                let barrier = &self.barriers[&checkpoint];
                let base = barrier
                    .base
                    .and_then(|base| self.acknowledged.get(&(base, subtask)));
                state(
                    &self.graphs[&attempt],
                    barrier,
                    subtask,
                    base.map(|(_, state)| state),
                )
            }
        };
        let first = (attempt, state.clone());
        self.acknowledged.insert((checkpoint, subtask), first);
        let metrics = SnapshotMetrics::default();
        let report = Report::Acknowledged {
            checkpoint,
            subtask,
            state,
            metrics,
        };
        self.report(attempt, report);
    }

    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Advance(millis) => {
                self.now += u64::from(millis);
                self.step(JobEvent::Tick);
            }
            Op::Answer(index, fate) => self.answer(index, fate),
            Op::Acknowledge(checkpoint, subtask) => {
                if let Some((id, attempt)) = self.pick_triggered(checkpoint) {
                    let subtasks = self.subtasks_in(attempt);
                    self.acknowledge(id, attempt, subtasks[subtask % subtasks.len()]);
                }
            }
            Op::AcknowledgeAll(checkpoint) => {
                if let Some((id, attempt)) = self.pick_triggered(checkpoint) {
                    for subtask in self.subtasks_in(attempt) {
                        self.acknowledge(id, attempt, subtask);
                    }
                }
            }
            Op::Repeat(index) => {
                let count = self.acknowledged.len().max(1);
                let found = self.acknowledged.iter().nth(index % count);
                if let Some(((checkpoint, subtask), (attempt, _))) = found {
                    let (checkpoint, subtask, attempt) = (*checkpoint, *subtask, *attempt);
                    self.acknowledge(checkpoint, attempt, subtask);
                }
            }
            Op::Decline(checkpoint, subtask, fault) => {
                if let Some((checkpoint, attempt)) = self.pick_triggered(checkpoint) {
                    self.decline(checkpoint, attempt, self.pick_subtask(subtask), fault);
                }
            }
            Op::Run(index) => {
                let subtask = self.pick_subtask(index);
                self.report(self.attempt, Report::Running { subtask });
            }
            Op::RunAll => self.run_all(),
            Op::EndSource(index) => {
                let readers = self.subtasks_of(OperatorRole::Reader);
                self.end_source(readers[index % readers.len()]);
            }
            Op::Commit(checkpoint, index) => {
                if let Some((checkpoint, attempt)) = self.pick_triggered(checkpoint)
                    && self.announced >= checkpoint
                {
                    self.commit(checkpoint, attempt, index as u32 % 2);
                }
            }
            Op::Fail(index) => {
                let subtask = Some(self.pick_subtask(index));
                let cause = "injected".to_owned();
                self.report(
                    self.attempt,
                    Report::Failed(SubtaskFailure::here(subtask, cause)),
                );
            }
            Op::LateWrite(index) => {
                if !self.late.is_empty() {
                    let id = self.late.remove(index % self.late.len());
                    self.store.insert(id, self.metadata[&id].clone());
                }
            }
            Op::Request(index) => self.request(index),
            Op::Rescale(parallelism) => self.ask(Request::Rescale { parallelism }),
            Op::Slots(slots) => self.step(JobEvent::Slots { slots }),
            Op::Nonsense(number) => self.nonsense(number),
        }
    }

    fn request(&mut self, index: usize) {
        let directory = Some(SnapshotLocation::new("file:///savepoints"));
        let what = match index % 8 {
            0..3 => Request::Checkpoint { format: None },
            3..5 => Request::Savepoint { directory },
            5 => Request::StopWithSavepoint {
                directory,
                drain: index % 16 == 5,
            },
            _ => Request::Abort {
                checkpoint: self
                    .pick_triggered(index)
                    .map_or(CheckpointId(99), |(id, _)| id),
            },
        };
        self.ask(what);
    }

    fn ask(&mut self, what: Request) {
        if self.end.is_some() {
            return;
        }
        self.requests += 1;
        let request = RequestId(self.requests);
        self.unanswered.insert(request);
        self.step(JobEvent::Requested { request, what });
    }

    fn decline(&mut self, checkpoint: CheckpointId, attempt: u64, subtask: SubtaskId, fault: bool) {
        let cause = "injected".to_owned();
        let reason = match fault {
            true => DeclineReason::WriteFailed { cause },
            false => DeclineReason::CancelledUpstream,
        };
        let report = Report::Declined {
            checkpoint,
            subtask,
            reason,
        };
        self.report(attempt, report);
    }

    fn commit(&mut self, checkpoint: CheckpointId, attempt: u64, index: u32) {
        let subtask = SubtaskId {
            operator: OperatorId(2),
            index,
        };
        let report = Report::Committed {
            checkpoint,
            subtask,
        };
        self.report(attempt, report);
    }

    pub(crate) fn subtasks_of(&self, role: OperatorRole) -> Vec<SubtaskId> {
        self.graph.subtasks_where(|op| op.role == role)
    }

    fn run_all(&mut self) {
        for subtask in self.graph.subtasks() {
            self.report(self.attempt, Report::Running { subtask });
        }
    }

    fn end_source(&mut self, subtask: SubtaskId) {
        let readers = self.subtasks_of(OperatorRole::Reader);
        if self.sources_ended.insert(subtask) && self.sources_ended.len() == readers.len() {
            let last = self.triggered.keys().next_back();
            self.ended_after = last.copied().unwrap_or(CheckpointId::NONE);
        }
        self.report(self.attempt, Report::SourceEnded { subtask });
    }

    /// Events that nobody could have caused.
    fn nonsense(&mut self, number: u64) {
        let checkpoint = CheckpointId(number.max(1 << 20));
        let attempt = AttemptNumber(number.max(1 << 20));
        let outcome = WriteOutcome::Done;
        let subtask = SubtaskId {
            operator: OperatorId(number as u32),
            index: 1 << 20,
        };
        self.step(JobEvent::Start);
        self.step(JobEvent::AttemptStopped { attempt });
        self.step(JobEvent::IdsReserved {
            up_to: checkpoint,
            outcome: outcome.clone(),
        });
        self.step(JobEvent::MetadataPublished {
            checkpoint,
            outcome: outcome.clone(),
        });
        self.step(JobEvent::PointerStored {
            checkpoint,
            outcome,
        });
        self.report(self.attempt, Report::Running { subtask });
        self.report(self.attempt, Report::SourceEnded { subtask });
        self.report(
            self.attempt,
            Report::Committed {
                checkpoint,
                subtask,
            },
        );
        self.report(
            self.attempt,
            Report::Declined {
                checkpoint,
                subtask,
                reason: DeclineReason::NotReady,
            },
        );
        self.report(attempt.0, Report::Running { subtask });
    }

    /// Lets everything go well until the job is over.
    pub(crate) fn heal(&mut self) {
        for _ in 0..200 {
            if self.end.is_some() {
                return;
            }
            while !self.outstanding.is_empty() {
                self.answer(0, Fate::Done);
            }
            self.run_all();
            for subtask in self.subtasks_of(OperatorRole::Reader) {
                self.end_source(subtask);
            }
            let under_way: Vec<CheckpointId> = self.under_way.iter().copied().collect();
            for id in under_way {
                for subtask in self.graph.subtasks() {
                    self.acknowledge(id, self.attempt, subtask);
                }
            }
            for subtask in self.subtasks_of(OperatorRole::CommittingSink) {
                let checkpoint = self.announced;
                let report = Report::Committed {
                    checkpoint,
                    subtask,
                };
                self.report(self.attempt, report);
            }
            let deadline = self.job.next_deadline();
            self.now = deadline.map_or(self.now, |at| at.0);
            self.step(JobEvent::Tick);
        }
        panic!("the job doesn't finish: {:?}", self.job);
    }
}
