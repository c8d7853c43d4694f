//! The state files of this process's part of an attempt, and the copies of them that its
//! TaskManager keeps for the next one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_types::message::{Notice, Report, RestoredFiles};
use tidegate_types::{AttemptNumber, CheckpointId, FileHandle, JobId, RestorePart};
use tokio::runtime::Handle;

use super::{Ending, job};
use crate::cluster::wire::{BadMessage, Deployment};
use crate::files::StoredFiles;
use crate::local_recovery::{LocalCopies, RecoverableFiles, of_job};

/// What is restored, and of which attempt.
pub(super) struct Restoring {
    pub(super) job: JobId,
    pub(super) attempt: AttemptNumber,
    pub(super) restored: Option<CheckpointId>,
    pub(super) part: RestorePart,
}

impl Restoring {
    pub(super) fn new(deployment: Deployment) -> Result<Self, Ending> {
        let job = job(&deployment);
        let subtasks = deployment.restore.into_iter().map(TryInto::try_into);
        let subtasks: Result<_, BadMessage> = subtasks.collect();
        Ok(Restoring {
            job,
            attempt: AttemptNumber(deployment.attempt),
            restored: deployment.restored.map(CheckpointId),
            part: RestorePart {
                subtasks: subtasks.map_err(|bad| Ending(bad.to_string()))?,
            },
        })
    }
}

/// State files, and what is to be done about copies of them.
#[derive(Clone)]
pub(super) struct PartState {
    pub(super) files: Arc<RecoverableFiles>,
    copies: Option<Arc<LocalCopies>>,
    /// Subtasks that don't run yet.
    starting: Arc<AtomicUsize>,
    runtime: Handle,
}

impl PartState {
    /// What can't be had of copies is logged, and done without.
    pub(super) fn new(
        stored: StoredFiles,
        folder: Option<&Path>,
        restoring: &Restoring,
        runtime: Handle,
    ) -> Self {
        let copies = folder.and_then(|folder| open(folder, restoring, &runtime));
        let copies = copies.map(Arc::new);
        let files = RecoverableFiles::new(stored, restoring.restored, copies.clone());
        PartState {
            files: Arc::new(files),
            copies,
            starting: Arc::new(AtomicUsize::new(restoring.part.subtasks.len())),
            runtime,
        }
    }

    /// Takes note of what a subtask says before anybody hears it. Once, when the last of them runs,
    /// gives what all of them were restored from.
    pub(super) fn on_report(&self, report: &Report) -> Option<RestoredFiles> {
        match (report, &self.copies) {
            (
                Report::Acknowledged {
                    checkpoint, state, ..
                },
                Some(copies),
            ) => {
                copies.acknowledged(*checkpoint, state.files());
                None
            }
            (Report::Running { .. }, _) => {
                let before = self.starting.fetch_sub(1, Ordering::AcqRel);
                (before == 1).then(|| self.files.restored())
            }
            _ => None,
        }
    }

    /// Drops copies that nothing needs any more, in the background. In whatever order that is done,
    /// what is needed stays.
    pub(super) fn on_notice(&self, notice: &Notice) {
        let Some(copies) = &self.copies else {
            return;
        };
        let copies = Arc::clone(copies);
        match *notice {
            Notice::Completed { checkpoint } => {
                self.runtime
                    .spawn_blocking(move || copies.completed(checkpoint));
            }
            Notice::Aborted {
                checkpoint,
                latest_completed,
            } => {
                self.runtime.spawn_blocking(move || {
                    copies.aborted(checkpoint);
                    copies.completed(latest_completed);
                });
            }
            Notice::Trigger(_) => {}
        }
    }
}

fn open(folder: &Path, restoring: &Restoring, runtime: &Handle) -> Option<LocalCopies> {
    let folder = of_job(folder, restoring.job);
    let restores = restoring.part.subtasks.values();
    let keyed = restores.flat_map(|restore| &restore.keyed);
    let files: Vec<FileHandle> = keyed.flat_map(|keyed| keyed.files().cloned()).collect();
    let opened = LocalCopies::open(
        folder.clone(),
        restoring.attempt,
        restoring.restored,
        &files,
    );
    match opened {
        Ok((copies, leftovers)) => {
            runtime.spawn_blocking(|| leftovers.remove());
            Some(copies)
        }
        Err(cause) => {
            let folder = folder.display();
            tracing::warn!(%folder, %cause, "this attempt goes without local copies of state");
            None
        }
    }
}
