//! Time, processor time and memory of this process, as the kernel counts them.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};
use crate::outcome::Usage;

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
            cpu: cpu_time(ClockId::ProcessCPUTime),
        }
    }

    /// What the process has taken since the start; memory since it exists.
    ///
    /// # Errors
    /// If the kernel doesn't tell.
    pub(crate) fn stop(&self) -> Result<Usage> {
        let cpu = cpu_time(ClockId::ProcessCPUTime) - self.cpu;
        Ok(Usage {
            seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            peak_memory_bytes: peak_memory()?,
        })
    }
}

/// Time spent on a processor, by all threads of the process or by this one.
pub(crate) fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u32);
    Duration::new(seconds, nanos)
}

/// Most memory that was ever resident (`VmHWM`), in bytes.
fn peak_memory() -> Result<u64> {
    let path = "/proc/self/status";
    let status = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    parse_peak(&status).ok_or_else(|| Error::Other {
        what: "find `VmHWM` in `/proc/self/status`",
        cause: "no such line".into(),
    })
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
    fn work_takes_processor_time() {
        let meter = Meter::start();
        let mut sum = 0_u64;
        while cpu_time(ClockId::ProcessCPUTime) <= meter.cpu {
            sum = std::hint::black_box(sum + 1);
        }
        let usage = meter.stop().unwrap();
        assert!(usage.cpu_seconds > 0.0 && usage.seconds > 0.0, "{usage:?}");
    }
}
