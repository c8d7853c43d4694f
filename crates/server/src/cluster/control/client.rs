//! Asks the JobManager of a running job.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::generated::control_client::ControlClient as Calls;
use super::generated::{
    CancelRequest, Cancelled, CheckpointRequest, DescribeRequest, Job, RescaleRequest, Rescaled,
    SavepointRequest, Snapshot, StopRequest,
};
use crate::cluster::client::channel;
use crate::cluster::refusal::Farewell;
use crate::cluster::search::{HEAD_START, NotFound, first_to_take};
use crate::cluster::secret::{Present, check_address};
use crate::cluster::settings::ClusterSettings;

/// A JobManager that takes longer to be reached is taken for gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a job couldn't be asked, or has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody was asked.
    #[error(
        "no JobManager that leads was found; start the job, or name others with --jobmanager:{}",
        lines(tried)
    )]
    NotFound {
        /// Where it was looked for, and what was found there.
        tried: Vec<(String, String)>,
    },
    /// The JobManager doesn't talk to us.
    #[error("the JobManager at `{address}` refuses the request: {cause}")]
    Refused {
        /// Where it is.
        address: String,
        /// What it said.
        cause: String,
    },
    /// The job goes on as if nobody had asked, unless the text says otherwise.
    #[error("{0}")]
    Failed(String),
    /// The JobManager was gone before it had answered: nobody knows what came of it.
    #[error("the JobManager was gone before it answered ({0}); look at the job")]
    Lost(String),
    /// The operating system doesn't play along.
    #[error("start a runtime")]
    System(#[source] std::io::Error),
}

fn lines(tried: &[(String, String)]) -> String {
    let line = |(address, cause): &(String, String)| format!("\n  `{address}`: {cause}");
    tried.iter().map(line).collect()
}

type Asked = Calls<InterceptedService<Channel, Present>>;

/// Asks one job. Blocks until it is answered.
pub struct ControlClient {
    runtime: Runtime,
    calls: Asked,
}

impl ControlClient {
    /// Finds the JobManager that leads among these addresses (`host:port`).
    ///
    /// # Errors
    /// [`ControlError::NotFound`], [`ControlError::Refused`], [`ControlError::System`].
    pub fn connect(addresses: &[String], cluster: &ClusterSettings) -> Result<Self, ControlError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ControlError::System)?;
        let ask = |address| find(address, cluster);
        let found =
            runtime.block_on(async { first_to_take(addresses, ask, || sleep(HEAD_START)).await });
        match found {
            Ok((_, calls)) => Ok(ControlClient { runtime, calls }),
            Err(NotFound::Refused { address, cause }) => {
                Err(ControlError::Refused { address, cause })
            }
            Err(NotFound::Nobody(tried)) => Err(ControlError::NotFound { tried }),
        }
    }

    /// What the job is doing.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn describe(&mut self) -> Result<Job, ControlError> {
        let call = self.calls.describe(DescribeRequest {});
        answer(self.runtime.block_on(call))
    }

    /// See [`JobClient::checkpoint`](crate::JobClient::checkpoint).
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn checkpoint(&mut self) -> Result<Snapshot, ControlError> {
        let call = self.calls.checkpoint(CheckpointRequest {});
        answer(self.runtime.block_on(call))
    }

    /// See [`JobClient::savepoint`](crate::JobClient::savepoint). A path is one of the JobManager's
    /// machine.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn savepoint(&mut self, directory: Option<String>) -> Result<Snapshot, ControlError> {
        let call = self.calls.savepoint(SavepointRequest { directory });
        answer(self.runtime.block_on(call))
    }

    /// See [`JobClient::stop_with_savepoint`](crate::JobClient::stop_with_savepoint).
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn stop(
        &mut self,
        directory: Option<String>,
        drain: bool,
    ) -> Result<Snapshot, ControlError> {
        let call = self.calls.stop(StopRequest { directory, drain });
        answer(self.runtime.block_on(call))
    }

    /// See [`JobClient::cancel`](crate::JobClient::cancel).
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn cancel(&mut self) -> Result<(), ControlError> {
        let call = self.calls.cancel(CancelRequest {});
        let Cancelled {} = answer(self.runtime.block_on(call))?;
        Ok(())
    }

    /// See [`JobClient::rescale`](crate::JobClient::rescale).
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn rescale(&mut self, parallelism: u32) -> Result<Rescaled, ControlError> {
        let call = self.calls.rescale(RescaleRequest { parallelism });
        answer(self.runtime.block_on(call))
    }
}

/// Finds a JobManager that answers: one that stands still can be connected with all the same.
async fn find(address: &str, cluster: &ClusterSettings) -> Result<Asked, Farewell> {
    let allowed = cluster.leaves_the_machine();
    check_address(address, allowed).map_err(|error| Farewell::Gone(error.to_string()))?;
    let channel = channel(address, cluster, PATIENCE, Some(PATIENCE)).await?;
    let mut calls = Calls::with_interceptor(channel, Present::new(&cluster.secret));
    let late = |_| Farewell::Gone(format!("it has not answered within {PATIENCE:?}"));
    let answered = timeout(PATIENCE, calls.describe(DescribeRequest {})).await;
    answered.map_err(late)?.map_err(Farewell::from)?;
    Ok(calls)
}

fn answer<T>(answered: Result<Response<T>, Status>) -> Result<T, ControlError> {
    answered.map(Response::into_inner).map_err(|status| {
        let is_busy = status.code() == Code::ResourceExhausted;
        let is_lost = !is_busy && matches!(Farewell::from(status.clone()), Farewell::Gone(_));
        match is_lost {
            true => ControlError::Lost(format!("{}: {}", status.code(), status.message())),
            false => ControlError::Failed(status.message().to_owned()),
        }
    })
}
