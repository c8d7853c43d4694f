//! Data connections: one between each two processes of an attempt, opened by us and handed to the
//! runtime.
//!
//! Each process listens on a port that is fresh for the attempt, knows the addresses of all, dials
//! those with smaller indexes and accepts those with larger ones. Whoever connects has to be of the
//! same job, leadership, attempt and build, and to know the cluster's secret: a child that is left
//! over from a former attempt, a port scan and a process of another cluster are turned away, and
//! the listener goes on waiting for the right one. Strangers cost it nothing but a task each, and
//! are given up after [`HANDSHAKE_PATIENCE`].
//!
//! What goes over the wire is in [`hello`](self::hello) byte by byte. The secret never does: each
//! side shows that it knows it by what it makes of the other's random number.
//!
//! If the cluster encrypts ([`tls`](crate::tls)), each connection does from its first byte, and the
//! same is said inside.

mod error;
mod handshake;
mod hello;
mod link;
mod silence;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_runtime::Connection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use error::{ConnectError, MissingPeer, Refusal, RefusedStranger};
use handshake::Failure;
pub use hello::{BuildFingerprint, Membership, Secret};
use link::Link;

use crate::tls::Tls;

/// Whoever has connected gets this long to say who it is.
pub const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(2);

/// The kernel of a process that listens answers within this time, or it is dialled anew.
const DIAL_PATIENCE: Duration = Duration::from_millis(300);

/// Pauses between attempts to reach a process that doesn't listen yet.
const REDIAL_MIN: Duration = Duration::from_millis(1);
const REDIAL_MAX: Duration = Duration::from_millis(10);

/// At most so many strangers are talked to at a time; the next wait in the listener's queue.
pub(crate) const STRANGERS_MAX: usize = 256;

/// Of so many that were turned away an error says why.
const REMEMBERED_MAX: usize = 8;

/// What a process needs to know to be connected with all others of its attempt.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// What all processes of the attempt have in common.
    pub membership: Membership,
    /// What they know and nobody else. All of them may have an empty one.
    pub secret: Secret,
    /// Index of this process.
    pub process: u32,
    /// What is encrypted with; `None` if nothing is. The same for all of them.
    pub tls: Option<Tls>,
    /// `host:port` of every process, by index; this one's own isn't used.
    pub addresses: Vec<String>,
    /// How long to wait for all of them.
    pub timeout: Duration,
    /// A connection whose other side acknowledges nothing for this long breaks.
    pub silence: Duration,
}

/// Connects this process with all others, and returns the connections by index, with `None` at its
/// own. Returns as soon as the last one stands. The listener is closed then, and in any case.
///
/// # Errors
/// If a process with a smaller index turns this one away, which is final, or if not all
/// connections stand in time. No connection is left then.
pub async fn connect(
    listener: std::net::TcpListener,
    options: ConnectOptions,
) -> Result<Vec<Option<Connection>>, ConnectError> {
    let (process, processes) = (options.process, options.addresses.len());
    if process as usize >= processes {
        return Err(ConnectError::Index { process, processes });
    }
    let (deadline, silence) = (Instant::now() + options.timeout, options.silence);
    listener
        .set_nonblocking(true)
        .map_err(ConnectError::Listen)?;
    let listener = TcpListener::from_std(listener).map_err(ConnectError::Listen)?;
    let (arrived, mut arrivals) = unbounded_channel();
    let shared = Arc::new(Shared::new(options, arrived));
    // Dropped with everything that is still going on when this function returns.
    let mut tasks = JoinSet::new();
    for peer in 0..process {
        tasks.spawn(Arc::clone(&shared).reach(peer));
    }
    tasks.spawn(Arc::clone(&shared).listen(listener));
    let mut connections: Vec<Option<Connection>> = (0..processes).map(|_| None).collect();
    for _ in 1..processes {
        let Ok(arrival) = timeout_at(deadline, arrivals.recv()).await else {
            return Err(shared.missing(&connections));
        };
        let (peer, stream) = arrival.expect("`shared` has a sender, too")?;
        let connection = stream.into_connection(silence);
        connections[peer as usize] = Some(connection.map_err(ConnectError::Socket)?);
    }
    Ok(connections)
}

