//! Stop, look, resume: the word count, stopped with a savepoint and gone on with later.
//!
//! ```sh
//! cargo run --release --example savepoint -- --stop-after 3s
//! ls wordcount-demo/savepoints/savepoint-*
//! cargo run --release --example savepoint -- --parallelism 3
//! ```
//!
//! Between the two runs, everything may be changed but the names of operators: the program, its
//! version, the machine. `--restore-from wordcount-demo/savepoints/savepoint-…`, with another
//! checkpoint directory and another output folder, makes a second job of it.

#![allow(clippy::print_stdout, reason = "it says what has been done")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tidegate::prelude::*;

/// Counts words until it is told to stop.
#[derive(Parser)]
struct SavepointArgs {
    /// Files, or folders of files, to count.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/text"))]
    input: PathBuf,

    /// Folder for the output.
    #[arg(long, default_value = "wordcount-demo/output")]
    output: PathBuf,

    /// Reads no faster than this many lines a second.
    #[arg(long, default_value_t = 2_000.0)]
    rate: f64,

    /// Stops with a savepoint when it has run for this time.
    #[arg(long, value_parser = humantime::parse_duration)]
    stop_after: Option<Duration>,

    /// Lets all data come to its end before the savepoint: the job is done for good.
    #[arg(long, requires = "stop_after")]
    drain: bool,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

fn main() -> tidegate::Result<()> {
    let mut args: SavepointArgs = tidegate::parse();
    let demo = |name: &str| format!("wordcount-demo/{name}");
    let settings = &mut args.tidegate;
    settings
        .checkpoint_dir
        .get_or_insert_with(|| demo("checkpoints"));
    settings
        .savepoint_dir
        .get_or_insert_with(|| demo("savepoints"));

    let env = Environment::new(args.tidegate)?;
    env.source("lines", FileSource::lines([args.input]).rate(args.rate))
        .flat_map("words", |line: String, out: &mut Collector<String>| {
            line.split_whitespace()
                .for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word| word)
        .count("count")
        .sink("counts", FileSink::new(args.output));
    let job = env.start("wordcount")?;

    if let Some(time) = args.stop_after
        && job.wait_until_running()
    {
        std::thread::sleep(time);
        job.stop_with_savepoint(None, args.drain)?;
    }
    println!("{}", job.wait()?.outcome);
    Ok(())
}
