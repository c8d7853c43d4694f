//! Why a job can't be started, or didn't end well.

use tidegate_coordinator::{JobError, JobFailure, SettingsError};
use tidegate_runtime::CheckError;
use tidegate_storage::StorageError;
use tidegate_types::graph::GraphError;
use tidegate_types::{CheckpointId, SnapshotLocation};

/// Why a job could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job graph is wrong.
    #[error("the job graph is invalid")]
    Graph(#[source] GraphError),
    /// A setting is wrong.
    #[error("the settings are invalid")]
    Settings(#[source] SettingsError),
    /// Exactly-once output needs somewhere to keep its transactions.
    #[error(
        "the sink `{uid}` commits its output with checkpoints, but there is no checkpoint \
         directory; pass --checkpoint-dir"
    )]
    NeedsCheckpoints {
        /// The sink.
        uid: String,
    },
    /// Machines can't share what is in the memory of one of them.
    #[error(
        "a job on a cluster needs a checkpoint directory that all its machines share; pass \
         --checkpoint-dir"
    )]
    NeedsSharedCheckpoints,
    /// A dry run owns nothing, and what it would look at is elsewhere.
    #[error(
        "a dry run can't look at records that are kept where the leader is elected; leave out --ha"
    )]
    DryRunElsewhere,
    /// A source or sink can't work as it is configured.
    #[error("the job can't start")]
    Check(#[source] CheckError),
    /// The checkpoint directory can't be used.
    #[error("open the checkpoints of job `{job}`")]
    Storage {
        /// Name of the job.
        job: String,
        /// What is wrong.
        #[source]
        cause: StorageError,
    },
    /// The checkpoints and the job don't fit.
    #[error("restore job `{job}`")]
    Restore {
        /// Name of the job.
        job: String,
        /// What doesn't fit.
        #[source]
        cause: JobError,
    },
    /// It was a dry run, and the job can't go on. Everything that stands in the way.
    #[error("job `{job}` can't go on: {}", list(reasons))]
    NotRestorable {
        /// Name of the job.
        job: String,
        /// Why not, for people.
        reasons: Vec<String>,
    },
    /// A job that has finished was to be begun from a snapshot.
    #[error(
        "job `{job}` has finished, as `{namespace}` says, and can't be begun from `{from}`; give \
         the job another name or checkpoint directory"
    )]
    HasFinished {
        /// Name of the job.
        job: String,
        /// Where that is said.
        namespace: String,
        /// What it was to be begun from.
        from: SnapshotLocation,
    },
    /// The job would block a thread that other tasks wait for.
    #[error(
        "a job blocks its thread and can't be run on a Tokio task; run it on a thread of its own \
         (`tokio::task::spawn_blocking` doesn't do: use `std::thread`)"
    )]
    InsideTokio,
    /// The JobManager can't be reached.
    #[error("listen for TaskManagers at `{address}`: {cause}")]
    Listen {
        /// Where it was to be.
        address: String,
        /// What is wrong, and what to do.
        cause: String,
    },
    /// The operating system refused threads.
    #[error("start the job's threads")]
    Threads(#[source] std::io::Error),
    /// The restart strategy gave up.
    #[error("job `{job}` failed")]
    Failed {
        /// Name of the job.
        job: String,
        /// The last failure.
        #[source]
        cause: Box<JobFailure>,
    },
    /// Somebody cancelled it.
    #[error("job `{job}` was cancelled; {}", kept(latest))]
    Cancelled {
        /// Name of the job.
        job: String,
        /// The checkpoint that the next run goes on from; `None` if none is kept.
        latest: Option<CheckpointId>,
    },
    /// It was stopped since its process is to end. Nothing of it was deleted.
    #[error("job `{job}` was suspended; {}", goes_on(latest))]
    Suspended {
        /// Name of the job.
        job: String,
        /// The checkpoint that the next run goes on from; `None` starts anew.
        latest: Option<CheckpointId>,
    },
}

/// One reason follows on the line, more come on lines of their own.
fn list(reasons: &[String]) -> String {
    match reasons {
        [one] => one.clone(),
        many => many.iter().map(|reason| format!("\n  {reason}")).collect(),
    }
}

fn goes_on(latest: &Option<CheckpointId>) -> String {
    match latest {
        Some(latest) => format!("the next run goes on from `{latest}`"),
        None => "no checkpoint had completed, and the next run begins anew".to_owned(),
    }
}

fn kept(latest: &Option<CheckpointId>) -> String {
    match latest {
        Some(latest) => format!("the next run goes on from `{latest}`"),
        None => "no checkpoint of it is kept".to_owned(),
    }
}
