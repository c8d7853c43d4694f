//! Runs a job of Tidegate and measures it.

use std::num::NonZeroU32;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::prelude::*;
use tidegate::state::{Record, StateKey};
use tidegate::{CheckpointInterval, JobReport};

use crate::error::{Error, Result};
use crate::measure::{Arrivals, Arriving, Meter};
use crate::options::Common;
use crate::outcome::{Checkpoints, Outcome, Verified, millis};

/// A job that is about to run: settings, its folder, and what its sink sees.
pub(crate) struct Job<'a> {
    name: &'static str,
    common: &'a Common,
    interval: Option<Duration>,
    /// Where streams begin.
    pub(crate) env: Environment,
    /// Holds checkpoints and output; deleted at the end.
    folder: TempDir,
    arrivals: Arrivals,
}

impl<'a> Job<'a> {
    /// A job for `workload` with the settings of the command line. Checkpoints lie on disk, as
    /// those of a job that is to survive do.
    ///
    /// # Errors
    /// If its folder can't be made.
    pub(crate) fn new(name: &'static str, common: &'a Common, default: Duration) -> Result<Self> {
        let parent = common.data_dir();
        let folder = TempDir::with_prefix_in("tidegate-bench-", &parent)
            .map_err(Error::io("make a folder in", &parent))?;
        let interval = common.interval_or(default);
        let mut args = Args::default();
        args.parallelism = NonZeroU32::new(common.parallelism);
        args.quiet = Some(true);
        if let Some(interval) = interval {
            let checkpoints = folder.path().join("checkpoints");
            args.checkpoint_dir = Some(checkpoints.to_string_lossy().into_owned());
            args.checkpoint_interval = Some(CheckpointInterval::Every(interval));
        }
        Ok(Job {
            name,
            common,
            interval,
            env: Environment::new(args)?,
            folder,
            arrivals: Arrivals::default(),
        })
    }

    /// Drops every record, and notes that it has arrived.
    pub(crate) fn discard(&self) -> Arriving<Discard> {
        Arriving {
            sink: Discard,
            arrivals: self.arrivals.clone(),
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If the job fails, or if not as many records arrive as went in.
    pub(crate) fn run(self, records: u64) -> Result<(Outcome, JobReport)> {
        let Job {
            name,
            common,
            interval,
            env,
            folder,
            arrivals,
        } = self;
        let meter = Meter::start();
        let report = env.execute(name)?;
        let usage = meter.stop()?;
        Error::unless_equal("records at the sink", records, arrivals.records())?;
        let mut outcome = Outcome::new((name, "tidegate"), records, common.parallelism, usage);
        outcome.checkpoint_interval_ms = interval.map(millis);
        outcome.start_to_first_record_ms = arrivals.first().map(millis);
        outcome.checkpoints = interval.map(|_| Checkpoints::of(&report.statistics));
        let path = folder.path().to_owned();
        folder.close().map_err(Error::io("delete", path))?;
        Ok((outcome, report))
    }
}

/// Keeps every count, if the command line asks for it.
pub(crate) struct Check<K>(Option<Collect<(K, u64)>>);

impl<K: StateKey + Record + Ord> Check<K> {
    /// Looks at the counts of a stream besides what else becomes of it.
    pub(crate) fn of(counts: &Stream<(K, u64)>, common: &Common) -> Self {
        Check(common.verify.then(|| {
            let kept = Collect::new();
            counts.clone().sink("check", kept.clone());
            kept
        }))
    }

    /// The last count of each key must come to as many as there were records.
    ///
    /// # Errors
    /// If they don't.
    pub(crate) fn verify(self, records: u64) -> Result<Option<Verified>> {
        let Check(Some(kept)) = self else {
            return Ok(None);
        };
        let mut last = std::collections::BTreeMap::new();
        for (key, count) in kept.take() {
            let largest = last.entry(key).or_insert(0);
            *largest = count.max(*largest);
        }
        let verified = Verified {
            distinct_keys: last.len() as u64,
            sum_of_counts: last.values().sum(),
        };
        Error::unless_equal("sum of counts", records, verified.sum_of_counts)?;
        Ok(Some(verified))
    }
}
