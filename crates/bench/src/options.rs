//! The command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::compare::Compare;
use crate::instructions::Instructions;
use crate::scale::{ControlPlane, Processes};

/// Runs one workload once and prints what it took, or compares systems.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench")]
pub(crate) struct Options {
    /// What to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs one workload once, and prints what it took.
    #[command(flatten)]
    Run(Workload),
    /// Runs workloads on several systems in turn, and compares them.
    Compare(Compare),
    /// Counts the instructions per record of the hot paths, and compares them with stored figures.
    Instructions(Instructions),
    /// Simulates the control plane of a large cluster: what its JobManager does and takes.
    ControlPlane(ControlPlane),
    /// Measures clusters of processes on loopback, fits what they take to their number, and
    /// extrapolates.
    Processes(Processes),
}

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Workload {
    /// Generates numbers and discards them: what moving a record costs at least.
    Source(Common),
    /// Counts generated numbers by key.
    KeyedCount(Common),
    /// Counts generated texts of 1 to 40 bytes by key.
    KeyedStrings(Common),
    /// Counts the words of text files, of which 200 MB are generated the first time.
    Wordcount(Common),
    /// Counts numbers by key, is killed again and again, and goes on.
    Recovery(Recovery),
    /// Counts records that are due at fixed times, and measures until their output is committed.
    Latency(Latency),
    /// Counts numbers by key faster than its sink takes the counts.
    Backpressure(Backpressure),
    /// Reads and changes each kind of state.
    State(Common),
    /// Snapshots keyed state to memory and to a file, and restores it.
    Snapshot(Common),
    /// Runs a job that has nothing to do.
    Idle(Idle),
    /// Counts until somebody kills it; what `recovery` starts.
    #[command(hide = true)]
    RecoveryJob(RecoveryJob),
}

/// How often to kill.
#[derive(Args, Clone, Debug)]
pub(crate) struct Recovery {
    #[command(flatten)]
    pub(crate) common: Common,

    /// How many times the job is killed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Completed checkpoints of a run before it is killed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) checkpoints: u32,
}

/// Where the job that is killed has its checkpoints.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecoveryJob {
    #[command(flatten)]
    pub(crate) common: Common,

    /// The checkpoint directory.
    #[arg(long)]
    pub(crate) checkpoint_dir: PathBuf,
}

/// When records are due.
#[derive(Args, Clone, Debug)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Records per second.
    #[arg(long, default_value = "100k", value_parser = parse_count)]
    pub(crate) rate: u64,

    /// For how long.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
}

/// How slow the sink is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Backpressure {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Records per second that the sink takes.
    #[arg(long, default_value = "100k", value_parser = parse_count)]
    pub(crate) sink_rate: u64,

    /// For how long.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
}

/// How long nothing happens.
#[derive(Args, Clone, Debug)]
pub(crate) struct Idle {
    #[command(flatten)]
    pub(crate) common: Common,

    /// For how long; processor time is scaled to a minute.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
}

impl Workload {
    /// The name on the command line and in outcomes.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Workload::Source(_) => "source",
            Workload::KeyedCount(_) => "keyed-count",
            Workload::KeyedStrings(_) => "keyed-strings",
            Workload::Wordcount(_) => "wordcount",
            Workload::Recovery(_) => "recovery",
            Workload::Latency(_) => "latency",
            Workload::Backpressure(_) => "backpressure",
            Workload::State(_) => "state",
            Workload::Snapshot(_) => "snapshot",
            Workload::Idle(_) => "idle",
            Workload::RecoveryJob(_) => "recovery-job",
        }
    }

    /// What all of them can be told.
    pub(crate) fn common(&self) -> &Common {
        match self {
            Workload::Source(common)
            | Workload::KeyedCount(common)
            | Workload::KeyedStrings(common)
            | Workload::Wordcount(common)
            | Workload::State(common)
            | Workload::Snapshot(common) => common,
            Workload::Recovery(recovery) => &recovery.common,
            Workload::Latency(latency) => &latency.common,
            Workload::Backpressure(backpressure) => &backpressure.common,
            Workload::Idle(idle) => &idle.common,
            Workload::RecoveryJob(job) => &job.common,
        }
    }
}

