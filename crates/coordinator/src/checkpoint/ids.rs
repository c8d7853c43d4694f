//! Checkpoint ids: grow, are never reused, and come in durable blocks.
//!
//! An id may be used once the durable counter is known to be at or above it. The counter is raised
//! by a block at a time, so that a trigger rarely waits for storage. Ids that a crash leaves
//! unused are skipped for ever.
//!
//! Invariant: `last ≤ reserved ≤ asked`.

use tidegate_types::CheckpointId;
use tidegate_types::message::WriteOutcome;

use crate::action::JobAction;

/// How many ids are reserved at a time.
const BLOCK: u64 = 64;

/// What is known about the durable counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reservation {
    /// Nothing is under way.
    Idle,
    /// The counter is being raised.
    Asked { up_to: CheckpointId },
}

/// Hands out checkpoint ids.
#[derive(Debug)]
pub(crate) struct Ids {
    /// The last id in use by anybody, as far as is known.
    last: CheckpointId,
    /// Ids up to this one may be used.
    reserved: CheckpointId,
    reservation: Reservation,
}

impl Ids {
    /// Starts above `used`, which is at least every id ever reserved.
    pub(crate) fn above(used: CheckpointId) -> Self {
        Ids {
            last: used,
            reserved: used,
            reservation: Reservation::Idle,
        }
    }

    /// The last id handed out.
    pub(crate) fn last(&self) -> CheckpointId {
        self.last
    }

    /// The next id, if the counter is high enough.
    pub(crate) fn take(&mut self) -> Option<CheckpointId> {
        if self.last >= self.reserved {
            return None;
        }
        self.last = self.last.next();
        Some(self.last)
    }

    /// Asks for another block if none is left and none is on its way.
    pub(crate) fn ensure(&mut self, actions: &mut Vec<JobAction>) {
        if self.last < self.reserved || self.reservation != Reservation::Idle {
            return;
        }
        let up_to = CheckpointId(self.last.0.saturating_add(BLOCK));
        self.reservation = Reservation::Asked { up_to };
        actions.push(JobAction::ReserveIds { up_to });
    }

    /// Takes the outcome of a reservation; returns why it failed, if it did.
    pub(crate) fn on_reserved(
        &mut self,
        up_to: CheckpointId,
        outcome: WriteOutcome,
    ) -> Option<String> {
        if self.reservation != (Reservation::Asked { up_to }) {
            return None;
        }
        self.reservation = Reservation::Idle;
        match outcome {
            WriteOutcome::Done => {
                self.reserved = self.reserved.max(up_to);
                None
            }
            // A counter that is higher than we know does no harm: ids are skipped, not reused.
            WriteOutcome::NotDone { cause } | WriteOutcome::Unknown { cause } => Some(cause),
        }
    }

    /// Makes sure that ids continue above one that turned up in the store.
    pub(crate) fn skip_to(&mut self, used: CheckpointId) {
        self.last = self.last.max(used);
        self.reserved = self.reserved.max(used);
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.last <= self.reserved, "ids are reserved before use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ids: &mut Ids) -> Vec<JobAction> {
        let mut actions = Vec::new();
        ids.ensure(&mut actions);
        actions
    }

    // ID-06
    #[test]
    fn ids_start_above_what_was_used_and_wait_for_the_counter() {
        let up_to = CheckpointId(100 + BLOCK);
        let mut ids = Ids::above(CheckpointId(100));
        assert_eq!(ids.take(), None);
        assert_eq!(asked(&mut ids), [JobAction::ReserveIds { up_to }]);
        assert_eq!(asked(&mut ids), []);
        assert_eq!(ids.take(), None);
        assert_eq!(ids.on_reserved(up_to, WriteOutcome::Done), None);
        for id in 101..=up_to.0 {
            assert_eq!(asked(&mut ids), []);
            assert_eq!(ids.take(), Some(CheckpointId(id)));
        }
        assert_eq!(ids.take(), None);
        assert_eq!(asked(&mut ids).len(), 1);
    }

    #[test]
    fn ids_go_on_above_one_that_turned_up() {
        let mut ids = Ids::above(CheckpointId(3));
        ids.skip_to(CheckpointId(100));
        assert_eq!((ids.last(), ids.take()), (CheckpointId(100), None));
        let up_to = CheckpointId(100 + BLOCK);
        assert_eq!(asked(&mut ids), [JobAction::ReserveIds { up_to }]);
        ids.on_reserved(up_to, WriteOutcome::Done);
        ids.skip_to(CheckpointId(50));
        assert_eq!(ids.take(), Some(CheckpointId(101)));
    }

    // BC-10
    #[test]
    fn a_failed_reservation_can_be_asked_for_again() {
        let up_to = CheckpointId(BLOCK);
        let mut ids = Ids::above(CheckpointId::NONE);
        asked(&mut ids);
        let cause = "no route".to_owned();
        let outcome = WriteOutcome::Unknown { cause };
        assert_eq!(ids.on_reserved(up_to, outcome), Some("no route".to_owned()));
        assert_eq!(ids.take(), None);
        assert_eq!(asked(&mut ids), [JobAction::ReserveIds { up_to }]);
        ids.on_reserved(up_to, WriteOutcome::Done);
        assert_eq!(ids.take(), Some(CheckpointId(1)));
    }
}
