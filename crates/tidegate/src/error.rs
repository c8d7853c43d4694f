//! The error of a job, made to be returned from `main`.

use std::fmt;

use tidegate_runtime::SideOutputTypeError;
use tidegate_server::{RequestError, RunError};
use tidegate_types::ErrorChain;

use crate::args::InvalidSettings;

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
    /// A request to a running job came to nothing.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A side output carries records of another type.
    #[error(transparent)]
    SideOutput(#[from] SideOutputTypeError),
    /// What users set is wrong.
    #[error(transparent)]
    Settings(#[from] InvalidSettings),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ErrorChain(self), f)
    }
}
