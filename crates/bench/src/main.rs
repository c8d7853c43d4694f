//! Measures Tidegate, and what it is compared with, on jobs that anyone can run again.
//!
//! `cargo run --release -p tidegate-bench -- keyed-count --keys 1000000 --parallelism 2` runs one
//! workload once and prints an [`Outcome`](outcome::Outcome). Every run is a process of its own, so
//! that peak memory and processor time are its own, too. Workloads are written against the facade,
//! as a user's job is; the peers do the same work by other means.

mod compare;
mod corpus;
mod error;
mod generate;
mod instructions;
mod job;
mod measure;
mod options;
mod outcome;
mod packed;
mod peers;
mod scale;
mod table;
mod workloads;

use std::process::ExitCode;

use clap::Parser;
use tidegate_types::ErrorChain;

use crate::options::{Command, Options, Workload};
use crate::outcome::Outcome;

fn main() -> ExitCode {
    measure::note_process_start();
    let Options { command } = Options::parse();
    let done = match &command {
        Command::Run(workload) => run(workload).map(|outcome| print(workload, &outcome)),
        Command::Compare(compare) => compare::run(compare),
        Command::Instructions(options) => instructions::run(options),
        Command::Processes(options) => scale::run_processes(options),
        Command::ControlPlane(options) => {
            scale::run_control_plane(options);
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(workload: &Workload) -> error::Result<Outcome> {
    workloads::run(workload)
}

#[allow(clippy::print_stdout)] // what the program is for
fn print(workload: &Workload, outcome: &Outcome) {
    match workload.common().json {
        true => println!("{}", outcome.to_json()),
        false => print!("{}", table::of(outcome)),
    }
}
