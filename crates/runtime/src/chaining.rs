//! Operator chaining: on a forward edge, a subtask hands its records to the next one by calling it.
//!
//! The two subtasks of a forward edge have the same index, hence the same worker. So nothing has to
//! go through timely: a run of records is given to the receiver as it was staged, and worked off
//! while it is still in the cache. A chain of operators costs a call per run and operator, instead
//! of a batch that is copied, sent and scheduled.
//!
//! Everything else is as on any other channel. Each subtask keeps its own alignment, state,
//! snapshots and failures; items are counted, windows bound what the receiver hasn't worked off,
//! and markers stand where they were put. A receiver that is called and can't take all at once goes
//! on by itself later, and its sender stops when the window is used up.
//!
//! What a called subtask does differently: that it has nothing more to do means nothing, since its
//! caller may have. So it keeps the batches that it has begun for its own receivers, until its
//! caller flushes.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use timely::Bincode;
use timely::communication::{Pull, Push};
use timely::scheduling::Activator;

use crate::input::Puller;
use crate::item::Item;
use crate::output::CreditMessage;

/// So many calls may be nested; what is further down the chain is activated instead, with a stack
/// of its own.
const CALLS_MAX: u32 = 16;

thread_local! {
    /// Calls that this worker is within.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// A subtask that can be called by the one before it.
pub(crate) trait Chained {
    /// Works off what has arrived, as far as it can be done now. It isn't at work already: job
    /// graphs have no cycles, and nobody calls up the chain. Doesn't panic.
    fn call(&self);

    /// Sends on what it holds for its receivers, as far as credit allows. Doesn't panic.
    fn flush(&self);

    /// Whether there is anything to flush.
    fn holds_records(&self) -> bool;
}

/// The receiver of a chained edge, as its sender sees it. Known once the receiver is built, which
/// is before anything runs.
pub(crate) struct Receiver {
    subtask: OnceCell<Weak<dyn Chained>>,
    activator: Activator,
    /// The sender is within a call on this edge.
    calling: Cell<bool>,
}

impl Receiver {
    pub(crate) fn set(&self, subtask: Weak<dyn Chained>) {
        let set = self.subtask.set(subtask);
        debug_assert!(set.is_ok(), "an edge has one receiver");
    }

    /// `None` when the attempt is being taken down.
    fn subtask(&self) -> Option<Rc<dyn Chained>> {
        self.subtask.get()?.upgrade()
    }

    fn call(&self) {
        let depth = CALLS.get();
        if depth >= CALLS_MAX {
            self.activator.activate();
        } else if let Some(subtask) = self.subtask() {
            CALLS.set(depth + 1);
            self.calling.set(true);
            subtask.call();
            self.calling.set(false);
            CALLS.set(depth);
        }
    }
}

type Queue<T> = Rc<RefCell<VecDeque<T>>>;

/// The sending end of a chained edge.
pub(crate) struct ChainedSender<T> {
    items: Queue<(u64, Item<T>)>,
    receiver: Rc<Receiver>,
}

impl<T> ChainedSender<T> {
    /// Hands over an item, sent at `time`, and lets the receiver work on it.
    pub(crate) fn send(&self, time: u64, item: Item<T>) {
        self.items.borrow_mut().push_back((time, item));
        self.receiver.call();
    }

    pub(crate) fn flush(&self) {
        if let Some(subtask) = self.receiver.subtask() {
            subtask.flush();
        }
    }

    pub(crate) fn holds_records(&self) -> bool {
        let subtask = self.receiver.subtask();
        subtask.is_some_and(|subtask| subtask.holds_records())
    }
}

/// Both ends of a chained edge.
pub(crate) struct ChainedEdge<T, In> {
    pub(crate) sender: ChainedSender<T>,
    /// Where the sender finds the credit that has come back.
    pub(crate) credit_in: Box<dyn Pull<Bincode<CreditMessage>>>,
    pub(crate) pull: Puller<In>,
    pub(crate) credit_out: Box<dyn Push<Bincode<CreditMessage>>>,
    pub(crate) receiver: Rc<Receiver>,
}

impl<T: 'static, In> ChainedEdge<T, In> {
    /// An edge between two operators of this worker, which are activated with these. The receiver
    /// takes what `convert` makes of each item.
    pub(crate) fn new(
        (sender, receiver): (Activator, Activator),
        convert: impl Fn(Item<T>) -> Item<In> + 'static,
    ) -> Self {
        let items = Queue::default();
        let credit = Queue::default();
        let receiver = Rc::new(Receiver {
            subtask: OnceCell::new(),
            activator: receiver,
            calling: Cell::new(false),
        });
        let arrived = Rc::clone(&items);
        let pull: Puller<In> = Box::new(move |take| {
            loop {
                let next = arrived.borrow_mut().pop_front();
                let Some((time, item)) = next else { break };
                take(time, convert(item));
            }
        });
        ChainedEdge {
            sender: ChainedSender {
                items,
                receiver: Rc::clone(&receiver),
            },
            credit_in: Box::new(CreditIn {
                queue: Rc::clone(&credit),
                taken: None,
            }),
            pull,
            credit_out: Box::new(CreditOut {
                queue: credit,
                sender,
                receiver: Rc::clone(&receiver),
            }),
            receiver,
        }
    }
}

/// Credit as it reaches the sender.
struct CreditIn {
    queue: Queue<CreditMessage>,
    taken: Option<Bincode<CreditMessage>>,
}

impl Pull<Bincode<CreditMessage>> for CreditIn {
    fn pull(&mut self) -> &mut Option<Bincode<CreditMessage>> {
        self.taken = self.queue.borrow_mut().pop_front().map(Bincode::from);
        &mut self.taken
    }
}

/// Credit as the receiver returns it.
struct CreditOut {
    queue: Queue<CreditMessage>,
    sender: Activator,
    receiver: Rc<Receiver>,
}

impl Push<Bincode<CreditMessage>> for CreditOut {
    fn push(&mut self, message: &mut Option<Bincode<CreditMessage>>) {
        if let Some(message) = message.take() {
            self.queue.borrow_mut().push_back(message.payload);
            // A sender that is calling looks for credit when the call returns.
            if !self.receiver.calling.get() {
                self.sender.activate();
            }
        }
    }
}
