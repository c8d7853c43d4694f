//! Runs seeds by hand: many to search, one to replay.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tidegate_sim::{Arguments, Tally, run_everywhere};

#[expect(
    clippy::disallowed_methods,
    reason = "reports the time taken; no run depends on it"
)]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let began = Instant::now();
    let mut total = Tally::default();
    for seed in arguments.seeds() {
        let options = || arguments.options(print);
        let runs = match arguments.everywhere {
            true => run_everywhere(seed, options),
            false => tidegate_sim::run(seed, options()).map(|report| report.tally),
        };
        match runs {
            Ok(tally) => total.add(tally),
            Err(failure) => {
                print(&failure.to_string());
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    print(&summary(arguments.seeds().count(), &total, seconds));
    ExitCode::SUCCESS
}

fn summary(seeds: usize, total: &Tally, seconds: f64) -> String {
    let Tally {
        steps,
        crashes,
        attempts,
        completed,
        aborted,
        failed_writes,
        commits,
        damaged,
        answers,
        savepoints,
        stops,
        rescales,
        moves,
        ..
    } = total;
    let rate = *steps as f64 / seconds;
    format!(
        "{seeds} seeds, {steps} steps in {seconds:.1} s ({rate:.0}/s): {attempts} attempts in \
         {crashes} crashes, {completed} checkpoints completed, {aborted} aborted, {commits} \
         commits, {failed_writes} writes that failed or were in doubt, {damaged} messages lost or \
         overtaken, {answers} answers, {savepoints} savepoints, {stops} stops, {rescales} \
         rescales, {moves} new namespaces; every promise was kept"
    )
}

#[expect(clippy::print_stdout, reason = "a program for a terminal")]
fn print(line: &str) {
    println!("{line}");
}
