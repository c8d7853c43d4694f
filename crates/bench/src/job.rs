//! Runs a job of Tidegate and measures it.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::prelude::*;
use tidegate::state::{Record, StateKey};
use tidegate::{CheckpointInterval, JobClient, RunError, Statistics};

use crate::error::{Error, Result};
use crate::measure::{Arrivals, Arriving, Meter};
use crate::options::{Common, StateBackend};
use crate::outcome::{Checkpoints, Outcome, Usage, Verified, millis};

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
        let folder = std::fs::create_dir_all(&parent)
            .and_then(|()| TempDir::with_prefix_in("tidegate-bench-", &parent))
            .map_err(Error::io("make a folder in", &parent))?;
        let interval = common.interval_or(default);
        let checkpoints = interval.map(|interval| (interval, folder.path().join("checkpoints")));
        let args = settings(common, checkpoints);
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

    /// Where its sink notes what arrives.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.arrivals.clone()
    }

    /// A folder of its own, deleted at the end.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If the job fails, or if not as many records arrive as went in.
    pub(crate) fn run(self, records: u64) -> Result<Outcome> {
        let running = self.start()?;
        running.client.wait().map_err(tidegate::Error::from)?;
        let outcome = running.outcome()?;
        Error::unless_equal("records at the sink", records, outcome.records)?;
        Ok(outcome)
    }

    /// Discards these counts, runs the job to its end, and checks the counts if that is asked for.
    ///
    /// # Errors
    /// As [`run`](Self::run), or if the counts are wrong.
    pub(crate) fn run_counted<K: StateKey + Record + Ord>(
        self,
        counts: Stream<(K, u64)>,
        records: u64,
    ) -> Result<Outcome> {
        let check = Check::of(&counts, self.common);
        counts.sink("discard", self.discard());
        let mut outcome = self.run(records)?;
        outcome.verified = check.verify(records)?;
        Ok(outcome)
    }

    /// Starts it.
    ///
    /// # Errors
    /// If it doesn't start.
    pub(crate) fn start(self) -> Result<Running> {
        let meter = Meter::start();
        let client = self.env.start(self.name)?;
        Ok(Running {
            name: self.name,
            parallelism: self.common.parallelism,
            interval: self.interval,
            folder: self.folder,
            arrivals: self.arrivals,
            meter,
            client,
        })
    }
}

/// The settings of a job with checkpoints at such an interval in this directory, if there are any.
pub(crate) fn settings(common: &Common, checkpoints: Option<(Duration, PathBuf)>) -> Args {
    // The one backend there is needs no setting.
    let StateBackend::Hashmap = common.state_backend;
    let mut args = Args::default();
    args.parallelism = NonZeroU32::new(common.parallelism);
    args.quiet = Some(true);
    if let Some((interval, directory)) = checkpoints {
        args.checkpoint_dir = Some(directory.to_string_lossy().into_owned());
        args.checkpoint_interval = Some(CheckpointInterval::Every(interval));
    }
    args
}

/// A job that runs.
pub(crate) struct Running {
    name: &'static str,
    parallelism: u32,
    interval: Option<Duration>,
    folder: TempDir,
    arrivals: Arrivals,
    /// Measures since the start, unless it is set anew.
    pub(crate) meter: Meter,
    /// Asks it for things.
    pub(crate) client: JobClient,
}

impl Running {
    /// Ends it, whatever it is about, and tells what it has done since its start.
    ///
    /// # Errors
    /// If it has failed, or what can't be measured.
    pub(crate) fn cancel(self) -> Result<Outcome> {
        let statistics = self.client.statistics();
        let usage = self.meter.stop()?;
        self.client.cancel();
        match self.client.wait() {
            Ok(_) | Err(RunError::Cancelled { .. }) => self.outcome_of(usage, &statistics),
            Err(failed) => Err(tidegate::Error::from(failed).into()),
        }
    }

    /// What it has done, now that it is over.
    fn outcome(self) -> Result<Outcome> {
        let usage = self.meter.stop()?;
        let statistics = self.client.statistics();
        self.outcome_of(usage, &statistics)
    }

    fn outcome_of(self, usage: Usage, statistics: &Statistics) -> Result<Outcome> {
        let records = self.arrivals.records();
        let mut outcome = Outcome::new((self.name, "tidegate"), records, self.parallelism, usage);
        outcome.checkpoint_interval_ms = self.interval.map(millis);
        outcome.start_to_first_record_ms = self.arrivals.first().map(millis);
        outcome.checkpoints = self.interval.map(|_| Checkpoints::of(statistics));
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(Error::io("delete", path))?;
        Ok(outcome)
    }
}

/// Keeps every count, if the command line asks for it.
struct Check<K>(Option<Collect<(K, u64)>>);

impl<K: StateKey + Record + Ord> Check<K> {
    /// Looks at the counts of a stream besides what else becomes of it.
    fn of(counts: &Stream<(K, u64)>, common: &Common) -> Self {
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
    fn verify(self, records: u64) -> Result<Option<Verified>> {
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
