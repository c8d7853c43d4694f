//! Where the job keeps its checkpoints: what is found there before anything runs, and what is left
//! after the end.

use tidegate_runtime::JobPlan;
use tidegate_storage::{
    Candidate, Ended, HaLocation, JobStore, LeaderElection, Leadership, MemoryNamespace,
    NamespaceStatus, RestoreFrom, StorageError, last_ended, parse_snapshot_path,
};
use tidegate_types::graph::OperatorRole;
use tidegate_types::{ErrorChain, OrderedEnd};
use tokio::runtime::Handle;

use crate::error::RunError;
use crate::options::{CheckpointLocation, JobOptions};

/// The job's namespace.
pub(crate) struct Namespace {
    pub(crate) store: JobStore,
    pub(crate) finished: bool,
    /// How somebody has ended the job, if this process wasn't started afterwards.
    pub(crate) ended: Option<OrderedEnd>,
    /// What to begin from as long as nothing has completed.
    pub(crate) from: Option<RestoreFrom>,
    /// The leadership that it was won with, if there was an election.
    pub(crate) leadership: Option<Leadership>,
}

/// Where the leader is elected, how, and who wants to be it.
pub(crate) struct Election<'a> {
    pub(crate) location: &'a HaLocation,
    pub(crate) campaign: &'a dyn LeaderElection,
    pub(crate) candidate: Candidate,
}

impl Namespace {
    /// Opens it and owns it until the last clone of `store` is dropped.
    pub(crate) async fn open(options: &JobOptions, runtime: &Handle) -> Result<Self, RunError> {
        let opened = async {
            let (name, runtime) = (&options.name, runtime.clone());
            let (store, status) = match &options.location {
                CheckpointLocation::Directory(directory) => {
                    JobStore::open(directory, name, runtime).await?
                }
                CheckpointLocation::Memory | CheckpointLocation::MemoryForTests => {
                    in_memory(name, runtime).await?
                }
            };
            let ended = store.ended().await?.filter(|ended| !ended.left);
            Ok(Namespace {
                ended: ended.map(|ended| ended.end),
                ..Self::new(store, status, options)?
            })
        };
        opened.await.map_err(storage(options))
    }

    /// Waits until this process leads the job, then opens the namespace.
    pub(crate) async fn lead(
        options: &JobOptions,
        runtime: &Handle,
        election: Election<'_>,
    ) -> Result<Self, RunError> {
        let CheckpointLocation::Directory(directory) = &options.location else {
            return Err(RunError::NeedsSharedCheckpoints);
        };
        let led = async {
            let Election {
                location,
                campaign,
                candidate,
            } = election;
            let name = &options.name;
            let ended_before = last_ended(campaign).await?;
            tracing::info!(store = %location, "waiting for the lead");
            let leadership = campaign.campaign(&candidate).await?;
            tracing::info!(epoch = %leadership.epoch(), "this JobManager leads");
            let records = leadership.records();
            let opened = JobStore::open_with(directory, records, name, runtime.clone());
            let (store, status) = opened.await?;
            let meanwhile = |ended: &Ended| Some(ended.epoch) != ended_before || !ended.left;
            let ended = store.ended().await?.filter(meanwhile);
            Ok(Namespace {
                leadership: Some(leadership),
                ended: ended.map(|ended| ended.end),
                ..Self::new(store, status, options)?
            })
        };
        led.await.map_err(storage(options))
    }

    /// Looks at it, whoever owns it. Nothing is written, and writes through `store` are lost.
    pub(crate) async fn inspect(options: &JobOptions, runtime: &Handle) -> Result<Self, RunError> {
        let inspected = async {
            let (name, runtime) = (&options.name, runtime.clone());
            let found = match &options.location {
                CheckpointLocation::Directory(directory) => {
                    JobStore::inspect(directory, name, runtime.clone()).await?
                }
                CheckpointLocation::Memory | CheckpointLocation::MemoryForTests => None,
            };
            let (store, status) = match found {
                Some(found) => found,
                // As good as new: there is nothing yet.
                None => in_memory(name, runtime).await?,
            };
            Self::new(store, status, options)
        };
        inspected.await.map_err(storage(options))
    }

    fn new(
        store: JobStore,
        status: NamespaceStatus,
        options: &JobOptions,
    ) -> Result<Self, StorageError> {
        let restore = options.restore.as_ref();
        let from = restore.map(|restore| {
            parse_snapshot_path(restore.from.as_str()).map(|location| RestoreFrom {
                location,
                mode: restore.mode,
            })
        });
        Ok(Namespace {
            store,
            finished: matches!(status, NamespaceStatus::Finished { .. }),
            ended: None,
            from: from.transpose()?,
            leadership: None,
        })
    }

    /// A job that has finished begins from nothing any more.
    pub(crate) async fn refuse_new_origin(&self, options: &JobOptions) -> Result<(), RunError> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        let recorded = self.store.origin().await.map_err(storage(options))?;
        if recorded.is_some_and(|recorded| recorded.location == from.location) {
            return Ok(());
        }
        Err(RunError::HasFinished {
            job: options.name.clone(),
            namespace: self.store.folder().display().to_string(),
            from: from.location.clone(),
        })
    }
}

async fn in_memory(
    name: &str,
    runtime: Handle,
) -> Result<(JobStore, NamespaceStatus), StorageError> {
    JobStore::open_in_memory(&MemoryNamespace::default(), name, runtime).await
}

/// How an error of the storage is told.
pub(crate) fn storage(options: &JobOptions) -> impl Fn(StorageError) -> RunError + use<> {
    let job = options.name.clone();
    move |cause| RunError::Storage {
        job: job.clone(),
        cause,
    }
}

/// Refuses sinks that would promise what nobody keeps.
pub(crate) fn check_sinks(plan: &JobPlan, options: &JobOptions) -> Result<(), RunError> {
    let operators = &plan.graph().operators;
    let mut commits = operators
        .iter()
        .filter(|op| op.role == OperatorRole::CommittingSink);
    match commits.next() {
        Some(sink) if options.location == CheckpointLocation::Memory => {
            Err(RunError::NeedsCheckpoints {
                uid: sink.uid.0.clone(),
            })
        }
        _ => Ok(()),
    }
}

/// Whoever starts the job from now on means to go on with it, though somebody has ended it.
pub(crate) async fn leave_ended(store: &JobStore) {
    if let Err(error) = store.leave_ended().await {
        let error = ErrorChain(&error);
        tracing::warn!(%error, "the next start will say that the job was ended, and no more");
    }
}

/// A clean end leaves no orphans, and one that finished no checkpoints.
/// What can't be swept is named and left.
pub(crate) async fn sweep(store: &JobStore) {
    if let Err(error) = store.sweep_after_end().await {
        let error = ErrorChain(&error);
        tracing::warn!(%error, "could not sweep the namespace after the end of the job");
    }
}
