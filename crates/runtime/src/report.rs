//! How subtasks tell the coordinator what happened.

use std::sync::Arc;

use tidegate_types::message::{AddressedReport, FailureOrigin, Report, SubtaskFailure};
use tidegate_types::{AttemptNumber, SubtaskId};

use crate::attempt::{Peers, follows_from_a_loss};

/// Takes reports from any thread, in order per thread. Must not block.
pub type ReportSink = Arc<dyn Fn(AddressedReport) + Send + Sync>;

/// Sends the reports of one attempt.
#[derive(Clone)]
pub(crate) struct Reporter {
    attempt: AttemptNumber,
    sink: ReportSink,
    /// The other processes of the attempt, if it has any.
    peers: Option<Arc<Peers>>,
}

impl Reporter {
    pub(crate) fn new(attempt: AttemptNumber, sink: ReportSink) -> Self {
        Reporter {
            attempt,
            sink,
            peers: None,
        }
    }

    /// Tells failures that follow from the loss of one of these from others.
    pub(crate) fn among(self, peers: Option<Arc<Peers>>) -> Self {
        Reporter { peers, ..self }
    }

    pub(crate) fn send(&self, report: Report) {
        (self.sink)(AddressedReport {
            attempt: self.attempt,
            report,
        });
    }

    pub(crate) fn fail(&self, subtask: Option<SubtaskId>, cause: String) {
        let mut origin = FailureOrigin::Here;
        if let Some(peers) = &self.peers
            && follows_from_a_loss(&cause)
        {
            match peers.lost() {
                Some(process) => origin = FailureOrigin::Peer { process },
                None if peers.is_ending() => {
                    tracing::debug!(cause, "work ended with the connections");
                    return;
                }
                None => {}
            }
        }
        self.send(Report::Failed(SubtaskFailure {
            subtask,
            origin,
            cause,
        }));
    }
}
