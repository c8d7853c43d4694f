//! What is measured, one workload a file.

mod backpressure;
mod idle;
mod keyed_count;
mod keyed_strings;
mod latency;
mod recovery;
mod snapshot;
mod source;
mod state;
mod wordcount;

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::{Peer, Workload};
use crate::outcome::Outcome;
use crate::peers::flink;
use crate::peers::renoir::{self, Texts};

/// Time between checkpoints unless something else is said.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs a workload once, on whoever is to do the work.
///
/// # Errors
/// If it can't be run to its end, or its result is wrong.
pub(crate) fn run(workload: &Workload) -> Result<Outcome> {
    let peer = workload.common().peer;
    match peer {
        Peer::Flink => return flink::run_workload(workload),
        Peer::Renoir => return renoir::run_workload(workload, Texts::AsOnTidegate),
        Peer::RenoirPacked => return renoir::run_workload(workload, Texts::Packed),
        Peer::Tidegate | Peer::Timely => {}
    }
    match workload {
        Workload::Source(common) => source::run(common),
        Workload::KeyedCount(common) => keyed_count::run(common),
        Workload::KeyedStrings(common) => keyed_strings::run(common),
        Workload::Wordcount(common) => wordcount::run(common),
        _ if peer != Peer::Tidegate => Err(Error::NotOffered {
            peer: peer.name(),
            workload: workload.name(),
        }),
        Workload::Recovery(recovery) => recovery::run(recovery),
        Workload::RecoveryJob(job) => recovery::run_job(job),
        Workload::Latency(latency) => latency::run(latency),
        Workload::Backpressure(backpressure) => backpressure::run(backpressure),
        Workload::State(common) => state::run(common),
        Workload::Snapshot(common) => snapshot::run(common),
        Workload::Idle(idle) => idle::run(idle),
    }
}
