//! The states of a job between its start and its end.
//!
//! ```text
//! Created → ReservingAttempt → Active ⇄ (failure) Stopping → Settling → Recovering ⇄ Waiting ─┐
//!                  ↑              │                  │           │                            │
//!                  │              └→ MarkingFinished ┴→ … → Ended                             │
//!                  └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A job that somebody stops or cancels goes through `RecordingEnd` to `Ended`.
//!
//! Invariant: an attempt is started only when every earlier one has stopped, when no write that
//! decides about the latest checkpoint is under way, and when none is in doubt.

use std::collections::BTreeSet;

use tidegate_types::graph::JobGraph;
use tidegate_types::{AttemptNumber, Millis, OrderedEnd, SubtaskId};

use crate::action::JobEnd;
use crate::checkpoint::Stop;
use crate::end::AttemptEnd;

/// What a job is doing.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It waits to be started.
    Created,
    /// The next attempt's number is being made durable.
    ReservingAttempt,
    /// An attempt runs, or is being started.
    Active(Attempt),
    /// Everything is committed; the marker that says so is being written.
    MarkingFinished {
        attempt: AttemptNumber,
        threads: Threads,
        /// The stop that the job ends with, if it is one.
        stop: Option<Stop>,
        /// The end that somebody wants if it can't be written.
        otherwise: Option<JobEnd>,
    },
    /// An attempt is being stopped.
    Stopping { attempt: AttemptNumber, next: Next },
    /// No attempt runs, but something that the last one wrote is not decided yet.
    Settling { next: Next },
    /// The completed-checkpoint store is being read, since a write to it is in doubt.
    Recovering { restart_at: Millis },
    /// The restart strategy makes the job wait: for the next attempt, or, while something is in
    /// doubt, for the next look at the store.
    Waiting { restart_at: Millis },
    /// Cancelled while a number or the store was on its way; its arrival ends the job.
    Cancelling { end: JobEnd },
    /// Nothing runs any more, and nothing is undecided; that somebody has ended the job is being
    /// written.
    RecordingEnd { end: OrderedEnd, as_told: JobEnd },
    /// Nothing happens any more.
    Ended,
}

/// Whether the threads of an attempt are known to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// They may run.
    Running,
    /// They have been joined.
    Joined,
}

/// What comes after an attempt.
#[derive(Debug)]
pub(crate) enum Next {
    /// Another one, not before this moment.
    Restart { at: Millis },
    /// The end of the job.
    End(JobEnd),
}

/// An attempt that runs or is being started.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) number: AttemptNumber,
    /// When it was begun.
    pub(crate) since: Millis,
    /// Subtasks that have not reported yet that they run.
    pub(crate) starting: BTreeSet<SubtaskId>,
    pub(crate) end: AttemptEnd,
}

impl Attempt {
    pub(crate) fn new(number: AttemptNumber, graph: &JobGraph, since: Millis) -> Self {
        Attempt {
            number,
            since,
            starting: graph.subtasks().into_iter().collect(),
            end: AttemptEnd::new(graph),
        }
    }

    /// Whether all subtasks do.
    pub(crate) fn runs(&self) -> bool {
        self.starting.is_empty()
    }
}
