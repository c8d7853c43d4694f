//! What a run has measured: one line of JSON for programs, the same for all systems.
//!
//! Units are in the names. What a workload or system doesn't tell is `None`, and left out.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::Statistics;

pub(crate) use crate::measure::Usage;

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
    /// What only one workload measures.
    #[serde(flatten)]
    pub(crate) extra: Extra,
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
            extra: Extra::default(),
        }
    }

    /// The outcome as one line.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every field has a JSON form")
    }
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

impl Quantiles {
    /// Those of some measurements; zeros if there are none.
    pub(crate) fn of(mut measured: Vec<f64>) -> Self {
        measured.sort_by(f64::total_cmp);
        let at = |per_mille| quantile(&measured, per_mille);
        Quantiles {
            p50: at(500),
            p99: at(990),
            max: at(1000),
        }
    }
}

/// The smallest of `sorted` such that so many per mille are not above it; 0 if there is none.
pub(crate) fn quantile<T: Copy + Default>(sorted: &[T], per_mille: usize) -> T {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// What the results came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verified {
    /// Different keys that were counted.
    pub(crate) distinct_keys: u64,
    /// The last count of each key, together.
    pub(crate) sum_of_counts: u64,
}

/// What only one workload measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extra {
    /// Of `latency`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) latency: Option<LatencyExtra>,
    /// Of `recovery`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) recovery: Option<RecoveryExtra>,
    /// Of `backpressure`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) backpressure: Option<BackpressureExtra>,
    /// Of `idle`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) idle: Option<IdleExtra>,
    /// Of `state`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) state: Vec<Access>,
    /// Of `snapshot`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) snapshot: Option<SnapshotExtra>,
}

/// From the time at which a record was due to the commit of its output, over all records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LatencyExtra {
    /// Records due per second.
    pub(crate) rate_per_second: u64,
    /// Half of all records took no longer.
    pub(crate) p50_ms: f64,
    /// 90 of 100.
    pub(crate) p90_ms: f64,
    /// 99 of 100.
    pub(crate) p99_ms: f64,
    /// 999 of 1000.
    pub(crate) p999_ms: f64,
    /// All.
    pub(crate) max_ms: f64,
}

/// From a `kill -9` of the process on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecoveryExtra {
    /// How many times it was killed.
    pub(crate) rounds: u32,
    /// Until every subtask ran again, restored from the latest checkpoint.
    pub(crate) until_running_ms: Quantiles,
    /// Until the first checkpoint after it had completed.
    pub(crate) until_checkpoint_ms: Quantiles,
}

/// A sink that is slower than its source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BackpressureExtra {
    /// What the sink takes.
    pub(crate) sink_records_per_second: u64,
    /// Records between source and sink, sampled every 10 ms.
    pub(crate) queued_records: Quantiles,
}

/// A job that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IdleExtra {
    /// Processor time, scaled to a minute.
    pub(crate) cpu_seconds_per_minute: f64,
}

/// A way of using state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Access {
    /// The kind of state.
    pub(crate) kind: String,
    /// What is done.
    pub(crate) operation: String,
    /// Processor time of one access to a random key.
    pub(crate) nanos: f64,
}

/// Keyed state on its way out and in; speeds are medians of some rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnapshotExtra {
    /// Size of the snapshot.
    pub(crate) bytes: u64,
    /// How long a freeze takes.
    pub(crate) freeze_us: Quantiles,
    /// Encoding to memory, by processor time.
    pub(crate) encode_mb_per_second: f64,
    /// Encoding to a file and syncing it, by the clock.
    pub(crate) file_mb_per_second: f64,
    /// Restoring from memory, by processor time.
    pub(crate) restore_mb_per_second: f64,
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
    fn quantiles_are_measurements() {
        let quantiles = Quantiles::of((1..=1000).rev().map(f64::from).collect());
        assert_eq!(
            (quantiles.p50, quantiles.p99, quantiles.max),
            (500.0, 990.0, 1000.0)
        );
        assert_eq!(
            Quantiles::of(vec![3.0]),
            Quantiles {
                p50: 3.0,
                p99: 3.0,
                max: 3.0
            }
        );
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
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
            extra: Extra {
                idle: Some(IdleExtra {
                    cpu_seconds_per_minute: 0.5,
                }),
                state: vec![Access {
                    kind: "value".to_owned(),
                    operation: "get".to_owned(),
                    nanos: 3.5,
                }],
                ..Extra::default()
            },
            ..outcome()
        };
        for outcome in [outcome(), full] {
            let line = outcome.to_json();
            assert!(!line.contains('\n') && !line.contains("null"), "{line}");
            assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), outcome);
        }
    }
}
