//! The high-availability contract: where a job keeps the few small records on which its history
//! hangs, so that exactly one coordinator at a time can go on with it.
//!
//! State files and metadata are large, immutable and named so that nobody ever writes the same one
//! twice; any durable storage will do for them. What decides which of them count is small and
//! changes: pointers to completed checkpoints, counters, the end. A [`RecordStore`] keeps that, and
//! its contract is all that a coordination service has to fulfil:
//!
//! - Records are small (below 1 kB, but for a long job name or path) and few.
//! - Writes are conditional: put if absent, or replace a version that was read. A write has three
//!   outcomes, and an implementation reads back before it says [`Written::Unknown`].
//! - A handle belongs to a [`LeaderEpoch`]. Taking the lead durably raises the epoch, also if
//!   nothing else changes, before the handle is there. From then on whatever a handle of an older
//!   epoch writes or removes is [`Written::NotDone`] with [`StorageError::Fenced`], also if its
//!   process was paused in the middle of it; so is a write of unknown outcome that arrives late.
//! - Reads are linearizable: a handle sees everything that was done before it took the lead.
//!
//! A locked folder ([`FolderRecords`]) and memory ([`MemoryNamespace`]) are always here. ZooKeeper
//! (feature `zookeeper`) fulfils it with transactions: a check of the version of the epoch's node,
//! then the write. An object store has no writes across objects; there (feature `s3`) all records
//! of a job are in one object, with the epoch, which is replaced on condition of its entity tag.
//!
//! Who leads is settled by a [`LeaderElection`] over the same store, which a [`HaLocation`] names.
//!
//! What the records mean is the same everywhere, see [`JobRecords`](job_records::JobRecords).

mod election;
mod ended;
mod folder;
mod folder_election;
mod location;
mod memory;
#[cfg(feature = "s3")]
mod s3;
mod trouble;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub(crate) mod job_records;
pub(crate) mod pointer;

use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use tidegate_types::message::WriteOutcome;
use tidegate_types::{ErrorChain, LeaderEpoch};

pub use election::{
    Candidate, InstanceId, LeaderElection, LeaderInfo, Leadership, Loss, LossCause,
};
pub use ended::{Ended, last_ended};
pub use folder::FolderRecords;
pub use location::HaLocation;
pub use memory::MemoryNamespace;
#[cfg(feature = "s3")]
pub(crate) use s3::S3Inspection;
#[cfg(feature = "s3")]
pub use s3::S3Location;
#[cfg(feature = "zookeeper")]
pub use zookeeper::ZooKeeperLocation;

use crate::error::StorageError;

/// Version of one record, as its store counts them: an entity tag, a node's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordVersion(pub String);

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// What it holds.
    pub bytes: Bytes,
    /// To replace exactly this.
    pub version: RecordVersion,
}

/// What must hold for a record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It isn't there. One that is there with the same bytes counts as written: only this epoch
    /// can have written it, or an earlier one that did the same.
    Absent,
    /// It is there, as it was read.
    Version(RecordVersion),
}

/// How a write or a removal ended; see [`WriteOutcome`] for the guarantees.
#[derive(Debug)]
pub enum Written {
    /// It is durable.
    Done,
    /// It certainly didn't happen and never will.
    NotDone(StorageError),
    /// It may or may not have happened; reading back didn't settle it.
    Unknown(StorageError),
}

impl Written {
    /// For callers that give up on anything but success.
    ///
    /// # Errors
    /// The cause, if it isn't done or unknown.
    pub fn into_result(self) -> Result<(), StorageError> {
        match self {
            Written::Done => Ok(()),
            Written::NotDone(error) | Written::Unknown(error) => Err(error),
        }
    }
}

impl Written {
    /// Passes a crash point if the write is done.
    pub(crate) fn passing(self, point: &'static str) -> Written {
        if matches!(self, Written::Done) {
            tidegate_fault::point(point);
        }
        self
    }
}

impl From<Written> for WriteOutcome {
    fn from(written: Written) -> WriteOutcome {
        let text = |error: &StorageError| ErrorChain(error).to_string();
        match written {
            Written::Done => WriteOutcome::Done,
            Written::NotDone(error) => WriteOutcome::NotDone {
                cause: text(&error),
            },
            Written::Unknown(error) => WriteOutcome::Unknown {
                cause: text(&error),
            },
        }
    }
}

/// The small records of one job, as the leader of one epoch sees and writes them. The module says
/// what an implementation has to guarantee.
///
/// Names are one plain segment, or two separated by `/` for records of which there are many.
pub trait RecordStore: fmt::Debug + Send + Sync {
    /// The epoch that this handle writes in.
    fn epoch(&self) -> LeaderEpoch;

    /// Where a record lies, for people: errors name it.
    fn describe(&self, name: &str) -> String;

    /// Reads a record; `None` if there is none.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Versioned>, StorageError>>;

    /// The names, without the folder, of all records `folder/…`, in any order.
    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<String>, StorageError>>;

    /// Writes a record. Dropping the future leaves the outcome unknown.
    fn write<'a>(
        &'a self,
        name: &'a str,
        bytes: Bytes,
        expected: Expected,
    ) -> BoxFuture<'a, Written>;

    /// Removes a record for good; one that is gone already is fine.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Written>;

    /// Checks that this handle still leads: for what must not be done by anybody else and isn't a
    /// write to this store. The answer may be out of date as soon as it is there.
    ///
    /// # Errors
    /// [`StorageError::Fenced`], or why it can't be known.
    fn confirm(&self) -> BoxFuture<'_, Result<(), StorageError>>;
}
