//! Measures real clusters on loopback, from few processes to many, and extrapolates.
//!
//! Each size runs three times: with nothing to do, with a checkpoint a second and nothing else, and
//! with records at a fixed rate besides. What goes between processes is counted by the job itself,
//! by its kind; what the kernel has counted on the same connections stands beside it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::cluster::{Cluster, Plan};
use super::figures::{Figures, Sample};
use super::report::Report;
use crate::error::Result;

/// Measures clusters of processes on loopback, fits what they take to their number, and
/// extrapolates.
#[derive(Args, Debug)]
pub(crate) struct Processes {
    /// How many processes, one worker each.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32")]
    pub(super) processes: Vec<u32>,

    /// For which numbers to say what the fit says.
    #[arg(long, value_delimiter = ',', default_value = "64,128")]
    pub(super) extrapolate: Vec<u32>,

    /// Records per second that each process reads, where there are any.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: u32,

    /// For how long to look at each.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seconds: u64,

    /// The job: `cargo build --release -p tidegate --example throughput` makes it.
    #[arg(long, default_value = "target/release/examples/throughput")]
    pub(super) program: PathBuf,

    /// Print one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What a cluster has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// To be there.
    Nothing,
    /// A checkpoint a second.
    Checkpoints,
    /// So many records a second besides, for each process.
    Records(u32),
}

impl Load {
    /// Records per second of all processes, and the interval of checkpoints.
    pub(super) fn settings(self, processes: u32) -> (f64, &'static str) {
        // A source must have some rate; this one has its next record in a quarter of an hour.
        match self {
            Load::Nothing => (0.001, "off"),
            Load::Checkpoints => (0.001, "1s"),
            Load::Records(rate) => (f64::from(rate) * f64::from(processes), "1s"),
        }
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Nothing => f.write_str("nothing to do"),
            Load::Checkpoints => f.write_str("a checkpoint a second"),
            Load::Records(rate) => {
                write!(
                    f,
                    "{rate} records of each process and a checkpoint a second"
                )
            }
        }
    }
}

/// Measures all sizes, and prints what comes of it.
///
/// # Errors
/// If a cluster doesn't start, can't be looked at, or is restarted. What was measured before that
/// is printed all the same.
#[allow(clippy::print_stdout)] // what the program is for
pub(crate) fn run(options: &Processes) -> Result<()> {
    let mut report = Report::new(options);
    let outcome = measure_all(options, &mut report);
    match options.json {
        true => println!("{}", report.to_json()),
        false => print!("{report}"),
    }
    outcome
}

fn measure_all(options: &Processes, report: &mut Report) -> Result<()> {
    let loads = [
        Load::Nothing,
        Load::Checkpoints,
        Load::Records(options.rate),
    ];
    for load in loads {
        for &processes in &options.processes {
            eprintln!("{processes} processes, {load}");
            report.add(load, processes, measure(options, processes, load)?);
        }
    }
    Ok(())
}

fn measure(options: &Processes, processes: u32, load: Load) -> Result<Figures> {
    let mut cluster = Cluster::start(Plan {
        program: &options.program,
        processes,
        load,
    })?;
    // What starting has left behind is over then.
    std::thread::sleep(Duration::from_secs(2));
    cluster.settle(load)?;
    let before = Sample::take(&mut cluster, processes)?;
    std::thread::sleep(Duration::from_secs(options.seconds));
    cluster.settle(load)?;
    let after = Sample::take(&mut cluster, processes)?;
    after.since(&before)
}
