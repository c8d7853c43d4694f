//! A simulated cluster around the real cores: one thread, virtual time, one seed.
//!
//! Each run drives the real [`Job`](tidegate_coordinator::Job) and the real
//! [`Alignment`](tidegate_runtime::alignment::Alignment) through a whole life of a job: sources,
//! keyed state, two-phase sinks, checkpoints, restarts, processes that die. The seed draws all of
//! it: the job graph, the settings, which faults there are, and every choice on the way. First
//! everything may go wrong, then nothing does any more and the job must finish.
//!
//! What must hold is under `invariants`, one file each. That the simulator can find bugs is proven
//! by putting known ones back in, see [`Mutation`].
//!
//! Invariant: equal seeds give equal traces, on any machine. Nothing here reads a clock, starts a
//! thread, or iterates over anything unordered.

mod arguments;
mod attempt;
mod choice;
mod clock;
mod core;
mod disturb;
mod external;
mod focus;
mod invariants;
mod kill;
mod mutation;
mod outside;
mod process;
mod record;
mod rng;
mod run;
mod scenario;
mod storage;
mod store;
mod topology;
mod trace;
mod world;

pub use arguments::Arguments;
pub use focus::Focus;
pub use invariants::Violation;
pub use kill::Kill;
pub use mutation::Mutation;
pub use outside::Tally;
pub use run::{Failure, Options, Report, run, run_everywhere};
pub use trace::{LINES_SHOWN, TraceSink};
