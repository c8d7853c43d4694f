//! Deaths at a chosen place: the n-th thing that the coordinator does or hears, or the n-th step of
//! a subtask's snapshots, commits and notices. Trying every n of a seed leaves no gap between two
//! effects untested.

use crate::outside::Outside;

/// Who dies, and when: at the n-th chance, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// The whole process, before the coordinator's n-th action or outcome.
    Process(u64),
    /// One subtask, before its n-th step.
    Subtask(u64),
}

impl Outside {
    /// Whether the process dies here.
    pub(crate) fn process_dies(&mut self) -> bool {
        self.tally.process_chances += 1;
        self.kill == Some(Kill::Process(self.tally.process_chances))
    }

    /// Whether the subtask dies here.
    pub(crate) fn subtask_dies(&mut self) -> bool {
        self.tally.subtask_chances += 1;
        self.kill == Some(Kill::Subtask(self.tally.subtask_chances))
    }
}
