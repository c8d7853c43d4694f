//! Actions as scenario files show them.

use tidegate_coordinator::{
    Answer, JobAction, JobEnd, JobNote, NoticeTarget, Rescaled, RestartDecision, TriggerRefusal,
};
use tidegate_types::message::Notice;
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, Scale,
    SnapshotFormat, SnapshotKind, SnapshotLocation,
};

pub(crate) fn action(action: &JobAction) -> String {
    match action {
        JobAction::ReserveAttempt => "reserve-attempt".to_owned(),
        JobAction::StartAttempt {
            attempt,
            restore,
            scale,
            ..
        } => started(*attempt, *restore, *scale),
        JobAction::StopAttempt { attempt } => format!("stop {attempt}"),
        JobAction::Notify {
            attempt,
            notice,
            to,
        } => format!("notify {attempt} {}: {}", target(*to), self::notice(notice)),
        JobAction::ReserveIds { up_to } => format!("reserve-ids {up_to}"),
        JobAction::PublishMetadata(checkpoint) => {
            let files: Vec<FileHandle> = checkpoint.files().cloned().collect();
            let names = names(checkpoint.id, &checkpoint.location, &files);
            format!("publish {}{names}", checkpoint.id)
        }
        JobAction::StorePointer {
            checkpoint,
            location: None,
            ..
        } => format!("store-pointer {checkpoint}"),
        JobAction::StorePointer {
            checkpoint,
            location: Some(location),
            owner,
        } => format!("store-pointer {checkpoint} at {location}, {owner:?} owns it"),
        JobAction::DropCompleted { checkpoint, spared } => dropped(checkpoint, spared),
        JobAction::DiscardHistory(completed) => {
            let ids = completed
                .iter()
                .map(|completed| format!(" {}", completed.id));
            format!("discard-history{}", ids.collect::<String>())
        }
        JobAction::DiscardFiles {
            checkpoint,
            location,
            files,
            metadata,
        } => {
            let metadata = if *metadata { " metadata" } else { "" };
            format!(
                "discard {checkpoint}{}{metadata}{}",
                at(location),
                names(*checkpoint, location, files)
            )
        }
        JobAction::RecoverCompleted => "recover".to_owned(),
        JobAction::MarkFinished { checkpoint } => format!("mark-finished {checkpoint}"),
        JobAction::RecordParallelism { asked: None } => "record no parallelism".to_owned(),
        JobAction::RecordParallelism { asked: Some(asked) } => {
            format!("record parallelism {} for {}", asked.asked, asked.declared)
        }
        JobAction::RecordEnd { end } => format!("record that it was {end}"),
        JobAction::Answer { request, answer } => {
            format!("answer {request}: {}", self::answer(answer))
        }
        JobAction::PrepareSavepoint {
            checkpoint,
            location,
        } => format!("prepare {checkpoint} at {location}"),
        JobAction::Note(note) => format!("  ({})", self::note(note)),
        JobAction::End(end) => format!("end {}", self::end(end)),
    }
}

fn end(end: &JobEnd) -> String {
    match end {
        JobEnd::Finished => "finished".to_owned(),
        JobEnd::Cancelled => "cancelled".to_owned(),
        JobEnd::Suspended => "suspended".to_owned(),
        JobEnd::Failed(failure) => format!("failed: {failure}"),
        JobEnd::Stopped {
            savepoint,
            location,
            drained,
        } => {
            let how = match drained {
                true => "drained into",
                false => "stopped with",
            };
            format!("{how} {savepoint} at {location}")
        }
    }
}

fn at(location: &Option<SnapshotLocation>) -> String {
    let at = |location| format!(" at {location}");
    location.as_ref().map_or(String::new(), at)
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Completed(summary) => {
            format!("completed {}{}", summary.checkpoint, at(&summary.location))
        }
        Answer::Refused(reason) => format!("refused: {reason}"),
        Answer::Failed {
            checkpoint, reason, ..
        } => format!("{checkpoint} failed: {reason}"),
        Answer::NotStopped { savepoint, cause } => {
            let at = at(&savepoint.location);
            format!(
                "not stopped though {} is complete{at}: {cause}",
                savepoint.checkpoint
            )
        }
        Answer::Aborted { checkpoint } => format!("aborted {checkpoint}"),
        Answer::Rescaled(rescaled) => {
            let recorded = if rescaled.recorded {
                ""
            } else {
                ", not recorded"
            };
            format!("{}{recorded}", self::rescaled(rescaled))
        }
        Answer::NotRescaled(cause) => format!("not rescaled: {cause}"),
    }
}

