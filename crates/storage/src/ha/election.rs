//! Who leads a job: candidates, the leadership that one of them wins, and how it ends.
//!
//! A leadership has an epoch, and the records of the job as that epoch may write them. That its
//! end is noticed ([`Loss`]) is a courtesy that stops useless work early; what makes it safe is
//! that the records reject whatever a former leader writes, noticed or not.
//!
//! Others find the leader by what it recorded of itself ([`LeaderInfo`]). That may be out of date:
//! a leader that was killed stays recorded until its store notices, or until the next one leads.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tidegate_types::LeaderEpoch;
use tokio::sync::watch;
use uuid::Uuid;

use super::RecordStore;
use crate::error::StorageError;
use crate::record;

/// Random identity of one candidate, so that a process tells itself from its predecessor at the
/// same address. Displays as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceId(pub Uuid);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// Somebody who wants to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who it is; every process, and every store opened in it, has its own.
    pub instance: InstanceId,
    /// Where others reach it once it leads: host and port; empty if they can't.
    pub address: String,
}

impl Candidate {
    /// A new one, which is reached at `address`.
    pub fn new(address: &str) -> Candidate {
        Candidate {
            instance: InstanceId(Uuid::new_v4()),
            address: address.to_owned(),
        }
    }
}

/// What a leader records of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderInfo {
    /// The epoch of its leadership.
    pub epoch: LeaderEpoch,
    /// Who it is.
    pub instance: InstanceId,
    /// Where it is reached: host and port; empty if it can't be.
    pub address: String,
}

impl LeaderInfo {
    pub(crate) fn of(candidate: &Candidate, epoch: LeaderEpoch) -> LeaderInfo {
        LeaderInfo {
            epoch,
            instance: candidate.instance,
            address: candidate.address.clone(),
        }
    }
}

/// What is recorded of the leadership: the latest epoch, and who leads in it unless it was given
/// back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) epoch: LeaderEpoch,
    /// Nobody if the leadership was given back, or if a version that didn't say has recorded it.
    pub(crate) leader: Option<LeaderInfo>,
}

/// Stands for nobody.
const NOBODY: &str = "nobody";

impl Led {
    pub(crate) fn by(leader: LeaderInfo) -> Led {
        Led {
            epoch: leader.epoch,
            leader: Some(leader),
        }
    }

    /// Epoch, instance and address, as they are written.
    pub(crate) fn fields(&self) -> [String; 3] {
        let leader = self.leader.as_ref();
        let instance = leader.map_or(NOBODY.to_owned(), |leader| leader.instance.to_string());
        let address = leader.map_or(String::new(), |leader| leader.address.clone());
        [self.epoch.0.to_string(), instance, address]
    }

    /// The opposite; `file` names them in errors.
    pub(crate) fn of_fields(
        file: &str,
        epoch: &str,
        instance: &str,
        address: &str,
    ) -> Result<Led, StorageError> {
        let epoch = LeaderEpoch(record::parse_number(file, epoch)?);
        let leader = match instance {
            NOBODY => None,
            text => Some(LeaderInfo {
                epoch,
                instance: parse_instance(file, text)?,
                address: address.to_owned(),
            }),
        };
        Ok(Led { epoch, leader })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let [epoch, instance, address] = self.fields();
        record::LEADER.encode(&[&epoch, &instance, &address])
    }

    pub(crate) fn decode(file: &str, bytes: &[u8]) -> Result<Led, StorageError> {
        let values = match record::LEADER.decode(file, bytes) {
            Err(StorageError::Version { found: 1, .. }) => {
                let values = record::LEADER_V1.decode(file, bytes)?;
                let epoch = LeaderEpoch(record::parse_number(file, &values[0])?);
                return Ok(Led {
                    epoch,
                    leader: None,
                });
            }
            other => other?,
        };
        Led::of_fields(file, &values[0], &values[1], &values[2])
    }
}

fn parse_instance(file: &str, text: &str) -> Result<InstanceId, StorageError> {
    let instance = Uuid::try_parse(text).ok().map(InstanceId);
    let canonical = instance.filter(|instance| instance.to_string() == text);
    canonical.ok_or_else(|| StorageError::Malformed {
        file: file.to_owned(),
        reason: format!("`{text}` is no instance id"),
    })
}

