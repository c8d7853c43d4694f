//! The durable namespace of one job, on `object_store`.
//!
//! Exactly-once rests on a few properties of storage that are easy to lose: a file is whole or not
//! there, it is durable together with its name before the next step starts, an id is never reused,
//! and a write whose outcome is unclear is read back rather than guessed about. This crate is
//! where they are kept; what to write when is the coordinator's decision, what the bytes of state
//! mean is the state backend's.
//!
//! [`JobStore`] is the entry point. In this version the namespace is a local folder, owned by one
//! process through a file lock, or lies in memory ([`MemoryNamespace`]). Which of its files count
//! is said by small records, behind the trait [`RecordStore`]. Savepoints are made in folders of
//! their own, and read, as any checkpoint, by [`load_snapshot`]; a job can be begun from one
//! ([`JobStore::resume`]). The byte formats are described in `docs/formats.md`.
//!
//! ```
//! use std::io::{Read, Write};
//! use tidegate_storage::{JobStore, NamespaceStatus, parse_checkpoint_dir};
//! use tidegate_types::CheckpointId;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().to_str().expect("it is UTF-8");
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
//! let dir = parse_checkpoint_dir(path)?;
//! let open = JobStore::open(&dir, "word count", runtime.handle().clone());
//! let (store, status) = runtime.block_on(open)?;
//! assert_eq!(status, NamespaceStatus::New);
//!
//! // On a thread of its own, per subtask:
//! let attempt = runtime.block_on(store.reserve_attempt())?;
//! let name = store.state_file_name(attempt, CheckpointId(1), "count[0]");
//! let mut writer = store.create_state_file(name);
//! writer.write_all(b"state")?;
//! let handle = writer.finish()?;
//!
//! let mut reader = store.open_state_file(&handle)?;
//! reader.verify()?;
//! let mut state = Vec::new();
//! reader.read_to_end(&mut state)?;
//! assert_eq!(state, b"state");
//!
//! // Nobody has published metadata that refers to the file:
//! let report = runtime.block_on(store.sweep_orphans(&[]))?;
//! assert_eq!((report.files, report.bytes), (1, 5));
//! # Ok(())
//! # }
//! ```
//!
//! Features: `zookeeper` and `s3` for stores of these kinds; `fault-points` compiles in the crash
//! points of `tidegate-fault`.

mod error;
mod location;
mod names;

mod folder;
mod metadata;
mod objects;
mod record;

mod ha;

mod belonging;
mod checkpoint_storage;
mod completed;
mod elsewhere;
mod history;
mod job_store;
mod load;
mod origin;
mod places;
mod savepoint;
mod state_file;
mod sweep;

#[cfg(test)]
mod damage;
#[cfg(fuzzing)]
pub mod fuzzing;

pub use error::{ErrorKind, StorageError};
#[cfg(feature = "s3")]
pub use ha::S3Location;
#[cfg(feature = "zookeeper")]
pub use ha::ZooKeeperLocation;
pub use ha::pointer::{CheckpointPointer, Origin};
pub use ha::{
    Candidate, Ended, Expected, FolderRecords, HaLocation, InstanceId, LeaderElection, LeaderInfo,
    Leadership, Loss, LossCause, MemoryNamespace, RecordStore, RecordVersion, Versioned, Written,
    last_ended,
};
pub use job_store::{JobStore, NamespaceStatus};
pub use load::{load_snapshot, parse_snapshot_path};
pub use names::{parse_checkpoint_dir, path_safe};
pub use origin::{RestoreFrom, Resumed};
pub use state_file::{StateFileReader, StateFileWriter};
pub use sweep::{Orphan, SweepReport};
