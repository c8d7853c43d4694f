//! What a job does when its process is told to end.
//!
//! SIGTERM and SIGINT (Ctrl-C) end a job in an orderly way: by default it is suspended, which keeps
//! everything, so that whoever starts it next goes on from its latest checkpoint; or it is stopped
//! with a savepoint. A second signal ends the process at once, as a crash would.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tidegate_types::ErrorChain;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::JobClient;

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

/// Which signal has told the process to end, if one has.
#[derive(Clone, Debug, Default)]
pub struct Terminated(Arc<AtomicI32>);

impl Terminated {
    /// Whether one has.
    pub fn is_told(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Ends the process as the signal would have, had nobody been there to take it: with the status
    /// that shells would show.
    pub fn exit(&self) -> ! {
        std::process::exit(128 + self.0.load(Ordering::Relaxed))
    }
}

/// Ends the job in the way that `how` says when the process is told to end, from now on, on a
/// thread of its own.
///
/// # Errors
/// If the operating system refuses that.
pub fn end_on_signals(job: JobClient, how: OnSigterm) -> io::Result<Terminated> {
    let terminated = Terminated::default();
    let told = terminated.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = {
        let _in_runtime = runtime.enter();
        Signals::new()?
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || runtime.block_on(end(&job, how, signals, &told)))?;
    Ok(terminated)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}

async fn end(job: &JobClient, how: OnSigterm, mut signals: Signals, told: &Terminated) {
    let first = signals.next().await;
    told.0.store(first.as_raw_value(), Ordering::Relaxed);
    tracing::warn!(%how, "told to end; once more, and this process ends at once");
    let asked = job.clone();
    // It waits for the job. Nobody waits for it.
    std::thread::spawn(move || ask_to_end(&asked, how));
    let second = signals.next().await;
    std::process::exit(128 + second.as_raw_value());
}

fn ask_to_end(job: &JobClient, how: OnSigterm) {
    if how == OnSigterm::Stop
        && let Err(error) = job.stop_with_savepoint(None, false)
    {
        let error = ErrorChain(&error);
        tracing::warn!(%error, "the job can't be stopped with a savepoint, and is suspended");
        return job.suspend();
    }
    if how == OnSigterm::Suspend {
        job.suspend();
    }
}
