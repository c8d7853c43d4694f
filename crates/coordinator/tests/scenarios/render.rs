//! Actions as scenario files show them.

use tidegate_coordinator::{JobAction, JobEnd, JobNote, NoticeTarget, RestartDecision};
use tidegate_types::message::Notice;
use tidegate_types::{FileHandle, SnapshotKind};

pub(crate) fn action(action: &JobAction) -> String {
    match action {
        JobAction::ReserveAttempt => "reserve-attempt".to_owned(),
        JobAction::StartAttempt {
            attempt,
            restore: None,
            ..
        } => format!("start {attempt}"),
        JobAction::StartAttempt {
            attempt,
            restore: Some(checkpoint),
            ..
        } => format!("start {attempt} from {checkpoint}"),
        JobAction::StopAttempt { attempt } => format!("stop {attempt}"),
        JobAction::Notify {
            attempt,
            notice,
            to,
        } => format!("notify {attempt} {}: {}", target(*to), self::notice(notice)),
        JobAction::ReserveIds { up_to } => format!("reserve-ids {up_to}"),
        JobAction::PublishMetadata(checkpoint) => {
            let files: Vec<FileHandle> = checkpoint.files().cloned().collect();
            format!("publish {}{}", checkpoint.id, names(&files))
        }
        JobAction::StorePointer { checkpoint, .. } => format!("store-pointer {checkpoint}"),
        JobAction::DropCompleted(checkpoint) => format!("drop {}", checkpoint.id),
        JobAction::DiscardFiles {
            checkpoint,
            files,
            metadata,
            ..
        } => {
            let metadata = if *metadata { " metadata" } else { "" };
            format!("discard {checkpoint}{metadata}{}", names(files))
        }
        JobAction::RecoverCompleted => "recover".to_owned(),
        JobAction::MarkFinished { checkpoint } => format!("mark-finished {checkpoint}"),
        JobAction::Answer { answer, .. } => format!("answer {answer:?}"),
        JobAction::PrepareSavepoint { checkpoint, .. } => format!("prepare {checkpoint}"),
        JobAction::Note(note) => format!("  ({})", self::note(note)),
        JobAction::End(JobEnd::Finished) => "end finished".to_owned(),
        JobAction::End(JobEnd::Stopped { savepoint, .. }) => format!("end stopped {savepoint}"),
        JobAction::End(JobEnd::Cancelled) => "end cancelled".to_owned(),
        JobAction::End(JobEnd::Failed(failure)) => format!("end failed: {failure}"),
    }
}

fn target(target: NoticeTarget) -> &'static str {
    match target {
        NoticeTarget::Enumerators => "enumerators",
        NoticeTarget::All => "all",
    }
}

fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Trigger(barrier) => {
            let (id, created) = (barrier.checkpoint, barrier.created.0);
            format!("trigger {id}{} created={created}ms", suffix(barrier.kind))
        }
        Notice::Completed { checkpoint } => format!("completed {checkpoint}"),
        Notice::Aborted { checkpoint, .. } => format!("aborted {checkpoint}"),
    }
}

fn suffix(kind: SnapshotKind) -> &'static str {
    match kind {
        SnapshotKind::Checkpoint => "",
        SnapshotKind::Final => " final",
        SnapshotKind::Savepoint => " savepoint",
        SnapshotKind::StopWithSavepoint { drain: false } => " stop",
        SnapshotKind::StopWithSavepoint { drain: true } => " drain",
    }
}

fn names(files: &[FileHandle]) -> String {
    files.iter().map(|file| format!(" {}", file.name)).collect()
}

fn note(note: &JobNote) -> String {
    match note {
        JobNote::CheckpointCompleted {
            checkpoint,
            kind,
            bytes,
            duration,
        } => format!(
            "{checkpoint}{} completed, {bytes} bytes in {duration:?}",
            suffix(*kind)
        ),
        JobNote::CheckpointAborted {
            checkpoint,
            kind,
            reason,
        } => format!("{checkpoint}{} aborted: {reason}", suffix(*kind)),
        JobNote::TriggerFailed { cause } => format!("no trigger: {cause}"),
        JobNote::AttemptFailed {
            attempt,
            reason,
            decision,
        } => {
            let attempt = attempt.map_or("job".to_owned(), |attempt| attempt.to_string());
            let decision = match decision {
                RestartDecision::RestartAfter(delay) => format!("restart after {delay:?}"),
                RestartDecision::GiveUp => "give up".to_owned(),
            };
            format!("{attempt} failed: {reason}; {decision}")
        }
    }
}
