//! What must hold, one file each. Every check is made where the thing happens, so that a violation
//! points at the step that caused it.

mod alignment;
mod announced;
mod attempts;
mod bursts;
mod concurrency;
mod cut;
mod deletions;
mod ends;
mod ids;
mod leaks;
mod liveness;
mod min_pause;
mod outcomes;
mod output;
mod ownership;
mod parallelism;
mod reachable;
mod requests;
mod restorable;
mod restored;
mod retention;
mod savepoints;
mod stopped;
mod transactions;
mod watch;

pub(crate) use alignment::Alignments;
pub(crate) use announced::Announced;
pub(crate) use attempts::Attempts;
pub(crate) use cut::{Cut, ENUMERATOR, SHARED, SPLITS, mixed};
pub(crate) use ids::Ids;
pub(crate) use output::Output;
pub(crate) use parallelism::Parallelism;
pub(crate) use transactions::{LIST as TRANSACTIONS, Transactions};

pub(crate) use deletions::deletions_keep_up;
pub(crate) use ends::{nothing_after_the_end, stop_is_recorded};
pub(crate) use leaks::{claimed_is_gone, nothing_left};
pub(crate) use liveness::{
    STEPS_TO_FINISH_MAX, no_busy_waiting, pauses_between_reads, stuck, too_slow,
};
pub(crate) use reachable::may_delete;
pub(crate) use restorable::{not_there, refused, restorable, restorable_job};
pub(crate) use restored::restored;
pub(crate) use retention::{has_finished, keeps};
pub(crate) use savepoints::Savepoints;
pub(crate) use stopped::published;
pub(crate) use watch::Watch;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant, as its file is called.
    pub invariant: &'static str,
    /// What happened.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

pub(crate) type Checked = Result<(), Violation>;

/// Fails with a violation unless `holds`.
pub(crate) fn ensure(
    holds: bool,
    invariant: &'static str,
    detail: impl FnOnce() -> String,
) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(Violation {
            invariant,
            detail: detail(),
        }),
    }
}

/// The invariants that remember what has been.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    pub(crate) alignment: Alignments,
    pub(crate) announced: Announced,
    pub(crate) attempts: Attempts,
    pub(crate) cut: Cut,
    pub(crate) ids: Ids,
    pub(crate) output: Output,
    pub(crate) parallelism: Parallelism,
    pub(crate) savepoints: Savepoints,
    pub(crate) transactions: Transactions,
}
