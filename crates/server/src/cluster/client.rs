//! How TaskManagers and processes of attempts reach a JobManager.

use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Error};

use super::secret::Present;
use super::wire::MESSAGE_BYTES_MAX;
use super::wire::cluster_client::ClusterClient;
use crate::data::Secret;

/// Talks to a JobManager, and shows the cluster's secret.
pub(super) type Client = ClusterClient<InterceptedService<Channel, Present>>;

/// Where a JobManager is: `host:port`.
pub(super) fn endpoint(address: &str) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.tcp_nodelay(true))
}

pub(super) fn client(channel: Channel, secret: &Secret) -> Client {
    ClusterClient::with_interceptor(channel, Present::new(secret))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
}
