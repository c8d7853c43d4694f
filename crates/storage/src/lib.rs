//! The durable namespace of one job, on `object_store`.
//!
//! Exactly-once rests on a few properties of storage that are easy to lose: a file is whole or not
//! there, it is durable together with its name before the next step starts, an id is never reused,
//! and a write whose outcome is unclear is read back rather than guessed about. This crate is
//! where they are kept; what to write when is the coordinator's decision, what the bytes of state
//! mean is the state backend's.
//!
//! [`JobStore`] is the entry point. In this version the namespace is a local folder, owned by one
//! process through a file lock. The byte formats are described in `docs/formats.md`.
//!
//! Feature `fault-points`: compiles in the crash points of `tidegate-fault`.

mod error;
mod names;

mod folder;
mod metadata;
mod objects;
mod record;

mod completed;
mod job_store;
mod state_file;
mod sweep;

pub use error::{ErrorChain, ErrorKind, StorageError};
pub use job_store::{JobStore, NamespaceStatus};
pub use names::parse_checkpoint_dir;
pub use state_file::{StateFileReader, StateFileWriter};
pub use sweep::SweepReport;
