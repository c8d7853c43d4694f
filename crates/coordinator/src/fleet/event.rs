//! What a fleet is told, and what it has done about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_types::AttemptNumber;

/// One registration of a TaskManager. It lasts as long as the stream on which it was made; a
/// TaskManager that comes back is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerId(pub u64);

impl fmt::Display for ManagerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registration-{}", self.0)
    }
}

/// One process of an attempt: its workers are `index · threads` to `(index + 1) · threads - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The attempt that it is a part of.
    pub attempt: AttemptNumber,
    /// Its place among the attempt's processes, from 0.
    pub index: u32,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.index, self.attempt)
    }
}

/// What a TaskManager says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerInfo {
    /// For people, and the same when it comes back: processes find their former places by it.
    pub name: String,
    /// How many worker threads it has room for; at least 1.
    pub slots: u32,
    /// Drawn when it was started: tells it from another one under its name, which may be itself
    /// started again.
    pub instance: u64,
}

/// One piece of news for a [`Fleet`](super::Fleet). Stale and doubled ones are normal and ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetEvent {
    /// Nothing but time has passed.
    Tick,
    /// This process stood still for so long, or was starved: news may be waiting to be told.
    WeWereAway(Duration),
    /// A TaskManager has registered.
    Registered {
        /// Never used before.
        manager: ManagerId,
        /// What it says about itself.
        info: ManagerInfo,
    },
    /// A TaskManager is there.
    ManagerHeard(ManagerId),
    /// A TaskManager's stream has ended.
    ManagerLost {
        /// Its registration.
        manager: ManagerId,
        /// For people.
        cause: String,
    },
    /// Run an attempt on this many worker threads.
    Start {
        /// Its number, above every earlier one. The one before has been stopped.
        attempt: AttemptNumber,
        /// At least 1.
        workers: u32,
    },
    /// Stop an attempt, whatever has become of it.
    Stop {
        /// Its number.
        attempt: AttemptNumber,
    },
    /// A TaskManager says that a process has ended, or could not be started.
    ProcessEnded {
        /// Who says so.
        manager: ManagerId,
        /// Which one.
        process: ProcessId,
        /// For people: how it ended.
        how: String,
    },
    /// A process is there, has built the same job, and listens for its peers.
    ProcessConnected {
        /// Which one.
        process: ProcessId,
        /// Where its peers reach it.
        address: String,
    },
    /// A process is there.
    ProcessHeard(ProcessId),
    /// A process's stream has ended.
    ProcessLost {
        /// Which one.
        process: ProcessId,
        /// For people.
        cause: String,
    },
    /// A process can't be used, or found that it can't go on: it was built otherwise, say, or one
    /// of its threads is stuck.
    ProcessUnfit {
        /// Which one.
        process: ProcessId,
        /// For people.
        cause: String,
    },
    /// A process has lost the connection to another one. That one's end is the better reason for
    /// the attempt's, if it is heard of.
    PeerLost {
        /// Who lost it.
        process: ProcessId,
        /// For people.
        cause: String,
    },
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetAction {
    /// A TaskManager is registered: tell it so before anything else.
    Welcome(ManagerId),
    /// A TaskManager isn't registered: tell it why, and close its stream.
    Refuse {
        /// Which one.
        manager: ManagerId,
        /// For people.
        cause: String,
        /// Whether it may try again: its name may be free soon.
        may_retry: bool,
    },
    /// Let a TaskManager start a process, which connects by itself.
    Launch {
        /// Which TaskManager.
        manager: ManagerId,
        /// Which process.
        process: ProcessId,
    },
    /// All processes have connected: tell each of them its part, and where its peers are.
    Deploy(Deployment),
    /// Let a TaskManager kill a process, whether it has connected or not, and say when it has
    /// ended. Idempotent.
    Kill {
        /// Which TaskManager.
        manager: ManagerId,
        /// Which process.
        process: ProcessId,
    },
    /// Close the stream of a TaskManager that is taken for dead.
    Disconnect(ManagerId),
    /// The attempt can't go on. Once per attempt at most; a [`Stop`](FleetEvent::Stop) follows.
    Failed {
        /// The attempt.
        attempt: AttemptNumber,
        /// For people.
        cause: String,
    },
    /// Every process of the attempt has ended, or can't be heard of any more and ends by itself.
    Stopped(AttemptNumber),
    /// The most workers that registered TaskManagers have room for, whether they are busy or not.
    /// Whenever it changes; 0 before.
    Slots(u32),
    /// For logs and progress lines: there are too few slots, and the attempt waits for more. Again
    /// whenever the numbers change.
    Waiting(WaitingForSlots),
}

/// Where the processes of an attempt are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The attempt.
    pub attempt: AttemptNumber,
    /// Worker threads in each process.
    pub threads: u32,
    /// Addresses for data, by index of the process.
    pub addresses: Arc<[String]>,
}

/// Too few slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingForSlots {
    /// Worker threads that the job needs.
    pub workers: u32,
    /// Slots that are free.
    pub slots: u32,
    /// TaskManagers that have them.
    pub managers: u32,
}

impl fmt::Display for WaitingForSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitingForSlots {
            workers,
            slots,
            managers,
        } = self;
        write!(
            f,
            "waiting for TaskManagers: the job needs {workers} slots in processes of equal size, \
             and {slots} are free on {managers} TaskManagers"
        )
    }
}
