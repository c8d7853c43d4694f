//! What a cluster takes: from what the kernel and the job count, at two moments.

use std::time::Instant;

use tidegate_server::cluster::control::{Job, Traffic, Volume};

use super::census::{Census, Taken};
use super::cluster::Cluster;
use crate::error::{Error, Result};

/// Names with their values. Units are in the names; what is "per second" is of the whole cluster.
pub(super) type Figures = Vec<(&'static str, f64)>;

/// So often a list of sockets may be incomplete.
const ATTEMPTS_MAX: u32 = 10;

const MIB: f64 = (1 << 20) as f64;

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    taken: Instant,
    census: Census,
    job: Job,
}

impl Sample {
    /// Of a cluster of so many processes that this one has started.
    ///
    /// # Errors
    /// If it doesn't answer, can't be looked at, or has other connections than it should have.
    pub(super) fn take(cluster: &mut Cluster, processes: u32) -> Result<Sample> {
        let count = u64::from(processes);
        let ends = count * count.saturating_sub(1);
        let mut attempts = 0;
        loop {
            let sample = Sample {
                job: cluster.job()?,
                census: Census::take(std::process::id())?,
                taken: Instant::now(),
            };
            let found = sample.census.data_sockets as u64;
            attempts += 1;
            // The kernel lists sockets bit by bit, and may miss one while others come and go.
            if found == ends || attempts == ATTEMPTS_MAX {
                Error::unless_equal("ends of connections between processes", ends, found)?;
                return Ok(sample);
            }
        }
    }

    /// What has happened since `before`, and what there is.
    ///
    /// # Errors
    /// If the job has been restarted in between: then it is not one that works.
    pub(super) fn since(&self, before: &Sample) -> Result<Figures> {
        Error::unless_equal("restarts", before.job.restarts, self.job.restarts)?;
        let seconds = (self.taken - before.taken).as_secs_f64();
        let mut figures = held(&self.census);
        figures.extend(used(&self.census, &before.census, seconds));
        figures.extend(sent(&self.census, &before.census, seconds));
        figures.extend(counted(&self.job, &before.job, seconds));
        Ok(figures)
    }
}

fn per_second(after: u64, before: u64, seconds: f64) -> f64 {
    after.saturating_sub(before) as f64 / seconds
}

/// What there is.
fn held(census: &Census) -> Figures {
    let processes = &census.processes;
    let count = processes.len().max(1) as f64;
    let mean = |of: fn(&Taken) -> u64| processes.iter().map(of).sum::<u64>() as f64 / count;
    let jobmanager = &census.jobmanager;
    vec![
        ("threads of a process", mean(|process| process.threads)),
        (
            "MiB of a process",
            mean(|process| process.resident_bytes) / MIB,
        ),
        (
            "connections between processes",
            census.data_sockets as f64 / 2.0,
        ),
        (
            "threads of a TaskManager",
            census.taskmanagers.threads as f64 / count,
        ),
        (
            "MiB of a TaskManager",
            census.taskmanagers.resident_bytes as f64 / count / MIB,
        ),
        (
            "MiB of the JobManager",
            jobmanager.resident_bytes as f64 / MIB,
        ),
    ]
}

/// Processor time.
fn used(after: &Census, before: &Census, seconds: f64) -> Figures {
    let of_processes = |c: &Census| c.processes.iter().map(|p| p.cpu_seconds).sum::<f64>();
    let millis = |of: &dyn Fn(&Census) -> f64| 1e3 * (of(after) - of(before)) / seconds;
    vec![
        ("CPU ms/s of all processes", millis(&of_processes)),
        (
            "CPU ms/s of all TaskManagers",
            millis(&|c| c.taskmanagers.cpu_seconds),
        ),
        (
            "CPU ms/s of the JobManager",
            millis(&|c| c.jobmanager.cpu_seconds),
        ),
    ]
}

