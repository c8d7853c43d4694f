//! What can go wrong with Flink.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why there is no outcome from Flink.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlinkError {
    /// The set-up script has not run, or not to its end.
    #[error("flink is not set up (`{missing}` is missing): run crates/bench/flink/setup.sh")]
    NotSetUp {
        /// What was looked for.
        missing: PathBuf,
    },
    /// Neither the environment nor the home folder says where it would be.
    #[error("neither `TIDEGATE_BENCH_HOME` nor `HOME` is set, so flink can't be found")]
    NoHome,
    /// The Java program.
    #[error("start `java`; crates/bench/flink/setup.sh says what to install")]
    Java(#[source] io::Error),
    /// Flink could not tell how much memory its processes may have.
    #[error("compute the memory of flink's processes: {output}")]
    Memory {
        /// What it said instead.
        output: String,
    },
    /// A file or folder of the cluster.
    #[error("{what} `{path}`")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// One of its processes has ended by itself.
    #[error("the {who} ended with {status}; the end of its log:\n{log}")]
    Exited {
        /// Which one.
        who: String,
        /// How.
        status: ExitStatus,
        /// Its last lines.
        log: String,
    },
    /// Something did not happen.
    #[error("waited {} s in vain for {what}; the end of the log:\n{log}", after.as_secs())]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
        /// Last lines of the JobManager's log.
        log: String,
    },
    /// The JobManager can't be asked.
    #[error("ask the JobManager for `{path}`")]
    Http {
        /// What it was asked for.
        path: String,
        /// Why there is no answer.
        #[source]
        cause: Box<ureq::Error>,
    },
    /// The JobManager says no.
    #[error("the JobManager answered `{path}` with {status}: {body}")]
    Refused {
        /// What it was asked for.
        path: String,
        /// Its answer.
        status: u16,
        /// And what it had to say.
        body: String,
    },
    /// The JobManager says something else than Flink 2.3 does.
    #[error("understand the JobManager's answer to `{path}`")]
    Answer {
        /// What it was asked for.
        path: String,
        /// What is wrong with it.
        #[source]
        cause: serde_json::Error,
    },
    /// The job did not come to its end.
    #[error("the job is {state}: {cause}")]
    Job {
        /// In Flink's words.
        state: String,
        /// The exception at the root of it.
        cause: String,
    },
    /// The job has ended without leaving its figures.
    #[error("the job reported no `{name}`")]
    NoFigure {
        /// Name of the accumulator.
        name: &'static str,
    },
}

impl FlinkError {
    /// Names the file that an operation failed on.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> FlinkError {
        let path = path.into();
        move |cause| FlinkError::Io { what, path, cause }
    }
}
