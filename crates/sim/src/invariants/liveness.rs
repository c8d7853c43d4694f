//! Once nothing goes wrong any more, the job finishes; and nobody turns in circles meanwhile.
//!
//! Source: the heal phase of TigerBeetle's simulator. Two ways to fail: nothing can happen at all,
//! or things happen but lead nowhere.

use tidegate_coordinator::{Job, JobAction, JobEvent, Now};

use super::{Checked, Violation, ensure};

const NAME: &str = "liveness";

/// How many steps a job may take to finish after the last fault: some ten times what is usual for
/// the slowest.
pub(crate) const STEPS_TO_FINISH_MAX: u64 = 400_000;

/// A driver that waits for the deadline really waits.
pub(crate) fn no_busy_waiting(job: &Job, now: Now) -> Checked {
    let deadline = job.next_deadline();
    ensure(deadline.is_none_or(|at| at > now.monotonic), NAME, || {
        format!("the job wants to be called at {deadline:?}, which has passed")
    })
}

/// A store that can't be read is left alone for as long as the restart strategy says.
pub(crate) fn pauses_between_reads(event: &JobEvent, actions: &[JobAction]) -> Checked {
    let failed = matches!(event, JobEvent::Recovered { completed: Err(_) });
    let again = actions.contains(&JobAction::RecoverCompleted);
    ensure(!(failed && again), NAME, || {
        "the store can't be read, and is read again at once".to_owned()
    })
}

pub(crate) fn stuck(waiting: String) -> Violation {
    Violation {
        invariant: NAME,
        detail: format!("nothing can happen any more: {waiting}"),
    }
}

pub(crate) fn too_slow() -> Violation {
    let detail = format!("not finished {STEPS_TO_FINISH_MAX} steps after the last fault");
    Violation {
        invariant: NAME,
        detail,
    }
}
