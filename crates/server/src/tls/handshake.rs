//! Opening encrypted connections, from both sides.

use std::io::{self, Read};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::identity::{Purpose, Tls};
use super::{FIRST_BYTE, explain};
use crate::farewell::close_gently;

/// Why a connection that was dialled isn't encrypted.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may be the next time: the connection broke.
    Passing(io::Error),
    /// It never will, as things are; for people, about the other side.
    Final(String),
}

/// Somebody who has connected and isn't let in.
#[derive(Debug)]
pub(crate) enum Stranger {
    /// It doesn't encrypt. Nothing of what it says has been read.
    Plain(TcpStream),
    /// It has been told, and this is why.
    Refused(String),
}

impl Tls {
    /// Encrypts a connection that this process has opened. Returns when the other side has
    /// accepted this one's certificate, and has shown one of its own. Nothing has been said then.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn dial(
        &self,
        stream: TcpStream,
        purpose: Purpose,
    ) -> Result<client::TlsStream<TcpStream>, Failure> {
        let identity = self.identity();
        let connector = TlsConnector::from(identity.client(purpose));
        let talk = async {
            let mut stream = connector.connect(identity.name.clone(), stream).await?;
            until_accepted(&mut stream).await?;
            Ok(stream)
        };
        let stream = talk.await.map_err(|error| self.failure(error))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(agreed) if agreed == purpose.protocol() => Ok(stream),
            _ => Err(Failure::Final(
                "it is something else, which does not know connections of this kind; check the \
                 address"
                    .to_owned(),
            )),
        }
    }

    fn failure(&self, error: io::Error) -> Failure {
        match cause(&error) {
            Some(cause) => Failure::Final(explain::of_peer(cause, &self.files().name)),
            None => Failure::Passing(error),
        }
    }

    /// Encrypts a connection that somebody else has opened. Returns when it has shown a
    /// certificate that is accepted.
    ///
    /// # Errors
    /// [`Stranger`], or that it has gone.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        purpose: Purpose,
    ) -> io::Result<Result<server::TlsStream<TcpStream>, Stranger>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first != [FIRST_BYTE] {
            return Ok(Err(Stranger::Plain(stream)));
        }
        let acceptor = TlsAcceptor::from(self.identity().server(purpose));
        let accepted = acceptor.accept(stream).into_fallible().await;
        let mut stream = match accepted {
            Ok(stream) => stream,
            Err((error, mut stream)) => {
                let why = match cause(&error) {
                    Some(cause) => explain::of_peer(cause, &self.files().name),
                    None => return Err(error),
                };
                close_gently(&mut stream).await;
                return Ok(Err(Stranger::Refused(why)));
            }
        };
        if stream.get_ref().1.alpn_protocol() != Some(purpose.protocol()) {
            close_gently(&mut stream).await;
            let why = "it does not say what the connection is for, so it is no process of Tidegate";
            return Ok(Err(Stranger::Refused(why.to_owned())));
        }
        // The ticket that the other side waits for.
        stream.flush().await?;
        Ok(Ok(stream))
    }
}

/// Waits for a session ticket. It is the first that whoever accepts says once it has accepted the
/// certificate; if it hasn't, it says why, and nothing else can get lost, since nothing has been
/// sent to it yet.
async fn until_accepted(stream: &mut client::TlsStream<TcpStream>) -> io::Result<()> {
    loop {
        let (socket, session) = stream.get_mut();
        if session.tls13_tickets_received() > 0 {
            return Ok(());
        }
        socket.readable().await?;
        match session.read_tls(&mut WhatIsThere(socket)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        let processed = session.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
}

/// Reads without waiting.
struct WhatIsThere<'a>(&'a TcpStream);

impl Read for WhatIsThere<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

/// What TLS complains about, if it does.
fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
