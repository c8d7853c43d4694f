//! The gRPC side of a JobManager: makes posts for the dispatcher of what comes in on streams.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_coordinator::{ManagerId, ManagerInfo};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::Stream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::dispatcher::Post;
use crate::cluster::refusal::misfit;
use crate::cluster::wire::cluster_server::Cluster;
use crate::cluster::wire::{
    ManagerMessage, ManagerOrder, ProcessHello, ProcessMessage, ProcessOrder, VERSION,
    manager_message, process_id, process_message,
};

/// Whoever has connected gets this long to say who it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// Orders to one stream. Dropped, the stream ends.
pub(super) type Orders<T> = UnboundedSender<Result<T, Status>>;

/// Serves both kinds of streams.
pub(super) struct Streams {
    /// Numbers every stream that there ever was.
    streams: Arc<AtomicU64>,
    posts: UnboundedSender<Post>,
    /// Of this binary.
    build: String,
}

type OrderStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Streams {
    pub(super) fn new(posts: UnboundedSender<Post>, build: String) -> Self {
        Streams {
            streams: Arc::default(),
            posts,
            build,
        }
    }

    fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    fn post(&self, post: Post) -> Result<(), Status> {
        let gone = |_| Status::unavailable("the job is over");
        self.posts.send(post).map_err(gone)
    }

    /// Posts what is said on a stream, and its end, without waiting for it.
    fn listen<T: Send + 'static>(
        &self,
        said: Streaming<T>,
        says: impl Fn(T) -> Option<Post> + Send + Sync + 'static,
        left: impl FnOnce(String) -> Post + Send + 'static,
    ) {
        let posts = self.posts.clone();
        tokio::spawn(async move {
            let cause = forward(said, &posts, says).await;
            let _ = posts.send(left(cause));
        });
    }
}

fn answer<T: Send + 'static>(
    ordered: UnboundedReceiver<Result<T, Status>>,
) -> Response<OrderStream<T>> {
    Response::new(Box::pin(UnboundedReceiverStream::new(ordered)))
}

#[tonic::async_trait]
impl Cluster for Streams {
    type RegisterStream = OrderStream<ManagerOrder>;
    type AttendStream = OrderStream<ProcessOrder>;

    async fn register(
        &self,
        request: Request<Streaming<ManagerMessage>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let mut said = request.into_inner();
        let hello = match first(&mut said).await?.message {
            Some(manager_message::Message::Hello(hello)) => hello,
            _ => return Err(Status::invalid_argument("no hello")),
        };
        check_version(hello.version)?;
        if hello.build != self.build {
            return Err(misfit(format!(
                "the TaskManager's binary (build {}) isn't the JobManager's (build {}); install \
                 the same everywhere",
                hello.build, self.build
            )));
        }
        let (orders, ordered) = unbounded_channel();
        let manager = ManagerId(self.next_stream());
        let info = ManagerInfo {
            name: hello.name,
            slots: hello.slots.max(1),
            instance: hello.instance,
        };
        self.post(Post::ManagerArrived {
            manager,
            info,
            orders,
        })?;
        let says = move |message: ManagerMessage| {
            let message = message.message?;
            Some(Post::ManagerSaid { manager, message })
        };
        self.listen(said, says, move |cause| Post::ManagerLeft {
            manager,
            cause,
        });
        Ok(answer(ordered))
    }

    async fn attend(
        &self,
        request: Request<Streaming<ProcessMessage>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let mut said = request.into_inner();
        let hello: ProcessHello = match first(&mut said).await?.message {
            Some(process_message::Message::Hello(hello)) => hello,
            _ => return Err(Status::invalid_argument("no hello")),
        };
        check_version(hello.version)?;
        let process = process_id(hello.attempt, hello.process);
        let (orders, ordered) = unbounded_channel();
        let stream = self.next_stream();
        self.post(Post::ProcessArrived {
            stream,
            process,
            hello,
            orders,
        })?;
        let says = move |message: ProcessMessage| {
            let message = message.message?;
            Some(Post::ProcessSaid { stream, message })
        };
        self.listen(said, says, move |cause| Post::ProcessLeft { stream, cause });
        Ok(answer(ordered))
    }
}

fn check_version(version: u32) -> Result<(), Status> {
    if version == VERSION {
        return Ok(());
    }
    Err(misfit(format!(
        "it speaks version {version} of the protocol, and the JobManager version {VERSION}; \
         install the same binary everywhere"
    )))
}

async fn first<T>(said: &mut Streaming<T>) -> Result<T, Status> {
    let message = tokio::time::timeout(HELLO_PATIENCE, said.message()).await;
    let late = |_| Status::deadline_exceeded("it did not say who it is");
    let message = message.map_err(late)??;
    message.ok_or_else(|| Status::invalid_argument("it said nothing"))
}

/// Posts what is said until the stream ends, and says why it did.
async fn forward<T>(
    mut said: Streaming<T>,
    posts: &UnboundedSender<Post>,
    post: impl Fn(T) -> Option<Post>,
) -> String {
    loop {
        match said.message().await {
            Ok(Some(message)) => {
                if let Some(post) = post(message)
                    && posts.send(post).is_err()
                {
                    return "the job is over".to_owned();
                }
            }
            Ok(None) => return "it closed its stream".to_owned(),
            Err(status) => return format!("its stream broke ({})", status.message()),
        }
    }
}