type Arrival = Result<(u32, Link), ConnectError>;

/// What the tasks that connect one process have in common.
struct Shared {
    options: ConnectOptions,
    arrived: UnboundedSender<Arrival>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Which processes have been let in.
    accepted: Vec<u32>,
    /// Why a process hasn't been reached, as far as is known.
    obstacles: BTreeMap<u32, String>,
    refused: VecDeque<RefusedStranger>,
}

impl Shared {
    fn new(options: ConnectOptions, arrived: UnboundedSender<Arrival>) -> Shared {
        Shared {
            options,
            arrived,
            progress: Mutex::default(),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self, peer: u32) -> &str {
        &self.options.addresses[peer as usize]
    }

    /// Dials a process until it lets this one in, or turns it away.
    async fn reach(self: Arc<Self>, peer: u32) {
        let mut pause = REDIAL_MIN;
        // A firewall that drops what it doesn't like leaves the caller waiting for minutes.
        let obstacle = "nothing has answered at this address".to_owned();
        self.progress().obstacles.insert(peer, obstacle);
        let arrival = loop {
            match self.try_reach(peer).await {
                Ok(stream) => break Ok((peer, stream)),
                Err(Failure::Final(verdict)) => {
                    let address = self.address(peer).to_owned();
                    break Err(verdict.into_error(peer, address));
                }
                Err(Failure::Passing(obstacle)) => {
                    self.progress().obstacles.insert(peer, obstacle);
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(REDIAL_MAX);
        };
        // Nobody waits any more if another connection has failed for good.
        let _ = self.arrived.send(arrival);
    }

    async fn try_reach(&self, peer: u32) -> Result<Link, Failure> {
        // The kernel would try again after pauses of seconds.
        let connected = timeout(DIAL_PATIENCE, TcpStream::connect(self.address(peer))).await;
        let stream = connected.map_err(io::Error::from)??;
        let waiting = "it has not answered: it is starting, or hangs";
        self.progress().obstacles.insert(peer, waiting.to_owned());
        Link::dial(stream, &self.options, peer).await
    }

    /// Takes in whoever connects, and talks to all of them at the same time.
    async fn listen(self: Arc<Self>, listener: TcpListener) {
        let mut talks = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    talks.spawn(Arc::clone(&self).talk(stream, from));
                }
                Err(error) => {
                    // Such as too many open files: nothing about it is this listener's fault.
                    tracing::debug!(%error, "accept a data connection");
                    sleep(REDIAL_MAX).await;
                }
            }
            while talks.try_join_next().is_some() {}
            if talks.len() >= STRANGERS_MAX {
                talks.join_next().await;
            }
        }
    }

    async fn talk(self: Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let outcome = timeout(HANDSHAKE_PATIENCE, Link::accept(stream, &self)).await;
        let cause = match outcome {
            Ok(Ok(arrival)) => {
                let _ = self.arrived.send(Ok(arrival));
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it said nothing, or not enough".to_owned(),
        };
        tracing::warn!(%from, cause, "a data connection was turned away");
        let mut progress = self.progress();
        progress.refused.push_back(RefusedStranger { from, cause });
        if progress.refused.len() > REMEMBERED_MAX {
            progress.refused.pop_front();
        }
    }

    /// Whether a process that has proved who it is is the first of that index.
    fn claim(&self, peer: u32) -> bool {
        let mut progress = self.progress();
        let first = !progress.accepted.contains(&peer);
        if first {
            progress.accepted.push(peer);
        }
        first
    }

    fn missing(&self, connections: &[Option<Connection>]) -> ConnectError {
        let progress = self.progress();
        let own = self.options.process;
        let absent = (0..).zip(connections).filter(|(_, c)| c.is_none());
        let absent = absent.map(|(peer, _)| peer).filter(|peer| *peer != own);
        let peer = |process| MissingPeer {
            process,
            address: self.address(process).to_owned(),
            obstacle: match progress.obstacles.get(&process) {
                Some(obstacle) => obstacle.clone(),
                None => "it has not connected to this process".to_owned(),
            },
        };
        ConnectError::Missing {
            waited: self.options.timeout,
            peers: absent.map(peer).collect(),
            refused: progress.refused.iter().cloned().collect(),
        }
    }
}
