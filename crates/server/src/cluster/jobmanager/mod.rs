//! The JobManager: drives the job here, and lets its attempts run on TaskManagers.

mod dispatcher;
#[cfg(feature = "tls")]
mod incoming;
mod streams;

use std::os::fd::AsFd;
use std::time::Duration;

use tidegate_coordinator::NoticeTarget;
use tidegate_storage::JobStore;
use tidegate_types::message::Notice;
use tidegate_types::{AttemptNumber, ErrorChain};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::control::{ControlServer, ControlService};
use super::secret::{Expect, check_address};
use super::settings::JobManagerOptions;
use super::taskmanager::build_of_this_binary;
use super::wire::MESSAGE_BYTES_MAX;
use super::wire::cluster_server::ClusterServer;
use crate::client::JobClient;
use crate::driver::{Events, Execution, Launch};
use crate::error::RunError;
use crate::files::discard_with;
use crate::tls::Tls;

use dispatcher::{Dispatcher, Post, Terms};
use streams::Streams;

/// How long answers may take to be sent when the job is over.
const ANSWERS_PATIENCE: Duration = Duration::from_secs(1);

/// A job whose attempts are to run on TaskManagers.
pub(crate) struct JobOnCluster {
    /// The job graph as every process must build it.
    pub(crate) description: String,
    pub(crate) name: String,
    pub(crate) store: JobStore,
    /// For what is asked from outside.
    pub(crate) client: JobClient,
    pub(crate) events: Events,
}

/// Runs attempts on the TaskManagers that register.
pub(crate) struct OnCluster {
    posts: UnboundedSender<Post>,
    /// Dropped, nobody is taken in any more; then it ends once everybody has been answered.
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    runtime: Handle,
}

impl OnCluster {
    /// Listens for TaskManagers, from now until `runtime` ends.
    ///
    /// # Errors
    /// [`RunError::Listen`].
    pub(crate) fn start(
        job: JobOnCluster,
        options: &JobManagerOptions,
        runtime: Handle,
    ) -> Result<Self, RunError> {
        let refused = |cause: String| RunError::Listen {
            address: options.listen.clone(),
            cause,
        };
        let listener = {
            let _in_runtime = runtime.enter();
            listen(options).map_err(refused)?
        };
        let address = listener.local_addr();
        let address = address.map_err(|cause| refused(cause.to_string()))?;
        let build = build_of_this_binary().map_err(|cause| refused(cause.to_string()))?;
        tracing::info!(%address, "the JobManager listens");
        if options.cluster.is_open_to_all() && !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "without a secret whoever reaches the JobManager can take part in the cluster and \
                 end its job; give all its processes the same TIDEGATE_CLUSTER_SECRET"
            );
        }
        let (posts, posted) = unbounded_channel();
        let terms = Terms {
            options: options.clone(),
            name: job.name,
            job: job.store.job(),
            epoch: job.store.epoch(),
            events: job.events,
            discard: discard_with(job.store.clone(), runtime.clone()),
        };
        let dispatcher = Dispatcher::new(terms, job.description);
        let dispatched = runtime.spawn(dispatcher.run(posted));
        runtime.spawn(async move {
            if let Err(error) = dispatched.await
                && error.is_panic()
            {
                give_up("its dispatcher panicked");
            }
        });
        let streams = Streams::new(posts.clone(), build.to_string());
        let service = ClusterServer::new(streams).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let expect = Expect::new(&options.cluster.secret);
        let control = ControlServer::new(ControlService::new(job.client));
        let services = Services {
            cluster: InterceptedService::new(service, expect.clone()),
            control: InterceptedService::new(control, expect),
        };
        let (open, closed) = oneshot::channel();
        let serve = services.serve(listener, options.cluster.tls.clone(), closed);
        let served = runtime.spawn(async move {
            if let Err(error) = serve.await {
                let error = ErrorChain(&error);
                give_up(&format!("it can't listen any more: {error}"));
            }
        });
        Ok(OnCluster {
            posts,
            serving: Some((open, served)),
            runtime,
        })
    }

    /// The dispatcher is gone only when nobody needs it any more.
    fn post(&self, post: Post) {
        let _ = self.posts.send(post);
    }
}

impl Execution for OnCluster {
    fn start(&mut self, launch: Launch) {
        self.post(Post::Start(launch));
    }

    fn notify(&mut self, attempt: AttemptNumber, notice: Notice, to: NoticeTarget) {
        self.post(Post::Notify {
            attempt,
            notice,
            to,
        });
    }

    fn stop(&mut self, attempt: AttemptNumber) {
        self.post(Post::Stop(attempt));
    }

    fn settle(&mut self, over: bool) {
        let (settled, waiting) = oneshot::channel();
        self.post(Post::Settle { over, settled });
        // Dropped unanswered if the dispatcher is gone.
        let _ = self.runtime.block_on(waiting);
        if let Some((open, served)) = self.serving.take() {
            drop(open);
            // Whoever asked for the end is told that it has come.
            let _ = self
                .runtime
                .block_on(async { timeout(ANSWERS_PATIENCE, served).await });
        }
    }
}

/// What a JobManager answers.
struct Services {
    cluster: InterceptedService<ClusterServer<Streams>, Expect>,
    control: InterceptedService<ControlServer<ControlService>, Expect>,
}

impl Services {
    /// Takes in whoever connects, until `closed` resolves.
    async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Tls>,
        closed: oneshot::Receiver<()>,
    ) -> Result<(), tonic::transport::Error> {
        let served = Server::builder()
            .add_service(self.cluster)
            .add_service(self.control);
        let closed = async {
            let _ = closed.await;
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = tls {
            let incoming = incoming::encrypted(listener, tls);
            return served.serve_with_incoming_shutdown(incoming, closed).await;
        }
        #[cfg(not(feature = "tls"))]
        let _: Option<Tls> = tls;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        served.serve_with_incoming_shutdown(incoming, closed).await
    }
}

/// Without this, the job would wait for ever for what nobody does any more. Whoever started the
/// JobManager may start it again, as after a crash.
fn give_up(why: &str) {
    tracing::error!("the JobManager ends: {why}");
    std::process::exit(101);
}

fn listen(options: &JobManagerOptions) -> Result<TcpListener, String> {
    let allowed = options.cluster.leaves_the_machine();
    let addresses = check_address(&options.listen, allowed).map_err(|error| error.to_string())?;
    let bound = match options.inherited {
        true => std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map(std::net::TcpListener::from),
        false => std::net::TcpListener::bind(&*addresses),
    };
    let listener = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    listener.map_err(|cause| cause.to_string())
}
