//! A job that has ended does nothing more, whatever it hears.
//!
//! Source: the coordinator's contract, "nothing follows the end".

use tidegate_coordinator::{Job, JobEvent, Now};
use tidegate_types::message::{AddressedReport, Report, SubtaskFailure, WriteOutcome};
use tidegate_types::{AttemptNumber, CheckpointId, SnapshotKind};

use super::{Checked, ensure};

/// Tells an ended job all sorts of things.
pub(crate) fn nothing_after_the_end(job: &mut Job, now: Now, attempt: AttemptNumber) -> Checked {
    let checkpoint = CheckpointId(1);
    let failure = SubtaskFailure {
        subtask: None,
        cause: "late".to_owned(),
    };
    let events = [
        JobEvent::Start,
        JobEvent::Tick,
        JobEvent::CancelRequested,
        JobEvent::TriggerRequested {
            kind: SnapshotKind::Checkpoint,
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
