//! Time, processor time and memory of this process, as the kernel counts them.
//!
//! The program that runs jobs on renoir includes this file (`crates/bench/renoir`): nothing of the
//! rest of the suite is used here.

use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

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

/// The kernel doesn't say what a process has taken.
#[derive(Debug, thiserror::Error)]
#[error("understand what `{path}` says of a process")]
pub(crate) struct UsageError {
    /// Where it would.
    path: String,
    /// Why not.
    #[source]
    cause: io::Error,
}

type Result<T> = std::result::Result<T, UsageError>;

/// Runs from its start on.
pub(crate) struct Meter {
    started: Instant,
    cpu: Duration,
}

impl Meter {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Meter {
            started: Instant::now(),
            cpu: process_cpu_time(),
        }
    }

    /// What the process has taken since the start; memory since it exists.
    ///
    /// # Errors
    /// If the kernel doesn't tell.
    pub(crate) fn stop(&self) -> Result<Usage> {
        let cpu = process_cpu_time() - self.cpu;
        Ok(Usage {
            seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            peak_memory_bytes: peak_memory()?,
        })
    }
}

/// Time that this thread has spent on a processor.
pub(crate) fn thread_cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// Time that all threads of this process, those that have ended too, have spent on a processor.
fn process_cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Most memory that was ever resident in this process, in bytes.
fn peak_memory() -> Result<u64> {
    parsed("/proc/self/status", parse_peak)
}

/// Processor time, in steps of 10 ms, and peak memory in bytes of another process so far.
///
/// # Errors
/// If there is no such process.
pub(crate) fn process_usage(id: u32) -> Result<(Duration, u64)> {
    let cpu = parsed(&format!("/proc/{id}/stat"), parse_cpu)?;
    Ok((cpu, parsed(&format!("/proc/{id}/status"), parse_peak)?))
}

fn parsed<T>(path: &str, parse: fn(&str) -> Option<T>) -> Result<T> {
    let found = std::fs::read_to_string(path)
        .and_then(|text| parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()));
    found.map_err(|cause| UsageError {
        path: path.to_owned(),
        cause,
    })
}

/// Finds user and system time, the 14th and 15th field, in ticks of which Linux tells a hundred per
/// second. The second field is a name in parentheses, which may contain anything.
fn parse_cpu(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_found_in_what_the_kernel_says() {
        let status = "Name:\tbench\nVmPeak:\t  9000 kB\nVmHWM:\t    5120 kB\nVmRSS:\t 100 kB\n";
        assert_eq!(parse_peak(status), Some(5120 * 1024));
        assert_eq!(parse_peak("Name:\tbench\n"), None);
        assert!(peak_memory().unwrap() > 1 << 20);
    }

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        assert_eq!(parse_cpu(stat), Some(Duration::from_secs(3)));
        assert_eq!(parse_cpu("7 (a"), None);
        assert!(process_usage(std::process::id()).unwrap().1 > 1 << 20);
    }

    #[test]
    fn work_takes_processor_time() {
        let meter = Meter::start();
        let mut sum = 0_u64;
        while process_cpu_time() <= meter.cpu {
            sum = std::hint::black_box(sum + 1);
        }
        let usage = meter.stop().unwrap();
        assert!(usage.cpu_seconds > 0.0 && usage.seconds > 0.0, "{usage:?}");
    }
}
