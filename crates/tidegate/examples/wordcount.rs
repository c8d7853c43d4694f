//! The main job: counts words exactly once, whatever happens to the process.
//!
//! Without arguments it counts the texts of this repository for about ten seconds, with dozens of
//! checkpoints. Kill it at any moment (`kill -9`) and run the same command again: it goes on, and
//! in the finished output the lines of each word are 1, 2, …, N, each once.
//!
//! It is written for speed: words are made of a line where it lies in the source's buffer, and are
//! small strings, which own no memory. `savepoint.rs` is the same job with an operator that takes
//! lines apart, and plain strings; either goes on from a savepoint of the other.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tidegate::CheckpointInterval;
use tidegate::prelude::*;

/// Counts words, and writes each update as a line `word<TAB>count`.
#[derive(Parser)]
struct WordCountArgs {
    /// Files, or folders of files, to count. Without any: texts of this repository.
    #[arg(long, num_args = 1..)]
    input: Vec<PathBuf>,

    /// Folder for the output.
    #[arg(long, default_value = "wordcount-demo/output")]
    output: PathBuf,

    /// Reads no faster than this many lines a second.
    #[arg(long)]
    rate: Option<f64>,

    /// Reads the input this often.
    #[arg(long)]
    repeat: Option<u64>,

    /// Reads bytes that aren't UTF-8 as replacement characters instead of failing.
    #[arg(long)]
    lossy: bool,

    /// Goes on reading files that grow.
    #[arg(long)]
    follow: bool,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

fn main() -> tidegate::Result<()> {
    let args = tidegate::parse::<WordCountArgs>().with_demo_defaults();
    let split = |line: &str, out: &mut Collector<CompactString>| {
        line.split_whitespace()
            .for_each(|word| out.emit(word.into()));
    };
    let mut words = FileSource::parse(args.input, split)
        .repeat(args.repeat.unwrap_or(1))
        .lossy_utf8(args.lossy)
        .follow(args.follow);
    if let Some(rate) = args.rate {
        words = words.rate(rate);
    }
    let output = args.output.clone();
    let env = Environment::new(args.tidegate)?;
    env.source("lines", words)
        .key_by(|word| word)
        .count("count")
        .sink("counts", FileSink::new(output));
    env.execute("wordcount")?;
    Ok(())
}

impl WordCountArgs {
    /// Fills in what makes a demonstration of about ten seconds when no input is named.
    fn with_demo_defaults(mut self) -> Self {
        if !self.input.is_empty() {
            return self;
        }
        let texts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/text");
        self.input.push(PathBuf::from(texts));
        self.repeat.get_or_insert(20);
        self.rate.get_or_insert(60_000.0);
        let tidegate = &mut self.tidegate;
        tidegate
            .checkpoint_dir
            .get_or_insert_with(|| "wordcount-demo/checkpoints".to_owned());
        let demo = CheckpointInterval::Every(Duration::from_millis(100));
        tidegate.checkpoint_interval.get_or_insert(demo);
        self
    }
}
