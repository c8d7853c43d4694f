//! A job that has ended does nothing more, whatever it hears; and one that somebody was told has
//! stopped is recorded as ended, so that nobody goes on with it by mistake.
//!
//! Source: the coordinator's contract, "nothing follows the end"; Flink's job result store
//! (FLIP-194).

use tidegate_coordinator::{Answer, Job, JobEvent, Now, Request, RequestId};
use tidegate_types::message::{AddressedReport, Report, SubtaskFailure, WriteOutcome};
use tidegate_types::{AttemptNumber, CheckpointId};

use super::{Checked, ensure};
use crate::store::Store;

/// Tells an ended job all sorts of things.
pub(crate) fn nothing_after_the_end(job: &mut Job, now: Now, attempt: AttemptNumber) -> Checked {
    let checkpoint = CheckpointId(1);
    let failure = SubtaskFailure::here(None, "late");
    let events = [
        JobEvent::Start,
        JobEvent::Tick,
        JobEvent::CancelRequested,
        JobEvent::Requested {
            request: RequestId(0),
            what: Request::Checkpoint { format: None },
        },
        JobEvent::AttemptStopped { attempt },
        JobEvent::AttemptReserved {
            attempt,
            outcome: WriteOutcome::Done,
        },
        JobEvent::IdsReserved {
            up_to: checkpoint,
            outcome: WriteOutcome::Done,
        },
        JobEvent::PointerStored {
            checkpoint,
            outcome: WriteOutcome::Done,
        },
        JobEvent::MarkedFinished {
            outcome: WriteOutcome::Done,
        },
        JobEvent::Recovered {
            completed: Ok(vec![]),
        },
        JobEvent::Report(AddressedReport {
            attempt,
            report: Report::Failed(failure),
        }),
    ];
    let mut actions = Vec::new();
    for event in events {
        job.step(now, event, &mut actions);
    }
    let silent = actions.is_empty() && job.next_deadline().is_none();
    ensure(silent, "ends", || {
        format!("an ended job still acts: {actions:?}")
    })
}

/// Whoever has stopped the job may rely on it.
pub(crate) fn stop_is_recorded(answer: &Answer, store: &Store) -> Checked {
    let stopped = match answer {
        Answer::Completed(summary) => summary.kind.stops(),
        _ => false,
    };
    let recorded = store.ended || store.finished.is_some();
    ensure(!stopped || recorded, "ends", || {
        format!("nothing says that the job has ended, and somebody is told: {answer:?}")
    })
}

#[cfg(test)]
mod tests {
    use tidegate_coordinator::{JobSettings, Recovery};
    use tidegate_types::JobId;

    use super::*;
    use crate::rng::Rng;
    use crate::topology::Topology;

    fn job() -> Job {
        let mut rng = Rng::new(0, 0);
        let (graph, _) = Topology::draw(&mut rng, 1).graph(&mut rng);
        Job::new(JobId(1), graph, JobSettings::default(), Recovery::default()).unwrap()
    }

    #[test]
    fn a_job_that_has_not_ended_is_told_from_one_that_has() {
        let (now, attempt) = (Now::default(), AttemptNumber(1));
        assert!(nothing_after_the_end(&mut job(), now, attempt).is_err());
        let mut ended = job();
        ended.step(now, JobEvent::SuspendRequested, &mut Vec::new());
        assert_eq!(nothing_after_the_end(&mut ended, now, attempt), Ok(()));
    }
}
