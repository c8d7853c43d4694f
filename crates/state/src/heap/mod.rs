//! The heap backend: state in hash tables, one per state and key group, with snapshots that don't
//! stop the stream.
//!
//! The live tables stay flat: an access is one hash lookup, without boxing, serialisation, dynamic
//! dispatch or atomics. A snapshot copies *pages* (runs of buckets of one table): before the first
//! write to a page that a snapshot still lacks, the worker copies it out; the others it copies in
//! small steps between batches. So [`freeze`](HeapKeyedBackend::freeze) itself copies nothing.
//!
//! Once a snapshot may [rest on an earlier one](HeapKeyedBackend::freeze_tracked), one bit per
//! bucket says what was written since; such a snapshot passes over pages without any, and of the
//! others copies what the bits say.
//!
//! Invariants: a page is copied out at most once per snapshot, and before anything in it changes;
//! a snapshot consists of the entries at the instant of its freeze, each exactly once; one of
//! changes holds at least what has changed, and what is gone; states and key groups outside the
//! backend's range hold nothing.

mod access;
mod aggregating;
mod backend;
mod bound;
mod buffers;
mod changes;
mod chunks;
mod content;
mod elements;
mod entry_key;
mod frozen;
mod link;
mod list;
mod map;
mod map_tree;
mod pack;
mod prefetch;
mod reducing;
mod restore;
mod restored;
mod shards;
mod snapshot;
mod sorted;
mod timer_queue;
mod timers;
mod value;
mod windows;

pub use aggregating::AggregatingState;
pub use backend::HeapKeyedBackend;
pub use elements::ListElements;
pub use frozen::FrozenKeyedState;
pub use link::SnapshotTicket;
pub use list::ListState;
pub use map::MapState;
pub use reducing::ReducingState;
pub use restore::ChainRestore;
pub use shards::LikelyPlace;
pub use snapshot::SnapshotProgress;
pub use sorted::MapEntries;
pub use timers::{TimerService, Timers};
pub use value::{StateTable, ValueState};
pub use windows::TrackedSnapshot;
