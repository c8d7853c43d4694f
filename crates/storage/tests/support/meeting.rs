//! Stores of every kind in which candidates meet, for tests that run on each.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use tempfile::TempDir;
use tidegate_storage::{HaLocation, LeaderElection, MemoryNamespace};

/// A store in which the candidates of one job meet.
pub(crate) trait Meeting: Send + Sync {
    /// What kind it is, for people.
    fn kind(&self) -> &'static str;

    /// The election as one process sees it. Each call stands for another process.
    fn election(&self) -> Arc<dyn LeaderElection>;

    /// Makes it possible to take the lead though its leader doesn't know and goes on.
    fn lose_leader(&self) -> BoxFuture<'_, ()>;
}

/// One new store of each kind.
pub(crate) fn meetings() -> Vec<Arc<dyn Meeting>> {
    vec![
        Arc::new(InMemory(MemoryNamespace::default())),
        Arc::new(InFolder(tempfile::tempdir().unwrap())),
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
