//! State of streaming operators: keys and their canonical encoding, state descriptors, the heap
//! backend whose snapshots don't stop the stream, and the byte format of a keyed state file.
//!
//! A subtask binds [descriptors](ValueStateDescriptor) to a [`HeapKeyedBackend`], which owns the
//! state of a range of key groups. [`HeapKeyedBackend::freeze`] cuts a snapshot at an instant; the
//! [`FrozenKeyedState`] it returns is written to a file by another thread, while the stream goes
//! on. [`HeapKeyedBackend::restore_file`] reads the same file back, at any parallelism. A snapshot
//! may consist of what has changed since an earlier one ([`HeapKeyedBackend::freeze_tracked`]); a
//! [chain](HeapKeyedBackend::restore_chain) of such pieces is read back in order.
//!
//! Nothing here is async, starts a thread, reads a clock or knows where files are kept.

mod chain;
mod descriptor;
mod error;
mod function;
mod heap;
mod operator;
mod record;
mod scope;

pub mod format;
pub mod inspect;
pub mod key;
pub mod schema;
pub mod text;

pub use chain::ChainPolicy;
pub use compact_str::CompactString;
pub use descriptor::{
    AggregatingStateDescriptor, ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor,
    StateDescriptor, StateKind, StateValue, TimersDescriptor, ValueStateDescriptor,
};
pub use error::{AlreadyBound, LoadError, RestoredStateMismatch, StateError};
pub use format::{KeyedFileSummary, PieceKind};
pub use function::{Aggregate, Fold, MergeAggregate, Reduce, ReduceFn};
pub use heap::{
    AggregatingState, ChainRestore, FrozenKeyedState, HeapKeyedBackend, LikelyPlace, ListElements,
    ListState, MapEntries, MapState, ReducingState, SnapshotProgress, SnapshotTicket, StateTable,
    TimerService, Timers, TrackedSnapshot, ValueState,
};
pub use key::{BorrowedKey, HashedKey, KeyError, StateKey};
pub use operator::{BroadcastState, OperatorListState, OperatorStateBackend};
pub use record::Record;
pub use scope::{At, Scope};
