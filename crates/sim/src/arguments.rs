//! The command line: what to run, and what a failure prints to run it again.
//!
//! Both directions are here, so that a test can lead the printed command back to the same run.

use clap::{Parser, ValueEnum};

use crate::focus::Focus;
use crate::kill::Kill;
use crate::mutation::Mutation;
use crate::run::Options;
use crate::trace::TraceSink;

/// Simulates jobs under faults and checks that every promise is kept.
#[derive(Clone, Debug, Parser)]
#[command(name = "tidegate-sim")]
pub struct Arguments {
    /// How many seeds to run, from `--seed` on.
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// When faults stop, in steps. By default the seed draws it.
    #[arg(long)]
    pub steps: Option<u64>,
    /// Print everything that happens.
    #[arg(long)]
    pub trace: bool,
    /// Run each seed again and again, and let the process, and then a subtask, die at every place
    /// where it can.
    #[arg(long, conflicts_with_all = ["kill_process", "kill_subtask"])]
    pub everywhere: bool,
    /// Let the process die before its n-th action or outcome.
    #[arg(long, value_name = "N", conflicts_with = "kill_subtask")]
    pub kill_process: Option<u64>,
    /// Let a subtask die before the n-th step of a snapshot, a commit or a notice.
    #[arg(long, value_name = "N")]
    pub kill_subtask: Option<u64>,
    /// Something to go wrong more than usual.
    #[arg(long, value_enum)]
    pub focus: Option<Focus>,
    /// Put a known bug in.
    #[arg(long, value_enum)]
    pub mutation: Option<Mutation>,
}

impl Arguments {
    /// The seeds to run.
    pub fn seeds(&self) -> std::ops::Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds)
    }

    /// How to run each; `print` gets the trace, if one is wanted.
    pub fn options(&self, print: impl FnMut(&str) + 'static) -> Options {
        let kill = self.kill_process.map(Kill::Process);
        Options {
            mutation: self.mutation,
            focus: self.focus,
            kill: kill.or(self.kill_subtask.map(Kill::Subtask)),
            fault_steps: self.steps,
            trace: self.trace.then(|| Box::new(print) as TraceSink),
        }
    }
}

/// The flags that lead to a run again.
pub(crate) fn flags(seed: u64, options: &Options) -> String {
    let mut flags = format!("--seed {seed} --trace");
    if let Some(steps) = options.fault_steps {
        flags += &format!(" --steps {steps}");
    }
    match options.kill {
        Some(Kill::Process(at)) => flags += &format!(" --kill-process {at}"),
        Some(Kill::Subtask(at)) => flags += &format!(" --kill-subtask {at}"),
        None => {}
    }
    flags += &choice("focus", options.focus);
    flags += &choice("mutation", options.mutation);
    flags
}

fn choice(flag: &str, chosen: Option<impl ValueEnum>) -> String {
    let value = chosen.and_then(|chosen| chosen.to_possible_value());
    value.map_or(String::new(), |value| {
        format!(" --{flag} {}", value.get_name())
    })
}
