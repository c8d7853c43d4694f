//! Whatever happens, in whatever order, the promises of the coordinator hold; and once nothing
//! goes wrong any more, a bounded job finishes.
//!
//! A model of the outside world answers the actions of a job: a store that may fail in every way,
//! subtasks that acknowledge, decline, repeat themselves and die. Proptest picks what happens next.

// Clippy knows test functions, but not the helpers of an integration test.
#![allow(clippy::unwrap_used)]

mod acts;
mod job;
mod ops;
mod world;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate_coordinator::{JobEnd, JobEvent};

use crate::ops::{Fate, ops, settings};
use crate::world::World;

/// Where seeds of failures are kept, to be tried first.
const REGRESSIONS: &str = "tests/any_order/regressions.txt";

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(REGRESSIONS))),
        ..ProptestConfig::with_cases(256)
    })]

    // CO-09, G6, G16, CC-24, BC-01, BC-02, BC-06, BC-57, SS-01
    #[test]
    fn promises_hold_and_a_healed_job_finishes(settings in settings(), ops in ops()) {
        let mut world = World::new(settings);
        ops.into_iter().for_each(|op| world.apply(op));
        world.heal();
        let end = world.end.as_ref();
        prop_assert!(matches!(end, Some(JobEnd::Finished | JobEnd::Stopped { .. })), "{:?}", end);
        world.check_leaks();
    }

    // Cancelling always ends a job, and keeps what is retained.
    #[test]
    fn a_cancelled_job_ends(settings in settings(), ops in ops()) {
        let mut world = World::new(settings);
        ops.into_iter().for_each(|op| world.apply(op));
        let ended = world.end.is_some();
        world.step(JobEvent::CancelRequested);
        while !world.outstanding.is_empty() {
            world.answer(0, Fate::Done);
        }
        let end = world.end.clone().unwrap();
        prop_assert!(ended || !matches!(end, JobEnd::Failed(_)), "{end:?}");
        world.check_leaks();
    }
}
