//! What a job does when its process is told to end.
//!
//! SIGTERM and SIGINT (Ctrl-C) end a job in an orderly way: by default it is suspended, which keeps
//! everything, so that whoever starts it next goes on from its latest checkpoint; or it is stopped
//! with a savepoint. A JobManager that waits for the lead gives its candidacy back. A second signal
//! ends the process at once, as a crash would; so does the first, when there is neither.
//!
//! Signals are the process's, so one thread takes them for all that goes on in it. It stays.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_coordinator::TriggerRefusal;
use tidegate_types::ErrorChain;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

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

/// Something that ends when its process is told to, for as long as this is there.
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
        hub().registered.retain(|one| one.id != self.id);
    }
}

/// Takes the word that the process is to end, for as long as it is there.
pub(crate) struct Told {
    ends: EndsOnSignals,
    word: oneshot::Receiver<()>,
}

impl Told {
    /// Waits until the process is told to end.
    pub(crate) async fn wait(&mut self) {
        if (&mut self.word).await.is_err() {
            // It is sent before whoever sends it is gone.
            std::future::pending().await
        }
    }

    /// See [`EndsOnSignals::exit`].
    pub(crate) fn exit(&self) -> ! {
        self.ends.exit()
    }
}

struct Registered {
    id: u64,
    told: Arc<AtomicI32>,
    ending: Ending,
}

/// How something is told to end.
enum Ending {
    Job {
        job: JobClient,
        how: OnSigterm,
    },
    /// Whoever waits takes the word once.
    Waiting(Option<oneshot::Sender<()>>),
}

impl Ending {
    fn begin(&mut self) {
        match self {
            Ending::Job { job, how } => {
                let (job, how) = (job.clone(), *how);
                let name = job.name();
                tracing::warn!(job = name, %how, "told to end; once more, and it ends at once");
                // It waits for the job. Nobody waits for it.
                std::thread::spawn(move || ask_to_end(&job, how));
            }
            Ending::Waiting(word) => {
                tracing::warn!("told to end while waiting for the lead");
                // Somebody who is just about to go needn't know.
                let _ = word.take().map(|word| word.send(()));
            }
        }
    }
}

/// Who is told when a signal comes.
struct Hub {
    listens: bool,
    registered: Vec<Registered>,
    /// When the first signal came that they were told of.
    told: Option<Instant>,
}

static HUB: Mutex<Hub> = Mutex::new(Hub {
    listens: false,
    registered: Vec::new(),
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
    register(Ending::Job { job, how })
}

/// Has the process not end when it is told to, but whoever waits for the word.
///
/// # Errors
/// As [`end_on_signals`].
pub(crate) fn word_to_end() -> io::Result<Told> {
    let (sender, word) = oneshot::channel();
    let ends = register(Ending::Waiting(Some(sender)))?;
    Ok(Told { ends, word })
}

fn register(ending: Ending) -> io::Result<EndsOnSignals> {
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
    hub.registered.push(Registered {
        id: ends.id,
        told: Arc::clone(&ends.told),
        ending,
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
            .registered
            .iter()
            .any(|one| one.told.load(Ordering::Relaxed) != 0);
        if again || self.registered.is_empty() {
            std::process::exit(128 + signal);
        }
        self.told = Some(Instant::now());
        for Registered { told, ending, .. } in &mut self.registered {
            told.store(signal, Ordering::Relaxed);
            ending.begin();
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
