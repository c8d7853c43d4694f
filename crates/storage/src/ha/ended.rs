//! That somebody has ended a run of the job, for those who might go on with it.
//!
//! Several JobManagers wait for the lead, and whatever watches over a process starts it again. None
//! of them was told to go on with a job that somebody has just ended; whoever starts it afterwards
//! was. What tells them apart is this record. It names the epoch of the run that was ended:
//!
//! - Somebody who finds another run ended than when it began to wait has waited for nothing.
//! - Somebody who finds one that nobody has *left* comes after a leader that was killed between its
//!   record and its own end, and leaves it on behalf of that.
//! - Everybody else goes on with the job.
//!
//! Flink keeps such records in its job result store, as dirty and as clean ones.

use std::time::Duration;

use tidegate_types::{JobId, LeaderEpoch, OrderedEnd, SnapshotLocation};

use super::LeaderElection;
use super::trouble::Trouble;
use crate::error::{ErrorKind, StorageError};
use crate::{names, record};

/// The last run of a job that somebody has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The epoch of its leader.
    pub epoch: LeaderEpoch,
    /// How it was ended.
    pub end: OrderedEnd,
    /// Whether its leader came to its own end, or somebody in its place.
    pub left: bool,
}

/// Pause between two tries to read the record.
const PAUSE: Duration = Duration::from_millis(100);

/// The epoch of the run that was ended last, as a candidate sees it before it leads. A store that
/// can't be reached is waited for.
///
/// # Errors
/// What waiting doesn't mend: a wrong configuration, a damaged record.
pub async fn last_ended(
    election: &dyn LeaderElection,
) -> Result<Option<LeaderEpoch>, StorageError> {
    let mut trouble = Trouble::default();
    loop {
        match election.peek(names::ENDED).await {
            Err(error) if error.kind() == ErrorKind::Retryable => {
                trouble.on_failure("the job's records can't be read", &error);
                tokio::time::sleep(PAUSE).await;
            }
            answer => {
                trouble.on_answer();
                let ended = answer?.map(|bytes| Ended::decode(names::ENDED, None, &bytes));
                return Ok(ended.transpose()?.map(|ended| ended.epoch));
            }
        }
    }
}

const STOPPED: &str = "stopped";
const CANCELLED: &str = "cancelled";

impl Ended {
    /// The record in the store of `job`.
    pub(crate) fn encode(&self, job: JobId) -> Vec<u8> {
        let (how, savepoint) = match &self.end {
            OrderedEnd::Stopped { savepoint } => (STOPPED, savepoint.as_str()),
            OrderedEnd::Cancelled => (CANCELLED, ""),
        };
        let left = if self.left { "yes" } else { "no" };
        let (job, epoch) = (job.to_string(), self.epoch.0.to_string());
        record::ENDED.encode(&[&job, &epoch, how, savepoint, left])
    }

    /// Decodes the record in `bytes`, found in the store of `job` if that is known; `file` names it
    /// in errors.
    pub(crate) fn decode(
        file: &str,
        job: Option<JobId>,
        bytes: &[u8],
    ) -> Result<Ended, StorageError> {
        let values = record::ENDED.decode(file, bytes)?;
        if let Some(job) = job {
            record::check_job(file, job, &values[0])?;
        }
        let malformed = |reason: String| StorageError::Malformed {
            file: file.to_owned(),
            reason,
        };
        let end = match (values[2].as_str(), values[3].as_str()) {
            (STOPPED, savepoint) => OrderedEnd::Stopped {
                savepoint: SnapshotLocation::new(savepoint),
            },
            (CANCELLED, "") => OrderedEnd::Cancelled,
            (how, _) => return Err(malformed(format!("`{how}` is no end"))),
        };
        let left = match values[4].as_str() {
            "yes" => true,
            "no" => false,
            other => return Err(malformed(format!("`{other}` is neither `yes` nor `no`"))),
        };
        let epoch = LeaderEpoch(record::parse_number(file, &values[1])?);
        Ok(Ended { epoch, end, left })
    }
}
