//! Faults turned up for a whole run, so that few seeds say much about one of them.

use crate::scenario::{Faults, Scenario, Users};

/// What goes wrong more than usual, in place of much else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Focus {
    /// Of the notices that a checkpoint has completed or was aborted, 30 % are lost, and nothing
    /// else is.
    LostOutcomes,
    /// The clocks are disturbed all the time, and the driver often stands still for longer than a
    /// checkpoint may take.
    Clocks,
    /// People ask for savepoints and stops all the time, and go on from them elsewhere.
    Savepoints,
    /// The same, and nothing goes wrong by itself.
    Calm,
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
            Focus::Savepoints => scenario.users = eager(),
            Focus::Calm => {
                (*faults, scenario.users) = (Faults::default(), eager());
            }
        }
    }
}

/// People who ask for savepoints and stops all the time.
fn eager() -> Users {
    Users {
        checkpoint: 0.001,
        savepoint: 0.005,
        stop: 0.003,
        drain: 0.1,
        abort: 0.002,
        rescale: 0.002,
        slots: 0.001,
        moves: 0.5,
        claims: 0.5,
    }
}
