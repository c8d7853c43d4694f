//! What can go wrong with a run.

use std::path::PathBuf;

use tidegate::BoxError;

/// Result of a run.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The job itself.
    #[error("run the job")]
    Job(#[from] tidegate::Error),
    /// A file, or something about the process.
    #[error("{what} `{path}`")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// The result is wrong, so the figures are worth nothing.
    #[error("{what}: expected `{expected}`, got `{got}`")]
    Wrong {
        /// What was counted.
        what: &'static str,
        /// What it had to be.
        expected: u64,
        /// What it was.
        got: u64,
    },
    /// The peer has no such workload.
    #[error("`{peer}` doesn't run `{workload}`")]
    NotOffered {
        /// The peer.
        peer: &'static str,
        /// The workload.
        workload: &'static str,
    },
    /// Hot paths take more instructions than they did.
    #[error(
        "`{paths}` take more instructions per record than stored: make them shorter, or say that \
         it must be so with `tidegate-bench instructions --update`"
    )]
    Longer {
        /// Their names.
        paths: String,
    },
    /// What a run took of the machine.
    #[error("measure what the run takes")]
    Usage(#[from] crate::measure::UsageError),
    /// Flink, as a peer.
    #[error("run on flink")]
    Flink(#[from] crate::peers::flink::FlinkError),
    /// renoir, as a peer.
    #[error("run on renoir")]
    Renoir(#[from] crate::peers::renoir::RenoirError),
    /// Whatever else.
    #[error("{what}")]
    Other {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        #[source]
        cause: BoxError,
    },
}

impl Error {
    /// Names the file that an operation failed on.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |cause| Error::Io { what, path, cause }
    }

    /// Checks that a count is what it has to be.
    ///
    /// # Errors
    /// [`Error::Wrong`] if it isn't.
    pub(crate) fn unless_equal(what: &'static str, expected: u64, got: u64) -> Result<()> {
        match expected == got {
            true => Ok(()),
            false => Err(Error::Wrong {
                what,
                expected,
                got,
            }),
        }
    }
}
