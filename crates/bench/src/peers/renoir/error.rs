//! What can go wrong with the program that runs jobs on renoir.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why there is no outcome from renoir.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenoirError {
    /// It has not been built.
    #[error(
        "the program that runs jobs on renoir is not built (`{missing}` is missing): \
         `tidegate-bench compare --peers renoir` does it, or `{command}`"
    )]
    NotBuilt {
        /// What was looked for.
        missing: PathBuf,
        /// What builds it.
        command: String,
    },
    /// There is no cargo.
    #[error("start `cargo`, which builds the program that runs jobs on renoir")]
    Cargo(#[source] io::Error),
    /// Cargo could not build it, and has said why.
    #[error(
        "`{command}` ended with {status}: it needs the network the first time; to compare without \
         renoir, say `--peers timely,flink`"
    )]
    Build {
        /// How cargo ended.
        status: ExitStatus,
        /// What was run.
        command: String,
    },
    /// It can't be started.
    #[error("start `{path}`")]
    Start {
        /// The program.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// It has failed, and said why.
    #[error("the program that runs jobs on renoir ended with {0}")]
    Failed(ExitStatus),
    /// It says something else than figures.
    #[error("understand `{line}`, the last line of the program that runs jobs on renoir")]
    Figures {
        /// What it said.
        line: String,
        /// What is wrong with it.
        #[source]
        cause: serde_json::Error,
    },
}
