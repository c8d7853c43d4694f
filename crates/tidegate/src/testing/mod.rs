//! For tests of your own jobs: a pipeline under failures, and one operator driven by hand.
//!
//! Exactly once is a promise about results, and so is tested on results: run the pipeline with
//! [`under_failures`] and compare what a committing sink got (for small results
//! [`CollectCommitted`](crate::connectors::CollectCommitted)) with what it gets undisturbed.
//!
//! ```
//! use tidegate::connectors::CollectCommitted;
//! use tidegate::prelude::*;
//! use tidegate::testing;
//!
//! # fn main() -> tidegate::Result<()> {
//! for seed in 0..3 {
//!     let counts = CollectCommitted::new();
//!     let env = testing::under_failures(seed, 5).with_parallelism(2);
//!     env.source("numbers", Generator::new(Some(2_000), |index| index % 10).rate(50_000.0))
//!         .key_by(|digit| digit)
//!         .count("count")
//!         .sink("counts", counts.clone());
//!     env.execute("digits")?;
//!     let mut counts = counts.take();
//!     counts.sort();
//!     let expected = (0..10).flat_map(|digit| (1..=200).map(move |count| (digit, count)));
//!     assert!(counts.into_iter().eq(expected), "seed {seed}");
//! }
//! # Ok(())
//! # }
//! ```

mod operator;

use std::time::Duration;

use tidegate_coordinator::RestartStrategy;
use tidegate_server::InjectedFailures;

use crate::environment::Environment;

pub use operator::{
    OperatorHarness, OperatorSnapshot, OperatorUnderTest, broadcast_process,
    keyed_broadcast_process, keyed_co_process, keyed_process, process,
};

/// Time between checkpoints under failures: short, so that there is always something to restore.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(5);

/// An empty job that takes a checkpoint every 5 ms, in memory, and fails `failures` times, at
/// moments in its checkpoints that `seed` chooses; each time it restarts from the latest completed
/// checkpoint.
///
/// A job that is over before has had fewer failures; `restarts` of its report says how many. The
/// seed fixes where in the order of acknowledgements the failures are, not what other threads are
/// doing then: run several.
pub fn under_failures(seed: u64, failures: u32) -> Environment {
    Environment::for_tests().with_options(|options| {
        options.injected = Some(InjectedFailures { seed, failures });
        options.settings.checkpoints.interval = Some(CHECKPOINT_INTERVAL);
        options.settings.checkpoints.tolerable_failures = None;
        options.settings.restart = RestartStrategy::FixedDelay {
            attempts: u32::MAX,
            delay: Duration::from_millis(1),
        };
    })
}
