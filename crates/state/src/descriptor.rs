//! Descriptors: the name and type of a state, apart from where it is kept.
//!
//! A descriptor is bound to a backend once per subtask. The name identifies the state in
//! checkpoints; kind, value schema and value version say whether old bytes still fit.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that state can hold; implemented for every type that qualifies.
pub trait StateValue: Clone + Send + Serialize + DeserializeOwned + 'static {}

impl<V: Clone + Send + Serialize + DeserializeOwned + 'static> StateValue for V {}

/// How a state organises what it holds per key. The number is part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateKind {
    /// One value per key.
    Value = 1,
}

impl StateKind {
    /// The kind with this number in a file.
    pub(crate) fn from_code(code: u8) -> Option<StateKind> {
        (code == StateKind::Value as u8).then_some(StateKind::Value)
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateKind::Value => f.write_str("value state"),
        }
    }
}

/// Declares one value per key.
///
/// ```
/// use tidegate_state::ValueStateDescriptor;
///
/// let count = ValueStateDescriptor::<u64>::new("count").with_default(0);
/// assert_eq!(count.version, 1);
/// ```
#[derive(Clone, Debug)]
pub struct ValueStateDescriptor<V> {
    /// Name, unique within the operator; any Unicode text.
    pub name: String,
    /// What a key has that was never set or was removed. Cloned for each key that needs it, so no
    /// two keys ever share it.
    pub default: Option<V>,
    /// Version of the value's type. Raise it when the meaning of the value changes though its
    /// shape doesn't; a restore refuses bytes of another version.
    pub version: u32,
}

impl<V: StateValue> ValueStateDescriptor<V> {
    /// A state without default, version 1.
    pub fn new(name: impl Into<String>) -> Self {
        ValueStateDescriptor {
            name: name.into(),
            default: None,
            version: 1,
        }
    }

    /// Sets what keys have that were never set or were removed.
    pub fn with_default(self, default: V) -> Self {
        ValueStateDescriptor {
            default: Some(default),
            ..self
        }
    }
}
