//! What the log says of a job's news.

use tidegate_coordinator::JobNote;
use tidegate_types::AskedParallelism;

use super::recovery::Milestone;

pub(super) fn log(note: &JobNote) {
    match note {
        JobNote::CheckpointCompleted {
            checkpoint,
            bytes,
            new_bytes,
            duration,
            ..
        } => {
            tracing::debug!(%checkpoint, bytes, new_bytes, ?duration, "checkpoint completed");
        }
        JobNote::CheckpointAborted {
            checkpoint, reason, ..
        } => {
            tracing::warn!(%checkpoint, %reason, "checkpoint aborted");
        }
        JobNote::TriggerFailed { cause } => {
            tracing::warn!(cause, "no checkpoint could be triggered");
        }
        JobNote::AttemptFailed {
            attempt,
            reason,
            decision,
        } => {
            let attempt = attempt.map(|attempt| attempt.to_string());
            tracing::info!(attempt, %reason, %decision, "attempt failed");
        }
        JobNote::Rescaling { from, to, reason } => {
            tracing::info!(from, to, %reason, "the job gets another parallelism");
        }
        JobNote::Rescaled(rescaled) => {
            let (from, to, downtime) = (rescaled.from, rescaled.to, rescaled.downtime);
            tracing::info!(from, to, ?downtime, "the job has been rescaled");
        }
        JobNote::NotRescaled { cause } => {
            tracing::warn!(%cause, "the job was not rescaled");
        }
        JobNote::ParallelismForgotten(AskedParallelism { declared, asked }) => {
            tracing::info!(
                "the job was rescaled to {asked} when it had been started with a parallelism of \
                 {declared}; it has been started with another one now, which holds"
            );
        }
        JobNote::EndNotRecorded { cause } => {
            tracing::warn!(
                cause,
                "a JobManager that waits for the lead, or is started again, may go on with the job"
            );
        }
        JobNote::ParallelismNotRecorded { cause } => {
            tracing::warn!(
                cause,
                "whoever goes on with the job may not know that it has been rescaled"
            );
        }
    }
}

pub(super) fn log_milestone(milestone: Option<Milestone>) {
    if let Some(Milestone {
        what,
        attempt,
        after,
    }) = milestone
    {
        tracing::info!(%attempt, ?after, "{what}");
    }
}
