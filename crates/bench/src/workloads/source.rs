//! Numbers are generated and discarded: what a record costs that nobody does anything with.

use tidegate::prelude::*;

use super::INTERVAL;
use crate::error::Result;
use crate::generate::mix;
use crate::job::Job;
use crate::options::{Common, Peer};
use crate::outcome::Outcome;
use crate::peers::timely;

const RECORDS: u64 = 1_000_000_000;

pub(super) fn run(common: &Common) -> Result<Outcome> {
    let records = common.records.unwrap_or(RECORDS);
    if common.peer == Peer::Timely {
        return timely::source(records, common);
    }
    let job = Job::new("source", common, INTERVAL)?;
    job.env
        .source("numbers", Generator::new(Some(records), mix))
        .sink("discard", job.discard());
    job.run(records)
}
