//! How many checkpoints in a row may fail before the attempt does (Flink's
//! `CheckpointFailureManager`).
//!
//! Each id counts once, only for reasons that point at a fault, and not at all once a newer id has
//! completed. A completion resets the count.

use std::collections::BTreeSet;

use tidegate_types::CheckpointId;

/// How many counted ids are remembered; older ones can't be told from new ones, and are not asked
/// about.
const REMEMBERED_MAX: usize = 64;

/// Consecutive failures and their limit.
#[derive(Debug)]
pub(crate) struct Failures {
    tolerable: Option<u32>,
    consecutive: u32,
    counted: BTreeSet<CheckpointId>,
    completed: CheckpointId,
}

/// More checkpoints failed in a row than are tolerable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) failed: u32,
    pub(crate) tolerable: u32,
}

impl Failures {
    pub(crate) fn new(tolerable: Option<u32>) -> Self {
        Failures {
            tolerable,
            consecutive: 0,
            counted: BTreeSet::new(),
            completed: CheckpointId::NONE,
        }
    }

    /// Counts the failure of a checkpoint.
    pub(crate) fn on_failed(&mut self, checkpoint: CheckpointId) -> Result<(), TooMany> {
        if checkpoint <= self.completed || !self.counted.insert(checkpoint) {
            return Ok(());
        }
        if self.counted.len() > REMEMBERED_MAX {
            self.counted.pop_first();
        }
        self.on_failed_without_id()
    }

    /// Counts the failure of a checkpoint that never got an id.
    pub(crate) fn on_failed_without_id(&mut self) -> Result<(), TooMany> {
        self.consecutive = self.consecutive.saturating_add(1);
        match self.tolerable {
            Some(tolerable) if self.consecutive > tolerable => {
                let failed = std::mem::take(&mut self.consecutive);
                Err(TooMany { failed, tolerable })
            }
            _ => Ok(()),
        }
    }

    /// Starts over.
    pub(crate) fn on_completed(&mut self, checkpoint: CheckpointId) {
        self.completed = self.completed.max(checkpoint);
        self.restart();
    }

    /// Starts over with a new attempt.
    pub(crate) fn restart(&mut self) {
        self.consecutive = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(failures: &mut Failures, ids: &[u64]) -> Vec<bool> {
        ids.iter()
            .map(|id| failures.on_failed(CheckpointId(*id)).is_err())
            .collect()
    }

    // FM-01
    #[test]
    fn the_one_above_the_limit_fails_the_attempt_once() {
        let mut failures = Failures::new(Some(2));
        assert_eq!(
            fail(&mut failures, &[1, 2, 3, 4]),
            [false, false, true, false]
        );
    }

    // FM-02, FM-03
    #[test]
    fn success_resets_and_older_failures_are_past() {
        let mut failures = Failures::new(Some(1));
        assert_eq!(fail(&mut failures, &[1]), [false]);
        failures.on_completed(CheckpointId(3));
        assert_eq!(fail(&mut failures, &[2, 4, 5]), [false, false, true]);
    }

    // FM-04
    #[test]
    fn an_id_counts_once() {
        let mut failures = Failures::new(Some(1));
        assert_eq!(
            fail(&mut failures, &[1, 1, 1, 2]),
            [false, false, false, true]
        );
    }

    #[test]
    fn the_last_64_ids_are_told_from_new_ones() {
        let mut failures = Failures::new(Some(64));
        for id in (1..=64).chain([1]) {
            assert_eq!(failures.on_failed(CheckpointId(id)), Ok(()), "{id}");
        }
        assert!(failures.on_failed(CheckpointId(65)).is_err());
    }

    // FM-08
    #[test]
    fn without_a_limit_nothing_fails_the_attempt() {
        let mut failures = Failures::new(None);
        assert!((1..1000).all(|id| failures.on_failed(CheckpointId(id)).is_ok()));
        assert!(failures.counted.len() <= REMEMBERED_MAX);
    }
}
