//! The socket of a connection that is being made: plain, or encrypted.

use std::io;
use std::time::Duration;

use tidegate_runtime::Connection;
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::TlsStream;

#[cfg(feature = "tls")]
use super::error::Refusal;
use super::handshake::{Failure, TurnedAway, accept, dial};
use super::silence::break_after;
use super::{ConnectOptions, Shared};

/// A connection on which both sides have proved who they are.
pub(super) enum Link {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Link {
    /// Encrypts the connection if this cluster does, and introduces this process to `peer`.
    pub(super) async fn dial(
        stream: TcpStream,
        options: &ConnectOptions,
        peer: u32,
    ) -> Result<Link, Failure> {
        stream.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            return Link::dial_encrypted(stream, tls, options, peer).await;
        }
        let mut stream = stream;
        dial(&mut stream, options, peer).await?;
        Ok(Link::Plain(stream))
    }

    #[cfg(feature = "tls")]
    async fn dial_encrypted(
        stream: TcpStream,
        tls: &crate::tls::Tls,
        options: &ConnectOptions,
        peer: u32,
    ) -> Result<Link, Failure> {
        use super::handshake::Verdict;
        use crate::tls;

        let dialled = tls.dial(stream, tls::Purpose::Data).await;
        let mut stream = dialled.map_err(|failure| match failure {
            tls::Failure::Passing(error) => Failure::from(error),
            tls::Failure::Final(why) => Failure::Final(Verdict::Tls(why)),
        })?;
        dial(&mut stream, options, peer).await?;
        Ok(Link::Encrypted(Box::new(stream.into())))
    }

    /// Finds out who has connected.
    pub(super) async fn accept(
        stream: TcpStream,
        shared: &Shared,
    ) -> Result<(u32, Link), TurnedAway> {
        stream.set_nodelay(true)?;
        let claim = |peer| shared.claim(peer);
        #[cfg(feature = "tls")]
        if let Some(tls) = &shared.options.tls {
            let mut stream = accept_encrypted(stream, tls).await?;
            let peer = accept(&mut stream, &shared.options, claim).await?;
            return Ok((peer, Link::Encrypted(Box::new(stream.into()))));
        }
        let mut stream = stream;
        let peer = accept(&mut stream, &shared.options, claim).await?;
        Ok((peer, Link::Plain(stream)))
    }

    /// Hands the socket over to threads that block; it breaks after so much silence.
    pub(super) fn into_connection(self, silence: Duration) -> io::Result<Connection> {
        match self {
            Link::Plain(stream) => Connection::tcp(blocking(stream, silence)?),
            #[cfg(feature = "tls")]
            Link::Encrypted(stream) => {
                let (stream, session) = match *stream {
                    TlsStream::Client(stream) => {
                        let (stream, session) = stream.into_inner();
                        (stream, session.into())
                    }
                    TlsStream::Server(stream) => {
                        let (stream, session) = stream.into_inner();
                        (stream, session.into())
                    }
                };
                Connection::encrypted(blocking(stream, silence)?, session)
            }
        }
    }
}

fn blocking(stream: TcpStream, silence: Duration) -> io::Result<std::net::TcpStream> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    break_after(&stream, silence)?;
    Ok(stream)
}

/// One that doesn't encrypt is told so as the protocol has it, without being read.
#[cfg(feature = "tls")]
async fn accept_encrypted(
    stream: TcpStream,
    tls: &crate::tls::Tls,
) -> Result<tokio_rustls::server::TlsStream<TcpStream>, TurnedAway> {
    use tokio::io::AsyncWriteExt;

    use super::hello::REFUSED;
    use crate::farewell::close_gently;
    use crate::tls::{Purpose, Stranger};

    match tls.accept(stream, Purpose::Data).await? {
        Ok(stream) => Ok(stream),
        Err(Stranger::Refused(why)) => Err(TurnedAway::Tls(why)),
        Err(Stranger::Plain(mut stream)) => {
            let refusal = Refusal::Plain;
            stream.write_all(&[REFUSED, refusal.code()]).await?;
            close_gently(&mut stream).await;
            Err(TurnedAway::Tls("it does not encrypt".to_owned()))
        }
    }
}
