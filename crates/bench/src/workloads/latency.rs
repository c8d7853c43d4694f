//! Records are due at fixed times; what is measured is how long after that their counts are
//! committed: files that readers of the output folder see.

use std::time::Duration;

use tidegate::Ticks;
use tidegate::prelude::*;

use crate::error::{Error, Result};
use crate::generate::key;
use crate::job::Job;
use crate::measure::{Committed, Ledger, Schedule, Scheduled};
use crate::options::Latency;
use crate::outcome::{LatencyExtra, Outcome, quantile};

const INTERVAL: Duration = Duration::from_millis(100);
const KEYS: u64 = 1_000;

/// Nanoseconds at which a record was due, its key, and the count of the key.
type Counted = (u64, u64, u64);

pub(super) fn run(latency: &Latency) -> Result<Outcome> {
    let Latency {
        common,
        rate,
        seconds,
    } = latency;
    let rate = (*rate).max(1);
    let keys = common.keys.unwrap_or(KEYS).max(1);
    let count = (rate as f64 * seconds) as u64;
    let records = common.records.unwrap_or(count).max(1);
    let job = Job::new("latency", common, INTERVAL)?;
    let ledger = Ledger::default();
    let counts = Committed {
        sink: FileSink::new(job.folder().join("counts")),
        due: |counted: &Counted| Ticks(Duration::from_nanos(counted.0)),
        ledger: ledger.clone(),
        arrivals: job.arrivals(),
    };
    let due = Scheduled::new(Schedule::new(rate as f64), records, move |due, index| {
        (due.0.as_nanos() as u64, key(index, keys))
    });
    job.env
        .source("due", due)
        .key_by(|record: &(u64, u64)| &record.1)
        .map_with_state("count", 0, |(due, key), count: &mut u64, out| {
            *count += 1;
            out.emit((due, key, *count));
        })
        .sink("counts", counts);
    let mut outcome = job.run(records)?;
    let micros = ledger.take_micros();
    Error::unless_equal("records committed", records, micros.len() as u64)?;
    let at = |per_mille| f64::from(quantile(&micros, per_mille)) / 1e3;
    outcome.keys = Some(keys);
    outcome.extra.latency = Some(LatencyExtra {
        rate_per_second: rate,
        p50_ms: at(500),
        p90_ms: at(900),
        p99_ms: at(990),
        p999_ms: at(999),
        max_ms: at(1000),
    });
    Ok(outcome)
}
