//! A handle on a running job: what people and programs ask of it while it runs.

mod error;
mod requests;
mod shared;

pub use error::RequestError;
pub(crate) use shared::{Ended, Shared};

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use tidegate_coordinator::{CompletedSummary, JobEvent, Request, Rescaled, Statistics};
use tidegate_runtime::{JobPlan, Traffic};
use tidegate_storage::parse_checkpoint_dir;
use tidegate_types::{CheckpointId, SnapshotFormat, SnapshotLocation};

use crate::clock::Clock;
use crate::error::RunError;
use crate::options::JobOptions;
use crate::report::JobReport;
use crate::waiting::{WaitingFor, oldest};

/// A handle on a job that runs on threads of this process (Flink's `JobClient`). Cheap to clone;
/// usable from any thread, except where blocking isn't allowed.
///
/// The job doesn't depend on it: when the last handle is dropped the job goes on, until it ends or
/// the process does. A process that ends takes the job with it as a crash would; the next run goes
/// on from the latest completed checkpoint.
#[derive(Clone, Debug)]
#[must_use = "the job ends with the process: call `wait`"]
pub struct JobClient {
    pub(crate) shared: Arc<Shared>,
}

impl JobClient {
    pub(crate) fn new(
        options: &JobOptions,
        plan: &JobPlan,
        clock: Clock,
        events: Sender<JobEvent>,
    ) -> Self {
        let shared = Shared::new(options.name.clone(), plan.graph().clone(), clock, events);
        JobClient {
            shared: Arc::new(shared),
        }
    }

    /// A handle on a job that is as busy as whoever takes these events makes it.
    #[cfg(test)]
    pub(crate) fn for_tests(name: &str, events: Sender<JobEvent>) -> Self {
        let graph = tidegate_types::graph::JobGraph::default();
        let shared = Shared::new(name.to_owned(), graph, Clock::start(), events);
        JobClient {
            shared: Arc::new(shared),
        }
    }

    /// A handle on a job of which nothing runs.
    pub(crate) fn ended(options: &JobOptions, plan: &JobPlan, report: JobReport) -> Self {
        let (events, _) = channel();
        let client = Self::new(options, plan, Clock::start(), events);
        client.shared.end(Ended::Well(Box::new(report)));
        client
    }

