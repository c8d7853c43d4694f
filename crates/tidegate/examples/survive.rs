//! Proof by killing: a word count is killed with `SIGKILL` at every step of a checkpoint and at
//! random moments, restarted each time with another parallelism, and must come out exact.
//!
//! `cargo run --release --example survive --features fault-points -- --kills 20`

#![allow(clippy::print_stdout, reason = "its report is what it is for")]

#[path = "support/oracle.rs"]
mod oracle;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Parser;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tidegate::prelude::*;

/// A child that doesn't come to its crash point within this time is stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// Parallelism from restart to restart.
const PARALLELISM: [u32; 4] = [2, 1, 3, 5];

/// Kills a word count again and again, and checks that its output is exact.
#[derive(Parser)]
struct SurviveArgs {
    /// How often to kill it.
    #[arg(long, default_value_t = 20)]
    kills: u32,

    /// Chooses the kills. Printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,

    /// Where to work; removed afterwards if all went well. Default: a new temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,

    /// How often the texts are read: often enough that the job isn't done before the last kill.
    #[arg(long, default_value_t = 40)]
    repeat: u64,

    /// Lines a second while it is being killed.
    #[arg(long, default_value_t = 60_000.0)]
    rate: f64,

    /// Run as the job that is killed.
    #[arg(long, hide = true)]
    child: bool,

    /// Run as the job without a limit of the rate.
    #[arg(long, hide = true)]
    unlimited: bool,

    #[command(flatten)]
    tidegate: tidegate::Args,
}

/// How one child ends.
#[derive(Clone, Debug)]
enum Kill {
    /// At the k-th passing of a crash point.
    At(&'static str, u32),
    /// After this time.
    After(Duration),
}

impl Kill {
    fn phase(&self) -> &str {
        match self {
            Kill::At(point, _) => point.split(':').next().unwrap_or(point),
            Kill::After(_) => "random moment",
        }
    }
}

fn main() -> ExitCode {
    let args = SurviveArgs::parse();
    let outcome = if args.child {
        count_words(args).map_err(|error| format!("{error:?}"))
    } else {
        survive(&args)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn text_folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/text"))
}

/// The job, as in `wordcount.rs`.
fn count_words(args: SurviveArgs) -> tidegate::Result<()> {
    let output = args.dir.expect("the parent passes it").join("output");
    let mut lines = FileSource::lines([text_folder()]).repeat(args.repeat);
    if !args.unlimited {
        lines = lines.rate(args.rate);
    }
    let env = Environment::new(args.tidegate)?;
    env.source("lines", lines)
        .flat_map("words", |line: String, out: &mut Collector<String>| {
            line.split_whitespace()
                .for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word| word)
        .count("count")
        .sink("counts", FileSink::new(output));
    env.execute("survive")?;
    Ok(())
}

/// A seed that differs from run to run.
fn fresh_seed() -> u64 {
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::from(since_epoch.subsec_nanos())
}

fn survive(args: &SurviveArgs) -> Result<(), String> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let dir = args
        .dir
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    println!(
        "seed {seed}, {} kills, working in {}",
        args.kills,
        dir.display()
    );

    let began = Instant::now();
    let mut killed: BTreeMap<String, u32> = BTreeMap::new();
    for (round, kill) in plan_kills(args.kills, seed).into_iter().enumerate() {
        let parallelism = PARALLELISM[round % PARALLELISM.len()];
        run_and_kill(child(args, &dir, parallelism)?, &kill)?;
        *killed.entry(kill.phase().to_owned()).or_default() += 1;
    }
    println!(
        "killed {} times in {:.1?}; now to the end",
        args.kills,
        began.elapsed()
    );
    run_to_the_end(child(args, &dir, 2)?)?;
    check(args, &dir, &killed)
}

/// One crash point of every phase, then the other of each, then points and random moments in turn.
fn plan_kills(count: u32, seed: u64) -> Vec<Kill> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for pair in tidegate_fault::POINTS.chunks(2) {
        let before_first: bool = random.random();
        first.push(pair[usize::from(!before_first)]);
        second.push(pair[usize::from(before_first)]);
    }
    first.shuffle(&mut random);
    second.shuffle(&mut random);
    let points = [first, second].concat();
    (0..count as usize)
        .map(|round| match points.get(round) {
            Some(point) => Kill::At(point, random.random_range(1..=4)),
            None if round % 2 == 0 => {
                Kill::After(Duration::from_millis(random.random_range(20..600)))
            }
            None => Kill::At(points[random.random_range(0..points.len())], 1),
        })
        .collect()
}

fn child(args: &SurviveArgs, dir: &Path, parallelism: u32) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .arg("--child")
        .arg("--dir")
        .arg(dir)
        .arg("--checkpoint-dir")
        .arg(dir.join("checkpoints"))
        .args(["--checkpoint-interval", "40ms", "--quiet", "--parallelism"])
        .arg(parallelism.to_string())
        // State files however small, to be killed while they are written.
        .args(["--state-inline-threshold", "0B"])
        .args([
            "--repeat",
            &args.repeat.to_string(),
            "--rate",
            &args.rate.to_string(),
        ]);
    Ok(command)
}