/// What all workloads can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// How many records; `k`, `M` and `G` may follow. Default: what takes some seconds.
    #[arg(long, value_parser = parse_count)]
    pub(crate) records: Option<u64>,

    /// How many different keys. Default 1000.
    #[arg(long, value_parser = parse_count)]
    pub(crate) keys: Option<u64>,

    /// Subtasks of each operator, and worker threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parallelism: u32,

    /// Where live state is kept.
    #[arg(long, value_enum, default_value = "hashmap")]
    pub(crate) state_backend: StateBackend,

    /// Time between checkpoints, or `off`. Default 1s, 100ms where latency is measured.
    #[arg(long)]
    pub(crate) checkpoint_interval: Option<Interval>,

    /// Who does the work.
    #[arg(long, value_enum, default_value = "tidegate")]
    pub(crate) peer: Peer,

    /// Where checkpoints, output and generated input go. Default: the system's folder for
    /// temporary files.
    #[arg(long)]
    pub(crate) data_dir: Option<PathBuf>,

    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Also keep all results and check them: for few records only.
    #[arg(long)]
    pub(crate) verify: bool,
}

impl Common {
    /// The folder under which everything that is written goes.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The time between checkpoints, unless there are none.
    pub(crate) fn interval_or(&self, default: Duration) -> Option<Duration> {
        self.checkpoint_interval
            .map_or(Some(default), |interval| interval.0)
    }
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// A job on Tidegate.
    Tidegate,
    /// An operator written by hand for timely dataflow, without checkpoints.
    Timely,
    /// The same job on Flink 2.3, warmed up; crates/bench/flink/setup.sh gets it ready.
    Flink,
    /// The same job on renoir 0.6, without checkpoints; `compare` builds it.
    Renoir,
    /// As `renoir`, with texts packed into plain memory.
    RenoirPacked,
}

impl Peer {
    /// The name on the command line and in outcomes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::Timely => "timely",
            Peer::Flink => "flink",
            Peer::Renoir => "renoir",
            Peer::RenoirPacked => "renoir-packed",
        }
    }
}

/// Where live state is kept, in Flink's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateBackend {
    /// In hash maps in memory.
    Hashmap,
}

/// Time between checkpoints; `None` is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Option<Duration>);

impl FromStr for Interval {
    type Err = humantime::DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Interval(None)),
            _ => humantime::parse_duration(text).map(|time| Interval(Some(time))),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(time) => humantime::format_duration(time).fmt(f),
        }
    }
}

/// Reads a number that may end in `k`, `M` or `G`, for thousands, millions and billions.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| "not a number such as `5000`, `200k` or `100M`".to_owned())?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "larger than 2^64".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_have_a_unit() {
        let good = [
            ("0", 0),
            ("1_000", 1_000),
            ("5k", 5_000),
            ("200M", 200_000_000),
        ];
        for (text, expected) in good {
            assert_eq!(parse_count(text), Ok(expected), "{text}");
        }
        for text in ["", "k", "-1", "1.5M", "1T", "99999999999G"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn intervals_are_off_or_a_time() {
        assert_eq!("off".parse(), Ok(Interval(None)));
        let time = Interval(Some(Duration::from_millis(100)));
        assert_eq!("100ms".parse(), Ok(time));
        assert_eq!(time.to_string().parse(), Ok(time));
        assert!("never".parse::<Interval>().is_err());
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let options = Options::parse_from(["bench", "keyed-count", "--keys", "1M", "--json"]);
        let Command::Run(workload) = options.command else {
            panic!("one run: {options:?}");
        };
        assert_eq!(workload.common().keys, Some(1_000_000));
        assert!(workload.common().json);
    }
}