fn rescaled(rescaled: &Rescaled) -> String {
    let Rescaled {
        from,
        to,
        checkpoint,
        downtime,
        ..
    } = rescaled;
    let by = checkpoint.map(|checkpoint| format!(" by {checkpoint} in {downtime:?}"));
    format!("rescaled from {from} to {to}{}", by.unwrap_or_default())
}

fn started(attempt: AttemptNumber, restore: Option<CheckpointId>, scale: Scale) -> String {
    let from = restore.map(|checkpoint| format!(" from {checkpoint}"));
    let at = |what, of: Option<u32>| of.map(|of| format!(" {what}={of}"));
    let scale = [
        at("parallelism", scale.parallelism),
        at("at-most", scale.at_most),
    ];
    let parts = [from].into_iter().chain(scale).flatten();
    format!("start {attempt}{}", parts.collect::<String>())
}

pub(crate) fn held_back(reason: Option<TriggerRefusal>) -> String {
    match reason {
        None => "not held back".to_owned(),
        Some(reason) => format!("held back: {reason}"),
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
            let format = match (barrier.format, barrier.base) {
                (SnapshotFormat::Full, None) => String::new(),
                (SnapshotFormat::Incremental, None) => " incremental".to_owned(),
                (SnapshotFormat::Incremental, Some(base)) => format!(" incremental on {base}"),
                (SnapshotFormat::Canonical, None) => " canonical".to_owned(),
                (full, Some(base)) => panic!("{full:?} on {base}"),
            };
            let (kind, at) = (suffix(barrier.kind), at(&barrier.location));
            format!("trigger {id}{kind}{format}{at} created={created}ms")
        }
        Notice::Completed { checkpoint } => format!("completed {checkpoint}"),
        Notice::Aborted {
            checkpoint,
            latest_completed: CheckpointId::NONE,
        } => format!("aborted {checkpoint}"),
        Notice::Aborted {
            checkpoint,
            latest_completed,
        } => format!("aborted {checkpoint}, latest completed {latest_completed}"),
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

fn dropped(checkpoint: &CompletedCheckpoint, spared: &[FileHandle]) -> String {
    let goes = |file: &&FileHandle| !spared.contains(file) && !checkpoint.owns(file);
    let older: Vec<FileHandle> = checkpoint.files().filter(goes).cloned().collect();
    let list = |what: &str, files: &[FileHandle]| match files {
        [] => String::new(),
        files => format!("{what}{}", names(checkpoint.id, &None, files)),
    };
    let (with, sparing) = (list(" with", &older), list(", sparing", spared));
    format!("drop {}{with}{sparing}", checkpoint.id)
}

/// Names without the folder that the checkpoint has to itself.
fn names(id: CheckpointId, at: &Option<SnapshotLocation>, files: &[FileHandle]) -> String {
    let name = |file: &FileHandle| {
        let own = file.is_of(id, at.as_ref());
        let short = file.name.rsplit('/').next().filter(|_| own);
        format!(" {}", short.unwrap_or(&file.name))
    };
    files.iter().map(name).collect()
}

fn note(note: &JobNote) -> String {
    match note {
        JobNote::CheckpointCompleted {
            checkpoint,
            kind,
            bytes,
            new_bytes,
            duration,
        } => {
            let rests = new_bytes != bytes;
            let new = rests.then(|| format!(" ({new_bytes} new)"));
            let (new, kind) = (new.unwrap_or_default(), suffix(*kind));
            format!("{checkpoint}{kind} completed, {bytes} bytes{new} in {duration:?}")
        }
        JobNote::CheckpointAborted {
            checkpoint,
            kind,
            reason,
        } => format!("{checkpoint}{} aborted: {reason}", suffix(*kind)),
        JobNote::TriggerFailed { cause } => format!("no trigger: {cause}"),
        JobNote::Rescaling { from, to, reason } => {
            format!("rescaling from {from} to {to} {reason}")
        }
        JobNote::Rescaled(rescaled) => self::rescaled(rescaled),
        JobNote::NotRescaled { cause } => format!("not rescaled: {cause}"),
        JobNote::EndNotRecorded { cause } => format!("end not recorded: {cause}"),
        JobNote::ParallelismForgotten(AskedParallelism { declared, asked }) => {
            format!("parallelism {asked} for {declared} forgotten")
        }
        JobNote::ParallelismNotRecorded { cause } => format!("parallelism not recorded: {cause}"),
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
