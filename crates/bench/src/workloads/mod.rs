//! What is measured, one workload a file.

mod keyed_count;
mod source;

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::{Peer, Workload};
use crate::outcome::Outcome;

/// Time between checkpoints unless something else is said.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs a workload once.
///
/// # Errors
/// If it can't be run to its end, or its result is wrong.
pub(crate) fn run(workload: &Workload) -> Result<Outcome> {
    let peer = workload.common().peer;
    if peer != Peer::Tidegate {
        return Err(Error::NotOffered {
            peer: peer.name(),
            workload: workload.name(),
        });
    }
    match workload {
        Workload::Source(common) => source::run(common),
        Workload::KeyedCount(common) => keyed_count::run(common),
    }
}
