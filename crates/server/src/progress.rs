//! What a running job tells whoever watches it.

use tidegate_coordinator::{JobNote, RestoredSummary, Statistics};

use crate::waiting::WaitingFor;

/// The state of a job at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Records that the sources have emitted since the process started, replayed ones included.
    pub records: u64,
    /// Checkpoints and restarts so far.
    pub statistics: &'a Statistics,
    /// What the oldest checkpoint under way is waiting for, once it has been for longer than 10 s
    /// or half the checkpoint timeout, whichever is less.
    pub waiting_for: Option<&'a WaitingFor>,
}

/// Watches a job. Called on the driver's thread: must be quick, must not block.
pub trait Observer: Send {
    /// An attempt starts, from this checkpoint or savepoint if there is one.
    fn on_attempt(&mut self, _restored: Option<&RestoredSummary>) {}

    /// Something worth telling has happened.
    fn on_note(&mut self, _note: &JobNote) {}

    /// About ten times a second.
    fn on_progress(&mut self, _progress: Progress<'_>) {}
}
