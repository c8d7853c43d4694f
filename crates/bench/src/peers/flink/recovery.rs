//! How long it takes until everything runs again after a TaskManager was killed.

use std::time::Duration;

use super::cluster::{Cluster, Patience};
use super::configuration::Shape;
use super::installation::Installation;
use super::{Kind, Task};
use crate::error::Result;
use crate::outcome::{Outcome, Quantiles, RecoveryExtra, Usage};

/// So many that no run comes to its end, and that Java can count them.
const ENDLESS: u64 = 1 << 60;
/// Checkpoints to wait for before each kill: by then all keys are there, and the standby is warm.
const CHECKPOINTS: u64 = 5;
const PATIENCE: Patience = Patience {
    timeout: Duration::from_secs(120),
    poll: Duration::from_millis(100),
};

/// A job that is killed again and again, on a cluster with a TaskManager to spare and heartbeats
/// that are tuned for it.
pub(crate) struct Recovery {
    cluster: Cluster,
    job: String,
    task: Task,
}

impl Recovery {
    /// Starts the cluster, and a count of so many keys that never ends.
    ///
    /// # Errors
    /// If Flink isn't set up, or doesn't start.
    pub(crate) fn start(keys: u64, parallelism: u32, checkpoint_interval_ms: u64) -> Result<Self> {
        let installation = Installation::find()?;
        let mut cluster = Cluster::start(&installation, Shape::fast_failover(parallelism))?;
        let task = Task {
            kind: Kind::KeyedCount(keys),
            records: ENDLESS,
            parallelism,
            checkpoint_interval_ms,
        };
        let job = cluster.submit(&task.call())?;
        cluster.wait("the job to run", PATIENCE, |cluster| {
            cluster.all_running(&job, 0)
        })?;
        Ok(Recovery { cluster, job, task })
    }

    /// Kills the TaskManager in use, and waits until all subtasks run on the other one and have a
    /// checkpoint.
    ///
    /// # Errors
    /// If they don't.
    pub(crate) fn kill(&mut self) -> Result<Outcome> {
        let Recovery { cluster, job, task } = self;
        cluster.add_task_manager()?;
        cluster.wait_for_slots(task.parallelism)?;
        let before = cluster.completed_checkpoints(job)?;
        cluster.wait("checkpoints", PATIENCE, |cluster| {
            let now = cluster.completed_checkpoints(job)?;
            Ok((now >= before + CHECKPOINTS).then_some(()))
        })?;
        let killed = cluster.kill_task_manager_in_use()?;
        let running = cluster.wait("the job to run again", PATIENCE, |cluster| {
            cluster.all_running(job, killed)
        })?;
        let completed = cluster.wait("a checkpoint after it", PATIENCE, |cluster| {
            cluster.checkpoint_since(job, running)
        })?;
        let after = |time: i64| Quantiles::of(vec![(time - killed) as f64]);
        let recovery = RecoveryExtra {
            rounds: 1,
            until_running_ms: after(running),
            until_checkpoint_ms: after(completed),
        };
        let memory = cluster.peak_memory_bytes();
        Ok(outcome(task, recovery, memory))
    }

    /// The cluster, for who wants to know what it takes.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

/// How many records the job counts while it is killed is not known.
fn outcome(task: &Task, recovery: RecoveryExtra, peak_memory_bytes: u64) -> Outcome {
    let usage = Usage {
        seconds: 0.0,
        cpu_seconds: 0.0,
        peak_memory_bytes,
    };
    let mut outcome = Outcome::new(("recovery", "flink"), 0, task.parallelism, usage);
    outcome.keys = task.kind.keys();
    outcome.checkpoint_interval_ms = Some(task.checkpoint_interval_ms as f64);
    outcome.extra.recovery = Some(recovery);
    outcome
}
