//! A job with a lot of state is killed with `SIGKILL` and started again at once; what is measured
//! is how long it takes until everything runs again, restored, and has a checkpoint behind it.
//!
//! The job is a process of its own, this program with another workload, and says on its standard
//! output what has become of it: `running chk-3` (restored from that, or `-`), `completed chk-4`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate::CheckpointId;
use tidegate::prelude::*;

use super::INTERVAL;
use crate::error::{Error, Result};
use crate::generate::key;
use crate::job::settings;
use crate::measure::{Meter, process_usage};
use crate::options::{Common, Interval, Recovery, RecoveryJob};
use crate::outcome::{Outcome, Quantiles, RecoveryExtra, Usage, millis};

const KEYS: u64 = 1_000_000;
/// How often the job looks whether a checkpoint has completed.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Runs the job until it is killed.
pub(super) fn run_job(job: &RecoveryJob) -> Result<Outcome> {
    let RecoveryJob {
        common,
        checkpoint_dir,
    } = job;
    let keys = common.keys.unwrap_or(KEYS).max(1);
    let interval = common.interval_or(INTERVAL).unwrap_or(INTERVAL);
    let env = Environment::new(settings(common, Some((interval, checkpoint_dir.clone()))))?;
    env.source(
        "numbers",
        Generator::new(None, move |index| key(index, keys)),
    )
    .key_by(|key| key)
    .count("count")
    .sink("discard", Discard);
    let client = env.start("recovery")?;
    if client.wait_until_running() {
        let restored = client.statistics().latest_restored.clone();
        say("running", restored.map(|restored| restored.checkpoint));
    }
    let mut completed = None;
    while !client.has_ended() {
        let statistics = client.statistics();
        let latest = statistics.latest_completed.as_ref();
        let latest = latest.map(|latest| latest.checkpoint);
        if latest != completed {
            completed = latest;
            say("completed", completed);
        }
        sleep(LOOK_EVERY);
    }
    client.wait().map_err(tidegate::Error::from)?;
    Err(Error::Other {
        what: "count until killed",
        cause: "the job has ended".into(),
    })
}

#[allow(clippy::print_stdout)] // how the job talks to whoever kills it
fn say(event: &str, checkpoint: Option<CheckpointId>) {
    let checkpoint = checkpoint.map_or("-".to_owned(), |checkpoint| checkpoint.to_string());
    println!("{event} {checkpoint}");
    // Standard output that nobody reads any more is no reason to fail.
    let _ = std::io::stdout().flush();
}

/// The job's process. Killed when dropped.
struct Running {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(common: &Common, checkpoints: &Path) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::io("find", "this program"))?;
        let interval = Interval(common.interval_or(INTERVAL));
        let keys = common.keys.unwrap_or(KEYS);
        let mut child = Command::new(&program)
            .args(["recovery-job", "--keys", &keys.to_string()])
            .args(["--parallelism", &common.parallelism.to_string()])
            .args(["--checkpoint-interval", &interval.to_string()])
            .arg("--checkpoint-dir")
            .arg(checkpoints)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io("start", program))?;
        let stdout = child.stdout.take().expect("a pipe was asked for");
        let events = BufReader::new(stdout).lines();
        Ok(Running { child, events })
    }

    /// Waits until the job says this, and returns the checkpoint that it names.
    fn wait_for(&mut self, event: &str) -> Result<String> {
        for line in self.events.by_ref() {
            let line = line.map_err(Error::io("read from", "the job"))?;
            if let Some(checkpoint) = line.strip_prefix(event) {
                return Ok(checkpoint.trim().to_owned());
            }
        }
        Err(Error::Other {
            what: "wait for the job",
            cause: format!("it has ended before it was `{event}`").into(),
        })
    }

    /// Processor time and peak memory so far.
    fn usage(&self) -> Result<(Duration, u64)> {
        Ok(process_usage(self.child.id())?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn run(recovery: &Recovery) -> Result<Outcome> {
    let common = &recovery.common;
    let parent = common.data_dir();
    let folder = tempfile::TempDir::with_prefix_in("tidegate-bench-", &parent)
        .map_err(Error::io("make a folder in", &parent))?;
    let checkpoints = folder.path().join("checkpoints");
    let meter = Meter::start();
    let (mut cpu, mut memory) = (Duration::ZERO, 0);
    let (mut running_after, mut checkpoint_after) = (Vec::new(), Vec::new());
    let mut job = Running::start(common, &checkpoints)?;
    for _ in 0..recovery.rounds {
        for _ in 0..recovery.checkpoints {
            job.wait_for("completed")?;
        }
        let (spent, peak) = job.usage()?;
        (cpu, memory) = (cpu + spent, memory.max(peak));
        let killed = Instant::now();
        drop(job);
        job = Running::start(common, &checkpoints)?;
        if job.wait_for("running")? == "-" {
            return Err(Error::Other {
                what: "recover",
                cause: "the job has begun from nothing".into(),
            });
        }
        running_after.push(millis(killed.elapsed()));
        job.wait_for("completed")?;
        checkpoint_after.push(millis(killed.elapsed()));
    }
    drop(job);
    let usage = Usage {
        seconds: meter.stop()?.seconds,
        cpu_seconds: cpu.as_secs_f64(),
        peak_memory_bytes: memory,
    };
    // How many records it counts until it is killed is not known.
    let mut outcome = Outcome::new(("recovery", "tidegate"), 0, common.parallelism, usage);
    outcome.keys = Some(common.keys.unwrap_or(KEYS));
    outcome.checkpoint_interval_ms = common.interval_or(INTERVAL).map(millis);
    outcome.extra.recovery = Some(RecoveryExtra {
        rounds: recovery.rounds,
        until_running_ms: Quantiles::of(running_after),
        until_checkpoint_ms: Quantiles::of(checkpoint_after),
    });
    Ok(outcome)
}
