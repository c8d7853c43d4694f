//! When two questions are about the same type.
//!
//! serde only tells a type's bare name, which `Wrapper<u8>` and `Wrapper<String>`, or types of two
//! modules, have in common. The visitor that comes with a question is a type of its own for each
//! of them, and its name says so.

use std::any::type_name;

/// What distinguishes a type with parts from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    question: &'static str,
    visitor: &'static str,
    name: &'static str,
    members: &'static [&'static str],
    length: usize,
}

impl Identity {
    /// A type that asks `question` with a visitor of type `V`.
    pub(super) fn new<V>(question: &'static str) -> Self {
        Identity {
            question,
            visitor: type_name::<V>(),
            name: "",
            members: &[],
            length: 0,
        }
    }

    /// It has so many elements.
    pub(super) fn with_length(self, length: usize) -> Self {
        Identity { length, ..self }
    }

    /// It has this name, and these fields or variants.
    pub(super) fn with_members(self, name: &'static str, members: &'static [&'static str]) -> Self {
        Identity {
            name,
            members,
            ..self
        }
    }
}
