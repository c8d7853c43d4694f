//! Watches whether and how fast the job goes on after a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::faults::Restart;
use crate::jobs::names;
use crate::journal::Said;

/// A job that has not gone on by then hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(4);
/// A job that was perhaps not disturbed has gone on when this many more checkpoints are committed.
const CHECKPOINTS: u64 = 3;
/// The same for one that should have been: whoever was struck may have had no part in it any more.
const CHECKPOINTS_UNHARMED: u64 = 40;

/// The latest committed output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) checkpoint: u64,
    /// The attempt that wrote it; the latest there is.
    pub(crate) attempt: u64,
}

impl Committed {
    pub(crate) fn latest(output: &Path) -> Committed {
        let mut latest = Committed::default();
        for name in names(output) {
            if let Some((checkpoint, attempt)) = parse(&name) {
                latest.checkpoint = latest.checkpoint.max(checkpoint);
                latest.attempt = latest.attempt.max(attempt);
            }
        }
        latest
    }
}

/// `part-<subtask>-chk<checkpoint>-a<attempt>-<sequence>.txt`
fn parse(name: &str) -> Option<(u64, u64)> {
    let mut parts = name.strip_prefix("part-")?.split('-').skip(1);
    let checkpoint = parts.next()?.strip_prefix("chk")?.parse().ok()?;
    let attempt = parts.next()?.strip_prefix('a')?.parse().ok()?;
    Some((checkpoint, attempt))
}

/// How long after a fault something happened, for the first attempt that ran after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// All subtasks ran.
    pub(crate) running: Duration,
    /// The first record was processed.
    pub(crate) record: Option<Duration>,
    /// The first output was committed.
    pub(crate) output: Duration,
}

/// What to watch for.
pub(crate) struct Watch {
    /// When the fault happened, or was over.
    since: Instant,
    /// The latest attempt before it that ran, or left output.
    attempt: u64,
    restart: Restart,
    /// The committed output once the fault was over.
    healed: Option<Committed>,
    output: Option<Instant>,
}

impl Watch {
    /// To be called before a fault strikes.
    pub(crate) fn new(cluster: &Cluster, restart: Restart) -> Watch {
        let committed = Committed::latest(&cluster.parts.job.output());
        Watch {
            since: Instant::now(),
            attempt: cluster.journal.attempt().max(committed.attempt),
            restart,
            healed: None,
            output: None,
        }
    }

    pub(crate) fn count_from(&mut self, moment: Instant) {
        self.since = moment;
    }

    /// Looks after the cluster and watches, while the fault lasts.
    pub(crate) fn until(&mut self, cluster: &mut Cluster, end: Instant) -> Result<(), String> {
        while Instant::now() < end {
            cluster.tend()?;
            self.look(cluster);
            std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Waits until the job goes on, after the fault is over. `None` if it was not restarted.
    pub(crate) fn until_it_goes_on(
        &mut self,
        cluster: &mut Cluster,
    ) -> Result<Option<Recovery>, String> {
        self.healed = Some(Committed::latest(&cluster.parts.job.output()));
        let deadline = Instant::now() + PATIENCE;
        while !self.goes_on(cluster) {
            cluster.tend()?;
            if cluster.is_over() {
                return Err("the job ended too early; give it more to do".to_owned());
            }
            if Instant::now() > deadline {
                return Err(format!("the job does not go on within {PATIENCE:?}"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(self.recovery(cluster))
    }

    fn look(&mut self, cluster: &Cluster) -> Committed {
        let committed = Committed::latest(&cluster.parts.job.output());
        if committed.attempt > self.attempt {
            self.output.get_or_insert_with(Instant::now);
        }
        committed
    }

    fn goes_on(&mut self, cluster: &Cluster) -> bool {
        let healed = self.healed.unwrap_or_default();
        let committed = self.look(cluster);
        let restarted = self.output.is_some();
        // The latest attempt that ran must be the one that commits.
        let current = committed.attempt >= cluster.journal.attempt();
        let needed = match (restarted, self.restart) {
            (true, _) => 1,
            (false, Restart::Perhaps) => CHECKPOINTS,
            (false, Restart::Always) => CHECKPOINTS_UNHARMED,
        };
        current && committed.checkpoint >= healed.checkpoint + needed
    }

    fn recovery(&self, cluster: &Cluster) -> Option<Recovery> {
        let output = self.output?.saturating_duration_since(self.since);
        let later = |attempt: u64| attempt > self.attempt;
        let journal = &cluster.journal;
        let after = |fits: &dyn Fn(Said) -> bool| {
            let entry = journal.first(self.since, fits)?;
            Some(entry.at.saturating_duration_since(self.since))
        };
        Some(Recovery {
            running: after(&|said| matches!(said, Said::Running(attempt) if later(attempt)))?,
            record: after(&|said| matches!(said, Said::Record(attempt) if later(attempt))),
            output,
        })
    }
}
