//! Leadership and records in ZooKeeper.
//!
//! ```text
//! <root>/<job name, path-safe>/
//!   election/<instance>-0000000007   one per candidate, ephemeral; the lowest number leads
//!   leader                           ephemeral: who leads and where it is
//!   epoch                            the latest epoch and its leader
//!   records/…                        the records, as named by their trait
//! ```
//!
//! The sessions of candidates decide who may lead, as with any lock in ZooKeeper; that alone would
//! not keep a leader out whose session has expired and who hasn't noticed. So whoever comes to lead
//! replaces the content of `epoch`, in one transaction with proof that its candidacy still stands,
//! and every write is a transaction that first checks the version of that node. A request of a
//! former leader that arrives late fails on it.
//!
//! When a connection is lost, the outcome of a request on it is unknown. The session goes on with
//! the next connection, on which the server has dealt with what came before: reading back after
//! that settles the outcome, and what didn't happen is tried again. So an outage shorter than the
//! session is waited for. When the session has ended, so has the leadership; what was unknown then
//! is for the next leader to read.

mod election;
mod records;

use std::future::Future;
use std::io;
use std::time::Duration;

use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error, SessionState, StateWatcher,
};

pub(super) use election::ZooKeeperElection;

use super::election::{LeaderInfo, Led};
use crate::error::StorageError;

/// Servers, and the node below which all jobs are. Displays as its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperLocation {
    /// `host:port`, separated by commas.
    servers: String,
    /// Absolute, without a slash at its end.
    root: String,
}

impl ZooKeeperLocation {
    /// Parses what follows `zk://`.
    pub(super) fn parse(text: &str) -> Result<ZooKeeperLocation, StorageError> {
        let invalid = |reason: &str| StorageError::InvalidLocation {
            location: text.to_owned(),
            reason: reason.to_owned(),
        };
        let form = "is not of the form `zk://host:port,host:port/path`";
        let rest = text.strip_prefix("zk://").ok_or_else(|| invalid(form))?;
        let (servers, path) = rest.split_once('/').ok_or_else(|| invalid(form))?;
        let is_server = |server: &str| {
            let split = server.rsplit_once(':');
            split.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if !servers.split(',').all(is_server) {
            return Err(invalid(form));
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain);
        if !path.split('/').all(is_segment) {
            return Err(invalid(
                "needs a path of letters, digits, `.`, `_` and `-` after the servers",
            ));
        }
        Ok(ZooKeeperLocation {
            servers: servers.to_owned(),
            root: format!("/{path}"),
        })
    }
}

impl std::fmt::Display for ZooKeeperLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "zk://{}{}", self.servers, self.root)
    }
}

/// The nodes of one job.
#[derive(Clone, Debug)]
struct Nodes {
    servers: String,
    job: String,
}

impl Nodes {
    fn epoch(&self) -> String {
        format!("{}/epoch", self.job)
    }

    fn leader(&self) -> String {
        format!("{}/leader", self.job)
    }

    fn election(&self) -> String {
        format!("{}/election", self.job)
    }

    fn record(&self, name: &str) -> String {
        format!("{}/records/{name}", self.job)
    }

    /// The node as errors name it.
    fn describe(&self, path: &str) -> String {
        format!("zk://{}{path}", self.servers)
    }

    fn error(&self, action: &'static str, path: &str, error: Error) -> StorageError {
        let kind = match &error {
            Error::ConnectionLoss | Error::NoHosts => io::ErrorKind::NotConnected,
            Error::Timeout | Error::SessionExpired => io::ErrorKind::TimedOut,
            Error::NoAuth | Error::AuthFailed => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        StorageError::Io {
            action,
            file: self.describe(path),
            source: io::Error::new(kind, error),
        }
    }

    async fn connect(&self, session_timeout: Duration) -> Result<Client, StorageError> {
        let connector = Client::connector().with_session_timeout(session_timeout);
        let connected = connector.connect(&self.servers).await;
        connected.map_err(|e| self.error("connect to", "", e))
    }

    /// Reads who leads.
    async fn read_leader(&self, client: &Client) -> Result<Option<LeaderInfo>, Error> {
        let path = self.leader();
        let read = || async {
            client.sync(&path).await?;
            client.get_data(&path).await
        };
        match patiently(client, read).await {
            // Nobody but leaders writes this; what can't be read is nobody to turn to.
            Ok((bytes, _)) => Ok(Led::decode(&path, &bytes).ok().and_then(|led| led.leader)),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn persistent() -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(Acls::anyone_all())
}

fn ephemeral() -> CreateOptions<'static> {
    CreateMode::Ephemeral.with_acls(Acls::anyone_all())
}

/// Whether the session, with all that it held, is over.
fn is_over(client: &Client) -> bool {
    client.state().is_terminated()
}

/// Whether the server has answered: then the request has failed as a whole, and for good.
fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NoNode
            | Error::NodeExists
            | Error::BadVersion
            | Error::NotEmpty
            | Error::NoAuth
            | Error::InvalidAcl
            | Error::NoChildrenForEphemerals
            | Error::QuotaExceeded
            | Error::BadArguments(_)
            | Error::Unimplemented
            | Error::MarshallingError
    )
}

/// Repeats a request that may be repeated until it is answered or the session is over: requests
/// wait for the next connection, so this doesn't spin.
async fn patiently<T, F>(client: &Client, request: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match request().await {
            Err(error) if !is_answer(&error) && !is_over(client) => {
                tracing::debug!(%error, "request to ZooKeeper is repeated");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}

/// Waits until the session is over.
async fn over(client: &Client) {
    ended(&mut client.state_watcher()).await;
}

/// As [`over`], of a session that nobody may hold any more.
async fn ended(states: &mut StateWatcher) {
    let mut state: SessionState = states.peek_state();
    while !state.is_terminated() {
        state = states.changed().await;
    }
}