/// By the kernel's counters.
fn sent(after: &Census, before: &Census, seconds: f64) -> Figures {
    let rate = |of: fn(&Census) -> u64| per_second(of(after), of(before), seconds);
    vec![
        ("TCP segments/s between processes", rate(|c| c.data.0)),
        ("KiB/s between processes", rate(|c| c.data.1) / 1024.0),
        ("TCP segments/s with the JobManager", rate(|c| c.control.0)),
        ("KiB/s with the JobManager", rate(|c| c.control.1) / 1024.0),
    ]
}

/// By the job's own counters.
fn counted(after: &Job, before: &Job, seconds: f64) -> Figures {
    let rate = |after, before| per_second(after, before, seconds);
    let messages = |of: fn(&Traffic) -> Option<Volume>| {
        let count = |job: &Job| {
            job.traffic
                .as_ref()
                .and_then(of)
                .unwrap_or_default()
                .messages
        };
        rate(count(after), count(before))
    };
    vec![
        ("progress messages/s", messages(|sent| sent.progress)),
        ("credit messages/s", messages(|sent| sent.credit)),
        ("item messages/s", messages(|sent| sent.items)),
        ("records/s", rate(after.records, before.records)),
        (
            "checkpoints/s",
            rate(after.checkpoints_completed, before.checkpoints_completed),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn volume(messages: u64) -> Option<Volume> {
        let bytes = messages * 100;
        Some(Volume { messages, bytes })
    }

    /// After so many seconds of a second's work each.
    fn sample(began: Instant, seconds: u64) -> Sample {
        let taken = |threads, mib: u64, cpu_seconds| Taken {
            threads,
            resident_bytes: mib << 20,
            cpu_seconds: cpu_seconds * seconds as f64,
        };
        Sample {
            taken: began + Duration::from_secs(seconds),
            census: Census {
                processes: vec![taken(9, 20, 0.1), taken(11, 22, 0.2)],
                jobmanager: taken(5, 30, 0.01),
                taskmanagers: taken(14, 50, 0.02),
                data: (40 * seconds, 4096 * seconds),
                data_sockets: 2,
                control: (10 * seconds, 2048 * seconds),
            },
            job: Job {
                traffic: Some(Traffic {
                    items: volume(30 * seconds),
                    credit: volume(7 * seconds),
                    progress: volume(3 * seconds),
                }),
                records: 1_000 * seconds,
                checkpoints_completed: seconds,
                ..Job::default()
            },
        }
    }

    #[test]
    fn figures_are_means_and_rates() {
        let began = Instant::now();
        let figures = sample(began, 14).since(&sample(began, 10)).unwrap();
        let of = |name: &str| {
            let found = figures.iter().find(|(known, _)| *known == name);
            let value = found.unwrap_or_else(|| panic!("{name}")).1;
            (value * 1e6).round() / 1e6
        };
        let expected = [
            ("threads of a process", 10.0),
            ("MiB of a process", 21.0),
            ("connections between processes", 1.0),
            ("threads of a TaskManager", 7.0),
            ("MiB of a TaskManager", 25.0),
            ("CPU ms/s of all processes", 300.0),
            ("CPU ms/s of all TaskManagers", 20.0),
            ("CPU ms/s of the JobManager", 10.0),
            ("TCP segments/s between processes", 40.0),
            ("KiB/s between processes", 4.0),
            ("TCP segments/s with the JobManager", 10.0),
            ("progress messages/s", 3.0),
            ("credit messages/s", 7.0),
            ("item messages/s", 30.0),
            ("records/s", 1_000.0),
            ("checkpoints/s", 1.0),
        ];
        for (name, value) in expected {
            assert_eq!(of(name), value, "{name}");
        }
    }

    #[test]
    fn a_job_that_was_restarted_has_no_figures() {
        let began = Instant::now();
        let (before, mut after) = (sample(began, 1), sample(began, 2));
        after.job.restarts = 1;
        assert!(after.since(&before).is_err());
    }
}
