//! The error of a job, made to be returned from `main`.

use std::fmt;

use tidegate_server::RunError;
use tidegate_types::ErrorChain;

/// Result of running a job.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a job could not be put together or run to its end.
///
/// `Debug` prints the error with all its causes, so that `fn main() -> tidegate::Result<()>` shows
/// people something they can use.
#[derive(thiserror::Error)]
pub enum Error {
    /// The job could not be run to its end.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The checkpoint directory can't be used as such.
    #[error("--checkpoint-dir")]
    CheckpointDir(#[source] tidegate_storage::StorageError),
    /// Periodic checkpoints were asked for, with nowhere to keep them.
    #[error(
        "--checkpoint-interval needs --checkpoint-dir: without it checkpoints would not outlive \
         the process"
    )]
    IntervalWithoutDir,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ErrorChain(self), f)
    }
}