/// Why a leadership has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LossCause {
    /// Somebody else leads.
    #[error("`{by}` has taken the lead")]
    Deposed {
        /// The epoch that leads now, or one after which it can only be a newer one.
        by: LeaderEpoch,
    },
    /// The store gave it up since it had not heard of the leader for too long, or the leader must
    /// assume so since it could not reach the store.
    #[error("the leadership was not renewed in time")]
    Expired,
    /// The leader gave it back.
    #[error("the leadership was given back")]
    Released,
}

/// Tells that a leadership has ended. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Loss(watch::Receiver<Option<LossCause>>);

impl Loss {
    /// Why it has ended; `None` as long as it isn't known to have.
    pub fn cause(&self) -> Option<LossCause> {
        self.0.borrow().clone()
    }

    /// Waits until it has ended. Can be dropped and called again.
    pub async fn lost(&mut self) -> LossCause {
        let ended = self.0.wait_for(Option::is_some).await;
        let cause = ended.ok().and_then(|cause| cause.clone());
        // Nobody is left to tell: the last handle on the records is gone.
        cause.unwrap_or(LossCause::Released)
    }
}

/// The side that notices. The first cause stands.
#[derive(Clone, Debug)]
pub(crate) struct LossReporter(Arc<watch::Sender<Option<LossCause>>>);

impl LossReporter {
    pub(crate) fn new() -> LossReporter {
        LossReporter(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn loss(&self) -> Loss {
        Loss(self.0.subscribe())
    }

    pub(crate) fn report(&self, cause: LossCause) {
        self.0.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(cause);
            }
            first
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// The records of a leader, which can also end its leadership.
pub(crate) trait Term: RecordStore {
    /// Gives the leadership back; see [`Leadership::release`].
    fn release(&self) -> BoxFuture<'_, Result<(), StorageError>>;
}

/// A leadership over a job. It lasts until it is released or lost, or the last handle on its
/// records is dropped.
#[derive(Debug)]
pub struct Leadership {
    info: LeaderInfo,
    term: Arc<dyn Term>,
    loss: Loss,
}

impl Leadership {
    pub(crate) fn new(info: LeaderInfo, term: Arc<dyn Term>, loss: Loss) -> Leadership {
        Leadership { info, term, loss }
    }

    /// Its epoch, higher than that of any leadership over this job before.
    pub fn epoch(&self) -> LeaderEpoch {
        self.info.epoch
    }

    /// What others see of it.
    pub fn info(&self) -> &LeaderInfo {
        &self.info
    }

    /// The job's records, as this epoch writes them.
    pub fn records(&self) -> Arc<dyn RecordStore> {
        Arc::<dyn Term>::clone(&self.term)
    }

    /// To notice when it ends.
    pub fn loss(&self) -> Loss {
        self.loss.clone()
    }

    /// Gives the leadership back, so that the next leader needn't wait. From then on whatever is
    /// written through [`records`](Self::records) is rejected. Call it when nothing of this leader
    /// works any more.
    ///
    /// # Errors
    /// If the store can't be told; it notices by itself, in its time.
    pub async fn release(self) -> Result<(), StorageError> {
        self.term.release().await
    }
}

/// The election of one job's leader. All methods must run in a Tokio runtime with timers.
pub trait LeaderElection: fmt::Debug + Send + Sync {
    /// Waits until `candidate` leads. A store that can't be reached is waited for; dropping the
    /// future ends the candidacy.
    ///
    /// # Errors
    /// What waiting doesn't mend: a wrong configuration, damaged records.
    fn campaign<'a>(
        &'a self,
        candidate: &'a Candidate,
    ) -> BoxFuture<'a, Result<Leadership, StorageError>>;

    /// Reads a record without leading, as it is at some moment between call and return.
    ///
    /// # Errors
    /// If the store can't be read.
    fn peek<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StorageError>>;

    /// Waits until the candidacy whose future was dropped last, or the leadership that it had just
    /// won, is out of the way of others. As long as the store can't be reached this may take as
    /// long as a dead candidate is waited for.
    fn withdrawn(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    /// The leader that is recorded, if there is one.
    ///
    /// # Errors
    /// If the store can't be read.
    fn current_leader(&self) -> BoxFuture<'_, Result<Option<LeaderInfo>, StorageError>>;

    /// Waits until another leader than `known` is recorded, or none, and returns that; at once if
    /// it is so already. A store that can't be reached is waited for.
    ///
    /// # Errors
    /// What waiting doesn't mend.
    fn leader_changed<'a>(
        &'a self,
        known: Option<&'a LeaderInfo>,
    ) -> BoxFuture<'a, Result<Option<LeaderInfo>, StorageError>>;
}
