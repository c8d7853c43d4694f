//! What the completed-checkpoint store holds of a checkpoint, and what a namespace remembers of
//! the snapshot it was begun from: where it lies, whose it is.

use tidegate_types::{
    CheckpointId, CompletedCheckpoint, JobId, Owner, RestoreMode, SnapshotLocation,
};

use crate::elsewhere::{Elsewhere, Work};
use crate::error::StorageError;
use crate::names;
use crate::record::{self, parse_job, parse_number};

/// Says that a checkpoint is completed, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPointer {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The job that took it; another one's, if it was claimed.
    pub taken_by: JobId,
    /// Who may delete it.
    pub owner: Owner,
    /// The folder it lies in; `None` is `chk-N` in the job's own namespace.
    pub location: Option<SnapshotLocation>,
}

impl CheckpointPointer {
    /// The pointer to `checkpoint`.
    pub fn to(checkpoint: &CompletedCheckpoint) -> CheckpointPointer {
        CheckpointPointer {
            checkpoint: checkpoint.id,
            taken_by: checkpoint.job,
            owner: checkpoint.owner,
            location: checkpoint.location.clone(),
        }
    }

    /// The record of this pointer in the store of `job`.
    pub(crate) fn encode(&self, job: JobId) -> Vec<u8> {
        let owner = match self.owner {
            Owner::Job => "job",
            Owner::User => "user",
        };
        let own = names::checkpoint_folder(self.checkpoint);
        let location = self.location.as_ref().map(SnapshotLocation::as_str);
        record::POINTER.encode(&[
            &job.to_string(),
            &self.checkpoint.0.to_string(),
            &self.taken_by.to_string(),
            owner,
            location.unwrap_or(&own),
        ])
    }

    /// Decodes the record in `bytes`, found in the store of `job`; `file` names it in errors.
    pub(crate) fn decode(file: &str, job: JobId, bytes: &[u8]) -> Result<Self, StorageError> {
        let values = match record::POINTER.decode(file, bytes) {
            Err(StorageError::Version { found: 1, .. }) => {
                let values = record::POINTER_V1.decode(file, bytes)?;
                record::check_job(file, job, &values[0])?;
                return Ok(CheckpointPointer {
                    checkpoint: CheckpointId(parse_number(file, &values[1])?),
                    taken_by: job,
                    owner: Owner::Job,
                    location: None,
                });
            }
            other => other?,
        };
        record::check_job(file, job, &values[0])?;
        let checkpoint = CheckpointId(parse_number(file, &values[1])?);
        let owner = match values[3].as_str() {
            "job" => Owner::Job,
            "user" => Owner::User,
            other => return Err(malformed(file, format!("`{other}` is no owner"))),
        };
        let location = match values[4].as_str() {
            own if own == names::checkpoint_folder(checkpoint) => None,
            url => Some(parse_location(file, url)?),
        };
        Ok(CheckpointPointer {
            checkpoint,
            taken_by: parse_job(file, &values[2])?,
            owner,
            location,
        })
    }
}

/// The snapshot that a namespace was begun from. Displays as its folder and the mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// The job that took it.
    pub taken_by: JobId,
    /// What becomes of it.
    pub mode: RestoreMode,
    /// Its folder.
    pub location: SnapshotLocation,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` ({})", self.location, self.mode)
    }
}

impl Origin {
    /// The record of this origin in the store of `job`.
    pub(crate) fn encode(&self, job: JobId) -> Vec<u8> {
        record::ORIGIN.encode(&[
            &job.to_string(),
            &self.checkpoint.0.to_string(),
            &self.taken_by.to_string(),
            &self.mode.to_string(),
            self.location.as_str(),
        ])
    }

    /// Decodes the record in `bytes`, found in the store of `job`; `file` names it in errors.
    pub(crate) fn decode(file: &str, job: JobId, bytes: &[u8]) -> Result<Self, StorageError> {
        let values = record::ORIGIN.decode(file, bytes)?;
        record::check_job(file, job, &values[0])?;
        Ok(Origin {
            checkpoint: CheckpointId(parse_number(file, &values[1])?),
            taken_by: parse_job(file, &values[2])?,
            mode: parse_mode(file, &values[3])?,
            location: parse_location(file, &values[4])?,
        })
    }
}

impl Elsewhere {
    /// The record of this folder in the store of `job`.
    pub(crate) fn encode(&self, job: JobId) -> Vec<u8> {
        let work = match self.work {
            Work::Making => "making",
            Work::Deleting => "deleting",
        };
        record::ELSEWHERE.encode(&[
            &job.to_string(),
            &self.checkpoint.0.to_string(),
            &self.taken_by.to_string(),
            work,
            self.location.as_str(),
        ])
    }

    /// Decodes the record in `bytes`, found in the store of `job`; `file` names it in errors.
    pub(crate) fn decode(file: &str, job: JobId, bytes: &[u8]) -> Result<Self, StorageError> {
        let values = record::ELSEWHERE.decode(file, bytes)?;
        record::check_job(file, job, &values[0])?;
        Ok(Elsewhere {
            checkpoint: CheckpointId(parse_number(file, &values[1])?),
            taken_by: parse_job(file, &values[2])?,
            work: match values[3].as_str() {
                "making" => Work::Making,
                "deleting" => Work::Deleting,
                other => return Err(malformed(file, format!("`{other}` is no work"))),
            },
            location: parse_location(file, &values[4])?,
        })
    }
}

fn parse_mode(file: &str, text: &str) -> Result<RestoreMode, StorageError> {
    RestoreMode::ALL
        .into_iter()
        .find(|mode| mode.to_string() == text)
        .ok_or_else(|| malformed(file, format!("`{text}` is no restore mode")))
}

fn parse_location(file: &str, url: &str) -> Result<SnapshotLocation, StorageError> {
    let location = SnapshotLocation::new(url);
    if url.contains("://") && location.as_str() == url {
        return Ok(location);
    }
    Err(malformed(file, format!("`{url}` is no URL of a folder")))
}

fn malformed(file: &str, reason: String) -> StorageError {
    StorageError::Malformed {
        file: file.to_owned(),
        reason,
    }
}
