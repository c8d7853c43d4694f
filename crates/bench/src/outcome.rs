//! What a run has measured: one line of JSON for programs, the same for all systems.
//!
//! Units are in the names. What a workload or system doesn't tell is `None`, and left out.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::Statistics;

/// One run of one workload on one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Which workload.
    pub(crate) workload: String,
    /// Who did the work.
    pub(crate) system: String,
    /// Records that went in: numbers, words.
    pub(crate) records: u64,
    /// Different keys among them, at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) keys: Option<u64>,
    /// Subtasks of each operator.
    pub(crate) parallelism: u32,
    /// Time between checkpoints, if there are any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) checkpoint_interval_ms: Option<f64>,
    /// From the start of the job to its end.
    pub(crate) seconds: f64,
    /// Records by seconds.
    pub(crate) records_per_second: f64,
    /// Processor time, user and system, of all threads, in the same time.
    pub(crate) cpu_seconds: f64,
    /// Records by processor time.
    pub(crate) records_per_cpu_second: f64,
    /// Most resident memory of the process (of all its processes, if there are several).
    pub(crate) peak_memory_bytes: u64,
    /// From the start of the process to the first record at the sink.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) start_to_first_record_ms: Option<f64>,
    /// What checkpoints took.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) checkpoints: Option<Checkpoints>,
    /// What checking the results has shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) verified: Option<Verified>,
}

impl Outcome {
    /// An outcome with these totals, and nothing optional.
    pub(crate) fn new(
        (workload, system): (&str, &str),
        records: u64,
        parallelism: u32,
        usage: Usage,
    ) -> Self {
        let Usage {
            seconds,
            cpu_seconds,
            peak_memory_bytes,
        } = usage;
        Outcome {
            workload: workload.to_owned(),
            system: system.to_owned(),
            records,
            keys: None,
            parallelism,
            checkpoint_interval_ms: None,
            seconds,
            records_per_second: ratio(records, seconds),
            cpu_seconds,
            records_per_cpu_second: ratio(records, cpu_seconds),
            peak_memory_bytes,
            start_to_first_record_ms: None,
            checkpoints: None,
            verified: None,
        }
    }

    /// The outcome as one line.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every field has a JSON form")
    }
}

/// What a run took of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Time by the clock.
    pub(crate) seconds: f64,
    /// Processor time of all threads.
    pub(crate) cpu_seconds: f64,
    /// Most resident memory so far.
    pub(crate) peak_memory_bytes: u64,
}

/// `count` per `seconds`; 0 if it took no time that could be measured.
pub(crate) fn ratio(count: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => count as f64 / seconds,
        false => 0.0,
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checkpoints {
    /// How many completed.
    pub(crate) count: u64,
    /// How many were aborted.
    pub(crate) failed: u64,
    /// Median size of their state.
    pub(crate) bytes: u64,
    /// How long a subtask's thread stood still for its snapshot.
    pub(crate) pause_us: Quantiles,
    /// How long a subtask waited for the last of its channels' barriers.
    pub(crate) alignment_us: Quantiles,
    /// From trigger to completion.
    pub(crate) duration_ms: Quantiles,
}

impl Checkpoints {
    /// What a job's statistics say.
    pub(crate) fn of(statistics: &Statistics) -> Self {
        let quantiles = |summary: &tidegate::Summary| Quantiles {
            p50: summary.p50().unwrap_or(0) as f64,
            p99: summary.p99().unwrap_or(0) as f64,
            max: summary.max().unwrap_or(0) as f64,
        };
        Checkpoints {
            count: statistics.completed,
            failed: statistics.failed,
            bytes: statistics.bytes.p50().unwrap_or(0),
            pause_us: quantiles(&statistics.sync_us),
            alignment_us: quantiles(&statistics.alignment_us),
            duration_ms: quantiles(&statistics.duration_ms),
        }
    }
}

/// The middle, the bad and the worst of many measurements, in the unit of the field's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    /// Half of them are not above it.
    pub(crate) p50: f64,
    /// 99 of 100 are not above it.
    pub(crate) p99: f64,
    /// The largest.
    pub(crate) max: f64,
}

/// What the results came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verified {
    /// Different keys that were counted.
    pub(crate) distinct_keys: u64,
    /// The last count of each key, together.
    pub(crate) sum_of_counts: u64,
}

/// A time in milliseconds, with fractions.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let usage = Usage {
            seconds: 2.0,
            cpu_seconds: 4.0,
            peak_memory_bytes: 1 << 20,
        };
        Outcome::new(("source", "tidegate"), 1_000, 2, usage)
    }

    #[test]
    fn rates_follow_from_totals() {
        let outcome = outcome();
        assert_eq!(outcome.records_per_second, 500.0);
        assert_eq!(outcome.records_per_cpu_second, 250.0);
        assert_eq!(ratio(5, 0.0), 0.0);
    }

    #[test]
    fn json_is_one_line_and_comes_back_equal() {
        let quantiles = Quantiles {
            p50: 1.5,
            p99: 2.25,
            max: 3.0,
        };
        let full = Outcome {
            keys: Some(7),
            checkpoint_interval_ms: Some(100.0),
            start_to_first_record_ms: Some(12.5),
            checkpoints: Some(Checkpoints {
                count: 3,
                failed: 1,
                bytes: 4096,
                pause_us: quantiles,
                alignment_us: quantiles,
                duration_ms: quantiles,
            }),
            verified: Some(Verified {
                distinct_keys: 7,
                sum_of_counts: 1_000,
            }),
            ..outcome()
        };
        for outcome in [outcome(), full] {
            let line = outcome.to_json();
            assert!(!line.contains('\n') && !line.contains("null"), "{line}");
            assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), outcome);
        }
    }
}
