//! What a job does when its process is told to end.
//!
//! SIGTERM and SIGINT (Ctrl-C) end a job in an orderly way: by default it is suspended, which keeps
//! everything, so that whoever starts it next goes on from its latest checkpoint; or it is stopped
//! with a savepoint. A second signal ends the process at once, as a crash would; so does the first,
//! when no job runs.
//!
//! Signals are the process's, so one thread takes them for all jobs that run in it. It stays.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_coordinator::TriggerRefusal;
use tidegate_types::ErrorChain;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::{JobClient, RequestError};

/// Signals so soon after the first are the same: service managers tell every process of a group,
/// and one process of it may tell another besides.
pub(crate) const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// What becomes of a job whose process is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnSigterm {
    /// It is suspended.
    #[default]
    Suspend,
    /// It is stopped with a savepoint; suspended, if that fails.
    Stop,
}

impl OnSigterm {
    /// Every one there is.
    pub const ALL: [OnSigterm; 2] = [OnSigterm::Suspend, OnSigterm::Stop];
}

impl std::fmt::Display for OnSigterm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OnSigterm::Suspend => "suspend",
            OnSigterm::Stop => "stop",
        })
    }
}

/// A job that ends when its process is told to, for as long as this is there.
#[derive(Debug)]
pub struct EndsOnSignals {
    id: u64,
    told: Arc<AtomicI32>,
}

impl EndsOnSignals {
    /// Whether the process has been told to end.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) != 0
    }

    /// Ends the process as the signal would have, had nobody been there to take it: with the status
    /// that shells would show.
    pub fn exit(&self) -> ! {
        std::process::exit(128 + self.told.load(Ordering::Relaxed))
    }
}

impl Drop for EndsOnSignals {
    fn drop(&mut self) {
        hub().jobs.retain(|job| job.id != self.id);
    }
}

struct Registered {
    id: u64,
    job: JobClient,
    how: OnSigterm,
    told: Arc<AtomicI32>,
}

/// Who is told when a signal comes.
struct Hub {
    listens: bool,
    jobs: Vec<Registered>,
    /// When the first signal came that the jobs were told of.
    told: Option<Instant>,
}

static HUB: Mutex<Hub> = Mutex::new(Hub {
    listens: false,
    jobs: Vec::new(),
    told: None,
});

fn hub() -> MutexGuard<'static, Hub> {
    HUB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the job in the way that `how` says when the process is told to end, until the result is
/// dropped.
///
/// # Errors
/// If the operating system refuses a thread, or to hand signals over.
pub fn end_on_signals(job: JobClient, how: OnSigterm) -> io::Result<EndsOnSignals> {
    static IDS: AtomicU64 = AtomicU64::new(0);
    let ends = EndsOnSignals {
        id: IDS.fetch_add(1, Ordering::Relaxed),
        told: Arc::default(),
    };
    let mut hub = hub();
    if !hub.listens {
        listen()?;
        hub.listens = true;
    }
    hub.jobs.push(Registered {
        id: ends.id,
        job,
        how,
        told: Arc::clone(&ends.told),
    });
    Ok(ends)
}

fn listen() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _in_runtime = runtime.enter();
        Signals::new()?
    };
    let take = async move {
        loop {
            let signal = signals.next().await;
            hub().take(signal.as_raw_value());
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || runtime.block_on(take)).map(drop)
}

impl Hub {
    fn take(&mut self, signal: i32) {
        if self.told.is_some_and(|told| told.elapsed() < SAME_SIGNAL) {
            return;
        }
        let again = self
            .jobs
            .iter()
            .any(|job| job.told.load(Ordering::Relaxed) != 0);
        if again || self.jobs.is_empty() {
            std::process::exit(128 + signal);
        }
        self.told = Some(Instant::now());
        for Registered { job, how, told, .. } in &self.jobs {
            told.store(signal, Ordering::Relaxed);
            tracing::warn!(job = job.name(), %how, "told to end; once more, and it ends at once");
            let (job, how) = (job.clone(), *how);
            // It waits for the job. Nobody waits for it.
            std::thread::spawn(move || ask_to_end(&job, how));
        }
    }
}

/// The signals that tell this process to end. Whoever listens takes their effect from them.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}

fn ask_to_end(job: &JobClient, how: OnSigterm) {
    if how == OnSigterm::Suspend {
        return job.suspend();
    }
    loop {
        match job.stop_with_savepoint(None, false) {
            Ok(_) => return,
            // Somebody else is about to stop it. If that comes to nothing, it is our turn.
            Err(RequestError::Refused(TriggerRefusal::AlreadyQueued)) => {
                std::thread::sleep(SAME_SIGNAL);
            }
            Err(error) => {
                let error = ErrorChain(&error);
                tracing::warn!(%error, "the job can't be stopped with a savepoint: suspended");
                return job.suspend();
            }
        }
    }
}
