//! How subtasks tell the coordinator what happened.

use std::sync::Arc;

use tidegate_types::message::{AddressedReport, Report, SubtaskFailure};
use tidegate_types::{AttemptNumber, SubtaskId};

/// Takes reports from any thread, in order per thread. Must not block.
pub type ReportSink = Arc<dyn Fn(AddressedReport) + Send + Sync>;

/// Sends the reports of one attempt.
#[derive(Clone)]
pub(crate) struct Reporter {
    attempt: AttemptNumber,
    sink: ReportSink,
}

impl Reporter {
    pub(crate) fn new(attempt: AttemptNumber, sink: ReportSink) -> Self {
        Reporter { attempt, sink }
    }

    pub(crate) fn send(&self, report: Report) {
        (self.sink)(AddressedReport {
            attempt: self.attempt,
            report,
        });
    }

    pub(crate) fn fail(&self, subtask: Option<SubtaskId>, cause: String) {
        self.send(Report::Failed(SubtaskFailure { subtask, cause }));
    }
}
