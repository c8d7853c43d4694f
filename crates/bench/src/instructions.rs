//! Instructions per record of the hot paths: a measure that hardly depends on the machine, nor on
//! what else it does, so that CI can hold a change to it.
//!
//! Each path runs twice under valgrind's cachegrind, once with more records. The difference is what
//! records cost, without start and end. Stored figures are in `instructions.txt`; one that is
//! exceeded by more than the margin is an error. Whoever makes a path longer on purpose, or
//! shorter, says so with `--update`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::corpus;
use crate::error::{Error, Result};

/// What a path may take beyond its stored figure: windows and batches depend on the clock, and so
/// does, a little, what a record costs.
const MARGIN: f64 = 0.1;

/// Records of the short run. The long one has three times as many.
const RECORDS: u64 = 2_000_000;

/// A hot path: its name, and the workload that takes it.
const PATHS: [(&str, &str); 7] = [
    ("source", "source --parallelism 1"),
    ("keyed-count", "keyed-count --keys 1k --parallelism 1"),
    (
        "keyed-count-exchanged",
        "keyed-count --keys 1k --parallelism 2",
    ),
    // Large enough for the state to look ahead.
    (
        "keyed-count-large",
        "keyed-count --keys 100k --parallelism 1",
    ),
    ("keyed-strings", "keyed-strings --keys 1k --parallelism 1"),
    (
        "keyed-strings-exchanged",
        "keyed-strings --keys 1k --parallelism 2",
    ),
    (WORD_COUNT, "wordcount --parallelism 2"),
];

/// The path and workload that reads files, which are made when they are first asked for.
const WORD_COUNT: &str = "wordcount";

/// Counts the instructions per record of the hot paths, and compares them with stored figures.
#[derive(Args, Debug)]
pub(crate) struct Instructions {
    /// Stored figures: lines of a path's name and its instructions per record.
    #[arg(long, default_value = "crates/bench/instructions.txt")]
    figures: PathBuf,

    /// Store what is counted.
    #[arg(long)]
    update: bool,
}

/// Counts all paths.
///
/// # Errors
/// If a path takes more than its figure and the margin, or can't be run.
#[allow(clippy::print_stdout)] // what the program is for
pub(crate) fn run(options: &Instructions) -> Result<()> {
    let stored = match options.update {
        true => BTreeMap::new(),
        false => read(&options.figures)?,
    };
    let mut counted = String::from("# Instructions per record; `tidegate-bench instructions`.\n");
    let mut longer = Vec::new();
    for (name, workload) in PATHS {
        let count = per_record(workload)?;
        writeln!(counted, "{name} {count:.1}").expect("a string takes everything");
        let verdict = judge(count, stored.get(name).copied());
        println!("{name:24}{count:8.1}  {verdict}");
        if verdict.is_longer() {
            longer.push(name);
        }
    }
    if options.update {
        let path = &options.figures;
        std::fs::write(path, counted).map_err(Error::io("write", path))?;
    }
    match longer.is_empty() {
        true => Ok(()),
        false => Err(Error::Longer {
            paths: longer.join("`, `"),
        }),
    }
}

/// How a count compares with what is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    New,
    Within(f64),
    Longer(f64),
    Shorter(f64),
}

impl Verdict {
    fn is_longer(self) -> bool {
        matches!(self, Verdict::Longer(_))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::New => f.write_str("no stored figure"),
            Verdict::Within(stored) => write!(f, "as stored ({stored:.1})"),
            Verdict::Longer(stored) => write!(f, "LONGER than stored ({stored:.1})"),
            Verdict::Shorter(stored) => {
                write!(
                    f,
                    "shorter than stored ({stored:.1}): store it with --update"
                )
            }
        }
    }
}

fn judge(count: f64, stored: Option<f64>) -> Verdict {
    match stored {
        None => Verdict::New,
        Some(stored) if count > stored * (1.0 + MARGIN) => Verdict::Longer(stored),
        Some(stored) if count < stored * (1.0 - MARGIN) => Verdict::Shorter(stored),
        Some(stored) => Verdict::Within(stored),
    }
}

fn per_record(workload: &str) -> Result<f64> {
    let short = instructions(workload, RECORDS)?;
    let long = instructions(workload, 3 * RECORDS)?;
    Ok(long.saturating_sub(short) as f64 / (2 * RECORDS) as f64)
}

/// All instructions of a run, of all threads.
fn instructions(workload: &str, records: u64) -> Result<u64> {
    if workload.starts_with(WORD_COUNT) {
        // Here, or the run would make them, which is counted.
        corpus::files(records, &std::env::temp_dir())?;
    }
    let program = std::env::current_exe().map_err(Error::io("find", "/proc/self/exe"))?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no"])
        .arg("--cachegrind-out-file=/dev/null")
        .arg(program)
        .args(workload.split(' '))
        .args(["--records", &records.to_string()])
        .args(["--checkpoint-interval", "off"])
        .arg("--data-dir")
        .arg(std::env::temp_dir())
        .output()
        .map_err(Error::io("run (is valgrind installed?)", "valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = output.status.success().then(|| counted(&said)).flatten();
    counted.ok_or_else(|| Error::Other {
        what: "count the instructions of a run",
        cause: said.into(),
    })
}

/// The total in what cachegrind says at the end: `==1== I   refs:      1,234,567`.
fn counted(said: &str) -> Option<u64> {
    let (_, total) = said.lines().find_map(|line| line.split_once("refs:"))?;
    let digits: String = total.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn read(path: &Path) -> Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let figure = |line: &str| {
        let (name, figure) = line.split_once(' ')?;
        Some((name.to_owned(), figure.parse().ok()?))
    };
    let figures: Option<_> = lines.map(figure).collect();
    figures.ok_or_else(|| {
        let cause = std::io::Error::other("lines are `NAME INSTRUCTIONS`");
        Error::io("understand", path)(cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cachegrind_is_understood() {
        let said = "==7== Cachegrind\nnoise\n==7== \n==7== I   refs:      1,271,234,567\n";
        assert_eq!(counted(said), Some(1_271_234_567));
        assert_eq!(counted("==7== killed"), None);
    }

    #[test]
    fn a_figure_is_exceeded_beyond_the_margin() {
        assert_eq!(judge(109.0, Some(100.0)), Verdict::Within(100.0));
        assert!(judge(111.0, Some(100.0)).is_longer());
        assert_eq!(judge(89.0, Some(100.0)), Verdict::Shorter(100.0));
        assert_eq!(judge(90.0, None), Verdict::New);
    }

    #[test]
    fn every_path_has_a_stored_figure() {
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
        let figures = read(&stored).unwrap();
        let names: Vec<_> = PATHS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut stored: Vec<_> = figures.into_keys().collect();
        stored.sort_by_key(|name| names.iter().position(|known| known == name));
        assert_eq!(stored, names);
    }
}
