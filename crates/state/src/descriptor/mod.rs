//! Descriptors: the name and type of a state, apart from where it is kept.
//!
//! A descriptor is bound to a backend once per subtask. The name identifies the state in
//! checkpoints; kind, value schema and value version say whether old bytes still fit.

mod kinds;

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StateError;
use crate::format::StateMeta;
use crate::heap::HeapKeyedBackend;
use crate::key::StateKey;

pub use kinds::{
    AggregatingStateDescriptor, ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor,
    TimersDescriptor, ValueStateDescriptor,
};

/// A value that state can hold; implemented for every type that qualifies.
pub trait StateValue: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {}

impl<V: Clone + Send + Sync + Serialize + DeserializeOwned + 'static> StateValue for V {}

/// How a state organises what it holds per key. The number is part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateKind {
    /// One value per key: one entry.
    Value = 1,
    /// A list per key: one entry with all elements.
    List = 2,
    /// A value per key into which others are combined: one entry.
    Reducing = 3,
    /// An accumulator per key: one entry.
    Aggregating = 4,
    /// A map per key: an entry for each map key.
    Map = 5,
    /// Timers in event time: an entry without value for each.
    EventTimers = 6,
    /// Timers in processing time: an entry without value for each.
    ProcessingTimers = 7,
}

impl StateKind {
    /// The kind with this number in a file.
    pub(crate) fn from_code(code: u8) -> Option<StateKind> {
        let kinds = [
            StateKind::Value,
            StateKind::List,
            StateKind::Reducing,
            StateKind::Aggregating,
            StateKind::Map,
            StateKind::EventTimers,
            StateKind::ProcessingTimers,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == code)
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StateKind::Value => "value state",
            StateKind::List => "list state",
            StateKind::Reducing => "reducing state",
            StateKind::Aggregating => "aggregating state",
            StateKind::Map => "map state",
            StateKind::EventTimers => "event-time timers",
            StateKind::ProcessingTimers => "processing-time timers",
        })
    }
}

/// Declares a state, apart from where it is kept. Implemented by the descriptors of this crate.
pub trait StateDescriptor {
    /// How an operator accesses the state: `K` is the key of the stream, `N` the namespace.
    type Handle<K: StateKey, N: StateKey>: Clone;

    /// What a checkpoint says about the state, but for its namespaces.
    fn meta(&self) -> StateMeta;

    /// Binds it to a backend in memory: what
    /// [`HeapKeyedBackend::bind_within`] calls.
    ///
    /// # Errors
    /// As [`HeapKeyedBackend::bind`].
    fn bind_heap<K: StateKey, N: StateKey>(
        &self,
        backend: &mut HeapKeyedBackend<K>,
    ) -> Result<Self::Handle<K, N>, StateError>;
}
