//! Faults turned up for a whole run, so that few seeds say much about one of them.

use crate::scenario::{Faults, Scenario};

/// What goes wrong more than usual, in place of much else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Focus {
    /// Of the notices that a checkpoint has completed or was aborted, 30 % are lost, and nothing
    /// else is.
    LostOutcomes,
    /// The clocks are disturbed all the time, and the driver often stands still for longer than a
    /// checkpoint may take.
    Clocks,
}

impl Focus {
    pub(crate) fn apply(self, scenario: &mut Scenario) {
        let faults = &mut scenario.faults;
        match self {
            Focus::LostOutcomes => {
                *faults = Faults {
                    lose_outcome: 0.3,
                    subtask: 0.000_2,
                    file: 0.02,
                    ..Faults::default()
                };
                scenario.heal_at = 6_000;
            }
            Focus::Clocks => (faults.clock_jump, faults.pause) = (0.02, 0.01),
        }
    }
}