    /// Takes a checkpoint now, whatever the interval and the minimum pause, and waits until it has
    /// completed. Also works with periodic checkpoints off.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn checkpoint(&self) -> Result<CompletedSummary, RequestError> {
        self.checkpoint_in(None)
    }

    /// As [`checkpoint`](Self::checkpoint), with another format than the settings say.
    ///
    /// # Errors
    /// See [`RequestError`]; the canonical format is for savepoints.
    pub fn checkpoint_in(
        &self,
        format: Option<SnapshotFormat>,
    ) -> Result<CompletedSummary, RequestError> {
        error::completed(self.shared.request(Request::Checkpoint { format }))
    }

    /// Takes a savepoint and waits until it is durable: a snapshot that is self-contained, the
    /// user's, and never deleted by the system. The job goes on as if nothing had happened. It
    /// lies in a new folder in `directory`, a path or a `file://` URL; without one, in that of the
    /// setting `--savepoint-dir`.
    ///
    /// # Errors
    /// See [`RequestError`]. Whatever the error, nothing of it is left unless storage failed.
    pub fn savepoint(&self, directory: Option<&str>) -> Result<CompletedSummary, RequestError> {
        let directory = parse(directory)?;
        error::completed(self.shared.request(Request::Savepoint { directory }))
    }

    /// Takes a savepoint behind which sources emit nothing any more, commits everything up to it,
    /// ends the job, and waits for that. The same command, run again, goes on from it; so does
    /// another job that is started with `--restore-from`.
    ///
    /// With `drain` all data comes to its end before the savepoint, as if the sources had: what
    /// operators hold back comes out, and the job is done for good.
    ///
    /// The job is over then as it is after [`wait`](Self::wait): the next run may be started at
    /// once.
    ///
    /// # Errors
    /// See [`RequestError`]. The job then goes on, unless the error says that it has ended; after a
    /// failure in the middle, by restarting.
    ///
    /// # Panics
    /// As [`wait`](Self::wait) does.
    pub fn stop_with_savepoint(
        &self,
        directory: Option<&str>,
        drain: bool,
    ) -> Result<CompletedSummary, RequestError> {
        let savepoint = self.begin_stop(directory, drain)?;
        // Ordering: the answer comes when everything is committed. Threads, the lock and what is to
        // be deleted are a matter of the job's end.
        match self.wait() {
            Ok(_) => Ok(savepoint),
            Err(cause) => Err(RequestError::EndedOtherwise {
                savepoint: Box::new(savepoint),
                cause: Box::new(cause),
            }),
        }
    }

    /// As [`stop_with_savepoint`](Self::stop_with_savepoint), but for the job's end.
    pub(crate) fn begin_stop(
        &self,
        directory: Option<&str>,
        drain: bool,
    ) -> Result<CompletedSummary, RequestError> {
        let directory = parse(directory)?;
        let request = Request::StopWithSavepoint { directory, drain };
        error::completed(self.shared.request(request))
    }

    /// Aborts a checkpoint or savepoint that is under way. Its requester, if it has one, is told.
    ///
    /// # Errors
    /// [`RequestError::Refused`] if it isn't under way.
    pub fn abort_checkpoint(&self, checkpoint: CheckpointId) -> Result<(), RequestError> {
        error::aborted(self.shared.request(Request::Abort { checkpoint }))
    }

    /// Asks the job to stop without a savepoint; returns at once. Whether its checkpoints outlive
    /// that is said by the setting `--checkpoint-retention`. [`wait`](Self::wait) then gives
    /// [`RunError::Cancelled`], unless the job had just come to another end.
    pub fn cancel(&self) {
        self.shared.send(JobEvent::CancelRequested);
    }

    /// Takes a checkpoint and goes on from it with another parallelism, as if the job had been
    /// started with that: operators whose parallelism the job's code has chosen keep theirs. Waits
    /// until every subtask runs again. On a cluster there must be slots for all.
    ///
    /// # Errors
    /// [`RequestError::NotRescaled`]: the job runs on as it was, or has ended.
    pub fn rescale(&self, parallelism: u32) -> Result<Rescaled, RequestError> {
        error::rescaled(self.shared.request(Request::Rescale { parallelism }))
    }

    /// Stops the job here, since its process is to end; returns at once. Nothing of it is deleted,
    /// whatever the settings say: the next run goes on from the latest checkpoint.
    /// [`wait`](Self::wait) then gives [`RunError::Suspended`], unless the job had just come to
    /// another end.
    pub fn suspend(&self) {
        self.shared.send(JobEvent::SuspendRequested);
    }

    /// Counters, distributions and recent history of this job's checkpoints, as of a moment ago (a
    /// tenth of a second at most); whatever a request has been answered with is in it. Nothing
    /// changes it any more.
    pub fn statistics(&self) -> Arc<Statistics> {
        self.shared.statistics()
    }

    /// What the oldest checkpoint under way is waiting for; `None` if none is. Waits for nothing
    /// itself: also tells when the job is stuck.
    pub fn waiting_for(&self) -> Option<WaitingFor> {
        let statistics = self.shared.statistics();
        let observed = self.shared.observed();
        let now = self.shared.clock.now().monotonic;
        let checkpoint = oldest(&statistics)?;
        Some(WaitingFor::new(
            checkpoint,
            now,
            &self.shared.graph(),
            observed.as_ref(),
        ))
    }

    /// Records that the sources of the attempt that runs have emitted, as of a moment ago (a fifth
    /// of a second, on a cluster).
    pub fn records(&self) -> u64 {
        self.shared.records_of_sources()
    }

    /// What the processes of the attempt that runs have sent each other, as of a moment ago (a
    /// fifth of a second); nothing, if the job runs in one process.
    pub fn traffic(&self) -> Traffic {
        let observed = self.shared.observed();
        observed.map_or_else(Traffic::default, |observed| observed.metrics.traffic())
    }

    /// Waits until every subtask of the job runs: before that, snapshots are refused. Returns
    /// whether they do; otherwise the job has ended.
    pub fn wait_until_running(&self) -> bool {
        self.shared.wait_until_running()
    }

    /// Name of the job.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// Whether every subtask of the job runs at this moment.
    pub fn is_running(&self) -> bool {
        self.shared.is_running()
    }

    /// The largest parallelism of any operator, of the attempt that runs or of the last one.
    pub fn parallelism(&self) -> u32 {
        self.shared.graph().parallelism_max()
    }

    /// Whether the job is over: [`wait`](Self::wait) doesn't block then.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Waits for the job's end. Then its threads have ended, and its checkpoints are free for the
    /// next run. May be called any number of times.
    ///
    /// # Errors
    /// [`RunError::Failed`], [`RunError::Cancelled`] or [`RunError::Suspended`].
    ///
    /// # Panics
    /// If the job's driver has panicked, which is a bug of Tidegate.
    pub fn wait(&self) -> Result<JobReport, RunError> {
        self.shared.wait()
    }
}

fn parse(directory: Option<&str>) -> Result<Option<SnapshotLocation>, RequestError> {
    let parse = |given: &str| match parse_checkpoint_dir(given) {
        Ok(url) => Ok(SnapshotLocation::new(url.as_str())),
        Err(cause) => Err(RequestError::Directory {
            given: given.to_owned(),
            cause: Box::new(cause),
        }),
    };
    directory.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_coordinator::Answer;
    use tidegate_types::SnapshotKind;

    use super::*;
    use crate::report::JobOutcome;

    fn savepoint() -> CompletedSummary {
        CompletedSummary {
            checkpoint: CheckpointId(3),
            kind: SnapshotKind::StopWithSavepoint { drain: false },
            location: Some(SnapshotLocation::new("file:///savepoints/3")),
            bytes: 0,
            new_bytes: 0,
            duration: Duration::ZERO,
        }
    }

    /// What a stop says that is answered well, of a job that ends like this after the answer.
    fn stopped_and(ended: Ended) -> Result<CompletedSummary, RequestError> {
        let (sender, events) = channel();
        let client = JobClient::for_tests("job", sender);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| client.stop_with_savepoint(None, false));
            let event = events.recv().unwrap();
            let JobEvent::Requested { request, .. } = event else {
                panic!("{event:?}")
            };
            client
                .shared
                .answer(request, Answer::Completed(savepoint()));
            client.shared.end(ended);
            asked.join().unwrap()
        })
    }

    #[test]
    fn a_stop_is_told_how_the_job_ended() {
        let outcome = JobOutcome::Finished;
        let well = Ended::Well(Box::new(JobReport::without_a_run(outcome)));
        assert_eq!(stopped_and(well).unwrap(), savepoint());
        let latest = Some(CheckpointId(3));
        let error = stopped_and(Ended::Cancelled { latest }).unwrap_err();
        assert!(
            error.to_string().contains("`file:///savepoints/3`"),
            "{error}"
        );
        let RequestError::EndedOtherwise { cause, .. } = error else {
            panic!("{error:?}")
        };
        assert!(matches!(*cause, RunError::Cancelled { .. }), "{cause}");
    }
}
