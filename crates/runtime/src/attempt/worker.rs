//! The loop of one worker thread, and how others reach it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use tidegate_types::message::Notice;
use timely::worker::Worker;

use super::AttemptContext;
use crate::alive::SignOfLife;
use crate::background::panic_message;
use crate::plan::{BuiltWorker, JobPlan, WorkerHands, build};

/// Shared between the attempt's owner and its workers in this process.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// By index within this process.
    pub(super) workers: Vec<WorkerInbox>,
    /// The same.
    pub(super) signs: Vec<Arc<SignOfLife>>,
}

#[derive(Default)]
pub(super) struct WorkerInbox {
    notices: Mutex<VecDeque<Notice>>,
    thread: OnceLock<Thread>,
}

impl Shared {
    pub(super) fn new(workers: u32) -> Shared {
        Shared {
            stop: AtomicBool::new(false),
            workers: (0..workers).map(|_| WorkerInbox::default()).collect(),
            signs: (0..workers).map(|_| Arc::default()).collect(),
        }
    }

    /// Lets every worker drop its dataflows and return.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.workers.iter().for_each(WorkerInbox::wake);
    }
}

impl WorkerInbox {
    pub(super) fn put(&self, notice: Notice) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.push_back(notice);
        drop(notices);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn take(&self) -> VecDeque<Notice> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Builds the dataflow and runs it until the attempt is stopped.
pub(super) fn run_worker(
    worker: &mut Worker,
    plan: &JobPlan,
    context: &AttemptContext,
    hands: WorkerHands,
    shared: &Shared,
    inbox: &WorkerInbox,
) {
    inbox.thread.get_or_init(std::thread::current);
    let reports = hands.reports.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let built = build(worker, plan, context, hands);
        run_until_stopped(worker, &built, inbox, shared);
    }));
    if let Err(panic) = outcome {
        // The subtasks catch their own panics, so this one is ours or timely's.
        let message = panic_message(&*panic);
        reports.fail(
            None,
            format!("worker {} panicked: {message}", worker.index()),
        );
        wait_for_stop(shared);
    }
    // Without this, timely would wait for dataflows that will never end by themselves.
    for dataflow in worker.installed_dataflows() {
        worker.drop_dataflow(dataflow);
    }
}

fn run_until_stopped(
    worker: &mut Worker,
    built: &BuiltWorker,
    inbox: &WorkerInbox,
    shared: &Shared,
) {
    while !shared.stop.load(Ordering::SeqCst) {
        for notice in inbox.take() {
            deliver(built, notice);
        }
        worker.step_or_park(None);
    }
}

/// The owner of the attempt stops all workers together; the others may still talk to this one.
fn wait_for_stop(shared: &Shared) {
    while !shared.stop.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn deliver(built: &BuiltWorker, notice: Notice) {
    let trigger = matches!(notice, Notice::Trigger(_));
    for mailbox in &built.mailboxes {
        if !trigger || mailbox.takes_triggers {
            mailbox.notices.borrow_mut().push_back(notice.clone());
            mailbox.activator.activate();
        }
    }
}
