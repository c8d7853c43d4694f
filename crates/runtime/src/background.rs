//! A thread beside a worker for what may block: writing snapshots, committing transactions.
//!
//! Tasks run one after the other in the order in which they were given. The thread ends, and is
//! joined, when the last handle is dropped: nothing of an attempt outlives it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

type Task = Box<dyn FnOnce() + Send>;

/// Hands tasks to the thread.
#[derive(Clone)]
pub(crate) struct Background {
    tasks: Sender<Task>,
}

impl Background {
    /// Starts the thread. Join the handle after every clone of the `Background` is gone.
    pub(crate) fn start(name: String) -> std::io::Result<(Background, JoinHandle<()>)> {
        let (tasks, queue) = channel();
        let thread = Builder::new().name(name).spawn(move || run(&queue))?;
        Ok((Background { tasks }, thread))
    }

    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        // The thread outlives every handle, and catches panics.
        let sent = self.tasks.send(Box::new(task));
        debug_assert!(
            sent.is_ok(),
            "the background thread ended before its handles"
        );
    }
}

fn run(queue: &Receiver<Task>) {
    while let Ok(task) = queue.recv() {
        // A task that can fail reports that itself; a panic in one must not keep the next from
        // running. The panic hook has printed it, and the checkpoint it belonged to will expire.
        let _ = catch_unwind(AssertUnwindSafe(task));
    }
}
