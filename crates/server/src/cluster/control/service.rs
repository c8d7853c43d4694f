//! Answers to what is asked of the job from outside.

use tidegate_coordinator::CompletedSummary;
use tidegate_runtime::{Traffic as Sent, Volume as Amount};
use tidegate_types::ErrorChain;
use tonic::{Request, Response, Status};

use super::generated::control_server::Control;
use super::generated::{
    CancelRequest, Cancelled, CheckpointRequest, DescribeRequest, Job, RescaleRequest, Rescaled,
    SavepointRequest, Snapshot, StopRequest, Traffic, Volume,
};
use crate::client::{JobClient, RequestError};

/// Asks a job on behalf of others. Requests of the same job may wait for each other, not for this.
pub(crate) struct ControlService {
    job: JobClient,
}

impl ControlService {
    pub(crate) fn new(job: JobClient) -> Self {
        ControlService { job }
    }

    /// Asks on a thread that may block, until the job has answered.
    async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&JobClient) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, Status> {
        let job = self.job.clone();
        let asked = tokio::task::spawn_blocking(move || what(&job)).await;
        let answer = asked.map_err(|lost| Status::internal(lost.to_string()))?;
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
        let completed = self.ask(JobClient::checkpoint).await?;
        Ok(Response::new(snapshot(completed)))
    }

    async fn savepoint(
        &self,
        request: Request<SavepointRequest>,
    ) -> Result<Response<Snapshot>, Status> {
        let SavepointRequest { directory } = request.into_inner();
        let completed = self.ask(move |job| job.savepoint(directory.as_deref()));
        Ok(Response::new(snapshot(completed.await?)))
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<Snapshot>, Status> {
        let StopRequest { directory, drain } = request.into_inner();
        // The job's end waits for this answer to be sent, so this doesn't wait for that.
        let stopped = self.ask(move |job| job.begin_stop(directory.as_deref(), drain));
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
        let rescaled = self.ask(move |job| job.rescale(parallelism)).await?;
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
