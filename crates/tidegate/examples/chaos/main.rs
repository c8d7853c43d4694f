//! Proof by killing, for clusters: two JobManagers, four TaskManagers and a ZooKeeper, each on a
//! machine of its own as far as the network can tell, run jobs while processes are killed and
//! paused, machines unplugged, connections cut one way or both, links slowed down, and ZooKeeper
//! is taken away. The output must be exact.
//!
//! `just chaos --minutes 10 --seed 7`. Network faults need root; without it, the others strike on
//! loopback. A failure prints the seed, with which the same faults come in the same order again
//! (what they meet differs), and keeps the logs.

#![allow(clippy::print_stdout, reason = "its report is what it is for")]

mod cluster;
mod faults;
mod janitor;
mod jobs;
mod journal;
mod network;
mod process;
mod recovery;
mod report;
mod round;
mod strike;
#[path = "../support/transactions.rs"]
mod transactions;
mod zookeeper;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rand::SeedableRng;
use rand::rngs::StdRng;

use cluster::{Cluster, Parts, Patience};
use faults::{Deck, Means};
use jobs::{Job, Load};
use network::Network;
use report::Report;
use zookeeper::ZooKeeper;

/// Disturbs clusters in every way there is, and checks that the output of their jobs is exact.
#[derive(Parser)]
struct ChaosArgs {
    /// How long to disturb the jobs, in minutes, each in turn.
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,

    /// Chooses the faults. Printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,

    /// The jobs: `wordcount` and `fraud`.
    #[arg(long, value_delimiter = ',', default_value = "wordcount,fraud")]
    jobs: Vec<String>,

    /// None but these kinds of faults.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// Distinct words of the word count.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,

    /// Records a second, of either job.
    #[arg(long, default_value_t = 50_000)]
    rate: u64,

    /// Whoever isn't heard of for this long is taken for dead.
    #[arg(long, default_value = "500ms", value_parser = humantime::parse_duration)]
    heartbeat_timeout: Duration,

    /// A leader that ZooKeeper hasn't heard of for this long has lost the lead.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    ha_lease: Duration,

    /// Percentage of faults that strike while another is being recovered from.
    #[arg(long, default_value_t = 15)]
    overlap: u32,

    /// One machine, without faults of the network.
    #[arg(long)]
    loopback: bool,

    /// Where to work; kept. Default: a new temporary folder, kept only if something goes wrong.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = ChaosArgs::parse();
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    match chaos(&args, seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED with --seed {seed}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A seed that differs from run to run.
fn fresh_seed() -> u64 {
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::from(since_epoch.subsec_nanos())
}

fn chaos(args: &ChaosArgs, seed: u64) -> Result<(), String> {
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let dir = args.dir.as_deref().unwrap_or(temporary.path());
    let mut random = StdRng::seed_from_u64(seed);
    let mut report = Report::default();
    for job in &args.jobs {
        let outcome = disturb(args, job, &dir.join(job), &mut random);
        match outcome {
            Ok(of_job) => report.add(of_job),
            Err(error) => {
                let kept = temporary.keep();
                let dir = args.dir.as_deref().unwrap_or(&kept);
                return Err(format!(
                    "{job}: {error}; what is left is in `{}`",
                    dir.display()
                ));
            }
        }
    }
    report.print();
    println!(
        "survived {} faults, and all output is exact",
        report.total()
    );
    Ok(())
}

/// Runs one job on a cluster of its own, disturbs it, and checks what has come of it.
fn disturb(
    args: &ChaosArgs,
    name: &str,
    dir: &Path,
    random: &mut StdRng,
) -> Result<Report, String> {
    std::fs::create_dir_all(dir).map_err(|error| format!("`{}`: {error}", dir.display()))?;
    let lasts = Duration::from_secs_f64(args.minutes * 60.0 / args.jobs.len() as f64);
    // Nothing is read while the job restarts, so this is more than enough.
    let load = Load {
        keys: args.keys,
        rate: args.rate,
        lasts: lasts + Duration::from_secs(20),
    };
    let job = match name {
        "wordcount" => Job::words(dir, load)?,
        "fraud" => Job::fraud(dir, load),
        _ => return Err("there is no such job".to_owned()),
    };
    let network = Network::new(args.loopback);
    if let Network::Loopback(why) = &network {
        println!("{name}: no faults of the network, all is on loopback: {why}");
    }
    let port = 20_000 + (std::process::id() % 10_000) as u16 * 4;
    let zookeeper = match ZooKeeper::is_available() {
        true => Some(ZooKeeper::start(&network, dir.join("zookeeper"), port + 3)?),
        false => {
            println!("{name}: no ZooKeeper here, so the leader is elected by a lock on a file");
            None
        }
    };
    let means = Means {
        network: network.has_faults(),
        zookeeper: zookeeper.is_some(),
    };
    let mut deck = Deck::new(means, &args.only)?;
    let patience = Patience {
        heartbeat: args.heartbeat_timeout,
        lease: args.ha_lease,
    };
    let mut cluster = Cluster::start(Parts {
        network,
        program: sibling(name)?,
        job,
        zookeeper,
        patience,
        port,
        logs: dir.to_owned(),
    })?;
    let report = round::disturb(&mut cluster, &mut deck, random, lasts, args.overlap)?;
    let lines = round::finish(&mut cluster)?;
    let (survived, exits) = (report.total(), cluster.exits.len());
    println!(
        "{name}: {lines} lines of output, exact, after {survived} faults; {exits} exits of \
         JobManagers by themselves"
    );
    Ok(report)
}

/// Another example, which cargo builds beside this one.
fn sibling(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name(name);
    match program.is_file() {
        true => Ok(program),
        false => Err(format!(
            "there is no `{}`; build the examples",
            program.display()
        )),
    }
}
