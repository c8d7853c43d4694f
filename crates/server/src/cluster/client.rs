//! How TaskManagers and processes of attempts reach a JobManager.

use std::time::Duration;

use tidegate_types::ErrorChain;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

use super::refusal::Farewell;
use super::secret::Present;
use super::settings::ClusterSettings;
use super::wire::MESSAGE_BYTES_MAX;
use super::wire::cluster_client::ClusterClient;

/// Talks to a JobManager, and shows the cluster's secret.
pub(super) type Client = ClusterClient<InterceptedService<Channel, Present>>;

/// Connects to the JobManager at `host:port`, encrypted if the cluster is. One that takes longer
/// than `patience` is taken for gone.
///
/// # Errors
/// That it is gone; that it refuses this process's certificate, or shows one that isn't accepted.
pub(super) async fn reach(
    address: &str,
    cluster: &ClusterSettings,
    patience: Duration,
) -> Result<Client, Farewell> {
    let channel = channel(address, cluster, patience, None).await?;
    let client = ClusterClient::with_interceptor(channel, Present::new(&cluster.secret));
    Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX))
}

/// As [`reach`], for whatever is to be said. With `keep_alive`, whoever is silent for longer than
/// that is taken for gone; the processes of a cluster have heartbeats of their own.
pub(super) async fn channel(
    address: &str,
    cluster: &ClusterSettings,
    patience: Duration,
    keep_alive: Option<Duration>,
) -> Result<Channel, Farewell> {
    let gone = |error| Farewell::Gone(ErrorChain(&error).to_string());
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(gone)?;
    let mut endpoint = endpoint.tcp_nodelay(true).connect_timeout(patience);
    if let Some(interval) = keep_alive {
        endpoint = endpoint
            .http2_keep_alive_interval(interval)
            .keep_alive_timeout(interval);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &cluster.tls {
        return encrypted(address, tls, &endpoint, patience).await;
    }
    #[cfg(not(feature = "tls"))]
    let _ = cluster;
    endpoint.connect().await.map_err(gone)
}

/// A channel over one encrypted connection: when that breaks, it is not replaced. Nor is any other
/// here, since whatever is registered goes by its stream.
#[cfg(feature = "tls")]
async fn encrypted(
    address: &str,
    tls: &crate::tls::Tls,
    endpoint: &Endpoint,
    patience: Duration,
) -> Result<Channel, Farewell> {
    use crate::tls::{Failure, Purpose};

    let dialled = async {
        let stream = tokio::net::TcpStream::connect(address).await;
        let stream = stream.map_err(Failure::Passing)?;
        stream.set_nodelay(true).map_err(Failure::Passing)?;
        tls.dial(stream, Purpose::Control).await
    };
    let late = |_| Farewell::Gone("it doesn't answer".to_owned());
    let dialled = tokio::time::timeout(patience, dialled)
        .await
        .map_err(late)?;
    let stream = dialled.map_err(|failure| match failure {
        Failure::Passing(error) => Farewell::Gone(error.to_string()),
        Failure::Final(why) => Farewell::Refused(why),
    })?;
    let mut stream = Some(hyper_util::rt::TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let used_up = || std::io::Error::other("the connection is gone");
        std::future::ready(stream.take().ok_or_else(used_up))
    });
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| Farewell::Gone(ErrorChain(&error).to_string()))
}
