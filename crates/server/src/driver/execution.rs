//! Where the attempts of a job run, as its driver sees it.

use std::sync::Arc;

use tidegate_coordinator::{JobEvent, NoticeTarget};
use tidegate_runtime::{AttemptMetrics, JobPlan};
use tidegate_types::message::Notice;
use tidegate_types::{AttemptNumber, CheckpointId, RestorePlan, Scale};

/// Takes what happens to attempts, from any thread, in order per thread. Doesn't block.
pub(crate) type Events = Arc<dyn Fn(JobEvent) + Send + Sync>;

/// An attempt to be started.
pub(crate) struct Launch {
    pub(crate) number: AttemptNumber,
    /// The job at the attempt's scale.
    pub(crate) plan: Arc<JobPlan>,
    pub(crate) scale: Scale,
    /// The checkpoint that `restore` is made of, if any.
    pub(crate) restored: Option<CheckpointId>,
    pub(crate) restore: RestorePlan,
    /// Counters to fill.
    pub(crate) metrics: AttemptMetrics,
}

/// Runs one attempt at a time. What happens to it is told to [`Events`]. Nothing here blocks the
/// driver, apart from [`settle`](Self::settle).
pub(crate) trait Execution: Send {
    /// Starts an attempt. What prevents that is told: [`JobEvent::AttemptLaunchFailed`].
    fn start(&mut self, launch: Launch);

    /// Passes a notice on, after all earlier ones of this attempt; ignored if another one runs.
    fn notify(&mut self, attempt: AttemptNumber, notice: Notice, to: NoticeTarget);

    /// Stops an attempt, also one that could not be started, then tells
    /// [`JobEvent::AttemptStopped`]. Idempotent.
    fn stop(&mut self, attempt: AttemptNumber);

    /// Stops whatever runs, and waits until everything has ended that was begun. Whether the job is
    /// over, or goes on elsewhere.
    fn settle(&mut self, over: bool);
}
