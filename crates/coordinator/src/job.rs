//! A job: its attempts, its checkpoints and its end.

use tidegate_types::graph::{GraphError, JobGraph};
use tidegate_types::{CheckpointId, CompletedCheckpoint, JobId, Millis};

use crate::action::JobAction;
use crate::event::{DurableFacts, JobEvent, Now};
use crate::restart::Restarts;
use crate::restore::{RestoreError, plan_restore};
use crate::settings::{JobSettings, SettingsError};
use crate::statistics::Statistics;

/// Why a job can't even start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JobError {
    /// The settings are wrong.
    #[error("the job's settings are invalid")]
    Settings(#[source] SettingsError),
    /// The latest checkpoint doesn't fit the graph.
    #[error("the job can't be restored from its latest checkpoint")]
    Restore(#[source] RestoreError),
    /// A recovered checkpoint is of another job.
    #[error("`{checkpoint}` belongs to job `{found}`, not to `{job}`")]
    ForeignCheckpoint {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The job it belongs to.
        found: JobId,
        /// This job.
        job: JobId,
    },
}

/// All decisions of one job. Performs no IO.
#[derive(Debug)]
pub struct Job {
    statistics: Statistics,
    restarts: Restarts,
}

impl Job {
    /// Makes a job that waits for [`JobEvent::Start`].
    pub fn new(
        _job: JobId,
        graph: JobGraph,
        settings: JobSettings,
        recovered: Vec<CompletedCheckpoint>,
        _facts: DurableFacts,
    ) -> Result<Self, JobError> {
        let _ = plan_restore(&graph, recovered.last(), settings.allow_non_restored_state);
        let _: Option<GraphError> = None;
        Ok(Job {
            statistics: Statistics::default(),
            restarts: Restarts::new(settings.restart),
        })
    }

    /// Takes one event and appends what to do, in the order in which it must be issued.
    pub fn step(&mut self, _now: Now, _event: JobEvent, _actions: &mut Vec<JobAction>) {}

    /// When to call again with [`JobEvent::Tick`] if nothing happens before.
    pub fn next_deadline(&self) -> Option<Millis> {
        None
    }

    /// Counters and distributions.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Asserts what must hold between steps.
    pub fn check_invariants(&self) {}
}
