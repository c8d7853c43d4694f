//! What a job shows while it runs and when it is done, on standard error.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use tidegate_coordinator::{CompletedSummary, JobNote, RestoredSummary, Statistics, Summary};
use tidegate_server::{JobOutcome, JobReport, Observer, Progress};
use tidegate_types::message::RestoredFiles;

/// Rates are shown over about this time.
const RATE_WINDOW: Duration = Duration::from_millis(500);

/// One line that is redrawn, and plain lines for what should stay. Clones draw the same line.
#[derive(Clone)]
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    measured: (Instant, u64),
    rate: f64,
}

impl ProgressLine {
    /// With `animate`, the line is drawn; the plain lines are printed in any case.
    pub(crate) fn new(animate: bool) -> Self {
        let bar = if animate {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        ProgressLine {
            bar,
            measured: (Instant::now(), 0),
            rate: 0.0,
        }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    fn measure(&mut self, records: u64) {
        let (since, before) = self.measured;
        let elapsed = since.elapsed();
        if elapsed >= RATE_WINDOW {
            self.rate = records.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            self.measured = (Instant::now(), records);
        }
    }

    /// Clears the line and prints what the job has done.
    pub(crate) fn finish(self, report: Option<&JobReport>) {
        self.bar.finish_and_clear();
        let Some(report) = report else { return };
        for line in summary(report) {
            eprintln!("{line}");
        }
    }
}

impl Observer for ProgressLine {
    fn on_attempt(&mut self, restored: Option<&RestoredSummary>) {
        let Some(restored) = restored else {
            return self.say("starting without a checkpoint");
        };
        match &restored.location {
            Some(location) => self.say(&format!("going on from {location}")),
            None => self.say(&format!("going on from {}", restored.checkpoint)),
        }
    }

    fn on_note(&mut self, note: &JobNote) {
        if let JobNote::AttemptFailed {
            reason, decision, ..
        } = note
        {
            self.say(&format!("the attempt failed: {reason}; {decision}"));
        }
    }

    fn on_progress(&mut self, progress: Progress<'_>) {
        self.measure(progress.records);
        let rate = HumanCount(self.rate as u64);
        let records = HumanCount(progress.records);
        let checkpoint = checkpoint(&progress);
        self.bar
            .set_message(format!("{records} records, {rate}/s; {checkpoint}"));
        self.bar.tick();
    }
}

/// What there is to say about checkpoints.
fn checkpoint(progress: &Progress<'_>) -> String {
    if let Some(waiting) = progress.waiting_for {
        return waiting.to_string();
    }
    match &progress.statistics.latest_completed {
        None => "no checkpoint yet".to_owned(),
        Some(latest) => format!(
            "{}, {}, {:.0?}",
            latest.checkpoint,
            size(latest),
            latest.duration
        ),
    }
}

/// Bytes of a checkpoint's state, and how many of them are new if it rests on another one.
fn size(completed: &CompletedSummary) -> String {
    let bytes = HumanBytes(completed.bytes);
    match completed.new_bytes == completed.bytes {
        true => bytes.to_string(),
        false => format!("{bytes} ({} new)", HumanBytes(completed.new_bytes)),
    }
}

/// Shows nothing, but logs what somebody should know of.
pub(crate) struct LogFailures;

impl Observer for LogFailures {
    fn on_note(&mut self, note: &JobNote) {
        if let JobNote::AttemptFailed {
            reason, decision, ..
        } = note
        {
            tracing::warn!(%reason, %decision, "the attempt failed");
        }
    }
}

/// Prints what a dry run has found, to standard output.
#[allow(clippy::print_stdout, reason = "it is what was asked for")]
pub(crate) fn print_dry_run(report: &JobReport) {
    println!("{}", report.outcome);
}

fn summary(report: &JobReport) -> Vec<String> {
    let nothing_ran = matches!(
        report.outcome,
        JobOutcome::AlreadyFinished | JobOutcome::AlreadyEnded(_)
    );
    if nothing_ran {
        return vec![report.outcome.to_string()];
    }
    let seconds = report.elapsed.as_secs_f64();
    let rate = (report.records as f64 / seconds.max(1e-9)) as u64;
    let records = HumanCount(report.records);
    let mut lines = vec![format!(
        "{records} records in {seconds:.2} s, {} records/s",
        HumanCount(rate)
    )];
    lines.extend(checkpoints(&report.statistics));
    if report.outcome != JobOutcome::Finished {
        lines.push(report.outcome.to_string());
    }
    lines
}

fn checkpoints(statistics: &Statistics) -> Vec<String> {
    let Statistics {
        completed,
        failed,
        restarts,
        ..
    } = statistics;
    let mut counts = format!("{completed} checkpoints completed, {failed} failed");
    if *restarts > 0 {
        counts += &format!(", {restarts} restarts");
    }
    let mut lines = vec![counts];
    lines.extend(sizes(statistics));
    lines.extend(restored(&statistics.restored_files));
    let took = distribution(&statistics.duration_ms, "ms");
    lines.extend(took.map(|took| format!("from trigger to completion: {took}")));
    let paused = distribution(&statistics.sync_us, "µs");
    lines.extend(paused.map(|paused| format!("barriers paused a subtask for: {paused}")));
    let aligned = distribution(&statistics.alignment_us, "µs");
    lines.extend(aligned.map(|aligned| format!("a subtask aligned its inputs for: {aligned}")));
    lines
}

/// How much state checkpoints held, and how much was written for them all if they shared any.
/// Nothing if they held none.
fn sizes(statistics: &Statistics) -> Option<String> {
    let held = &statistics.bytes;
    let (p50, max) = (held.p50()?, held.max().filter(|max| *max > 0)?);
    let mut line = format!(
        "state in a checkpoint: p50 {}, max {}",
        HumanBytes(p50),
        HumanBytes(max)
    );
    if statistics.new_bytes.sum() < held.sum() {
        let total = |summary: &Summary| {
            HumanBytes(u64::try_from(summary.sum()).unwrap_or(u64::MAX)).to_string()
        };
        line += &format!(
            "; {} written in all, instead of {}",
            total(&statistics.new_bytes),
            total(held)
        );
    }
    Some(line)
}

/// What was read to restore state. Nothing if nothing was.
fn restored(restored: &RestoredFiles) -> Option<String> {
    let RestoredFiles {
        files,
        bytes,
        local_files,
        local_bytes,
    } = *restored;
    (files > 0).then(|| {
        format!(
            "state was restored from {files} files, {}; {local_files} of them, {}, were local \
             copies",
            HumanBytes(bytes),
            HumanBytes(local_bytes)
        )
    })
}

/// Median, 99th percentile and maximum; nothing if nothing was measured.
fn distribution(summary: &Summary, unit: &str) -> Option<String> {
    let (p50, p99, max) = (summary.p50()?, summary.p99()?, summary.max()?);
    Some(format!(
        "p50 {p50} {unit}, p99 {p99} {unit}, max {max} {unit}"
    ))
}

#[cfg(test)]
mod tests {
    use tidegate_types::{CheckpointId, SnapshotKind};

    use super::*;

    fn completed(bytes: u64, new_bytes: u64) -> CompletedSummary {
        CompletedSummary {
            checkpoint: CheckpointId(3),
            kind: SnapshotKind::Checkpoint,
            location: None,
            bytes,
            new_bytes,
            duration: Duration::ZERO,
        }
    }

    #[test]
    fn what_was_restored_is_shown_with_where_it_came_from() {
        assert_eq!(restored(&RestoredFiles::default()), None);
        let files = RestoredFiles {
            files: 3,
            bytes: 4096,
            local_files: 1,
            local_bytes: 1024,
        };
        assert_eq!(
            restored(&files).unwrap(),
            "state was restored from 3 files, 4.00 KiB; 1 of them, 1.00 KiB, were local copies"
        );
    }

    #[test]
    fn what_is_new_is_shown_if_it_is_not_all() {
        assert_eq!(size(&completed(2048, 2048)), "2.00 KiB");
        assert_eq!(size(&completed(2048, 100)), "2.00 KiB (100 B new)");
    }

    #[test]
    fn the_summary_tells_what_sharing_saved() {
        let sizes_of = |checkpoints: &[(u64, u64)]| {
            let mut statistics = Statistics::default();
            for (bytes, new_bytes) in checkpoints {
                statistics.bytes.record(*bytes);
                statistics.new_bytes.record(*new_bytes);
            }
            sizes(&statistics)
        };
        assert_eq!(sizes_of(&[]), None);
        assert_eq!(sizes_of(&[(0, 0)]), None);
        let full = sizes_of(&[(1024, 1024), (1024, 1024)]);
        assert_eq!(
            full.unwrap(),
            "state in a checkpoint: p50 1.00 KiB, max 1.00 KiB"
        );
        let shared = sizes_of(&[(1024, 1024), (1024, 0)]);
        assert_eq!(
            shared.unwrap(),
            "state in a checkpoint: p50 1.00 KiB, max 1.00 KiB; 1.00 KiB written in all, instead \
             of 2.00 KiB"
        );
    }
}
