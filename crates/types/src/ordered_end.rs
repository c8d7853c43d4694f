//! The end of a job that somebody ordered.

use std::fmt;

use crate::SnapshotLocation;

/// How somebody has ended a job that had not finished. It is recorded: whoever waits to lead the
/// job, or starts it again for them who ordered nothing of the kind, leaves it as it is. Displays
/// as what was done to the job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrderedEnd {
    /// It was stopped.
    Stopped {
        /// The folder of the savepoint.
        savepoint: SnapshotLocation,
    },
    /// It was cancelled.
    Cancelled,
}

impl fmt::Display for OrderedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderedEnd::Stopped { savepoint } => write!(f, "stopped with savepoint {savepoint}"),
            OrderedEnd::Cancelled => f.write_str("cancelled"),
        }
    }
}
