//! One run of a job: worker threads with the dataflow on them, from start to stop.
//!
//! An attempt is fail-stop: the first failure of any subtask is reported, and whoever drives the
//! attempt stops it as a whole and starts the next. Stopping drops every dataflow and joins every
//! thread, so that nothing of a dead attempt can still write when the next one restores.
//!
//! An attempt may run in several processes, each of which has a part of the workers
//! ([`ClusterPart`]). There a process that fails can't wait for the others, and needn't: it
//! [abandons](Attempt::abandon) its part and exits, which is as good as joining threads.

mod cluster;
mod connection;
#[cfg(feature = "tls")]
mod encrypted;
mod frames;
mod quiet;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_types::message::Notice;
use tidegate_types::{AlignmentMode, AttemptNumber, CheckpointId, RestorePart, SubtaskId};
use timely::WorkerConfig;
use timely::communication::WorkerGuards;
use timely::communication::allocator::zero_copy::initialize::CommsGuard;
use timely::execute::execute_from;

use crate::alive::{BusyWorker, busy_workers};
use crate::background::Background;
use crate::clock::Clock;
use crate::metrics::AttemptMetrics;
use crate::piece::StatePlacement;
use crate::plan::{JobPlan, WorkerHands};
use crate::report::{ReportSink, Reporter};
use crate::snapshot::StateFiles;

pub use cluster::ClusterPart;
use cluster::{Layout, across, within};
pub use connection::Connection;
pub(crate) use connection::Peers;
use connection::Watch;
pub(crate) use quiet::follows_from_a_loss;
use worker::{Shared, run_worker};

/// What an attempt is started with.
pub struct AttemptContext {
    /// Its number, never used before.
    pub number: AttemptNumber,
    /// The checkpoint it starts from, if any.
    pub restored: Option<CheckpointId>,
    /// What of it falls to each subtask that runs in this process.
    pub restore: RestorePart,
    /// This process's part of the attempt; all of it, if there is none.
    pub cluster: Option<ClusterPart>,
    /// Where state files live.
    pub files: Arc<dyn StateFiles>,
    /// Which keyed state goes into files, and which travels in acknowledgements.
    pub placement: StatePlacement,
    /// Where reports go.
    pub reports: ReportSink,
    /// Counters to fill.
    pub metrics: AttemptMetrics,
    /// How barriers are aligned.
    pub mode: AlignmentMode,
    /// A record waits no longer than this for its batch to fill.
    pub buffer_timeout: Duration,
    /// What operators go by.
    pub clock: Clock,
    /// Whether items are serialised between the workers of this process, as they are between
    /// processes. For tests: slower, and shows whether records survive it.
    pub serialize: bool,
}

/// The attempt's threads couldn't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Timely refused.
    #[error("start {workers} timely workers: {cause}")]
    Timely {
        /// How many were asked for.
        workers: u32,
        /// Timely's text.
        cause: String,
    },
    /// The operating system refused a thread.
    #[error("start a background thread")]
    Thread(#[source] std::io::Error),
    /// There isn't a worker for every subtask.
    #[error(
        "`{processes}` processes of `{threads}` threads have no room for a parallelism of \
         `{parallelism}`"
    )]
    Workers {
        /// Number of processes.
        processes: u32,
        /// Threads of each.
        threads: u32,
        /// The largest parallelism of any operator.
        parallelism: u32,
    },
    /// The connections aren't one to each other process.
    #[error("the connections don't fit the cluster: see process `{process}`")]
    Connections {
        /// The first process that has a connection and should have none, or the other way round.
        process: u32,
    },
    /// A connection is of no use any more.
    #[error("use the connection to process `{process}`")]
    Connection {
        /// The process it leads to.
        process: u32,
        /// What the operating system said.
        #[source]
        cause: std::io::Error,
    },
    /// Nothing says what a subtask of this process is to start from.
    #[error("subtask `{subtask}` has no part in what is restored")]
    Restore {
        /// The first such subtask.
        subtask: SubtaskId,
    },
}

/// A running attempt, or this process's part of one. Dropping it stops it, or abandons a part.
pub struct Attempt {
    shared: Arc<Shared>,
    layout: Layout,
    guards: Option<WorkerGuards<()>>,
    background: Vec<JoinHandle<()>>,
    /// The other processes, and timely's threads that talk to them.
    peers: Option<(Arc<Peers>, CommsGuard)>,
}

impl Attempt {
    /// Starts as many workers as the job's largest parallelism, or as many as this process's part
    /// has.
    ///
    /// # Errors
    /// If the threads can't be had, or the parts don't fit together; nothing is left running then.
    pub fn start(plan: Arc<JobPlan>, mut context: AttemptContext) -> Result<Attempt, StartError> {
        let parallelism = plan.graph().parallelism_max();
        let part = context.cluster.take();
        let layout = match &part {
            None => Layout::whole(parallelism),
            Some(part) => Layout::of(part, parallelism)?,
        };
        check_restore(&plan, &context.restore, layout)?;
        let connections = part.map(|part| part.connections);
        let peers = connections.as_deref().map(connect).transpose()?;
        let reports = Reporter::new(context.number, Arc::clone(&context.reports));
        let reports = reports.among(peers.clone());
        let shared = Arc::new(Shared::new(layout.threads));
        let (hands, background) = worker_hands(layout, &reports, &shared)?;
        let refused = |cause| StartError::Timely {
            workers: layout.threads,
            cause,
        };
        let communication = match (connections, &peers) {
            (Some(connections), Some(peers)) => {
                let watch = Watch {
                    peers: Arc::clone(peers),
                    reports: reports.clone(),
                    traffic: Arc::clone(context.metrics.traffic_counters()),
                };
                across(layout, connections, context.serialize, &watch)
            }
            _ => within(layout.threads, context.serialize),
        };
        let communication = communication.map_err(refused)?;
        let peers = peers.zip(communication.threads);
        let in_workers = Arc::clone(&shared);
        let guards = execute_from(
            communication.builders,
            // Whoever drops timely's communication threads waits for other processes.
            Box::new(()),
            WorkerConfig::default(),
            move |worker| {
                let local = worker.index() - layout.workers().start as usize;
                let slot = &hands[local];
                let hands = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                let hands = hands.expect("each worker starts once");
                let inbox = &in_workers.workers[local];
                run_worker(worker, &plan, &context, hands, &in_workers, inbox);
            },
        );
        let mut attempt = Attempt {
            shared,
            layout,
            guards: None,
            background,
            peers,
        };
        // What is dropped without guards waits for nobody.
        attempt.guards = Some(guards.map_err(refused)?);
        Ok(attempt)
    }

