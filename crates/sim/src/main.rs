//! Runs seeds by hand: many to search, one to replay.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tidegate_sim::{Mutation, Options, Tally, run};

/// Simulates jobs under faults and checks that every promise is kept.
#[derive(Parser)]
struct Args {
    /// How many seeds to run, from `--seed` on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// When faults stop, in steps. By default the seed draws it.
    #[arg(long)]
    steps: Option<u64>,
    /// Print everything that happens.
    #[arg(long)]
    trace: bool,
    /// Put a known bug in.
    #[arg(long, value_enum)]
    mutation: Option<Mutation>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "reports the time taken; no run depends on it"
)]
fn main() -> ExitCode {
    let args = Args::parse();
    let began = Instant::now();
    let mut total = Tally::default();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let options = Options {
            mutation: args.mutation,
            fault_steps: args.steps,
            trace: args.trace.then(|| Box::new(|line: &str| print(line)) as _),
        };
        match run(seed, options) {
            Ok(report) => total.add(report.tally),
            Err(failure) => {
                print(&failure.to_string());
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    print(&summary(args.seeds, &total, seconds));
    ExitCode::SUCCESS
}

fn summary(seeds: u64, total: &Tally, seconds: f64) -> String {
    let Tally {
        steps,
        crashes,
        attempts,
        completed,
        aborted,
        failed_writes,
        commits,
    } = total;
    let rate = *steps as f64 / seconds;
    format!(
        "{seeds} seeds, {steps} steps in {seconds:.1} s ({rate:.0}/s): {attempts} attempts in \
         {crashes} crashes, {completed} checkpoints completed, {aborted} aborted, {commits} \
         commits, {failed_writes} writes that failed or were in doubt; every promise was kept"
    )
}

#[expect(clippy::print_stdout, reason = "a program for a terminal")]
fn print(line: &str) {
    println!("{line}");
}
