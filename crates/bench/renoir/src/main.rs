//! The suite's jobs on renoir, a dataflow engine in Rust, each run once.
//!
//! `tidegate-bench <workload> --peer renoir` runs this program and reads the line that it prints.
//! What is done in renoir's favour, as measured on two cores:
//!
//! - Batches are of a fixed size ([`BatchMode::fixed`](renoir::BatchMode)), those that were fastest
//!   ([`jobs`]). With the default, which has a lock and a timer, a record costs 7 ns more; with
//!   adaptive ones 40, for a look at the clock. Nobody waits here for a batch that isn't full.
//! - State is a table in a closure, one per subtask, with room for all keys from the start, behind
//!   `repartition_by`. `group_by` with a closure per key is as fast for numbers; for texts it would
//!   clone each key twice more.
//! - The allocator is mimalloc, as in renoir's own examples: everything is a tenth to a quarter
//!   faster, and takes two to four times the memory.
//! - Texts are `CompactString`s, as in Tidegate's jobs, and take half the time of `String`s: renoir
//!   clones each record that it sends.
//! - With `--packed true` texts are plain memory instead ([`packed`]), without a branch on their
//!   length: half the time or less once more. As a job on Tidegate could do that, too, but isn't
//!   made so, it is told apart (`--peer renoir-packed`).
//! - Its own `stream_file` reads one file, and makes a `String` of each line: words took 1.2 times
//!   as long as with the source here.
//! - Nothing is kept of results but that they were there.
//!
//! A result per record is what every system has to give. `group_by_count` and its like, which count
//! within each subtask first and send sums at the end of the stream, take 5 ns per record with a
//! thousand keys; but they give nothing before the end, and a stream that goes on has none.
//!
//! What isn't done: to take some records ahead (`rich_map_custom`) and ask for their entries in a
//! table of one's own. With a million keys that halves the time; but so to replace what an engine
//! gives its users is what the operators by hand are for.

mod count;
mod jobs;
mod text;
mod words;

// Shared with the rest of the suite, which uses more of them.
#[allow(dead_code)]
#[path = "../../src/generate/mod.rs"]
mod generate;
#[path = "../../src/packed.rs"]
mod packed;
#[allow(dead_code)]
#[path = "../../src/measure/usage.rs"]
mod usage;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, Parser};
use mimalloc::MiMalloc;
use serde::Serialize;
use tidegate_state::CompactString;
use tidegate_types::ErrorChain;

use crate::count::Tally;
use crate::packed::{PackedKey, PackedWord};
use crate::text::Text;
use crate::usage::{Meter, Usage};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs a job on renoir, and prints what it took and counted as a line of JSON.
#[derive(Debug, Parser)]
enum Job {
    /// Generates numbers and discards them.
    Source(Numbers),
    /// Counts generated numbers by key.
    KeyedCount(Keyed),
    /// Counts generated texts of 1 to 40 bytes by key.
    KeyedStrings(Strings),
    /// Counts the words of text files.
    Wordcount(Words),
}

#[derive(Args, Clone, Copy, Debug)]
struct Numbers {
    /// How many.
    #[arg(long)]
    records: u64,
    /// Subtasks of each operator.
    #[arg(long)]
    parallelism: u64,
}

#[derive(Args, Clone, Copy, Debug)]
struct Keyed {
    #[command(flatten)]
    numbers: Numbers,
    /// Different keys.
    #[arg(long)]
    keys: u64,
}

#[derive(Args, Clone, Copy, Debug)]
struct Strings {
    #[command(flatten)]
    keyed: Keyed,
    /// Pack texts into plain memory.
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    packed: bool,
}

#[derive(Args, Clone, Debug)]
struct Words {
    #[command(flatten)]
    numbers: Numbers,
    /// Pack words into plain memory.
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    packed: bool,
    /// The files, separated by commas.
    #[arg(long, value_delimiter = ',')]
    input: Vec<PathBuf>,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    seconds: f64,
    cpu_seconds: f64,
    peak_memory_bytes: u64,
    distinct_keys: u64,
    sum_of_counts: u64,
}

fn main() -> ExitCode {
    match run(Job::parse()) {
        Ok(figures) => {
            print(figures);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", ErrorChain(&*error));
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout)] // what the program is for
fn print(figures: Figures) {
    let line = serde_json::to_string(&figures).expect("numbers have a JSON form");
    println!("{line}");
}

fn run(job: Job) -> Result<Figures, Box<dyn Error>> {
    let tally = Tally::default();
    // What is prepared before is not measured: as on Tidegate, that is texts of keys, no records.
    let usage = match job {
        Job::Source(numbers) => measured(|| jobs::source(numbers, &tally)),
        Job::KeyedCount(keyed) => measured(|| jobs::keyed_count(keyed, &tally)),
        Job::KeyedStrings(Strings { keyed, packed }) => match packed {
            true => keyed_strings::<PackedKey>(keyed, &tally),
            false => keyed_strings::<CompactString>(keyed, &tally),
        },
        Job::Wordcount(words) => {
            words::check(&words.input)?;
            measured(|| match words.packed {
                true => jobs::wordcount::<PackedWord>(words, &tally),
                false => jobs::wordcount::<CompactString>(words, &tally),
            })
        }
    }?;
    Ok(Figures {
        seconds: usage.seconds,
        cpu_seconds: usage.cpu_seconds,
        peak_memory_bytes: usage.peak_memory_bytes,
        distinct_keys: tally.distinct_keys(),
        sum_of_counts: tally.sum_of_counts(),
    })
}

fn keyed_strings<T: Text>(keyed: Keyed, tally: &Tally) -> Result<Usage, Box<dyn Error>> {
    let texts = jobs::texts::<T>(keyed.keys);
    measured(|| jobs::keyed_strings(keyed, texts, tally))
}

fn measured(run: impl FnOnce()) -> Result<Usage, Box<dyn Error>> {
    let meter = Meter::start();
    run();
    Ok(meter.stop()?)
}
