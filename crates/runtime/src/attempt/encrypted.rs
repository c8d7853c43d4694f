//! One encrypted connection for both directions.
//!
//! One of timely's threads waits in `read` while another writes, and the state of TLS is one thing
//! for both. Two connections per pair of processes, one for each direction, would keep the threads
//! apart at the price of a handshake that ties them together. Here it is one connection, and
//! nobody waits for the network while holding what the other direction needs:
//!
//! | Lock | Guards | Is held while |
//! |---|---|---|
//! | `incoming` | bytes from the network, by readers alone | waiting for the network |
//! | `outgoing` | bytes for the network, by writers alone | waiting for the network |
//! | `session` | the state of TLS | encrypting or decrypting up to 64 KiB, never waiting |
//!
//! A reader takes `incoming`, then `session`; a writer `outgoing`, then `session`. So there is no
//! circle, and a writer that waits because the other side doesn't read keeps nobody from reading.
//! Writers send in the order in which they have encrypted, since `outgoing` is held throughout.
//!
//! *A reader never writes.* What TLS wants to answer to what was read (a new key, after a few
//! hundred gigabytes) goes along with the next thing that is written. TLS 1.3 wants it before that
//! and no sooner (RFC 8446, section 4.6.3).

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So much is read, and encrypted, at a time.
const CHUNK_BYTES: usize = 64 << 10;

pub(super) struct Encrypted {
    session: Mutex<rustls::Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Vec<u8>>,
}

/// What has come from the network and isn't decrypted yet.
struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Nothing follows.
    ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Encrypted {
    /// After the handshake.
    pub(super) fn new(mut session: rustls::Connection) -> Encrypted {
        // What is encrypted at a time is limited here.
        session.set_buffer_limit(None);
        Encrypted {
            session: Mutex::new(session),
            incoming: Mutex::new(Incoming {
                buffer: vec![0; CHUNK_BYTES].into(),
                start: 0,
                end: 0,
                ended: false,
            }),
            outgoing: Mutex::new(Vec::new()),
        }
    }

    /// Reads from `stream`. At the end, 0; an error if the other side hasn't said that it is one.
    pub(super) fn read(&self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        loop {
            match self.decrypt(&mut incoming, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => incoming.fill(stream)?,
                outcome => return outcome,
            }
        }
    }

    /// Fills `buffer` with what there is. `WouldBlock` if there is nothing.
    fn decrypt(&self, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = lock(&self.session);
        let mut filled = 0;
        while filled < buffer.len() {
            match session.reader().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if incoming.start < incoming.end || incoming.ended {
                        incoming.feed(&mut session)?;
                    } else if filled > 0 {
                        break;
                    } else {
                        return Err(error);
                    }
                }
                // It is said again if there is something to be delivered before.
                Err(_) if filled > 0 => break,
                Err(error) => return Err(as_people_know_it(error)),
            }
        }
        Ok(filled)
    }

    /// Encrypts the beginning of `bytes`, and sends that to `stream`.
    pub(super) fn write(&self, stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.send(stream, |session| {
            let chunk = &bytes[..bytes.len().min(CHUNK_BYTES)];
            session.writer().write(chunk)
        })
    }

    /// Tells the other side that nothing follows.
    pub(super) fn end(&self, stream: &TcpStream) -> io::Result<()> {
        self.send(stream, |session| {
            session.send_close_notify();
            Ok(())
        })
    }

    /// Sends what a session has to send after something has been done to it.
    fn send<T>(
        &self,
        stream: &TcpStream,
        act: impl FnOnce(&mut rustls::Connection) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut outgoing = lock(&self.outgoing);
        let done = {
            let mut session = lock(&self.session);
            let done = act(&mut session)?;
            while session.wants_write() {
                session.write_tls(&mut *outgoing)?;
            }
            done
        };
        let mut stream = stream;
        let sent = stream.write_all(&outgoing);
        outgoing.clear();
        if let Err(error) = sent {
            // Nobody knows how much has arrived, so nothing may follow.
            let _ = stream.shutdown(Shutdown::Both);
            return Err(error);
        }
        Ok(done)
    }
}

impl Incoming {
    /// Waits for the network.
    fn fill(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        debug_assert_eq!(self.start, self.end, "all has been decrypted");
        let read = stream.read(&mut self.buffer)?;
        (self.start, self.end) = (0, read);
        self.ended = read == 0;
        Ok(())
    }

    /// Hands some of it over; if there is nothing, that it has ended.
    fn feed(&mut self, session: &mut rustls::Connection) -> io::Result<()> {
        self.start += session.read_tls(&mut &self.buffer[self.start..self.end])?;
        let processed = session.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(())
    }
}

fn as_people_know_it(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the other side has closed it in the middle",
        ),
        _ => error,
    }
}
