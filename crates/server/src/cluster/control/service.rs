//! Answers to what is asked of the job from outside.
//!
//! Each request that waits for the job occupies a thread, also when whoever asked has gone, and
//! storage needs threads of the same pool. So only some may wait; what ends or changes the job
//! waits apart from what may be asked for again and again.

use std::sync::Arc;

use tidegate_coordinator::CompletedSummary;
use tidegate_runtime::{Traffic as Sent, Volume as Amount};
use tidegate_types::ErrorChain;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::generated::control_server::Control;
use super::generated::{
    CancelRequest, Cancelled, CheckpointRequest, DescribeRequest, Job, RescaleRequest, Rescaled,
    SavepointRequest, Snapshot, StopRequest, Traffic, Volume,
};
use crate::client::{JobClient, RequestError};

/// Requests of one sort that may wait for the job.
const WAITING_MAX: usize = 64;

/// Asks a job on behalf of others. Requests of the same job may wait for each other, not for this.
pub(crate) struct ControlService {
    job: JobClient,
    snapshots: Waiting,
    changes: Waiting,
}

/// Who may wait for the job.
struct Waiting {
    what: &'static str,
    places: Arc<Semaphore>,
}

impl Waiting {
    fn new(what: &'static str) -> Self {
        let places = Arc::new(Semaphore::new(WAITING_MAX));
        Waiting { what, places }
    }
}

impl ControlService {
    pub(crate) fn new(job: JobClient) -> Self {
        ControlService {
            job,
            snapshots: Waiting::new("checkpoints and savepoints"),
            changes: Waiting::new("stops and rescales"),
        }
    }

    /// Asks on a thread that may block, until the job has answered.
    async fn ask<T: Send + 'static>(
        &self,
        waiting: &Waiting,
        what: impl FnOnce(&JobClient) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, Status> {
        let Ok(place) = Arc::clone(&waiting.places).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "`{WAITING_MAX}` requests for {} are waiting for the job already; ask again when \
                 some have been answered",
                waiting.what
            )));
        };
        let job = self.job.clone();
        let asked = tokio::task::spawn_blocking(move || {
            // As long as the thread waits, whether anybody waits for it or not.
            let _place = place;
            what(&job)
        });
        let answer = asked.await;
        let answer = answer.map_err(|lost| Status::internal(lost.to_string()))?;
        answer.map_err(|error| Status::failed_precondition(ErrorChain(&error).to_string()))
    }
}

#[tonic::async_trait]
impl Control for ControlService {
    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<Job>, Status> {
        let statistics = self.job.statistics();
        Ok(Response::new(Job {
            name: self.job.name().to_owned(),
            running: self.job.is_running(),
            parallelism: self.job.parallelism(),
            restarts: statistics.restarts,
            checkpoints_completed: statistics.completed,
            checkpoints_failed: statistics.failed,
            latest: statistics.latest_completed.clone().map(snapshot),
            traffic: Some(traffic(self.job.traffic())),
            records: self.job.records(),
        }))
    }

    async fn checkpoint(
        &self,
        _: Request<CheckpointRequest>,
    ) -> Result<Response<Snapshot>, Status> {
        let completed = self.ask(&self.snapshots, JobClient::checkpoint).await?;
        Ok(Response::new(snapshot(completed)))
    }

    async fn savepoint(
        &self,
        request: Request<SavepointRequest>,
    ) -> Result<Response<Snapshot>, Status> {
        let SavepointRequest { directory } = request.into_inner();
        let completed = self.ask(&self.snapshots, move |job| {
            job.savepoint(directory.as_deref())
        });
        Ok(Response::new(snapshot(completed.await?)))
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<Snapshot>, Status> {
        let StopRequest { directory, drain } = request.into_inner();
        // The job's end waits for this answer to be sent, so this doesn't wait for that.
        let stopped = self.ask(&self.changes, move |job| {
            job.begin_stop(directory.as_deref(), drain)
        });
        Ok(Response::new(snapshot(stopped.await?)))
    }

    async fn cancel(&self, _: Request<CancelRequest>) -> Result<Response<Cancelled>, Status> {
        self.job.cancel();
        Ok(Response::new(Cancelled {}))
    }

    async fn rescale(
        &self,
        request: Request<RescaleRequest>,
    ) -> Result<Response<Rescaled>, Status> {
        let RescaleRequest { parallelism } = request.into_inner();
        let rescaled = self
            .ask(&self.changes, move |job| job.rescale(parallelism))
            .await?;
        Ok(Response::new(Rescaled {
            from: rescaled.from,
            to: rescaled.to,
            checkpoint: rescaled.checkpoint.map(|checkpoint| checkpoint.0),
            downtime_millis: rescaled.downtime.as_millis() as u64,
            recorded: rescaled.recorded,
        }))
    }
}

fn snapshot(completed: CompletedSummary) -> Snapshot {
    Snapshot {
        id: completed.checkpoint.0,
        location: completed.location.map(|location| location.to_string()),
        bytes: completed.bytes,
        duration_millis: completed.duration.as_millis() as u64,
    }
}

fn traffic(sent: Sent) -> Traffic {
    let volume = |Amount { messages, bytes }| Some(Volume { messages, bytes });
    Traffic {
        items: volume(sent.items),
        credit: volume(sent.credit),
        progress: volume(sent.progress),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tidegate_coordinator::{JobEvent, Request as Asked};
    use tonic::Code;

    use super::*;

    // Each of them would keep a thread that storage needs, for as long as a checkpoint takes.
    #[test]
    fn requests_that_wait_for_a_stuck_job_are_bounded() {
        let (events, stuck) = channel();
        let job = JobClient::for_tests("stuck", events);
        let service = Arc::new(ControlService::new(job.clone()));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let checkpoint = |service: Arc<ControlService>| async move {
            let asked = service.checkpoint(Request::new(CheckpointRequest {})).await;
            asked.map(drop)
        };
        for _ in 0..WAITING_MAX {
            let asked = runtime.spawn(checkpoint(Arc::clone(&service)));
            let JobEvent::Requested { .. } = stuck.recv().unwrap() else {
                panic!("only requests are sent")
            };
            // Whoever asked has gone; the thread waits all the same.
            asked.abort();
        }
        let refused = runtime.block_on(checkpoint(Arc::clone(&service)));
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("64"), "{}", refused.message());

        // It can be stopped all the same.
        let stop = StopRequest {
            directory: None,
            drain: false,
        };
        let stopped = runtime.spawn(async move { service.stop(Request::new(stop)).await });
        let JobEvent::Requested { what, .. } = stuck.recv().unwrap() else {
            panic!("only requests are sent")
        };
        assert!(matches!(what, Asked::StopWithSavepoint { .. }), "{what:?}");
        job.shared.close_requests();
        let answer = runtime.block_on(stopped).unwrap();
        assert_eq!(answer.unwrap_err().code(), Code::FailedPrecondition);
    }
}
