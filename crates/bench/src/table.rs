//! An outcome as people read it: one measurement per line, names and values aligned.

use std::fmt::Write;

use crate::outcome::{Checkpoints, Extra, Outcome, Quantiles};

/// Rows of names and values.
#[derive(Default)]
pub(crate) struct Rows(Vec<(String, String)>);

impl Rows {
    /// Adds a row.
    pub(crate) fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    fn add_if(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// The rows as text, a line each.
    fn to_text(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.0 {
            writeln!(text, "{name:<width$}  {value}").expect("writing to memory succeeds");
        }
        text
    }
}

/// The outcome as lines of text.
pub(crate) fn of(outcome: &Outcome) -> String {
    let mut rows = Rows::default();
    let Outcome {
        workload, system, ..
    } = outcome;
    rows.add("workload", format!("{workload} on {system}"));
    // What has nothing to do, or is killed, has no rate.
    let counts = outcome.records > 0;
    rows.add_if("records", counts.then(|| grouped(outcome.records)));
    rows.add_if("keys", outcome.keys.map(grouped));
    rows.add("parallelism", outcome.parallelism.to_string());
    let interval = outcome.checkpoint_interval_ms;
    rows.add(
        "checkpoint interval",
        interval.map_or("off".to_owned(), |ms| format!("{ms} ms")),
    );
    rows.add("time", format!("{:.3} s", outcome.seconds));
    let rate = per_second(outcome.records_per_second);
    rows.add_if("records/s", counts.then_some(rate));
    rows.add("CPU time", format!("{:.3} s", outcome.cpu_seconds));
    let rate = per_second(outcome.records_per_cpu_second);
    rows.add_if("records/CPU s", counts.then_some(rate));
    rows.add("peak memory", bytes(outcome.peak_memory_bytes));
    let first = outcome.start_to_first_record_ms;
    rows.add_if(
        "start to first record",
        first.map(|ms| format!("{ms:.1} ms")),
    );
    if let Some(checkpoints) = &outcome.checkpoints {
        add_checkpoints(&mut rows, checkpoints);
    }
    if let Some(verified) = &outcome.verified {
        rows.add("distinct keys", grouped(verified.distinct_keys));
        rows.add("sum of counts", grouped(verified.sum_of_counts));
    }
    add_extra(&mut rows, &outcome.extra);
    rows.to_text()
}

fn add_extra(rows: &mut Rows, extra: &Extra) {
    if let Some(latency) = &extra.latency {
        rows.add("rate", per_second(latency.rate_per_second as f64));
        let (p50, p90, p99) = (latency.p50_ms, latency.p90_ms, latency.p99_ms);
        let (p999, max) = (latency.p999_ms, latency.max_ms);
        let text =
            format!("p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1} ms");
        rows.add("until committed", text);
    }
    if let Some(recovery) = &extra.recovery {
        rows.add("kills", recovery.rounds.to_string());
        rows.add("until running", quantiles(recovery.until_running_ms, "ms"));
        rows.add(
            "until checkpoint",
            quantiles(recovery.until_checkpoint_ms, "ms"),
        );
    }
    if let Some(backpressure) = &extra.backpressure {
        rows.add(
            "sink takes",
            per_second(backpressure.sink_records_per_second as f64),
        );
        rows.add("queued", quantiles(backpressure.queued_records, "records"));
    }
    if let Some(idle) = &extra.idle {
        let cpu = idle.cpu_seconds_per_minute;
        rows.add("CPU time a minute", format!("{cpu:.3} s"));
    }
    for access in &extra.state {
        let name = format!("{} {}", access.kind, access.operation);
        rows.add(&name, format!("{:.1} ns", access.nanos));
    }
    if let Some(snapshot) = &extra.snapshot {
        rows.add("snapshot", bytes(snapshot.bytes));
        rows.add("freeze", quantiles(snapshot.freeze_us, "µs"));
        let speed = |megabytes: f64| format!("{megabytes:.0} MB/s");
        rows.add("encode to memory", speed(snapshot.encode_mb_per_second));
        rows.add("to a synced file", speed(snapshot.file_mb_per_second));
        rows.add("restore", speed(snapshot.restore_mb_per_second));
    }
}

fn add_checkpoints(rows: &mut Rows, checkpoints: &Checkpoints) {
    let Checkpoints { count, failed, .. } = checkpoints;
    rows.add("checkpoints", format!("{count} completed, {failed} failed"));
    rows.add("  size", bytes(checkpoints.bytes));
    rows.add("  pause", quantiles(checkpoints.pause_us, "µs"));
    rows.add("  alignment", quantiles(checkpoints.alignment_us, "µs"));
    rows.add("  duration", quantiles(checkpoints.duration_ms, "ms"));
}

/// Median, 99th percentile and maximum with their unit.
pub(crate) fn quantiles(quantiles: Quantiles, unit: &str) -> String {
    let Quantiles { p50, p99, max } = quantiles;
    format!("p50 {p50:.1} {unit}, p99 {p99:.1} {unit}, max {max:.1} {unit}")
}

fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.2} k", rate / 1e3),
        rate => format!("{rate:.2}"),
    }
}

fn bytes(count: u64) -> String {
    match count {
        count if count >= 10_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        count if count >= 10_000 => format!("{:.1} kB", count as f64 / 1e3),
        count => format!("{count} B"),
    }
}

/// A number with a space before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_and_rounded() {
        let mut rows = Rows::default();
        rows.add("time", "1.000 s");
        rows.add("records/s", per_second(12_345_678.0));
        assert_eq!(rows.to_text(), "time       1.000 s\nrecords/s  12.35 M\n");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(grouped(12), "12");
        assert_eq!(bytes(12_345), "12.3 kB");
    }
}
