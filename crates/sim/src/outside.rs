//! Everything that exists once in a run and outlives each process: chance, time, the store, the
//! system behind the sinks, the trace, and the invariants.

use std::time::Duration;

use tidegate_coordinator::Now;
use tidegate_types::{Millis, UnixMillis};

use crate::clock::Clock;
use crate::external::External;
use crate::invariants::Invariants;
use crate::kill::Kill;
use crate::mutation::Mutation;
use crate::rng::Rng;
use crate::scenario::{Faults, Scenario};
use crate::store::Store;
use crate::trace::Trace;

pub(crate) struct Outside {
    pub(crate) rng: Rng,
    pub(crate) scenario: Scenario,
    /// Those of the scenario, until the world heals.
    pub(crate) faults: Faults,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) kill: Option<Kill>,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) external: External,
    pub(crate) trace: Trace,
    pub(crate) invariants: Invariants,
    pub(crate) tally: Tally,
}

/// What a run was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps of the simulation.
    pub steps: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Attempts that were started.
    pub attempts: u64,
    /// Checkpoints whose completion was announced.
    pub completed: u64,
    /// Checkpoints that were aborted.
    pub aborted: u64,
    /// Writes of the coordinator that didn't simply succeed.
    pub failed_writes: u64,
    /// Transactions that became visible.
    pub commits: u64,
    /// Messages that were lost or overtaken though their attempt went on.
    pub damaged: u64,
    /// Savepoints that completed, with or without a stop.
    pub savepoints: u64,
    /// Attempts that were larger or smaller than those before.
    pub rescales: u64,
    /// Jobs that were stopped with one.
    pub stops: u64,
    /// New namespaces that went on from an old one's snapshot.
    pub moves: u64,
    /// Requests that were answered.
    pub answers: u64,
    /// How often a [`Kill`] of the process could have struck.
    pub process_chances: u64,
    /// How often one of a subtask could have.
    pub subtask_chances: u64,
}

impl Tally {
    /// Adds another run's numbers.
    pub fn add(&mut self, other: Tally) {
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.attempts += other.attempts;
        self.completed += other.completed;
        self.aborted += other.aborted;
        self.failed_writes += other.failed_writes;
        self.commits += other.commits;
        self.rescales += other.rescales;
        self.damaged += other.damaged;
        self.savepoints += other.savepoints;
        self.stops += other.stops;
        self.moves += other.moves;
        self.answers += other.answers;
        self.process_chances += other.process_chances;
        self.subtask_chances += other.subtask_chances;
    }
}

impl Outside {
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Both clocks, as the driver reads them.
    pub(crate) fn clocks(&self) -> Now {
        Now {
            monotonic: Millis(self.clock.now),
            wall: UnixMillis(self.clock.wall),
        }
    }

    /// Time as subtasks measure it.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.clock.now)
    }
}
