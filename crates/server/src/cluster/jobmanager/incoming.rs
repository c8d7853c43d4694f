//! Connections to a JobManager that encrypts.
//!
//! Whoever connects is talked to in a task of its own, so nobody holds others up. One that doesn't
//! encrypt is told so in the words of HTTP/2 (`INADEQUATE_SECURITY`), since it wouldn't understand
//! TLS; nothing of what it says is read before.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use crate::data::{HANDSHAKE_PATIENCE, STRANGERS_MAX};
use crate::farewell::close_gently;
use crate::tls::{Purpose, Stranger, Tls};

/// Pause after a connection couldn't be taken, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// An empty SETTINGS frame, with which a server begins, and a GOAWAY frame: no stream has been
/// processed, error 0xc (RFC 9113, sections 6.5, 6.8 and 7).
const GOAWAY: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, // SETTINGS
    0, 0, 8, 7, 0, 0, 0, 0, 0, // GOAWAY, 8 bytes
    0, 0, 0, 0, 0, 0, 0, 0xc,
];

type Arrival = io::Result<TlsStream<TcpStream>>;

/// The connections of those whose certificates are accepted, for as long as the result is there.
pub(super) fn encrypted(listener: TcpListener, tls: Tls) -> ReceiverStream<Arrival> {
    let (arrived, arrivals) = channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = take_in(listener, tls, arrived.clone()) => {}
            () = arrived.closed() => {}
        }
    });
    ReceiverStream::new(arrivals)
}

async fn take_in(listener: TcpListener, tls: Tls, arrived: Sender<Arrival>) {
    let mut talks = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                talks.spawn(talk(stream, from, tls.clone(), arrived.clone()));
            }
            Err(error) => {
                tracing::debug!(%error, "accept a control connection");
                sleep(PAUSE).await;
            }
        }
        while talks.try_join_next().is_some() {}
        if talks.len() >= STRANGERS_MAX {
            talks.join_next().await;
        }
    }
}

async fn talk(stream: TcpStream, from: SocketAddr, tls: Tls, arrived: Sender<Arrival>) {
    let cause = match timeout(HANDSHAKE_PATIENCE, accept(stream, &tls)).await {
        Ok(Ok(Ok(stream))) => {
            // Nobody waits any more once the job is over.
            let _ = arrived.send(Ok(stream)).await;
            return;
        }
        Ok(Ok(Err(why))) => why,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it said nothing, or not enough".to_owned(),
    };
    tracing::warn!(%from, cause, "a control connection was turned away");
}

async fn accept(stream: TcpStream, tls: &Tls) -> io::Result<Result<TlsStream<TcpStream>, String>> {
    stream.set_nodelay(true)?;
    Ok(match tls.accept(stream, Purpose::Control).await? {
        Ok(stream) => Ok(stream),
        Err(Stranger::Refused(why)) => Err(why),
        Err(Stranger::Plain(mut stream)) => {
            stream.write_all(&GOAWAY).await?;
            close_gently(&mut stream).await;
            Err("it does not encrypt".to_owned())
        }
    })
}
