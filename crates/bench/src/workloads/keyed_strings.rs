//! Texts of mixed length are counted by key: as `keyed-count`, but hashing and comparing records
//! takes as long as they are, and those of more than 24 bytes own memory. They are copies of texts
//! that are there from the start, so that what is measured is not how they are made.

use std::sync::Arc;

use tidegate::prelude::*;

use super::INTERVAL;
use crate::error::Result;
use crate::generate::{key, text};
use crate::job::Job;
use crate::options::{Common, Peer};
use crate::outcome::Outcome;
use crate::peers::timely;

const RECORDS: u64 = 50_000_000;
const KEYS: u64 = 1_000;

pub(super) fn run(common: &Common) -> Result<Outcome> {
    let records = common.records.unwrap_or(RECORDS);
    let keys = common.keys.unwrap_or(KEYS).max(1);
    if common.peer == Peer::Timely {
        return timely::keyed_strings(records, keys, common);
    }
    let job = Job::new("keyed-strings", common, INTERVAL)?;
    let texts: Arc<[CompactString]> = (0..keys).map(|key| text::of_key(key).into()).collect();
    let texts = Generator::new(Some(records), move |index| {
        texts[key(index, keys) as usize].clone()
    });
    let counts = job
        .env
        .source("texts", texts)
        .key_by(|key| key)
        .count("count");
    let mut outcome = job.run_counted(counts, records)?;
    outcome.keys = Some(keys);
    Ok(outcome)
}
