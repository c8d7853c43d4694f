//! Messages of a cluster on the wire, and what they stand for.
//!
//! The definition is `proto/cluster.proto`. Domain types don't know how they travel: here they are
//! turned into messages and back. What comes from the network is checked once, here: it becomes a
//! domain value, or a [`BadMessage`] that ends the stream it came on.

mod barriers;
#[rustfmt::skip]
#[allow(missing_docs, clippy::all, unreachable_pub)]
mod generated;
mod progress;
mod reports;
mod restores;
mod states;
#[cfg(test)]
mod tests;

use tidegate_coordinator::ProcessId;
use tidegate_types::{AttemptNumber, OperatorId, SubtaskId};

pub(crate) use generated::*;

/// Of the protocol; see the definition.
pub(crate) const VERSION: u32 = 1;

/// The largest message that is taken. What a subtask restores or acknowledges may hold a lot of
/// small state inline; more than this could not be written to a checkpoint's metadata either.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A message that no peer of this version sends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed message: {what}")]
pub struct BadMessage {
    pub(crate) what: &'static str,
}

impl BadMessage {
    pub(crate) fn new(what: &'static str) -> Self {
        BadMessage { what }
    }
}

impl From<BadMessage> for tonic::Status {
    fn from(bad: BadMessage) -> Self {
        tonic::Status::invalid_argument(bad.to_string())
    }
}

/// A part that must be there.
fn required<T>(part: Option<T>, what: &'static str) -> Result<T, BadMessage> {
    part.ok_or(BadMessage::new(what))
}

/// The process that a message is about.
pub(crate) fn process_id(attempt: u64, index: u32) -> ProcessId {
    let attempt = AttemptNumber(attempt);
    ProcessId { attempt, index }
}

impl From<SubtaskId> for Subtask {
    fn from(subtask: SubtaskId) -> Self {
        Subtask {
            operator: subtask.operator.0,
            index: subtask.index,
        }
    }
}

impl From<Subtask> for SubtaskId {
    fn from(subtask: Subtask) -> Self {
        SubtaskId {
            operator: OperatorId(subtask.operator),
            index: subtask.index,
        }
    }
}
