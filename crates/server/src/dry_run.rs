//! Whether a job could go on from what it would go on from, found out without owning, writing or
//! starting anything.

use tidegate_coordinator::{RestoreOutlook, preview_restore};
use tidegate_runtime::JobPlan;
use tidegate_types::ErrorChain;
use tokio::runtime::Handle;

use crate::error::RunError;
use crate::namespace::{Namespace, storage};
use crate::options::JobOptions;
use crate::report::{JobOutcome, JobReport};
use crate::restore::{damaged_files, latest};

/// Looks at everything that a start would look at, and at the contents of all files besides.
///
/// # Errors
/// Whatever a start would fail with, as far as storage and checkpoint are concerned;
/// [`RunError::NotRestorable`] with all reasons at once.
pub(crate) async fn dry_run(
    plan: &JobPlan,
    options: &JobOptions,
    runtime: &Handle,
) -> Result<JobReport, RunError> {
    let namespace = Namespace::inspect(options, runtime).await?;
    if namespace.finished {
        namespace.refuse_new_origin(options).await?;
        return Ok(JobReport::without_a_run(JobOutcome::AlreadyFinished));
    }
    let from = namespace.from.as_ref();
    let resumed = namespace.store.preview_resume(from).await;
    let resumed = resumed.map_err(storage(options))?;
    let Some(snapshot) = latest(&resumed) else {
        return Ok(JobReport::without_a_run(JobOutcome::DryRun(None)));
    };
    let allow = options.settings.allow_non_restored_state;
    let outlook = preview_restore(plan.graph(), snapshot, allow);
    let damaged = damaged_files(&namespace.store, snapshot).await;
    let damaged: Vec<String> = damaged.iter().map(|e| ErrorChain(e).to_string()).collect();
    if damaged.is_empty() && outlook.is_possible() {
        let report = JobReport::without_a_run(JobOutcome::DryRun(Some(outlook)));
        return Ok(JobReport {
            restored: Some(snapshot.id),
            ..report
        });
    }
    Err(RunError::NotRestorable {
        job: options.name.clone(),
        reasons: reasons(&outlook, damaged),
    })
}

fn reasons(outlook: &RestoreOutlook, damaged: Vec<String>) -> Vec<String> {
    let problems = outlook.problems.iter().map(ToString::to_string);
    problems.chain(damaged).collect()
}
