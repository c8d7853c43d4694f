//! What the log says of a job's news.

use tidegate_coordinator::JobNote;

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
