//! Runs the same work on several systems in turn, and says how they compare.
//!
//! Everything that could be argued about is decided in plain functions: whose turn it is
//! ([`schedule`]), what a run is worth that others disturbed, medians and ratios ([`summary`]), and
//! how they are shown ([`tables`], [`chart`], [`report`]). [`runner`] has the effects.

mod case;
mod chart;
mod foreign;
mod machine;
mod metric;
mod report;
mod runner;
mod schedule;
mod summary;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use self::case::{Case, System};
pub(crate) use self::machine::Machine;
use self::machine::Versions;
use self::report::Report;
use self::runner::Runner;
use self::schedule::Turn;
use self::summary::{Comparison, Row, Sample, Series};
use crate::error::{Error, Result};
use crate::peers::flink::Installation;
use crate::peers::renoir;

/// Runs the same work on several systems in turn: A B C A B C and so on. On a quiet machine the
/// default takes a quarter of an hour.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// With whom Tidegate is compared, separated by commas.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "timely,flink,renoir"
    )]
    peers: Vec<System>,

    /// What is compared, separated by commas. Default: all but `source`.
    #[arg(long, value_enum, value_delimiter = ',')]
    workloads: Vec<Case>,

    /// How often each system runs each workload; runs that others disturbed come on top.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Subtasks of each operator, and threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    parallelism: u32,

    /// Runs so many times longer (or shorter, for a trial: rates are then those of the start).
    #[arg(long, default_value_t = 1.0)]
    scale: f64,

    /// Where checkpoints and generated input go. Default: the system's folder for temporary files.
    #[arg(long)]
    data_dir: Option<PathBuf>,

    /// Write every run, and what they came to, to this file.
    #[arg(long)]
    json: Option<PathBuf>,

    /// Draw the rates into this file, as SVG.
    #[arg(long)]
    chart: Option<PathBuf>,

    /// Write the tables to this file, as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

impl Compare {
    fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// How many records go in at a turn; `None` if there is no end.
    fn records(&self, turn: &Turn) -> Option<u64> {
        let records = turn.case.records(turn.contender.system)?;
        Some(((records as f64 * self.scale) as u64).max(1))
    }

    fn cases(&self) -> Vec<Case> {
        match self.workloads.is_empty() {
            true => Case::DEFAULT.to_vec(),
            false => self.workloads.clone(),
        }
    }
}

/// Runs the comparison. If a run fails, what was measured before it is shown all the same.
///
/// # Errors
/// If a run has no outcome, or a file can't be written.
pub(crate) fn run(options: &Compare) -> Result<()> {
    let turns = schedule::turns(&options.cases(), &options.peers, options.repetitions);
    get_ready(&turns)?;
    let (comparisons, ended) = measure(options, &turns);
    let rows = summary::rows(&comparisons);
    show(&rows);
    write(options, &comparisons, &rows)?;
    ended
}

/// Gets ready whoever has a turn, or says at once, and not after minutes, what is missing.
fn get_ready(turns: &[Turn]) -> Result<()> {
    let has_turn = |system| turns.iter().any(|turn| turn.contender.system == system);
    if has_turn(System::Flink) {
        Installation::find()?;
    }
    if has_turn(System::Renoir) || has_turn(System::RenoirPacked) {
        renoir::build()?;
    }
    Ok(())
}

/// Runs the turns, up to the first that fails.
fn measure(options: &Compare, turns: &[Turn]) -> (Vec<Comparison>, Result<()>) {
    let mut comparisons = Vec::new();
    let mut runner = match Runner::new(options) {
        Ok(runner) => runner,
        Err(error) => return (comparisons, Err(error)),
    };
    for (at, turn) in turns.iter().enumerate() {
        match runner.run(turn) {
            Ok(sample) => {
                tell(at + 1, turns.len(), turn, &sample);
                add(&mut comparisons, turn, sample);
            }
            Err(error) => return (comparisons, Err(error)),
        }
    }
    (comparisons, Ok(()))
}

/// Adds a sample where it belongs.
fn add(comparisons: &mut Vec<Comparison>, turn: &Turn, sample: Sample) {
    if comparisons.last().is_none_or(|last| last.case != turn.case) {
        comparisons.push(Comparison {
            case: turn.case,
            series: Vec::new(),
        });
    }
    let Some(comparison) = comparisons.last_mut() else {
        return;
    };
    let known = comparison
        .series
        .iter_mut()
        .find(|one| one.contender == turn.contender);
    match known {
        Some(series) => series.samples.push(sample),
        None => comparison.series.push(Series {
            contender: turn.contender,
            samples: vec![sample],
        }),
    }
}

/// One line about a run, for who waits.
fn tell(at: usize, of: usize, turn: &Turn, sample: &Sample) {
    let metrics = turn.case.metrics().iter();
    let values: Vec<String> = metrics
        .filter_map(|metric| {
            let value = metric.of(&sample.outcome)?;
            Some(format!("{} {}", metric.title(), metric.text(value)))
        })
        .collect();
    eprintln!(
        "[{at}/{of}] {} {}, checkpoints {}: {}; others {:.2} cores",
        turn.case.name(),
        turn.contender.system.name(),
        turn.contender.interval_name(),
        values.join(", "),
        sample.foreign_cores,
    );
}

#[allow(clippy::print_stdout)] // what the program is for
fn show(rows: &[Row]) {
    for table in [tables::of_systems(rows, true), tables::of_intervals(rows)]
        .iter()
        .flatten()
    {
        println!("{}", table.to_text());
    }
    if let Some(footnote) = tables::footnote(rows) {
        println!("{footnote}");
    }
}

fn write(options: &Compare, comparisons: &[Comparison], rows: &[Row]) -> Result<()> {
    let report = Report {
        date: machine::date(),
        machine: Machine::this(),
        versions: Versions::these(),
        parallelism: options.parallelism,
        cases: report::runs(comparisons),
        medians: report::medians(rows),
    };
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).expect("every field has a JSON form");
        write_file(path, &text)?;
    }
    if let Some(path) = &options.markdown {
        write_file(path, &markdown(&report, rows))?;
    }
    match (&options.chart, chart::svg(rows)) {
        (Some(path), Some(picture)) => write_file(path, &picture),
        _ => Ok(()),
    }
}

fn markdown(report: &Report, rows: &[Row]) -> String {
    let tables = [tables::of_systems(rows, false), tables::of_intervals(rows)];
    let mut parts: Vec<String> = tables
        .iter()
        .flatten()
        .map(tables::Table::to_markdown)
        .collect();
    let date = report.date.split('T').next().unwrap_or_default();
    let machine = report.machine.text();
    let Versions {
        timely,
        renoir,
        java,
        ..
    } = &report.versions;
    parts.push(format!(
        "Measured on {date} at parallelism {}: {machine}; timely {timely}; renoir {renoir}; \
         Java: {java}.\n",
        report.parallelism,
    ));
    parts.extend(tables::footnote(rows).map(|note| format!("\\{note}.\n")));
    parts.join("\n")
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io("write", path))
}
