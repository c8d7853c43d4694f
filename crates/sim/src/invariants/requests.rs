//! Every request is answered once, at the latest when its job ends.
//!
//! Source: the coordinator's contract for [`JobEvent::Requested`]; Flink's rule that a
//! `CompletableFuture` of a savepoint always completes.

use std::collections::BTreeSet;

use tidegate_coordinator::{JobAction, JobEvent, RequestId};

use super::{Checked, ensure};

const NAME: &str = "requests";

/// What one process has been asked.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: BTreeSet<RequestId>,
}

impl Requests {
    /// Whether anybody waits for an answer.
    pub(super) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(crate) fn on_event(&mut self, event: &JobEvent) {
        if let JobEvent::Requested { request, .. } = event {
            self.open.insert(*request);
        }
    }

    pub(crate) fn on_action(&mut self, action: &JobAction) -> Checked {
        match action {
            JobAction::Answer { request, answer } => {
                let waited = self.open.remove(request);
                ensure(waited, NAME, || {
                    format!("{request} is answered though nobody waits: {answer:?}")
                })
            }
            JobAction::End(_) => {
                let open = &self.open;
                ensure(open.is_empty(), NAME, || {
                    format!("the job ends, and nobody has answered {open:?}")
                })
            }
            _ => Ok(()),
        }
    }
}
