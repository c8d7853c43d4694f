//! Connections between the processes of an attempt, and who has been lost.
//!
//! Timely's threads read and write here. When a connection fails they panic, the queues to the
//! workers count as poisoned, and the workers panic, too. None of them says which process has gone;
//! the connection does, before anybody panics.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tidegate_types::message::{FailureOrigin, Report, SubtaskFailure};
use timely::communication::allocator::zero_copy::stream::Stream;

#[cfg(feature = "tls")]
use super::encrypted::Encrypted;
use super::frames::Frames;
use crate::metrics::TrafficCounters;
use crate::report::Reporter;

/// A connection to another process of the attempt, on which both sides have proved who they are.
pub struct Connection {
    stream: TcpStream,
    address: Option<SocketAddr>,
    #[cfg(feature = "tls")]
    encrypted: Option<Arc<Encrypted>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.stream).finish()
    }
}

impl Connection {
    /// A connection without encryption. Nagle's algorithm is turned off on it, since a barrier
    /// must not wait for data to go with it.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn tcp(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let address = stream.peer_addr().ok();
        Ok(Connection {
            stream,
            address,
            #[cfg(feature = "tls")]
            encrypted: None,
        })
    }

    /// An encrypted connection, on which the handshake of TLS has been made. What has been read
    /// from the stream already is in `session`.
    ///
    /// # Errors
    /// If the operating system refuses.
    #[cfg(feature = "tls")]
    pub fn encrypted(stream: TcpStream, session: rustls::Connection) -> io::Result<Connection> {
        let plain = Connection::tcp(stream)?;
        Ok(Connection {
            encrypted: Some(Arc::new(Encrypted::new(session))),
            ..plain
        })
    }

    /// A second handle on the same connection.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn try_clone(&self) -> io::Result<Connection> {
        Ok(Connection {
            stream: self.stream.try_clone()?,
            address: self.address,
            #[cfg(feature = "tls")]
            encrypted: self.encrypted.clone(),
        })
    }

    /// Closes it for both sides, whoever else has a handle on it.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says that this side is through with a direction, or with both. The other side reads to the
    /// end, and sees that it is one.
    ///
    /// # Errors
    /// If it is broken or closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(encrypted) = &self.encrypted
            && how != Shutdown::Read
        {
            encrypted.end(&self.stream)?;
        }
        self.stream.shutdown(how)
    }
}

impl Read for &Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(encrypted) = &self.encrypted {
            return encrypted.read(&self.stream, buffer);
        }
        (&self.stream).read(buffer)
    }
}

impl Write for &Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(encrypted) = &self.encrypted {
            return encrypted.write(&self.stream, bytes);
        }
        (&self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.stream).flush()
    }
}

/// No peer has been lost.
const NOBODY: u32 = u32::MAX;

/// What an attempt knows of the processes that it is connected with.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Handles by which all connections can be closed.
    connections: Vec<Connection>,
    /// The attempt is over here: connections may end.
    ending: AtomicBool,
    /// The process that was lost first.
    lost: AtomicU32,
}

impl Peers {
    pub(crate) fn new(connections: Vec<Connection>) -> Peers {
        Peers {
            connections,
            ending: AtomicBool::new(false),
            lost: AtomicU32::new(NOBODY),
        }
    }

    /// From now on no connection is missed.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    pub(crate) fn close_all(&self) {
        self.connections.iter().for_each(Connection::close);
    }

    /// The process whose connection was lost first, if any was.
    pub(crate) fn lost(&self) -> Option<u32> {
        let lost = self.lost.load(Ordering::SeqCst);
        (lost != NOBODY).then_some(lost)
    }

    /// Whether this is the first loss of all, and matters.
    fn note(&self, process: u32) -> bool {
        if self.is_ending() {
            return false;
        }
        let outcome =
            self.lost
                .compare_exchange(NOBODY, process, Ordering::SeqCst, Ordering::SeqCst);
        outcome.is_ok()
    }
}

/// Who is told of what happens on connections.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) peers: Arc<Peers>,
    pub(crate) reports: Reporter,
    pub(crate) traffic: Arc<TrafficCounters>,
}

/// A connection as timely uses it.
pub(crate) struct Watched {
    connection: Connection,
    process: u32,
    watch: Watch,
    /// How far the messages are that have been written with this handle. One thread writes all.
    written: Frames,
}

impl Watched {
    pub(crate) fn new(connection: Connection, process: u32, watch: &Watch) -> Watched {
        Watched {
            connection,
            process,
            watch: watch.clone(),
            written: Frames::default(),
        }
    }

    /// Reports the loss once, as this may be the end of several connections.
    fn lose(&self, cause: &dyn std::fmt::Display) {
        if !self.watch.peers.note(self.process) {
            return;
        }
        let address = self.connection.address;
        let address = address.map_or(String::new(), |address| format!(" at `{address}`"));
        let process = self.process;
        self.watch.reports.send(Report::Failed(SubtaskFailure {
            subtask: None,
            origin: FailureOrigin::Peer { process },
            cause: format!("lost the connection to process `{process}`{address}: {cause}"),
        }));
    }

    fn watch<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &outcome
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.lose(error);
        }
        outcome
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.connection).read(buffer) {
                // Timely takes any error for the end of the connection.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) if !buffer.is_empty() => {
                    self.lose(&"the other side has closed it");
                    return Ok(0);
                }
                outcome => return self.watch(outcome),
            }
        }
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = (&self.connection).write(bytes);
        if let Ok(written) = &outcome {
            let traffic = &self.watch.traffic;
            let sent = |channel, bytes| traffic.on_sent(channel, bytes);
            self.written.pass(&bytes[..*written], sent);
        }
        self.watch(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = (&self.connection).flush();
        self.watch(outcome)
    }
}

impl Stream for Watched {
    fn try_clone(&self) -> io::Result<Self> {
        let connection = self.connection.try_clone()?;
        Ok(Watched::new(connection, self.process, &self.watch))
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.connection.stream.set_nonblocking(nonblocking)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.connection.shutdown(how)
    }
}
