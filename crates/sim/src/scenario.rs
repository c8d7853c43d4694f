//! What a seed draws before a run: the job, its settings, which faults there are and how often.
//!
//! Every kind of fault is off altogether in about half of the runs: a fault that is always there
//! hides the ones that come to light only without it (swarm testing, Groce et al., 2012).

use std::time::Duration;

use tidegate_coordinator::{
    CheckpointSettings, ElasticSettings, JobSettings, RestartStrategy, Retention,
};
use tidegate_types::{AlignmentMode, SnapshotFormat, SnapshotLocation};

use crate::rng::Rng;
use crate::topology::Topology;

/// Probabilities; per step of the simulation unless it says otherwise. The default is no faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The process dies.
    pub(crate) crash: f64,
    /// A subtask fails.
    pub(crate) subtask: f64,
    /// The stream between coordinator and subtasks breaks, which ends the attempt.
    pub(crate) stream: f64,
    /// All threads of an attempt stop, and nobody says why.
    pub(crate) silent_stop: f64,
    /// The coordinator's driver stands still while time passes.
    pub(crate) pause: f64,
    /// The clocks jump.
    pub(crate) clock_jump: f64,
    /// Somebody cancels the job, to start it again later.
    pub(crate) cancel: f64,
    /// Per attempt: it can't be launched.
    pub(crate) launch: f64,
    /// Per write of the coordinator: certainly not done.
    pub(crate) not_done: f64,
    /// Per write: done, but nobody knows.
    pub(crate) unknown_done: f64,
    /// Per write: not done, but nobody knows.
    pub(crate) unknown_not_done: f64,
    /// Per write: reported as unknown, and resolved either way later.
    pub(crate) hang: f64,
    /// Per read: an error.
    pub(crate) read: f64,
    /// Per deletion: not done.
    pub(crate) delete: f64,
    /// Per step of a deletion: it takes longer.
    pub(crate) slow_delete: f64,
    /// Per state file: writing fails or hangs.
    pub(crate) file: f64,
    /// Per snapshot: its synchronous part fails.
    pub(crate) freeze: f64,
    /// Per transaction: making it durable fails.
    pub(crate) seal: f64,
    /// Per commit: an error, before or after it is done.
    pub(crate) commit: f64,
    /// Per report: it arrives twice.
    pub(crate) duplicate_report: f64,
    /// Per notice: it arrives twice.
    pub(crate) duplicate_notice: f64,
    /// Beyond what streams promise, per report: it is lost, and the attempt goes on.
    pub(crate) lose_report: f64,
    /// Per report: it is overtaken by others of its thread.
    pub(crate) reorder_report: f64,
    /// Per notice that a checkpoint has completed or was aborted, and worker: it is lost.
    pub(crate) lose_outcome: f64,
    /// Per trigger, and worker: it is lost.
    pub(crate) lose_trigger: f64,
    /// Per notice: it overtakes others.
    pub(crate) reorder_notice: f64,
    /// Per report on its way when its process dies: it reaches the next process.
    pub(crate) ghost_report: f64,
    /// Per transaction that isn't durable when the process dies: it is gone.
    pub(crate) torn: f64,
}

impl Faults {
    fn draw_any(rng: &mut Rng) -> Self {
        if rng.chance(0.15) {
            return Faults::default();
        }
        let mut faults = Faults::draw(rng);
        if rng.chance(0.3) {
            faults.draw_beyond_streams(rng);
        }
        faults
    }

    fn draw(rng: &mut Rng) -> Self {
        let mut draw = |rare: f64, often: f64| match rng.chance(0.5) {
            true => 0.0,
            // Evenly over the orders of magnitude.
            false => rare * (often / rare).powf(rng.unit()),
        };
        Faults {
            crash: draw(0.000_1, 0.004),
            subtask: draw(0.000_1, 0.003),
            stream: draw(0.000_1, 0.002),
            silent_stop: draw(0.000_1, 0.001),
            pause: draw(0.000_1, 0.002),
            clock_jump: draw(0.000_5, 0.01),
            cancel: draw(0.000_05, 0.000_5),
            launch: draw(0.01, 0.3),
            not_done: draw(0.01, 0.3),
            unknown_done: draw(0.01, 0.3),
            unknown_not_done: draw(0.01, 0.2),
            hang: draw(0.01, 0.3),
            read: draw(0.01, 0.3),
            delete: draw(0.01, 0.5),
            slow_delete: draw(0.5, 0.99),
            file: draw(0.005, 0.1),
            freeze: draw(0.005, 0.1),
            seal: draw(0.005, 0.1),
            commit: draw(0.005, 0.2),
            duplicate_report: draw(0.01, 0.5),
            duplicate_notice: draw(0.01, 0.3),
            ghost_report: draw(0.1, 1.0),
            torn: draw(0.1, 1.0),
            ..Faults::default()
        }
    }

    /// What streams never do: safety must not depend on them.
    fn draw_beyond_streams(&mut self, rng: &mut Rng) {
        let mut draw = |often: f64| match rng.chance(0.5) {
            true => 0.0,
            false => 0.005 * (often / 0.005_f64).powf(rng.unit()),
        };
        self.lose_report = draw(0.1);
        self.reorder_report = draw(0.3);
        self.lose_outcome = draw(0.5);
        self.lose_trigger = draw(0.3);
        self.reorder_notice = draw(0.3);
    }
}

/// How fast the parts of the world are, relative to each other.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// A step takes up to this many milliseconds.
    pub(crate) step_millis_max: u64,
    /// By kind of work: subtasks, background threads, notices, reports, storage.
    pub(crate) weights: [u64; 5],
    /// A subtask whose number has one of these bits set is slow.
    pub(crate) slow: u64,
}

