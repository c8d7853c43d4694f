//! A source that could do more than its sink takes: how long checkpoints take behind what is
//! queued, and how much that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate::connectors::Throttle;
use tidegate::prelude::*;

use super::INTERVAL;
use crate::error::Result;
use crate::generate::key;
use crate::job::Job;
use crate::measure::{Arriving, Meter};
use crate::options::Backpressure;
use crate::outcome::{BackpressureExtra, Outcome, Quantiles};

const KEYS: u64 = 1_000;
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

pub(super) fn run(backpressure: &Backpressure) -> Result<Outcome> {
    let common = &backpressure.common;
    let keys = common.keys.unwrap_or(KEYS).max(1);
    let job = Job::new("backpressure", common, INTERVAL)?;
    let arrivals = job.arrivals();
    let emitted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&emitted);
    let numbers = Generator::new(common.records, move |index| {
        counted.fetch_add(1, Ordering::Relaxed);
        key(index, keys)
    });
    let slow = Arriving {
        sink: Discard.throttle(backpressure.sink_rate as f64),
        arrivals: arrivals.clone(),
    };
    job.env
        .source("numbers", numbers)
        .key_by(|key| key)
        .count("count")
        .sink("slow", slow);
    let mut running = job.start()?;
    running.client.wait_until_running();
    running.meter = Meter::start();
    let (started, mut queued) = (Instant::now(), Vec::new());
    while started.elapsed().as_secs_f64() < backpressure.seconds && !running.client.has_ended() {
        sleep(SAMPLE_EVERY);
        // What has arrived is read first, so that no record seems to have arrived before its time.
        let arrived = arrivals.records();
        queued.push((emitted.load(Ordering::Relaxed) - arrived) as f64);
    }
    let mut outcome = running.cancel()?;
    outcome.keys = Some(keys);
    outcome.extra.backpressure = Some(BackpressureExtra {
        sink_records_per_second: backpressure.sink_rate,
        queued_records: Quantiles::of(queued),
    });
    Ok(outcome)
}
