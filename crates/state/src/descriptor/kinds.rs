//! The descriptors of keyed state, one per kind.

use std::marker::PhantomData;

use super::{StateKind, StateValue};
use crate::function::{Aggregate, Fold, Reduce, ReduceFn};
use crate::key::StateKey;

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

    /// Sets the version of the value's type.
    pub fn with_version(self, version: u32) -> Self {
        ValueStateDescriptor { version, ..self }
    }

    /// Sets what keys have that were never set or were removed.
    pub fn with_default(self, default: V) -> Self {
        ValueStateDescriptor {
            default: Some(default),
            ..self
        }
    }
}

/// Declares a list per key.
///
/// ```
/// use tidegate_state::ListStateDescriptor;
///
/// let recent = ListStateDescriptor::<String>::new("recent").with_version(2);
/// assert_eq!(recent.name, "recent");
/// ```
#[derive(Clone, Debug)]
pub struct ListStateDescriptor<T> {
    /// Name, unique within the operator; any Unicode text.
    pub name: String,
    /// Version of the elements' type; see [`ValueStateDescriptor::version`].
    pub version: u32,
    element: PhantomData<fn(T)>,
}

impl<T: StateValue> ListStateDescriptor<T> {
    /// A list state, version 1.
    pub fn new(name: impl Into<String>) -> Self {
        ListStateDescriptor {
            name: name.into(),
            version: 1,
            element: PhantomData,
        }
    }

    /// Sets the version of the elements' type.
    pub fn with_version(self, version: u32) -> Self {
        ListStateDescriptor { version, ..self }
    }
}

/// Declares a value per key into which new ones are combined.
///
/// ```
/// use tidegate_state::ReducingStateDescriptor;
///
/// let highest = ReducingStateDescriptor::new("highest", |highest: &mut u64, price| {
///     *highest = price.max(*highest);
/// });
/// assert_eq!(highest.version, 1);
/// ```
#[derive(Clone, Debug)]
pub struct ReducingStateDescriptor<T, R = ReduceFn<T>> {
    /// Name, unique within the operator; any Unicode text.
    pub name: String,
    /// How a new value is combined into what there is. Not part of snapshots.
    pub reduce: R,
    /// Version of the value's type; see [`ValueStateDescriptor::version`].
    pub version: u32,
    value: PhantomData<fn(T)>,
}

impl<T: StateValue> ReducingStateDescriptor<T> {
    /// A reducing state with a function that captures nothing, version 1.
    pub fn new(name: impl Into<String>, reduce: ReduceFn<T>) -> Self {
        ReducingStateDescriptor::with_reduce(name, reduce)
    }
}

impl<T: StateValue, R: Reduce<T>> ReducingStateDescriptor<T, R> {
    /// A reducing state with any function, version 1. Its calls are inlined; a handle names its
    /// type.
    pub fn with_reduce(name: impl Into<String>, reduce: R) -> Self {
        ReducingStateDescriptor {
            name: name.into(),
            reduce,
            version: 1,
            value: PhantomData,
        }
    }

    /// Sets the version of the value's type.
    pub fn with_version(self, version: u32) -> Self {
        ReducingStateDescriptor { version, ..self }
    }
}

/// Declares an accumulator per key.
#[derive(Clone, Debug)]
pub struct AggregatingStateDescriptor<A> {
    /// Name, unique within the operator; any Unicode text.
    pub name: String,
    /// How values are accumulated. Not part of snapshots.
    pub aggregate: A,
    /// Version of the accumulator's type; see [`ValueStateDescriptor::version`].
    pub version: u32,
}

impl<A: Aggregate> AggregatingStateDescriptor<A> {
    /// An aggregating state, version 1.
    pub fn new(name: impl Into<String>, aggregate: A) -> Self {
        AggregatingStateDescriptor {
            name: name.into(),
            aggregate,
            version: 1,
        }
    }

    /// Sets the version of the accumulator's type.
    pub fn with_version(self, version: u32) -> Self {
        AggregatingStateDescriptor { version, ..self }
    }
}

impl<T: 'static, Acc: StateValue> AggregatingStateDescriptor<Fold<T, Acc>> {
    /// A folding state, version 1: values are folded into what starts as a copy of `initial`.
    ///
    /// ```
    /// use tidegate_state::AggregatingStateDescriptor;
    ///
    /// let words = AggregatingStateDescriptor::folding("words", String::new(), |text, word: u32| {
    ///     text.push_str(&word.to_string());
    /// });
    /// assert_eq!(words.name, "words");
    /// ```
    pub fn folding(name: impl Into<String>, initial: Acc, fold: fn(&mut Acc, T)) -> Self {
        AggregatingStateDescriptor::new(name, Fold::new(initial, fold))
    }
}

/// Declares a map per key, ordered by its own keys.
///
/// ```
/// use tidegate_state::MapStateDescriptor;
///
/// let stock = MapStateDescriptor::<String, u32>::new("stock");
/// assert_eq!(stock.version, 1);
/// ```
#[derive(Clone, Debug)]
pub struct MapStateDescriptor<MK, MV> {
    /// Name, unique within the operator; any Unicode text.
    pub name: String,
    /// Version of the values' type; see [`ValueStateDescriptor::version`].
    pub version: u32,
    entry: PhantomData<fn(MK, MV)>,
}

impl<MK: StateKey + Ord, MV: StateValue> MapStateDescriptor<MK, MV> {
    /// A map state, version 1.
    pub fn new(name: impl Into<String>) -> Self {
        MapStateDescriptor {
            name: name.into(),
            version: 1,
            entry: PhantomData,
        }
    }

    /// Sets the version of the values' type.
    pub fn with_version(self, version: u32) -> Self {
        MapStateDescriptor { version, ..self }
    }
}

/// Declares timers of one kind. They are bound and saved like any other state.
#[derive(Clone, Debug)]
pub struct TimersDescriptor {
    /// Name, unique within the operator; any Unicode text.
    pub name: String,
    /// [`StateKind::EventTimers`] or [`StateKind::ProcessingTimers`].
    pub(crate) kind: StateKind,
}

impl TimersDescriptor {
    /// Timers in event time.
    pub fn event_time(name: impl Into<String>) -> Self {
        TimersDescriptor {
            name: name.into(),
            kind: StateKind::EventTimers,
        }
    }

    /// Timers in processing time.
    pub fn processing_time(name: impl Into<String>) -> Self {
        TimersDescriptor {
            name: name.into(),
            kind: StateKind::ProcessingTimers,
        }
    }
}
