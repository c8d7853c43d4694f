//! Measures real clusters on loopback, from few processes to many, and extrapolates.
//!
//! Each size runs three times: with nothing to do, with a checkpoint a second and nothing else, and
//! with records at a fixed rate besides. So what comes of progress, of barriers and of records and
//! their credit is told apart by subtraction, since all of it goes over the same connections.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use super::census::Census;
use super::fit::Fit;
use crate::error::{Error, Result};

/// How long a cluster may take until its processes are connected.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures clusters of processes on loopback, fits what they take to their number, and
/// extrapolates.
#[derive(Args, Debug)]
pub(crate) struct Processes {
    /// How many processes, one worker each.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32")]
    processes: Vec<u32>,

    /// For which numbers to say what the fit says.
    #[arg(long, value_delimiter = ',', default_value = "64,128")]
    extrapolate: Vec<u32>,

    /// Records per second of the whole job, where there are any.
    #[arg(long, default_value_t = 50_000)]
    rate: u32,

    /// For how long to look at each.
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// The job: `cargo build --release --example throughput` makes it.
    #[arg(long, default_value = "target/release/examples/throughput")]
    program: PathBuf,
}

/// What a cluster has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    Nothing,
    Checkpoints,
    Records,
}

const LOADS: [Load; 3] = [Load::Nothing, Load::Checkpoints, Load::Records];

/// What is measured, by its name.
type Measured = BTreeMap<&'static str, f64>;

/// Measures all sizes.
///
/// # Errors
/// If a cluster doesn't start, or can't be looked at.
#[allow(clippy::print_stdout)] // what the program is for
pub(crate) fn run(options: &Processes) -> Result<()> {
    for load in LOADS {
        let mut all: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        println!("\n{load:?}");
        for &count in &options.processes {
            let measured = measure(options, count, load)?;
            let shown: Vec<String> = measured
                .iter()
                .map(|(name, value)| format!("{name} {value:.2}"))
                .collect();
            println!("  N = {count:<3} {}", shown.join(", "));
            for (name, value) in measured {
                all.entry(name).or_default().push((f64::from(count), value));
            }
        }
        for (name, points) in all {
            let Some(fit) = Fit::of(&points) else {
                continue;
            };
            let further: Vec<String> = options
                .extrapolate
                .iter()
                .map(|n| format!("N = {n}: {:.1}", fit.at(f64::from(*n))))
                .collect();
            println!("  {name:32} ≈ {fit}; {}", further.join(", "));
        }
    }
    Ok(())
}

fn measure(options: &Processes, count: u32, load: Load) -> Result<Measured> {
    let folder = tempfile::tempdir().map_err(Error::io("make", "a temporary folder"))?;
    let cluster = Cluster::start(options, count, load, folder.path())?;
    cluster.wait_until_connected(count)?;
    // What starting has left behind is over.
    std::thread::sleep(Duration::from_secs(2));
    let before = Census::take(cluster.0.id())?;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(options.seconds));
    let after = Census::take(cluster.0.id())?;
    Ok(compare(&before, &after, began.elapsed().as_secs_f64()))
}

/// What has changed, per second, and what there is.
fn compare(before: &Census, after: &Census, seconds: f64) -> Measured {
    let processes = after.processes.len() as f64;
    let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / seconds;
    let cpu = |census: &Census| census.processes.iter().map(|p| p.cpu_seconds).sum::<f64>();
    let threads = after
        .processes
        .iter()
        .map(|process| process.threads)
        .sum::<u64>();
    let memory = after
        .processes
        .iter()
        .map(|process| process.resident_bytes)
        .sum::<u64>();
    let mib = f64::from(1 << 20);
    BTreeMap::from([
        ("data segments/s", rate(after.data.0, before.data.0)),
        ("data KiB/s", rate(after.data.1, before.data.1) / 1024.0),
        (
            "control segments/s",
            rate(after.control.0, before.control.0),
        ),
        (
            "control KiB/s",
            rate(after.control.1, before.control.1) / 1024.0,
        ),
        ("threads per process", threads as f64 / processes),
        ("MiB per process", memory as f64 / processes / mib),
        (
            "processes' CPU ms/s",
            1e3 * (cpu(after) - cpu(before)) / seconds,
        ),
        (
            "JobManager's CPU ms/s",
            1e3 * (after.jobmanager.cpu_seconds - before.jobmanager.cpu_seconds) / seconds,
        ),
        (
            "JobManager's MiB",
            after.jobmanager.resident_bytes as f64 / mib,
        ),
    ])
}

/// A local cluster, which is killed when it is dropped, all its processes with it.
struct Cluster(Child);

impl Cluster {
    fn start(options: &Processes, count: u32, load: Load, folder: &Path) -> Result<Cluster> {
        let (rate, interval) = match load {
            Load::Nothing => (0.001, "off"),
            Load::Checkpoints => (0.001, "1s"),
            Load::Records => (f64::from(options.rate), "1s"),
        };
        let mut command = Command::new(&options.program);
        command
            .arg("local-cluster")
            .args(["--taskmanagers", &count.to_string(), "--slots", "1"])
            .args(["--parallelism", &count.to_string(), "--quiet"])
            .args([
                "--records",
                &u64::MAX.to_string(),
                "--rate",
                &rate.to_string(),
            ])
            .args(["--checkpoint-interval", interval])
            .arg("--checkpoint-dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let started = command.spawn().map_err(Error::io("run", &options.program));
        Ok(Cluster(started?))
    }

    /// Until every process is connected with every other.
    fn wait_until_connected(&self, count: u32) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let ends = count as usize * (count as usize - 1);
        while Census::take(self.0.id())?.data_sockets < ends {
            if Instant::now() > deadline {
                return Err(Error::Other {
                    what: "start a cluster",
                    cause: format!("{count} processes are not connected").into(),
                });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Whatever it has started dies with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
