//! Whole jobs: exchange, parallelism, flow control, stopping.

use std::time::{Duration, Instant};

use tidegate_runtime::{Collector, EdgeKind, FlatMap, JobPlan, Rebalance};
use tidegate_types::graph::Partitioning;

use crate::pipelines::{assert_counts, keyed_count, mapped, wait_for_all_ends, wait_until};
use crate::support::{Collected, Driven, Numbers, Options, operator};

#[test]
fn a_bounded_job_counts_everything_once() {
    for (parallelism, serialize) in [(1, false), (2, false), (3, false), (2, true)] {
        let (plan, collected) = keyed_count(Numbers::up_to(30_000), 30, parallelism);
        let options = Options {
            serialize,
            ..Options::default()
        };
        let mut driven = Driven::start(plan, options);
        driven.trigger(1);
        driven.acknowledgements(1);
        // The first checkpoint may have come before the end; this one shows that ended sources
        // still take part, and that everything before it has arrived.
        wait_until(|| collected.0.lock().unwrap().len() == 30_000);
        driven.trigger(2);
        driven.acknowledgements(2);
        driven.stop();
        assert_counts(&collected.0.lock().unwrap(), 30, 1000);
    }
}

#[test]
fn operators_have_their_own_parallelism() {
    let (plan, collected) = mapped(Numbers::up_to(50_000), [1, 4, 2], |number, out| {
        out.emit(number);
        Ok(())
    });
    let mut driven = Driven::start(plan, Options::default());
    assert_eq!(driven.subtasks(), 1 + 1 + 4 + 2);
    wait_for_all_ends(&driven, 1);
    driven.trigger(1);
    driven.acknowledgements(1);
    driven.stop();
    let mut numbers = collected.0.lock().unwrap().clone();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..50_000));
}

#[test]
fn stopping_a_busy_attempt_joins_everything() {
    for _ in 0..20 {
        let (plan, _collected) = keyed_count(Numbers::endless(), 100_000, 3);
        let mut driven = Driven::start(plan, Options::default());
        driven.trigger(1);
        driven.stop();
    }
}
// Records that weigh nothing are bounded like all others.
#[test]
fn empty_records_are_flow_controlled() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let empty = plan.operator::<u64, (), _>(operator("empty", 1), |_| {
        Ok(FlatMap::new(|_: u64, out: &mut Collector<()>| {
            out.emit(());
            Ok(())
        }))
    });
    let slow = plan.operator::<(), u64, _>(operator("slow", 1), |_| {
        Ok(FlatMap::new(|(), out: &mut Collector<u64>| {
            std::thread::sleep(Duration::from_micros(200));
            out.emit(1);
            Ok(())
        }))
    });
    let sink = plan.sink(operator("sink", 1), Collected::<u64>::default());
    let forward = Partitioning::Forward;
    plan.connect::<u64>((numbers, empty), forward, EdgeKind::Records, |_| {
        Box::new(Rebalance::default())
    });
    plan.connect::<()>((empty, slow), forward, EdgeKind::Records, |_| {
        Box::new(Rebalance::default())
    });
    plan.connect::<u64>((slow, sink), forward, EdgeKind::Records, |_| {
        Box::new(Rebalance::default())
    });
    let mut driven = Driven::start(plan, Options::default());
    for checkpoint in 1..=5 {
        let began = Instant::now();
        driven.trigger(checkpoint);
        driven.acknowledgements(checkpoint);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
    driven.stop();
}
