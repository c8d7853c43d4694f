//! How a job runs, as whoever starts it says.

use std::time::Duration;

use tidegate_coordinator::JobSettings;
use tidegate_runtime::StatePlacement;
use tidegate_types::{AlignmentMode, RestoreMode, SnapshotLocation};
use url::Url;

/// Where checkpoints are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointLocation {
    /// In a directory; they survive the process.
    Directory(Url),
    /// In memory; they survive failures of the job's code only. Sinks that commit are refused.
    Memory,
    /// In memory, sinks that commit allowed: for tests.
    MemoryForTests,
}

impl CheckpointLocation {
    /// Whether checkpoints outlive the process.
    pub fn is_durable(&self) -> bool {
        matches!(self, CheckpointLocation::Directory(_))
    }
}

/// What a job without checkpoints of its own goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The folder of a savepoint, or of a checkpoint of any job.
    pub from: SnapshotLocation,
    /// Whether the job owns it from then on.
    pub mode: RestoreMode,
}

/// Failures on purpose, to see whether a pipeline's result is the same with them as without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFailures {
    /// Chooses the moments.
    pub seed: u64,
    /// How many there are, unless the job is over before.
    pub failures: u32,
}

/// How a job runs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The job's name. With the checkpoint directory it says which checkpoints are its own.
    pub name: String,
    /// Where checkpoints are kept.
    pub location: CheckpointLocation,
    /// When checkpoints are taken, and what happens after failures.
    pub settings: JobSettings,
    /// How barriers are aligned.
    pub mode: AlignmentMode,
    /// Which keyed state goes into files, and which lies in the metadata of checkpoints.
    pub placement: StatePlacement,
    /// A record waits no longer than this for its batch to fill.
    pub buffer_timeout: Duration,
    /// What to restore as long as nothing has completed in the job's own namespace.
    pub restore: Option<RestoreOptions>,
    /// Only find out whether the job could be restored: nothing runs, nothing is written.
    pub dry_run: bool,
    /// Whether records are serialised between workers as they would be between processes.
    pub serialize: bool,
    /// Failures on purpose: for tests.
    pub injected: Option<InjectedFailures>,
}
