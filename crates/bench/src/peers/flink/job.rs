//! Runs a job on a cluster and reads what it took.

use std::time::Duration;

use serde_json::json;

use super::cluster::{Cluster, Patience};
use super::configuration::JAR;
use super::error::FlinkError;
use super::responses::{
    Accumulators, CheckpointDetails, Checkpoints, Exceptions, Job, Submitted, SubtaskTimes,
};
use crate::outcome::{self, Quantiles};

/// No run of the suite takes longer, whatever the machine is busy with.
const JOB: Patience = Patience {
    timeout: Duration::from_secs(600),
    poll: Duration::from_millis(200),
};

/// A job, as its `main` is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Its class in `tidegate.bench`.
    pub(super) class: &'static str,
    /// Names and values.
    pub(super) settings: Vec<(&'static str, String)>,
}

impl Call {
    fn arguments(&self) -> Vec<String> {
        let pairs = self.settings.iter();
        pairs
            .flat_map(|(name, value)| [format!("--{name}"), value.clone()])
            .collect()
    }
}

/// What a job that has ended says of itself.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// From running to its end.
    pub(super) seconds: f64,
    /// What its meters have counted.
    pub(super) records: u64,
    /// How fast, once it had warmed up.
    pub(super) steady_records_per_second: u64,
    /// Processor time of the TaskManager from before it was submitted to after its end.
    pub(super) cpu_seconds: f64,
    /// Its checkpoints.
    pub(super) checkpoints: outcome::Checkpoints,
}

impl Cluster {
    /// Runs a job to its end.
    ///
    /// # Errors
    /// If it can't be run, or fails.
    pub(super) fn run(&mut self, call: &Call) -> Result<Figures, FlinkError> {
        let cpu = self.task_manager_cpu_seconds();
        let id = self.submit(call)?;
        self.figures(&id, cpu)
    }

    /// Runs a job to its end, and says how many milliseconds after the start of the cluster all
    /// its subtasks ran.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub(super) fn run_noting_start(&mut self, call: &Call) -> Result<(Figures, f64), FlinkError> {
        let cpu = self.task_manager_cpu_seconds();
        let id = self.submit(call)?;
        let running = self.wait("the job to run", JOB, |cluster| cluster.all_running(&id, 0))?;
        let start = (running - self.since) as f64;
        Ok((self.figures(&id, cpu)?, start))
    }

    /// Waits for the end of a job before whose start the TaskManager had taken so much processor
    /// time.
    fn figures(&mut self, id: &str, cpu: f64) -> Result<Figures, FlinkError> {
        let path = format!("/jobs/{id}");
        let seconds = self.wait("the end of the job", JOB, |cluster| {
            let job: Job = cluster.rest.get(&path)?;
            match &*job.state {
                "FINISHED" => Ok(job.ran_ms().map(|ms| ms as f64 / 1e3)),
                "FAILED" | "CANCELED" | "SUSPENDED" => Err(cluster.failure(id, job.state)),
                _ => Ok(None),
            }
        })?;
        let cpu_seconds = self.task_manager_cpu_seconds() - cpu;
        let accumulators: Accumulators = self.rest.get(&format!("{path}/accumulators"))?;
        let figure = |name| {
            accumulators
                .count(name)
                .ok_or(FlinkError::NoFigure { name })
        };
        Ok(Figures {
            seconds,
            records: figure("records")?,
            steady_records_per_second: figure("steady-records-per-second")?,
            cpu_seconds,
            checkpoints: self.checkpoints(id)?,
        })
    }

    /// Submits a job and returns its id.
    ///
    /// # Errors
    /// If the JobManager refuses it.
    pub(super) fn submit(&self, call: &Call) -> Result<String, FlinkError> {
        let body = json!({
            "entryClass": format!("tidegate.bench.{}", call.class),
            "programArgsList": call.arguments(),
        });
        let submitted: Submitted = self.rest.post(&format!("/jars/{JAR}/run"), &body)?;
        Ok(submitted.jobid)
    }

    /// When the last subtask of a job began to run, in milliseconds since 1970, if all have since
    /// `since`.
    ///
    /// # Errors
    /// If the JobManager can't be asked.
    pub(super) fn all_running(&self, id: &str, since: i64) -> Result<Option<i64>, FlinkError> {
        let job: Job = self.rest.get(&format!("/jobs/{id}"))?;
        let mut last = None;
        for vertex in &job.vertices {
            let path = format!("/jobs/{id}/vertices/{}/subtasktimes", vertex.id);
            let times: SubtaskTimes = self.rest.get(&path)?;
            let Some(running) = times.all_running(since) else {
                return Ok(None);
            };
            last = last.max(Some(running));
        }
        Ok(last)
    }

    /// How many checkpoints of a job have completed.
    ///
    /// # Errors
    /// If the JobManager can't be asked.
    pub(super) fn completed_checkpoints(&self, id: &str) -> Result<u64, FlinkError> {
        let checkpoints: Checkpoints = self.rest.get(&format!("/jobs/{id}/checkpoints"))?;
        Ok(checkpoints.counts.completed)
    }

    /// When the first checkpoint completed that was triggered after `since`; both in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// If the JobManager can't be asked.
    pub(super) fn checkpoint_since(&self, id: &str, since: i64) -> Result<Option<i64>, FlinkError> {
        let checkpoints: Checkpoints = self.rest.get(&format!("/jobs/{id}/checkpoints"))?;
        Ok(checkpoints.completed_since(since))
    }

    fn failure(&self, id: &str, state: String) -> FlinkError {
        let exceptions = self
            .rest
            .get::<Exceptions>(&format!("/jobs/{id}/exceptions"));
        let entries = exceptions
            .map(|found| found.history.entries)
            .unwrap_or_default();
        let newest = entries.into_iter().next().map(|entry| entry.stacktrace);
        FlinkError::Job {
            state,
            cause: newest.unwrap_or_else(|| "no cause is known".to_owned()),
        }
    }

    fn checkpoints(&self, id: &str) -> Result<outcome::Checkpoints, FlinkError> {
        let path = format!("/jobs/{id}/checkpoints");
        let all: Checkpoints = self.rest.get(&path)?;
        let job: Job = self.rest.get(&format!("/jobs/{id}"))?;
        let mut taken = Taken::default();
        for checkpoint in all.history.iter().filter(|one| one.completed()) {
            taken
                .durations_ms
                .push(checkpoint.end_to_end_duration as f64);
            taken.bytes.push(checkpoint.state_size as f64);
            for vertex in &job.vertices {
                let details = format!("{path}/details/{}/subtasks/{}", checkpoint.id, vertex.id);
                taken.add(&self.rest.get(&details)?);
            }
        }
        Ok(taken.summary(all.counts.completed, all.counts.failed))
    }
}

