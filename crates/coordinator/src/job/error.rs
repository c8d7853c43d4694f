//! Why a job can't start at all.

use tidegate_types::graph::GraphError;
use tidegate_types::{CheckpointId, JobId};

use crate::restore::RestoreError;
use crate::settings::SettingsError;

/// Why a job can't even start.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum JobError {
    /// The job graph can't run.
    #[error("the job graph is invalid")]
    Graph(#[source] GraphError),
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