    /// Passes a notice to all subtasks in this process that are concerned: triggers to enumerators,
    /// the rest to everyone. Notices arrive in the order in which they are given.
    pub fn notify(&self, notice: Notice) {
        for worker in &self.shared.workers {
            worker.put(notice.clone());
        }
    }

    /// The workers of this process that are within a piece of work at this moment, with the subtask
    /// that does it, and how long ago they last gave a sign of life. Workers that have nothing to
    /// do aren't listed. May be called from any thread, and waits for none.
    pub fn busy_workers(&self) -> Vec<BusyWorker> {
        busy_workers(&self.shared.signs, self.layout.workers().start)
    }

    /// Stops the attempt and waits until every thread of it is gone. Data in flight is dropped;
    /// snapshots and commits that have begun end first.
    ///
    /// A part of an attempt waits for the other processes to stop theirs, too, unless a connection
    /// has been lost before. To leave without them there is [`abandon`](Self::abandon).
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    /// Lets go of this process's part of an attempt, whatever becomes of the others, and returns at
    /// once: closes every connection, so that the other processes notice, and tells workers to
    /// stop, but waits for nobody.
    ///
    /// Threads may still run, user code on them may still have effects, and snapshots and commits
    /// that have begun may still be written. So this is for a process that exits next; only when
    /// that has exited may the next attempt restore.
    pub fn abandon(mut self) {
        self.let_go();
    }

    fn let_go(&mut self) {
        // Dropping guards would join threads.
        if let Some((peers, communication)) = self.peers.take() {
            peers.end();
            peers.close_all();
            std::mem::forget(communication);
        }
        self.shared.stop();
        std::mem::forget(self.guards.take());
        self.background.clear();
    }

    fn stop_and_join(&mut self) {
        let Some(guards) = self.guards.take() else {
            return;
        };
        if let Some((peers, _)) = &self.peers {
            peers.end();
        }
        self.shared.stop();
        // A worker that panicked has reported that itself.
        for outcome in guards.join() {
            if let Err(cause) = outcome {
                tracing::debug!(cause, "a worker ended by a panic");
            }
        }
        for thread in self.background.drain(..) {
            // Background threads catch the panics of their tasks.
            let _ = thread.join();
        }
        if let Some((peers, communication)) = self.peers.take() {
            part_from(&peers, communication);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.peers.is_some() {
            self.let_go();
        } else {
            self.stop_and_join();
        }
    }
}

/// Waits until the other processes have stopped, too, unless they can't say so any more.
fn part_from(peers: &Peers, communication: CommsGuard) {
    if peers.lost().is_some() {
        peers.close_all();
    }
    // Timely joins its threads here, and passes on their panics.
    let joined = catch_unwind(AssertUnwindSafe(|| drop(communication)));
    if joined.is_err() {
        tracing::debug!("a communication thread ended by a panic");
    }
    peers.close_all();
}

/// Keeps a handle on every connection.
fn connect(connections: &[Option<Connection>]) -> Result<Arc<Peers>, StartError> {
    let mut handles = Vec::new();
    for (process, connection) in (0..).zip(connections) {
        if let Some(connection) = connection {
            let handle = connection.try_clone();
            handles.push(handle.map_err(|cause| StartError::Connection { process, cause })?);
        }
    }
    Ok(Arc::new(Peers::new(handles)))
}

fn check_restore(plan: &JobPlan, restore: &RestorePart, layout: Layout) -> Result<(), StartError> {
    let own = layout.workers();
    let mut subtasks = plan.graph().subtasks().into_iter();
    let missing = subtasks
        .find(|subtask| own.contains(&subtask.index) && !restore.subtasks.contains_key(subtask));
    match missing {
        None => Ok(()),
        Some(subtask) => Err(StartError::Restore { subtask }),
    }
}

type HandsOfWorkers = Vec<Mutex<Option<WorkerHands>>>;

/// Starts the threads beside each worker.
fn worker_hands(
    layout: Layout,
    reports: &Reporter,
    shared: &Shared,
) -> Result<(HandsOfWorkers, Vec<JoinHandle<()>>), StartError> {
    let (mut all, mut threads) = (Vec::new(), Vec::new());
    for (index, sign) in layout.workers().zip(&shared.signs) {
        let start = |what| Background::start(format!("{what}-{index}")).map_err(StartError::Thread);
        let (snapshots, snapshot_thread) = start("snapshot")?;
        let (commits, commit_thread) = start("commit")?;
        threads.extend([snapshot_thread, commit_thread]);
        all.push(Mutex::new(Some(WorkerHands {
            snapshots,
            commits,
            reports: reports.clone(),
            sign: Arc::clone(sign),
        })));
    }
    Ok((all, threads))
}
