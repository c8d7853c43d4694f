//! One attempt at a time: numbers are never reused, and an attempt that has stopped changes
//! nothing that anybody can see.
//!
//! Source: design sections 5 and 6; Flink's fencing of task executions (`BC-24`, `BC-26`).

use tidegate_types::AttemptNumber;

use super::{Checked, ensure};

const NAME: &str = "attempts";

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// The newest attempt there has been.
    newest: u64,
    /// Whether it may still do things.
    alive: bool,
}

impl Attempts {
    /// A new namespace: its numbers begin anew.
    pub(crate) fn on_namespace(&mut self) {
        self.newest = 0;
    }

    pub(crate) fn on_start(&mut self, attempt: AttemptNumber) -> Checked {
        let Attempts { newest, alive } = *self;
        ensure(!alive, NAME, || {
            format!("{attempt} starts beside attempt-{newest}")
        })?;
        ensure(attempt.0 > newest, NAME, || {
            format!("{attempt} starts after attempt-{newest}: numbers only grow")
        })?;
        *self = Attempts {
            newest: attempt.0,
            alive: true,
        };
        Ok(())
    }

    /// The coordinator learns that nothing of the attempt is left, or its process is dead.
    pub(crate) fn on_stopped(&mut self) {
        self.alive = false;
    }

    /// An attempt writes something that others can see.
    pub(crate) fn on_effect(&self, attempt: AttemptNumber, what: &str) -> Checked {
        let current = self.alive && attempt.0 == self.newest;
        ensure(current, NAME, || {
            format!("{attempt} has stopped, but {what}")
        })
    }
}
