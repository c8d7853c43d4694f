//! What of an outcome is shown, which way is better, and how it is written.

use crate::outcome::Outcome;

/// Something that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Records per second.
    Rate,
    /// Records per second of processor time.
    RatePerCpu,
    /// Most resident memory.
    PeakMemory,
    /// From trigger to completion of a checkpoint, in the middle.
    CheckpointDuration,
    /// From a kill until all subtasks run again.
    Recovery,
    /// From the start of the first process to the first record (Flink: until all tasks run).
    Start,
}

impl Metric {
    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Rate => "records_per_second",
            Metric::RatePerCpu => "records_per_cpu_second",
            Metric::PeakMemory => "peak_memory_bytes",
            Metric::CheckpointDuration => "checkpoint_duration_p50_ms",
            Metric::Recovery => "recovery_ms",
            Metric::Start => "start_ms",
        }
    }

    /// What readers of a table see behind the name of the case.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Rate => "records/s",
            Metric::RatePerCpu => "records/CPU s",
            Metric::PeakMemory => "peak memory",
            Metric::CheckpointDuration => "checkpoint p50",
            Metric::Recovery => "kill to running",
            Metric::Start => "start",
        }
    }

    /// Its value in an outcome, if it has one.
    pub(crate) fn of(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Metric::Rate => Some(outcome.records_per_second),
            Metric::RatePerCpu => Some(outcome.records_per_cpu_second),
            Metric::PeakMemory => Some(outcome.peak_memory_bytes as f64),
            Metric::CheckpointDuration => {
                let checkpoints = outcome.checkpoints.as_ref()?;
                (checkpoints.count > 0).then_some(checkpoints.duration_ms.p50)
            }
            Metric::Recovery => {
                let recovery = outcome.extra.recovery.as_ref()?;
                Some(recovery.until_running_ms.p50)
            }
            Metric::Start => outcome.start_to_first_record_ms,
        }
    }

    /// How many times better `ours` is than `theirs`.
    pub(crate) fn advantage(self, ours: f64, theirs: f64) -> Option<f64> {
        let (above, below) = match self {
            Metric::Rate | Metric::RatePerCpu => (ours, theirs),
            _ => (theirs, ours),
        };
        (below > 0.0).then(|| above / below)
    }

    /// A value with its unit, to three digits.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Metric::Rate | Metric::RatePerCpu => scaled(value, &[(1e6, " M"), (1e3, " k")]),
            Metric::PeakMemory => scaled(value, &[(1e9, " GB"), (1e6, " MB"), (1e3, " kB")]),
            _ => scaled(value, &[(1e3, " s"), (1.0, " ms")]),
        }
    }
}

/// A value in the first unit that it reaches, or in the last.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let reached = units.iter().find(|(size, _)| value >= *size);
    match reached.or(units.last()) {
        Some((size, unit)) => format!("{}{unit}", three_digits(value / size)),
        None => three_digits(value),
    }
}

/// Rounds to three digits, or to ones where there are more.
pub(crate) fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        assert_eq!(Metric::Rate.text(103_456_789.0), "103 M");
        assert_eq!(Metric::Rate.text(3_099_999.0), "3.10 M");
        assert_eq!(Metric::RatePerCpu.text(720_000.0), "720 k");
        assert_eq!(Metric::PeakMemory.text(9_996_000.0), "10.0 MB");
        assert_eq!(Metric::Recovery.text(2_345.0), "2.35 s");
        assert_eq!(Metric::Start.text(99.96), "100 ms");
        assert_eq!(Metric::CheckpointDuration.text(0.25), "0.25 ms");
    }

    #[test]
    fn more_records_are_better_and_less_of_all_else() {
        assert_eq!(Metric::Rate.advantage(100.0, 10.0), Some(10.0));
        assert_eq!(Metric::PeakMemory.advantage(100.0, 10.0), Some(0.1));
        assert_eq!(Metric::Recovery.advantage(0.2, 2.0), Some(10.0));
        assert_eq!(Metric::Rate.advantage(1.0, 0.0), None);
    }
}
