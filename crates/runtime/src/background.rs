//! A thread beside a worker for what may block: writing snapshots, committing transactions.
//!
//! Tasks run one after the other in the order in which they were given. The thread ends when the
//! last handle is dropped, and the attempt joins it: nothing of an attempt outlives it.

use std::any::Any;
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

    /// Runs `task` behind those given before. If it panics, `on_panic` gets the message.
    pub(crate) fn run(
        &self,
        task: impl FnOnce() + Send + 'static,
        on_panic: impl FnOnce(String) + Send + 'static,
    ) {
        let task = move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(task)) {
                on_panic(format!("panicked: {}", panic_message(&*panic)));
            }
        };
        // The thread outlives every handle.
        let sent = self.tasks.send(Box::new(task));
        debug_assert!(
            sent.is_ok(),
            "the background thread ended before its handles"
        );
    }
}

fn run(queue: &Receiver<Task>) {
    while let Ok(task) = queue.recv() {
        task();
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
