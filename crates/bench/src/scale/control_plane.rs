//! Simulates the control plane of a large cluster, and prints what it costs the JobManager.
//!
//! The simulation is `tidegate_server::cluster::simulation`: real decisions and real messages in
//! virtual time. It runs twice, once undisturbed for the steady state, once with losses.

use std::time::Duration;

use clap::Args;
use tidegate_server::cluster::simulation::{Figures, Meter, Part, RecoveryTime, Scale, simulate};

/// Simulates the control plane of a large cluster: what its JobManager does and takes.
#[derive(Args, Debug)]
pub(crate) struct ControlPlane {
    /// TaskManagers; each gets two slots, so eight subtasks of a job of four operators.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    taskmanagers: u32,

    /// TaskManagers beyond those that the job needs.
    #[arg(long, default_value_t = 2)]
    standbys: u32,

    /// Seconds of virtual time, undisturbed and then again with losses.
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Seconds from one loss to the next, on average.
    #[arg(long, default_value_t = 10)]
    faults_every: u64,

    /// What is lost, declined and late depends on nothing else.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Simulates, and prints figures.
#[allow(clippy::print_stdout)] // what the program is for
pub(crate) fn run(options: &ControlPlane) {
    let undisturbed = Scale {
        taskmanagers: options.taskmanagers,
        standbys: options.standbys,
        slots: 2,
        interval: Duration::from_secs(1),
        lasts: Duration::from_secs(options.seconds),
        faults_every: None,
        seed: options.seed,
    };
    let disturbed = Scale {
        faults_every: Some(Duration::from_secs(options.faults_every)),
        ..undisturbed.clone()
    };
    let calm = simulate(&undisturbed);
    println!(
        "{} TaskManagers, {} subtasks, a checkpoint a second",
        options.taskmanagers, calm.subtasks
    );
    print!("{}", steady_state(&calm));
    print!("{}", losses(&simulate(&disturbed)));
}

/// Of a second in which nothing is lost.
fn steady_state(figures: &Figures) -> String {
    let (meter, time) = &figures.running;
    let seconds = time.as_secs_f64();
    let per_second = |count: u64| count as f64 / seconds;
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let mut text = format!(
        "per second: {:.0} messages heard ({:.2} MiB), {:.0} said ({:.2} MiB)\n\
         processor time per second, and so per checkpoint: {:.1} ms\n",
        per_second(meter.heard.messages),
        mib(meter.heard.bytes) / seconds,
        per_second(meter.said.messages),
        mib(meter.said.bytes) / seconds,
        1e3 * meter.spent().as_secs_f64() / seconds,
    );
    for part in Part::ALL {
        text += &format!(
            "  {:10}{:8.2} ms\n",
            format!("{part:?}"),
            of(meter, part, seconds)
        );
    }
    text += &format!(
        "longest without listening: {:.1} ms\n\
         _metadata: {:.2} MiB; counters of subtasks and channels: {:.0} MiB; all else, with the \
         simulated machines: {:.0} MiB\n",
        1e3 * figures.longest_turn.as_secs_f64(),
        mib(figures.metadata_bytes),
        mib(figures.metrics_bytes),
        mib(figures.resident_bytes),
    );
    text
}

fn of(meter: &Meter, part: Part, seconds: f64) -> f64 {
    1e3 * meter.spent_on(part).as_secs_f64() / seconds
}

/// One of the times of a recovery.
type Figure = fn(&RecoveryTime) -> Duration;

/// Of the losses.
fn losses(figures: &Figures) -> String {
    let recoveries = &figures.recoveries;
    let mut text = format!(
        "with losses: {} attempts failed, {} checkpoints completed, {} aborted\n",
        recoveries.len(),
        figures.completed,
        figures.aborted
    );
    if recoveries.is_empty() {
        return text;
    }
    let of: [(&str, Figure); 4] = [
        ("from failure to launch", |r| r.launched),
        ("from failure to deployment", |r| r.deployed),
        ("from failure to all running", |r| r.running),
        ("processor time until deployed", |r| r.spent),
    ];
    for (what, of) in of {
        let mut all: Vec<Duration> = recoveries.iter().map(of).collect();
        all.sort_unstable();
        let median = all[all.len() / 2];
        let most = all[all.len() - 1];
        text += &format!("  {what:32} median {median:>9.1?}, at most {most:.1?}\n");
    }
    text + &format!(
        "longest without listening: {:.1} ms\n",
        1e3 * figures.longest_turn.as_secs_f64()
    )
}
