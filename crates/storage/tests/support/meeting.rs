//! Stores of every kind in which candidates meet, for tests that run on each.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
#[cfg(feature = "s3")]
use object_store::{ObjectStoreExt, aws::AmazonS3Builder, path::Path};
use tempfile::TempDir;
use tidegate_storage::{HaLocation, LeaderElection, MemoryNamespace};

/// How long a leader that isn't heard of is waited for in these tests, where that matters.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A store in which the candidates of one job meet.
pub(crate) trait Meeting: Send + Sync {
    /// What kind it is, for people.
    fn kind(&self) -> &'static str;

    /// The election as one process sees it. Each call stands for another process.
    fn election(&self) -> Arc<dyn LeaderElection>;

    /// Makes it possible to take the lead though its leader, if there is one, doesn't know and goes
    /// on.
    fn lose_leader(&self) -> BoxFuture<'_, ()>;
}

/// A store behind a network.
pub(crate) trait Remote: Meeting {
    /// Where it is, on loopback.
    fn port(&self) -> u16;

    /// The election through another port: that of a proxy.
    fn election_at(&self, port: u16) -> Arc<dyn LeaderElection>;

    /// Whether what a client sends is a write of a record.
    fn is_write(&self) -> fn(&[u8]) -> bool;
}

/// One new store of each kind that is behind a network.
pub(crate) fn remotes() -> Vec<Arc<dyn Remote>> {
    vec![
        #[cfg(feature = "s3")]
        Arc::new(InBucket(super::s3::S3::start())),
        #[cfg(feature = "zookeeper")]
        Arc::new(InZooKeeper(super::zookeeper::ZooKeeper::start())),
    ]
}

/// One new store of each kind.
pub(crate) fn meetings() -> Vec<Arc<dyn Meeting>> {
    vec![
        Arc::new(InMemory(MemoryNamespace::default())),
        Arc::new(InFolder(tempfile::tempdir().unwrap())),
        #[cfg(feature = "s3")]
        Arc::new(InBucket(super::s3::S3::start())),
        #[cfg(feature = "zookeeper")]
        Arc::new(InZooKeeper(super::zookeeper::ZooKeeper::start())),
    ]
}

struct InMemory(MemoryNamespace);

impl Meeting for InMemory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn election(&self) -> Arc<dyn LeaderElection> {
        self.0.election()
    }

    fn lose_leader(&self) -> BoxFuture<'_, ()> {
        // Taken by somebody who gives it back at once.
        drop(self.0.lead());
        std::future::ready(()).boxed()
    }
}

struct InFolder(TempDir);

impl Meeting for InFolder {
    fn kind(&self) -> &'static str {
        "folder"
    }

    fn election(&self) -> Arc<dyn LeaderElection> {
        let url = format!("dir://{}", self.0.path().display());
        HaLocation::parse(&url).unwrap().election("job").unwrap()
    }

    fn lose_leader(&self) -> BoxFuture<'_, ()> {
        std::fs::remove_file(self.0.path().join("job/lock")).unwrap();
        std::future::ready(()).boxed()
    }
}

#[cfg(feature = "zookeeper")]
pub(crate) struct InZooKeeper(pub(crate) super::zookeeper::ZooKeeper);

#[cfg(feature = "zookeeper")]
impl InZooKeeper {
    /// Deletes the node of whoever leads from the election, as an operator could.
    async fn delete_first_candidate(&self) {
        let server = format!("127.0.0.1:{}", self.0.port);
        let client = zookeeper_client::Client::connect(&server).await.unwrap();
        let election = "/tidegate/test/job/election";
        // There are none before the first.
        let mut candidates = client.list_children(election).await.unwrap_or_default();
        candidates.sort_by_key(|name| name.rsplit_once('-').unwrap().1.to_owned());
        if let Some(first) = candidates.first() {
            let _ = client.delete(&format!("{election}/{first}"), None).await;
        }
    }
}

#[cfg(feature = "zookeeper")]
impl Meeting for InZooKeeper {
    fn kind(&self) -> &'static str {
        "ZooKeeper"
    }

    fn election(&self) -> Arc<dyn LeaderElection> {
        self.election_at(self.0.port)
    }

    fn lose_leader(&self) -> BoxFuture<'_, ()> {
        self.delete_first_candidate().boxed()
    }
}

#[cfg(feature = "zookeeper")]
impl Remote for InZooKeeper {
    fn port(&self) -> u16 {
        self.0.port
    }

    fn election_at(&self, port: u16) -> Arc<dyn LeaderElection> {
        let url = format!("zk://127.0.0.1:{port}/tidegate/test");
        let location = HaLocation::parse(&url).unwrap();
        location.election_with("job", LEASE).unwrap()
    }

    fn is_write(&self) -> fn(&[u8]) -> bool {
        // Length, request number and operation, of 4 bytes each; 14 is a transaction.
        |request| request.get(8..12) == Some(&14i32.to_be_bytes())
    }
}

#[cfg(feature = "s3")]
pub(crate) struct InBucket(pub(crate) super::s3::S3);

#[cfg(feature = "s3")]
impl InBucket {
    /// Deletes the lease, as an operator could.
    async fn delete_lease(&self) {
        let mut builder = AmazonS3Builder::new().with_bucket_name(super::s3::BUCKET);
        for (name, value) in super::s3::options(self.0.port) {
            builder = builder.with_config(name.parse().unwrap(), value);
        }
        let store = builder.build().unwrap();
        store
            .delete(&Path::from("ha/test/job/lease"))
            .await
            .unwrap();
    }
}

#[cfg(feature = "s3")]
impl Meeting for InBucket {
    fn kind(&self) -> &'static str {
        "S3"
    }

    fn election(&self) -> Arc<dyn LeaderElection> {
        self.election_at(self.0.port)
    }

    fn lose_leader(&self) -> BoxFuture<'_, ()> {
        self.delete_lease().boxed()
    }
}

#[cfg(feature = "s3")]
impl Remote for InBucket {
    fn port(&self) -> u16 {
        self.0.port
    }

    fn election_at(&self, port: u16) -> Arc<dyn LeaderElection> {
        let url = format!("s3://{}/ha/test", super::s3::BUCKET);
        let HaLocation::S3(mut location) = HaLocation::parse(&url).unwrap() else {
            panic!("it is a bucket");
        };
        for (name, value) in super::s3::options(port) {
            location = location.with_option(name, &value);
        }
        HaLocation::S3(location)
            .election_with("job", LEASE)
            .unwrap()
    }

    fn is_write(&self) -> fn(&[u8]) -> bool {
        |request| {
            let line = request
                .split(|byte| *byte == b'\r')
                .next()
                .unwrap_or_default();
            line.starts_with(b"PUT ") && line.ends_with(b"/records HTTP/1.1")
        }
    }
}
