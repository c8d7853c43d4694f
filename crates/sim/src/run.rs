//! Runs one seed and says what came of it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::arguments::flags;
use crate::clock::Clock;
use crate::external::External;
use crate::focus::Focus;
use crate::invariants::{Invariants, Violation};
use crate::kill::Kill;
use crate::mutation::Mutation;
use crate::outside::{Outside, Tally};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::store::Store;
use crate::trace::{Trace, TraceSink};
use crate::world::World;

/// How to run a seed. The default is as in the nightly runs.
#[derive(Default)]
pub struct Options {
    /// A bug to put in.
    pub mutation: Option<Mutation>,
    /// Something to go wrong more than usual.
    pub focus: Option<Focus>,
    /// Somebody to die at a chosen place.
    pub kill: Option<Kill>,
    /// When faults stop, in steps, instead of what the seed draws.
    pub fault_steps: Option<u64>,
    /// Gets each line of the trace as it comes.
    pub trace: Option<TraceSink>,
}

/// A run in which every promise was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal runs.
    pub trace_hash: u64,
    /// What the run was made of.
    pub tally: Tally,
}

/// A run in which one was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that leads there.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// The flags that lead there again.
    pub flags: String,
    /// The last lines of the trace.
    pub lines: Vec<String>,
    /// What the run was made of.
    pub tally: Tally,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        let Failure {
            seed,
            violation,
            flags,
            ..
        } = self;
        writeln!(f, "seed {seed} breaks {violation}")?;
        write!(f, "replay: cargo run --release -p tidegate-sim -- {flags}")
    }
}

/// Runs one seed to the end of its job.
///
/// # Errors
/// The first broken promise. A panic of a core counts as one, named `panic`.
pub fn run(seed: u64, options: Options) -> Result<Report, Box<Failure>> {
    let flags = flags(seed, &options);
    let mut scenario = Scenario::draw(&mut Rng::new(seed, 0));
    scenario.heal_at = options.fault_steps.unwrap_or(scenario.heal_at);
    if let Some(focus) = options.focus {
        focus.apply(&mut scenario);
    }
    if let Some(mutation) = options.mutation {
        mutation.provoke(&mut scenario);
    }
    let mut world = World::new(Outside {
        rng: Rng::new(seed, 1),
        faults: scenario.faults.clone(),
        scenario,
        mutation: options.mutation,
        kill: options.kill,
        clock: Clock::new(),
        store: Store::default(),
        external: External::default(),
        trace: Trace::new(options.trace),
        invariants: Invariants::default(),
        tally: Tally::default(),
    });
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let outcome = outcome.unwrap_or_else(|panic| {
        let detail = message(&*panic);
        Err(Violation {
            invariant: "panic",
            detail,
        })
    });
    let Outside { trace, tally, .. } = &world.outside;
    match outcome {
        Ok(()) => Ok(Report {
            trace_hash: trace.hash(),
            tally: *tally,
        }),
        Err(violation) => Err(Box::new(Failure {
            seed,
            violation,
            flags,
            lines: trace.recent(),
            tally: *tally,
        })),
    }
}

/// Runs one seed, and then again for every place at which its process can die, and for every one
/// at which a subtask can. Returns the numbers of all runs together.
///
/// # Errors
/// The first broken promise.
pub fn run_everywhere(seed: u64, options: impl Fn() -> Options) -> Result<Tally, Box<Failure>> {
    let first = run(seed, options())?.tally;
    let mut total = first;
    let process = (1..=first.process_chances).map(Kill::Process);
    let subtask = (1..=first.subtask_chances).map(Kill::Subtask);
    for kill in process.chain(subtask) {
        let kill = Some(kill);
        total.add(run(seed, Options { kill, ..options() })?.tally);
    }
    Ok(total)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
