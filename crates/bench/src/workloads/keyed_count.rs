//! Numbers are counted by key: the hot path of a keyed job, with little else.

use tidegate::prelude::*;

use super::INTERVAL;
use crate::error::Result;
use crate::generate::key;
use crate::job::Job;
use crate::options::{Common, Peer};
use crate::outcome::Outcome;
use crate::peers::timely;

const RECORDS: u64 = 200_000_000;
const KEYS: u64 = 1_000;

pub(super) fn run(common: &Common) -> Result<Outcome> {
    let records = common.records.unwrap_or(RECORDS);
    let keys = common.keys.unwrap_or(KEYS).max(1);
    if common.peer == Peer::Timely {
        return timely::keyed_count(records, keys, common);
    }
    let job = Job::new("keyed-count", common, INTERVAL)?;
    let numbers = Generator::new(Some(records), move |index| key(index, keys));
    let counts = job
        .env
        .source("numbers", numbers)
        .key_by(|key| key)
        .count("count");
    let mut outcome = job.run_counted(counts, records)?;
    outcome.keys = Some(keys);
    Ok(outcome)
}
