//! The election: ephemeral sequential nodes; each candidate watches the one before its own.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tidegate_types::{ErrorChain, LeaderEpoch};
use tokio::sync::Mutex;
use zookeeper_client::{
    Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, Stat, StateWatcher,
};

use super::records::{Leading, ZooKeeperRecords};
use super::{Nodes, ZooKeeperLocation, ended, ephemeral, is_over, over, patiently, persistent};
use crate::error::{ErrorKind, StorageError};
use crate::ha::election::{Candidate, LeaderElection, LeaderInfo, Leadership, Led, LossReporter};
use crate::ha::trouble::Trouble;

/// Pause after a candidacy or a look that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// Digits of the number that ZooKeeper gives to a sequential node.
const SEQUENCE_DIGITS: usize = 10;

/// The election of one job's leader in ZooKeeper.
#[derive(Debug)]
pub(in crate::ha) struct ZooKeeperElection {
    nodes: Nodes,
    session_timeout: Duration,
    /// The session of those who only look. Candidates have one each.
    looking: Mutex<Option<Client>>,
    /// How the session of the latest candidate is.
    standing: std::sync::Mutex<Option<StateWatcher>>,
}

/// What one try to take the lead led to.
enum Takeover {
    Won(LeaderEpoch, i32),
    /// Something changed in between.
    Again,
}

impl ZooKeeperElection {
    pub(in crate::ha) fn of(
        location: &ZooKeeperLocation,
        job: &str,
        session_timeout: Duration,
    ) -> ZooKeeperElection {
        ZooKeeperElection {
            nodes: Nodes {
                servers: location.servers.clone(),
                job: format!("{}/{job}", location.root),
            },
            session_timeout,
            looking: Mutex::new(None),
            standing: std::sync::Mutex::new(None),
        }
    }

