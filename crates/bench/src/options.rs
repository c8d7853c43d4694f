//! The command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs one workload once and prints what it took.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench")]
pub(crate) struct Options {
    /// What to run.
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Workload {
    /// Generates numbers and discards them: what moving a record costs at least.
    Source(Common),
    /// Counts generated numbers by key.
    KeyedCount(Common),
}

impl Workload {
    /// The name on the command line and in outcomes.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Workload::Source(_) => "source",
            Workload::KeyedCount(_) => "keyed-count",
        }
    }

    /// What all of them can be told.
    pub(crate) fn common(&self) -> &Common {
        match self {
            Workload::Source(common) | Workload::KeyedCount(common) => common,
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
}

impl Peer {
    /// The name on the command line and in outcomes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::Timely => "timely",
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
        assert_eq!(options.workload.common().keys, Some(1_000_000));
        assert!(options.workload.common().json);
    }
}
