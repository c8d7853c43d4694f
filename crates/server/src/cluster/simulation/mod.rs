//! The control plane of a large cluster alone, in virtual time: how far one JobManager goes.
//!
//! The coordinator, the fleet and the messages are those of the product: what TaskManagers and
//! processes say arrives as bytes, is decoded, goes through `Fleet` and `Job`, and what they decide
//! leaves as bytes. What is simulated is everything else: TaskManagers and processes that answer
//! after a while, get lost, decline and are late ([`machines`]), and a store that does what it is
//! asked to. Time is virtual, and only what the JobManager does is metered ([`meter`]).
//!
//! It does not know: gRPC and TCP, threads, and the time that data takes. So it says what the
//! decisions cost, not what a network does.
//!
//! Invariants, asserted all the time ([`invariants`]): *a checkpoint completes only when every
//! subtask of its attempt has acknowledged it · ids of checkpoints and of attempts only grow · a
//! process is launched only when nothing that can be heard of is left of the attempt before · a job
//! whose machines work completes checkpoints.*

mod invariants;
mod jobmanager;
mod machines;
mod messages;
mod meter;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use meter::{Meter, Part, Traffic};

use machines::World;

/// How large a cluster is, and what happens to it.
#[derive(Clone, Debug)]
pub struct Scale {
    /// TaskManagers that the job needs; at least 1.
    pub taskmanagers: u32,
    /// More than it needs.
    pub standbys: u32,
    /// Worker threads of each; a worker has a subtask of each of the job's four operators.
    pub slots: u32,
    /// From one checkpoint to the next.
    pub interval: Duration,
    /// How long it goes on, in virtual time.
    pub lasts: Duration,
    /// How often something is lost, on average; never, if `None`.
    pub faults_every: Option<Duration>,
    /// What is drawn depends on nothing else.
    pub seed: u64,
}

/// What it took.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Subtasks of the job.
    pub subtasks: u64,
    /// Checkpoints that completed, were declined, and timed out.
    pub completed: u64,
    /// Those that did not.
    pub aborted: u64,
    /// What the JobManager has done in all.
    pub meter: Meter,
    /// What it did while the job ran undisturbed, and for how long that was.
    pub running: (Meter, Duration),
    /// Each loss.
    pub recoveries: Vec<RecoveryTime>,
    /// The `_metadata` of the last checkpoint, by the tables of docs/formats.md.
    pub metadata_bytes: u64,
    /// The longest that it worked without looking at what arrives.
    pub longest_turn: Duration,
    /// Memory that the counters of subtasks and channels take, as the process grew by it.
    pub metrics_bytes: u64,
    /// Memory that the rest takes, simulated machines and all.
    pub resident_bytes: u64,
}

/// From the end of an attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryTime {
    /// From the moment that it was known to fail until everybody was asked to start a process.
    pub launched: Duration,
    /// Until every process was told its part.
    pub deployed: Duration,
    /// Until all subtasks ran.
    pub running: Duration,
    /// What the JobManager spent on it until everybody was told its part.
    pub spent: Duration,
}

/// Runs a cluster in virtual time.
///
/// # Panics
/// If an invariant of the control plane is violated: that is a bug.
pub fn simulate(scale: &Scale) -> Figures {
    World::new(scale).run()
}