/// What the checkpoints of a job took, one by one.
#[derive(Default)]
struct Taken {
    durations_ms: Vec<f64>,
    bytes: Vec<f64>,
    pauses_us: Vec<f64>,
    alignments_us: Vec<f64>,
}

impl Taken {
    fn add(&mut self, details: &CheckpointDetails) {
        for subtask in &details.subtasks {
            if let Some(parts) = &subtask.checkpoint {
                self.pauses_us.push(parts.sync as f64 * 1e3);
            }
            if let Some(alignment) = &subtask.alignment {
                self.alignments_us.push(alignment.duration as f64 * 1e3);
            }
        }
    }

    fn summary(self, completed: u64, failed: u64) -> outcome::Checkpoints {
        outcome::Checkpoints {
            count: completed,
            failed,
            bytes: Quantiles::of(self.bytes).p50 as u64,
            pause_us: Quantiles::of(self.pauses_us),
            alignment_us: Quantiles::of(self.alignments_us),
            duration_ms: Quantiles::of(self.durations_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_pairs_of_arguments() {
        let call = Call {
            class: "KeyedCount",
            settings: vec![("keys", "1000".to_owned()), ("parallelism", "2".to_owned())],
        };
        let expected = ["--keys", "1000", "--parallelism", "2"];
        assert_eq!(call.arguments(), expected);
    }

    #[test]
    fn each_subtask_of_each_checkpoint_counts_once() {
        let details = r#"{"subtasks":[
            {"checkpoint":{"sync":1,"async":9},"alignment":{"duration":4}},
            {"checkpoint":{"sync":3,"async":9},"alignment":{"duration":0}},
            {"status":"pending_or_failed"}]}"#;
        let mut taken = Taken {
            durations_ms: vec![20.0, 10.0],
            bytes: vec![300.0, 100.0],
            ..Taken::default()
        };
        taken.add(&serde_json::from_str(details).unwrap());
        let summary = taken.summary(2, 1);
        assert_eq!((summary.count, summary.failed, summary.bytes), (2, 1, 100));
        assert_eq!((summary.pause_us.p50, summary.pause_us.max), (1e3, 3e3));
        assert_eq!(
            (summary.alignment_us.p50, summary.alignment_us.max),
            (0.0, 4e3)
        );
        assert_eq!(
            (summary.duration_ms.p50, summary.duration_ms.p99),
            (10.0, 20.0)
        );
    }
}
