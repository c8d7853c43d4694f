//! Flink 2.3 as a peer, at its best showing.
//!
//! `crates/bench/flink/setup.sh` installs it and compiles the jobs. Here a cluster of its own is
//! started on loopback, jobs are submitted over REST, and what they took is read from there and
//! from `/proc`. What is done in Flink's favour:
//!
//! - Objects are reused, the generator is cheap, keys are their records, and counts are all that is
//!   emitted.
//! - The rate is that of each subtask from the first quarter of its records on, when it has been
//!   deployed and compiled; Tidegate's is over the whole run.
//! - Each job has run before on the same cluster, and found its classes again (`parent-first`).
//! - Processor time is that of the TaskManager alone.
//! - The heap is large where speed is measured, and small where memory is.

mod cluster;
mod configuration;
mod error;
mod installation;
mod job;
mod recovery;
mod responses;
mod rest;

pub(crate) use cluster::Cluster;
pub(crate) use configuration::Shape;
pub(crate) use error::FlinkError;
pub(crate) use installation::{Installation, VERSION};
pub(crate) use recovery::Recovery;

use self::job::{Call, Figures};
use super::task::{Kind, Task};
use crate::error::{Error, Result};
use crate::options::Workload;
use crate::outcome::{Outcome, Usage};

/// Runs of a job before the first that counts. Later ones are no faster.
pub(crate) const WARM_UP_RUNS: u32 = 2;

/// Records that take it some seconds.
const RECORDS: u64 = 60_000_000;

impl Task {
    fn call(&self) -> Call {
        let class = match &self.kind {
            Kind::Source => "Generate",
            Kind::KeyedCount(_) => "KeyedCount",
            Kind::KeyedStrings(_) => "KeyedStrings",
            Kind::WordCount(_) => "WordCount",
        };
        let mut settings = self.settings();
        let interval = self.checkpoint_interval_ms.to_string();
        settings.push(("checkpoint-interval-ms", interval));
        Call { class, settings }
    }

    fn outcome_on_flink(&self, figures: Figures, peak_memory_bytes: u64) -> Outcome {
        let usage = Usage {
            seconds: figures.seconds,
            cpu_seconds: figures.cpu_seconds,
            peak_memory_bytes,
        };
        let mut outcome = self.outcome("flink", usage);
        outcome.records_per_second = figures.steady_records_per_second as f64;
        if self.checkpoint_interval_ms > 0 {
            outcome.checkpoint_interval_ms = Some(self.checkpoint_interval_ms as f64);
            outcome.checkpoints = Some(figures.checkpoints);
        }
        outcome
    }
}

/// Runs a task on a cluster that is there.
///
/// # Errors
/// If the job fails, or doesn't count every record.
pub(crate) fn run(cluster: &mut Cluster, task: &Task) -> Result<Outcome> {
    let figures = cluster.run(&task.call())?;
    Error::unless_equal("records that flink counted", task.records, figures.records)?;
    Ok(task.outcome_on_flink(figures, cluster.peak_memory_bytes()))
}

/// Runs a task on a cluster of its own, with little memory and nothing warm: for how long a start
/// takes, and how much memory a job.
///
/// # Errors
/// If Flink isn't set up, or the job fails.
pub(crate) fn run_alone(task: &Task) -> Result<Outcome> {
    let installation = Installation::find()?;
    let mut cluster = Cluster::start(&installation, Shape::small(task.parallelism))?;
    let (figures, running) = cluster.run_noting_start(&task.call())?;
    Error::unless_equal("records that flink counted", task.records, figures.records)?;
    let mut outcome = task.outcome_on_flink(figures, cluster.peak_memory_bytes());
    outcome.start_to_first_record_ms = Some(running);
    Ok(outcome)
}

/// Runs a workload on a cluster of its own, and tells how it went when it was warm.
///
/// # Errors
/// If Flink isn't set up, doesn't run this workload, or fails.
pub(crate) fn run_workload(workload: &Workload) -> Result<Outcome> {
    let task = Task::of(workload, RECORDS)?;
    let shape = Shape::fast(task.parallelism);
    let mut cluster = Cluster::start(&Installation::find()?, shape)?;
    for _ in 0..WARM_UP_RUNS {
        run(&mut cluster, &task)?;
    }
    run(&mut cluster, &task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Checkpoints, Quantiles};

    fn task(kind: Kind, checkpoint_interval_ms: u64) -> Task {
        Task {
            kind,
            records: 1_000,
            parallelism: 2,
            checkpoint_interval_ms,
        }
    }

    fn figures() -> Figures {
        Figures {
            seconds: 4.0,
            records: 1_000,
            steady_records_per_second: 500,
            cpu_seconds: 2.0,
            checkpoints: Checkpoints {
                count: 3,
                failed: 0,
                bytes: 70,
                pause_us: Quantiles::default(),
                alignment_us: Quantiles::default(),
                duration_ms: Quantiles::default(),
            },
        }
    }

    #[test]
    fn the_rate_is_that_of_the_warm_part() {
        let outcome = task(Kind::KeyedCount(10), 1_000).outcome_on_flink(figures(), 99);
        assert_eq!(outcome.records_per_second, 500.0);
        assert_eq!(outcome.records_per_cpu_second, 500.0);
        assert_eq!((outcome.seconds, outcome.keys), (4.0, Some(10)));
        assert_eq!(outcome.checkpoints.map(|all| all.count), Some(3));
    }

    #[test]
    fn a_job_without_checkpoints_tells_of_none() {
        let outcome = task(Kind::Source, 0).outcome_on_flink(figures(), 99);
        assert_eq!(outcome.checkpoint_interval_ms, None);
        assert_eq!(outcome.checkpoints, None);
    }

    #[test]
    fn each_job_is_told_what_it_asks_for() {
        let names = |kind| -> Vec<&'static str> {
            let call = task(kind, 0).call();
            call.settings.iter().map(|(name, _)| *name).collect()
        };
        let interval = "checkpoint-interval-ms";
        assert_eq!(names(Kind::Source), ["records", "parallelism", interval]);
        assert_eq!(names(Kind::KeyedCount(7))[2..], ["keys", interval]);
        assert_eq!(names(Kind::KeyedStrings(7))[2..], ["keys", interval]);
        assert_eq!(
            names(Kind::WordCount(vec!["/texts/1".into()]))[2..],
            ["input", interval]
        );
    }
}