/// What people do, per step as long as there are faults unless it says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    /// They ask for a checkpoint.
    pub(crate) checkpoint: f64,
    /// They ask for a savepoint.
    pub(crate) savepoint: f64,
    /// They ask for a stop.
    pub(crate) stop: f64,
    /// Per stop: with drain.
    pub(crate) drain: f64,
    /// They ask for an abort.
    pub(crate) abort: f64,
    /// They ask for another parallelism.
    pub(crate) rescale: f64,
    /// Slots come or go, on a job that may run smaller.
    pub(crate) slots: f64,
    /// Per job that was stopped, was cancelled or has failed: they go on in a new namespace.
    pub(crate) moves: f64,
    /// Per new namespace: it claims what it goes on from.
    pub(crate) claims: f64,
}

impl Users {
    fn draw(rng: &mut Rng) -> Self {
        let mut draw = |often: f64| match rng.chance(0.4) {
            true => 0.0,
            false => often * rng.unit(),
        };
        Users {
            checkpoint: 0.001,
            savepoint: draw(0.004),
            stop: draw(0.001),
            drain: draw(0.3),
            abort: draw(0.002),
            rescale: draw(0.002),
            slots: draw(0.002),
            moves: draw(1.0),
            claims: draw(1.0),
        }
    }
}

/// Everything that is settled before a run starts.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) mode: AlignmentMode,
    pub(crate) topology: Topology,
    pub(crate) settings: JobSettings,
    pub(crate) faults: Faults,
    pub(crate) pace: Pace,
    pub(crate) users: Users,
    /// Records per split, per source.
    pub(crate) splits: Vec<Vec<u64>>,
    /// How many different keys there are.
    pub(crate) keys: u32,
    /// Window of a channel, in records.
    pub(crate) window: u64,
    /// Records in a full batch.
    pub(crate) batch: usize,
    /// When faults stop, in steps.
    pub(crate) heal_at: u64,
}

impl Scenario {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let sources = *rng.pick(&[1, 1, 2, 2, 3]);
        let topology = Topology::draw(rng, sources);
        let size = *rng.pick(&[5, 30, 150]);
        let splits = (0..sources).map(|_| draw_splits(rng, size)).collect();
        let faults = Faults::draw_any(rng);
        Scenario {
            mode: match rng.chance(0.15) {
                true => AlignmentMode::AtLeastOnce,
                false => AlignmentMode::ExactlyOnce,
            },
            topology,
            settings: JobSettings {
                checkpoints: draw_settings(rng),
                restart: draw_restart(rng),
                allow_non_restored_state: false,
                elastic: draw_elastic(rng),
            },
            faults,
            pace: Pace {
                step_millis_max: rng.between(0, 4),
                weights: std::array::from_fn(|_| *rng.pick(&[1, 4, 16])),
                slow: rng.next() & rng.next() & rng.next() & 0x1f,
            },
            users: Users::draw(rng),
            splits,
            keys: rng.between(1, 12) as u32,
            window: rng.between(1, 12),
            batch: rng.between(1, 4) as usize,
            heal_at: rng.between(1_000, 6_000),
        }
    }
}

fn draw_splits(rng: &mut Rng, size: u64) -> Vec<u64> {
    let count = rng.between(0, 6);
    (0..count).map(|_| rng.between(0, size)).collect()
}

fn draw_settings(rng: &mut Rng) -> CheckpointSettings {
    let millis = |millis| Duration::from_millis(millis);
    let timeout = match rng.chance(0.3) {
        true => rng.between(50, 1_000),
        false => rng.between(1_000, 60_000),
    };
    CheckpointSettings {
        interval: rng.chance(0.9).then(|| millis(rng.between(1, 200))),
        timeout: millis(timeout),
        min_pause: millis(*rng.pick(&[0, 0, 10, 100])),
        max_concurrent: rng.between(1, 3) as u32,
        tolerable_failures: rng.chance(0.7).then(|| rng.between(0, 5) as u32),
        retained: rng.between(1, 3) as u32,
        retention: *rng.pick(&[
            Retention::RetainOnCancellation,
            Retention::RetainOnCancellation,
            Retention::RetainOnCancellation,
            Retention::RetainOnCancellation,
            Retention::DeleteOnCancellation,
            Retention::NoRetention,
        ]),
        format: *rng.pick(&[
            SnapshotFormat::Full,
            SnapshotFormat::Incremental,
            SnapshotFormat::Incremental,
        ]),
        savepoint_dir: Some(SnapshotLocation::new("mem://savepoints")),
        ..CheckpointSettings::default()
    }
}

fn draw_elastic(rng: &mut Rng) -> ElasticSettings {
    ElasticSettings {
        parallelism_min: rng.chance(0.3).then(|| rng.between(1, 2) as u32),
        stabilization_timeout: Duration::from_millis(rng.between(1, 300)),
    }
}

fn draw_restart(rng: &mut Rng) -> RestartStrategy {
    let millis = |millis| Duration::from_millis(millis);
    match rng.below(4) {
        0 => RestartStrategy::FixedDelay {
            attempts: 3,
            delay: millis(50),
        },
        1 => RestartStrategy::FailureRate {
            max_per_interval: 4,
            interval: millis(2_000),
            delay: millis(20),
        },
        _ => RestartStrategy::ExponentialDelay {
            initial: millis(rng.between(1, 50)),
            max: millis(500),
            multiplier: 2.0,
            reset_after: millis(5_000),
        },
    }
}
