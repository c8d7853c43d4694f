//! Runs a job inside the calling process.

use std::sync::Arc;
use std::time::Duration;

use tidegate_coordinator::{
    DurableFacts, Job, JobEnd, JobError, JobFailure, JobSettings, Recovery, SettingsError,
    Statistics,
};
use tidegate_runtime::sink::SubmitContext;
use tidegate_runtime::{CheckError, JobPlan};
use tidegate_storage::{JobStore, NamespaceStatus, StorageError};
use tidegate_types::graph::GraphError;
use tidegate_types::{
    AlignmentMode, AttemptNumber, CheckpointId, CompletedCheckpoint, RestoreMode, SnapshotLocation,
};
use url::Url;

use crate::clock::Clock;
use crate::driver::{AttemptOptions, Driver};
use crate::memory::MemoryStore;
use crate::progress::Observer;
use crate::store::Store;

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

/// What a job without checkpoints of its own goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The folder of a savepoint, or of a checkpoint of any job.
    pub from: SnapshotLocation,
    /// Whether the job owns it from then on.
    pub mode: RestoreMode,
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
    /// A record waits no longer than this for its batch to fill.
    pub buffer_timeout: Duration,
    /// What to restore as long as nothing has completed in the job's own namespace.
    pub restore: Option<RestoreOptions>,
    /// Only find out whether the job could be restored: nothing runs, nothing is written.
    pub dry_run: bool,
    /// Whether records are serialised between workers as they would be between processes.
    pub serialize: bool,
}

/// What a job has done in this process.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Whether the job had finished before; then nothing was done.
    pub already_finished: bool,
    /// The checkpoint that the first attempt went on from.
    pub restored: Option<CheckpointId>,
    /// Records that the sources emitted, replayed ones included.
    pub records: u64,
    /// From the start of the first attempt to the end.
    pub elapsed: Duration,
    /// Checkpoints and restarts.
    pub statistics: Statistics,
}

/// Why a job could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job graph is wrong.
    #[error("the job graph is invalid")]
    Graph(#[source] GraphError),
    /// A setting is wrong.
    #[error("the settings are invalid")]
    Settings(#[source] SettingsError),
    /// This version can't do what was asked for, and doesn't do something else instead.
    #[error("`{setting}` is not supported yet")]
    Unsupported {
        /// The setting.
        setting: &'static str,
    },
    /// Exactly-once output needs somewhere to keep its transactions.
    #[error(
        "the sink `{uid}` commits its output with checkpoints, but there is no checkpoint \
         directory; pass --checkpoint-dir"
    )]
    NeedsCheckpoints {
        /// The sink.
        uid: String,
    },
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
    /// The job would block a thread that other tasks wait for.
    #[error(
        "a job blocks its thread and can't be run on a Tokio task; run it on a thread of its own \
         (`tokio::task::spawn_blocking` doesn't do: use `std::thread`)"
    )]
    InsideTokio,
    /// The operating system refused threads.
    #[error("start the threads for storage")]
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
    #[error("job `{job}` was cancelled; its checkpoints are kept")]
    Cancelled {
        /// Name of the job.
        job: String,
    },
}

/// Runs a job until it is finished or fails for good, on as many worker threads as its largest
/// parallelism. Blocks.
///
/// It goes on from the latest completed checkpoint in the job's namespace. Before that it removes
/// files that no completed checkpoint refers to; at a clean end no others are left, and the
/// namespace says that the job is finished.
///
/// # Errors
/// See [`RunError`]. Whatever the error, completed checkpoints are kept, and the same call goes on
/// from the latest of them.
pub fn run(
    plan: JobPlan,
    options: &JobOptions,
    observer: &mut dyn Observer,
) -> Result<JobReport, RunError> {
    check_before_start(&plan, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("storage")
        .enable_time()
        .build()
        .map_err(RunError::Threads)?;
    let namespace = runtime.block_on(Namespace::open(&plan, options, runtime.handle()))?;
    if namespace.finished {
        return Ok(already_finished());
    }
    let restored = namespace.completed.last().map(|checkpoint| checkpoint.id);
    let store = namespace.store.clone();
    let job = prepare(&plan, options, namespace)?;

    let began = Clock::start();
    let attempts = AttemptOptions {
        mode: options.mode,
        buffer_timeout: options.buffer_timeout,
        serialize: options.serialize,
    };
    let handle = runtime.handle().clone();
    let mut driver = Driver::new(
        job,
        Arc::new(plan),
        store.clone(),
        attempts,
        handle,
        observer,
    );
    let (end, records) = driver.run();
    let report = JobReport {
        already_finished: false,
        restored,
        records,
        elapsed: began.elapsed(),
        statistics: driver.job().statistics().clone(),
    };
    conclude(end, report, &options.name, || {
        runtime.block_on(sweep(&store));
    })
}

fn check_before_start(plan: &JobPlan, options: &JobOptions) -> Result<(), RunError> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(RunError::InsideTokio);
    }
    plan.validate().map_err(RunError::Graph)?;
    options.settings.validate().map_err(RunError::Settings)?;
    for (asked, setting) in [
        (options.restore.is_some(), "restore-from"),
        (options.dry_run, "dry-run"),
    ] {
        if asked {
            return Err(RunError::Unsupported { setting });
        }
    }
    if cfg!(panic = "abort") {
        tracing::warn!(
            "this program is built with panic = \"abort\": a panic in the job's code ends the \
             process instead of restarting the job"
        );
    }
    Ok(())
}

