//! The side outputs of a subtask by their tags, where the logic takes them.
//!
//! The job declares what it takes from an operator, the logic takes what it emits to; both name
//! outputs by tags, and nothing but a logic that has been made knows its own. What is emitted to an
//! output that the job doesn't declare goes nowhere. One that the job declares and the logic never
//! takes would stay empty for ever, as after a mistaken tag or one of another operator: that's an
//! error.

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_state::Record;

use super::SideCollector;

/// A [`SideCollector`] of some type.
pub(crate) struct SideHandle {
    records: &'static str,
    collector: Box<dyn Any>,
}

impl SideHandle {
    pub(super) fn new<T: Record>(collector: SideCollector<T>) -> Self {
        SideHandle {
            records: type_name::<T>(),
            collector: Box::new(collector),
        }
    }
}

/// A subtask's side outputs by their tags, for the logic to take.
#[derive(Default)]
pub(crate) struct SideOutputs {
    by_tag: RefCell<BTreeMap<String, SideHandle>>,
    /// Tags of the outputs that the logic has taken, declared or not.
    taken: RefCell<BTreeSet<String>>,
    /// Keep what goes to outputs that nobody has declared.
    collecting: bool,
}

/// The logic wants to emit something else to a side output than the job takes from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("side output `{tag}` carries `{declared}`, not `{wanted}`")]
pub struct SideOutputTypeError {
    /// Name of the output.
    pub tag: String,
    /// Type of the records that the job takes from it.
    pub declared: &'static str,
    /// Type of the records that somebody wants to put in or take out.
    pub wanted: &'static str,
}

/// Somebody wants to take something from a side output that the operator doesn't emit to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "operator `{operator}` emits to no side output `{tag}`; {}",
    KnownTags(known)
)]
pub struct UnknownSideOutputError {
    /// The operator.
    pub operator: String,
    /// Name of the output.
    pub tag: String,
    /// Names of the side outputs that it does emit to.
    pub known: Vec<String>,
}

struct KnownTags<'a>(&'a [String]);

impl std::fmt::Display for KnownTags<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("it has none"),
            known => write!(f, "it has `{}`", known.join("`, `")),
        }
    }
}

impl SideOutputs {
    /// For tests that drive an operator by hand: every output that the logic takes is there, and
    /// [keeps](SideCollector::collecting) what is emitted.
    pub(crate) fn collecting() -> Self {
        SideOutputs {
            collecting: true,
            ..SideOutputs::default()
        }
    }

    pub(crate) fn insert(&mut self, tag: String, handle: SideHandle) {
        self.by_tag.get_mut().insert(tag, handle);
    }

    /// For the logic.
    pub(crate) fn take<T: Record>(
        &self,
        tag: &str,
    ) -> Result<SideCollector<T>, SideOutputTypeError> {
        self.taken.borrow_mut().insert(tag.to_owned());
        let mut by_tag = self.by_tag.borrow_mut();
        if self.collecting && !by_tag.contains_key(tag) {
            let handle = SideHandle::new(SideCollector::<T>::collecting());
            by_tag.insert(tag.to_owned(), handle);
        }
        let Some(handle) = by_tag.get(tag) else {
            return Ok(SideCollector::unused());
        };
        let collector = handle.collector.downcast_ref::<SideCollector<T>>();
        collector.cloned().ok_or_else(|| SideOutputTypeError {
            tag: tag.to_owned(),
            declared: handle.records,
            wanted: type_name::<T>(),
        })
    }

    /// Once the logic of `operator` is made: whether it has taken every output that the job
    /// declares.
    pub(crate) fn check_all_taken(&self, operator: &str) -> Result<(), UnknownSideOutputError> {
        let by_tag = self.by_tag.borrow();
        let mut tags = by_tag.keys();
        tags.try_for_each(|tag| self.check_taken(operator, tag))
    }

    /// Whether the logic of `operator` has taken the output with this tag.
    pub(crate) fn check_taken(
        &self,
        operator: &str,
        tag: &str,
    ) -> Result<(), UnknownSideOutputError> {
        let taken = self.taken.borrow();
        if taken.contains(tag) {
            return Ok(());
        }
        Err(UnknownSideOutputError {
            operator: operator.to_owned(),
            tag: tag.to_owned(),
            known: taken.iter().cloned().collect(),
        })
    }
}