fn run_and_kill(mut command: Command, kill: &Kill) -> Result<(), String> {
    // The child announces the crash points it passes on a pipe that it has as standard input.
    let (reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    command
        .stdin(Stdio::from(writer))
        .env(tidegate_fault::ANNOUNCE_VARIABLE, "/dev/fd/0");
    if let Kill::At(point, hit) = kill {
        command.env(tidegate_fault::ARM_VARIABLE, format!("{point}#{hit}"));
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("start the job: {error}"))?;
    // The parent's end of the pipe must go, or the reader would never see the child's death.
    drop(command);
    let announced = listen(reader);
    let reached = match kill {
        Kill::After(delay) => wait_for(&announced, *delay, |_| false),
        Kill::At(..) => wait_for(&announced, PATIENCE, |line| line.ends_with(" armed")),
    };
    kill_9(&mut child)?;
    match (kill, reached) {
        (Kill::At(point, hit), Reached::Nothing) => Err(format!(
            "the job did not come to `{point}#{hit}` within {PATIENCE:?}"
        )),
        (Kill::At(point, hit), Reached::Died) => Err(format!(
            "the job ended by itself before it came to `{point}#{hit}`"
        )),
        (Kill::After(_), Reached::Died) => Err("the job ended before it was killed".to_owned()),
        (_, Reached::Line | Reached::Nothing) => Ok(()),
    }
}

fn kill_9(child: &mut Child) -> Result<(), String> {
    // On Unix this is SIGKILL: nothing in the child runs any more.
    child
        .kill()
        .map_err(|error| format!("kill the job: {error}"))?;
    child
        .wait()
        .map_err(|error| format!("wait for the job: {error}"))?;
    Ok(())
}

enum Reached {
    Line,
    Nothing,
    Died,
}

fn listen(reader: PipeReader) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn wait_for(
    lines: &Receiver<String>,
    patience: Duration,
    wanted: impl Fn(&str) -> bool,
) -> Reached {
    let deadline = Instant::now() + patience;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if wanted(&line) => return Reached::Line,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return Reached::Nothing,
            Err(RecvTimeoutError::Disconnected) => return Reached::Died,
        }
    }
}

fn run_to_the_end(mut command: Command) -> Result<(), String> {
    let status = command
        .arg("--unlimited")
        .status()
        .map_err(|error| format!("start the job: {error}"))?;
    if !status.success() {
        return Err(format!("the last run ended with {status}"));
    }
    Ok(())
}

/// A finished job leaves neither staged files nor checkpoints.
fn check_nothing_is_left(dir: &Path) -> Result<(), String> {
    let staged = names_in(&dir.join("output/.tidegate/staged"))?;
    if !staged.is_empty() {
        return Err(format!("staged files are left: {staged:?}"));
    }
    let mut checkpoints = names_in(&dir.join("checkpoints/survive"))?;
    checkpoints.retain(|name| name.starts_with("chk-"));
    match checkpoints.len() {
        0 => Ok(()),
        _ => Err(format!("checkpoints are left: {checkpoints:?}")),
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("list `{}`: {error}", folder.display()))?;
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(entries.filter_map(Result::ok).map(name).collect())
}

fn check(args: &SurviveArgs, dir: &Path, killed: &BTreeMap<String, u32>) -> Result<(), String> {
    let kills = args.kills;
    let mut texts = oracle::visible_files(&text_folder())?;
    texts.retain(|file| file.is_file());
    let expected = oracle::plain_count(&texts, args.repeat);
    let lines = oracle::verify(&dir.join("output"), &expected)?;
    check_nothing_is_left(dir)?;
    println!("kills per phase:");
    for (phase, count) in killed {
        println!("  {phase:<16}{count}");
    }
    println!(
        "survived {kills} kills: {lines} updates of {} words, each exactly once",
        expected.len()
    );
    Ok(())
}