/// Lets sources and sinks check their configuration, and makes the coordinator of the job.
fn prepare(plan: &JobPlan, options: &JobOptions, namespace: Namespace) -> Result<Job, RunError> {
    let job = namespace.store.job();
    let fresh = namespace.completed.is_empty();
    plan.check(SubmitContext { job, fresh })
        .map_err(RunError::Check)?;
    let settings = options.settings.clone();
    let recovery = Recovery {
        completed: namespace.completed,
        origin: None,
        facts: namespace.facts,
    };
    Job::new(job, plan.graph().clone(), settings, recovery).map_err(|cause| RunError::Restore {
        job: options.name.clone(),
        cause,
    })
}

fn conclude(
    end: JobEnd,
    report: JobReport,
    name: &str,
    sweep: impl FnOnce(),
) -> Result<JobReport, RunError> {
    let job = name.to_owned();
    match end {
        JobEnd::Finished => {
            sweep();
            Ok(report)
        }
        JobEnd::Stopped { .. } => Ok(report),
        JobEnd::Cancelled => Err(RunError::Cancelled { job }),
        JobEnd::Failed(cause) => Err(RunError::Failed { job, cause }),
    }
}

fn already_finished() -> JobReport {
    JobReport {
        already_finished: true,
        restored: None,
        records: 0,
        elapsed: Duration::ZERO,
        statistics: Statistics::default(),
    }
}

/// What is found where the job keeps its checkpoints.
struct Namespace {
    store: Store,
    completed: Vec<CompletedCheckpoint>,
    facts: DurableFacts,
    finished: bool,
}

impl Namespace {
    async fn open(
        plan: &JobPlan,
        options: &JobOptions,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Namespace, RunError> {
        let committing = plan
            .graph()
            .operators
            .iter()
            .find(|op| op.role == tidegate_types::graph::OperatorRole::CommittingSink);
        match (&options.location, committing) {
            (CheckpointLocation::Memory, Some(sink)) => Err(RunError::NeedsCheckpoints {
                uid: sink.uid.0.clone(),
            }),
            (CheckpointLocation::Memory | CheckpointLocation::MemoryForTests, _) => Ok(Namespace {
                store: Store::Memory(MemoryStore::default()),
                completed: Vec::new(),
                facts: DurableFacts::default(),
                finished: false,
            }),
            (CheckpointLocation::Directory(directory), _) => {
                Self::open_directory(directory, &options.name, runtime)
                    .await
                    .map_err(|cause| RunError::Storage {
                        job: options.name.clone(),
                        cause,
                    })
            }
        }
    }

    async fn open_directory(
        directory: &Url,
        name: &str,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Namespace, StorageError> {
        let (store, status) = JobStore::open(directory, name, runtime.clone()).await?;
        let finished = matches!(status, NamespaceStatus::Finished { .. });
        let completed = store.recover().await?;
        if let Some(latest) = completed.last() {
            // Before anything runs: an attempt that can't restore would only be tried again.
            store.verify_files(latest).await?;
        }
        // Ordering: ids are also found by the names of folders, which the sweep may remove.
        let checkpoint_max = store.reserved_ids().await?;
        // Also of a finished job: it may have been killed between its marker and its last sweep.
        store.sweep_orphans(&completed).await?;
        let facts = DurableFacts {
            checkpoint_max,
            // The store itself never gives out an attempt number twice.
            attempt_max: AttemptNumber(0),
        };
        Ok(Namespace {
            store: Store::Durable(store),
            completed,
            facts,
            finished,
        })
    }
}

/// A clean end leaves no orphans. What can't be swept is named and left.
async fn sweep(store: &Store) {
    let Store::Durable(store) = store else { return };
    let swept = async {
        let live = store.recover().await?;
        store.sweep_orphans(&live).await
    };
    if let Err(error) = swept.await {
        tracing::warn!(%error, "could not sweep the namespace after the end of the job");
    }
}