    fn standing(&self) -> MutexGuard<'_, Option<StateWatcher>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `candidate` leads, with a new session after each that ends before.
    async fn win(&self, candidate: &Candidate) -> Result<Leadership, StorageError> {
        let mut trouble = Trouble::default();
        loop {
            match self.stand(candidate, &mut trouble).await {
                Err(error) if error.kind() == ErrorKind::Retryable => {
                    trouble.on_failure("no candidate can be put up", &error);
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }

    /// One candidacy. Any failure ends its session, and with it whatever it left in the election.
    async fn stand(
        &self,
        candidate: &Candidate,
        trouble: &mut Trouble,
    ) -> Result<Leadership, StorageError> {
        let nodes = &self.nodes;
        let client = nodes.connect(self.session_timeout).await?;
        *self.standing() = Some(client.state_watcher());
        let error = |e| nodes.error("be a candidate in", &nodes.election(), e);
        let candidacy = self.enter(&client, candidate).await.map_err(error)?;
        trouble.on_answer();
        self.wait_for_turn(&client, &candidacy)
            .await
            .map_err(error)?;
        loop {
            let taken = self.take(&client, candidate, &candidacy).await?;
            if let Takeover::Won(epoch, epoch_version) = taken {
                let loss = LossReporter::new();
                let watched = loss.loss();
                let records = ZooKeeperRecords::new(Leading {
                    client,
                    nodes: nodes.clone(),
                    epoch,
                    epoch_version,
                    candidacy,
                    loss,
                });
                let info = LeaderInfo::of(candidate, epoch);
                return Ok(Leadership::new(info, Arc::new(records), watched));
            }
        }
    }

    /// Enters the election and returns the path of the new node.
    async fn enter(&self, client: &Client, candidate: &Candidate) -> Result<String, Error> {
        let options = persistent();
        client.mkdir(&self.nodes.election(), &options).await?;
        let none = Led {
            epoch: LeaderEpoch(0),
            leader: None,
        };
        match client
            .create(&self.nodes.epoch(), &none.encode(), &options)
            .await
        {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(error) => return Err(error),
        }
        let prefix = format!("{}/{}-", self.nodes.election(), candidate.instance);
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let led = Led::by(LeaderInfo::of(candidate, LeaderEpoch(0)));
        let (_, sequence) = client.create(&prefix, &led.encode(), &mode).await?;
        Ok(format!("{prefix}{sequence}"))
    }

    async fn wait_for_turn(&self, client: &Client, candidacy: &str) -> Result<(), Error> {
        let election = self.nodes.election();
        let (_, own) = candidacy.rsplit_once('/').expect("every path is absolute");
        loop {
            let mut all = patiently(client, || client.list_children(&election)).await?;
            all.retain(|name| sequence(name).is_some());
            all.sort_unstable_by_key(|name| sequence(name));
            let place = all.iter().position(|name| name == own);
            match place {
                Some(0) => return Ok(()),
                Some(place) => {
                    let before = format!("{election}/{}", all[place - 1]);
                    let look = || client.check_and_watch_stat(&before);
                    if let (Some(_), changes) = patiently(client, look).await? {
                        tokio::select! {
                            _ = changes.changed() => {}
                            () = over(client) => return Err(Error::SessionExpired),
                        }
                    }
                }
                // Somebody has deleted it.
                None => return Err(Error::RuntimeInconsistent),
            }
        }
    }

    /// Raises the epoch and says who leads, if the candidacy still stands.
    async fn take(
        &self,
        client: &Client,
        candidate: &Candidate,
        candidacy: &str,
    ) -> Result<Takeover, StorageError> {
        let (epoch_path, leader_path) = (self.nodes.epoch(), self.nodes.leader());
        let error = |e| self.nodes.error("take the lead in", &epoch_path, e);
        let (bytes, former, stale) = self.former(client).await.map_err(error)?;
        let latest = Led::decode(&self.nodes.describe(&epoch_path), &bytes)?;
        let epoch = LeaderEpoch(latest.epoch.0 + 1);
        let led = Led::by(LeaderInfo::of(candidate, epoch)).encode();
        let build = || {
            let mut writer = client.new_multi_writer();
            writer.add_check_version(candidacy, 0)?;
            writer.add_set_data(&epoch_path, &led, Some(former.version))?;
            if stale.is_some() {
                // Of a leader whose session goes on though its candidacy is gone.
                writer.add_delete(&leader_path, None)?;
            }
            writer.add_create(&leader_path, &led, &ephemeral())?;
            Ok(writer)
        };
        match build().map_err(error)?.commit().await {
            Ok(results) => {
                let version = results.iter().find_map(|result| match result {
                    MultiWriteResult::SetData { stat } => Some(stat.version),
                    _ => None,
                });
                let version = version.expect("each operation has its result");
                Ok(Takeover::Won(epoch, version))
            }
            Err(MultiWriteError::OperationFailed { index, source })
                if index > 0
                    && matches!(
                        source,
                        Error::BadVersion | Error::NoNode | Error::NodeExists
                    ) =>
            {
                Ok(Takeover::Again)
            }
            Err(failed) => Err(error(failed.into())),
        }
    }

    /// The latest epoch, and the node of a leader that hasn't gone.
    async fn former(&self, client: &Client) -> Result<(Vec<u8>, Stat, Option<Stat>), Error> {
        let epoch = self.nodes.epoch();
        client.sync(&epoch).await?;
        let (bytes, stat) = client.get_data(&epoch).await?;
        let leader = client.check_stat(&self.nodes.leader()).await?;
        Ok((bytes, stat, leader))
    }

    /// A session for looking.
    async fn look(&self) -> Result<Client, StorageError> {
        let mut looking = self.looking.lock().await;
        match &*looking {
            Some(client) if !is_over(client) => Ok(client.clone()),
            _ => {
                let client = self.nodes.connect(self.session_timeout).await?;
                *looking = Some(client.clone());
                Ok(client)
            }
        }
    }

    async fn read(&self) -> Result<Option<LeaderInfo>, StorageError> {
        let client = self.look().await?;
        let read = self.nodes.read_leader(&client).await;
        read.map_err(|e| self.nodes.error("read", &self.nodes.leader(), e))
    }

    async fn peek_at(&self, name: &str) -> Result<Option<Bytes>, StorageError> {
        let client = self.look().await?;
        let path = self.nodes.record(name);
        let read = || async {
            client.sync(&path).await?;
            client.get_data(&path).await
        };
        match patiently(&client, read).await {
            Ok((bytes, _)) => Ok(Some(bytes.into())),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(self.nodes.error("read", &path, error)),
        }
    }

    async fn change(&self, known: Option<&LeaderInfo>) -> Result<Option<LeaderInfo>, StorageError> {
        loop {
            match self.watch(known).await {
                Err(error) if error.kind() == ErrorKind::Retryable => {
                    tracing::debug!(error = %ErrorChain(&error), "the leader can't be seen");
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }

    async fn watch(&self, known: Option<&LeaderInfo>) -> Result<Option<LeaderInfo>, StorageError> {
        let path = self.nodes.leader();
        let error = |e| self.nodes.error("watch", &path, e);
        let client = self.look().await?;
        loop {
            // Ordering: watched before it is read, so that no change is missed.
            let watching = patiently(&client, || client.check_and_watch_stat(&path)).await;
            let (_, changes) = watching.map_err(error)?;
            let found = self.nodes.read_leader(&client).await.map_err(error)?;
            if found.as_ref() != known {
                return Ok(found);
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = over(&client) => return Err(error(Error::SessionExpired)),
            }
        }
    }
}

/// The number that ZooKeeper gave to a candidacy; `None` if this is none.
fn sequence(name: &str) -> Option<u64> {
    let (_, digits) = name.rsplit_once('-')?;
    (digits.len() >= SEQUENCE_DIGITS).then(|| digits.parse().ok())?
}

impl LeaderElection for ZooKeeperElection {
    fn campaign<'a>(
        &'a self,
        candidate: &'a Candidate,
    ) -> BoxFuture<'a, Result<Leadership, StorageError>> {
        self.win(candidate).boxed()
    }

    fn peek<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StorageError>> {
        self.peek_at(name).boxed()
    }

    /// The server removes the candidate when it has closed the session, which it does as soon as
    /// nobody holds it any more.
    fn withdrawn(&self) -> BoxFuture<'_, ()> {
        let standing = self.standing().take();
        async {
            if let Some(mut states) = standing {
                ended(&mut states).await;
            }
        }
        .boxed()
    }

    fn current_leader(&self) -> BoxFuture<'_, Result<Option<LeaderInfo>, StorageError>> {
        self.read().boxed()
    }

    fn leader_changed<'a>(
        &'a self,
        known: Option<&'a LeaderInfo>,
    ) -> BoxFuture<'a, Result<Option<LeaderInfo>, StorageError>> {
        self.change(known).boxed()
    }
}
