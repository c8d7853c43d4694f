//! A way to a server on which a test can lose, hold and delay what is said.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Whether this is a request to lose.
type Matches = Box<dyn Fn(&[u8]) -> bool + Send>;

/// What is lost of the next request that matches. Its connection is cut in any case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lose {
    /// The server never gets to see it.
    Request,
    /// The server has dealt with it.
    Answer,
}

/// A proxy on a port of its own. It ends when this is dropped.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    state: watch::Sender<State>,
    lose: Mutex<Option<(Lose, Matches)>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    /// Nothing gets through, in either direction, but nothing is lost.
    Held,
    /// Connections are cut, and new ones as soon as they are made.
    Down,
    /// Every piece takes this long.
    Slow(Duration),
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            state: watch::Sender::new(State::Open),
            lose: Mutex::new(None),
        });
        let accepting = tokio::spawn(accept(listener, port, Arc::clone(&shared)));
        Proxy {
            port: own,
            shared,
            accepting,
        }
    }

    /// Loses the next request for which `matches` says so.
    pub(crate) fn lose(&self, what: Lose, matches: impl Fn(&[u8]) -> bool + Send + 'static) {
        *self.shared.lose.lock().unwrap() = Some((what, Box::new(matches)));
    }

    /// Whether it was lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.shared.lose.lock().unwrap().is_none()
    }

    pub(crate) fn hold(&self) {
        self.set(State::Held);
    }

    pub(crate) fn cut(&self) {
        self.set(State::Down);
    }

    pub(crate) fn slow(&self, delay: Duration) {
        self.set(State::Slow(delay));
    }

    pub(crate) fn open(&self) {
        self.set(State::Open);
    }

    fn set(&self, state: State) {
        self.shared.state.send_replace(state);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(State::Down);
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            return;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            if *shared.state.borrow() == State::Down {
                return;
            }
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                serve(client, server, &shared).await;
            }
        });
    }
}

async fn serve(client: TcpStream, server: TcpStream, shared: &Shared) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Once an answer is to be lost, none is passed on any more.
    let losing = watch::Sender::new(false);
    let mut state = shared.state.subscribe();
    tokio::select! {
        () = requests(from_client, to_server, shared, &losing) => {}
        () = answers(from_server, to_client, shared, &losing) => {}
        _ = state.wait_for(|state| *state == State::Down) => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    losing: &watch::Sender<bool>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        shared.pass().await;
        match shared.lost(&buffer[..count]) {
            Some(Lose::Request) => return,
            Some(Lose::Answer) => {
                losing.send_replace(true);
            }
            None => {}
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    losing: &watch::Sender<bool>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        shared.pass().await;
        if *losing.borrow() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// Waits until something may get through.
    async fn pass(&self) {
        let delay = match *self.state.borrow() {
            State::Slow(delay) => delay,
            _ => Duration::ZERO,
        };
        tokio::time::sleep(delay).await;
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state != State::Held).await;
    }

    fn lost(&self, request: &[u8]) -> Option<Lose> {
        let mut lose = self.lose.lock().unwrap();
        let matches = lose.as_ref().is_some_and(|(_, matches)| matches(request));
        matches.then(|| lose.take().unwrap().0)
    }
}
