//! A job whose source has nothing, with checkpoints: what it costs to be there.

use std::thread::sleep;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::job::Job;
use crate::measure::{Meter, Schedule, Scheduled};
use crate::options::Idle;
use crate::outcome::{IdleExtra, Outcome};

const INTERVAL: Duration = Duration::from_millis(100);
/// Records that would come after years.
const NEVER_PER_SECOND: f64 = 1e-9;

pub(super) fn run(idle: &Idle) -> Result<Outcome> {
    let job = Job::new("idle", &idle.common, INTERVAL)?;
    let never = Scheduled::new(Schedule::new(NEVER_PER_SECOND), 1, |_, index| index);
    job.env
        .source("never", never)
        .key_by(|key| key)
        .count("count")
        .sink("discard", job.discard());
    let mut running = job.start()?;
    running.client.wait_until_running();
    running.meter = Meter::start();
    sleep(Duration::from_secs_f64(idle.seconds));
    let mut outcome = running.cancel()?;
    Error::unless_equal("records of an idle job", 0, outcome.records)?;
    outcome.extra.idle = Some(IdleExtra {
        cpu_seconds_per_minute: outcome.cpu_seconds * 60.0 / outcome.seconds,
    });
    Ok(outcome)
}
