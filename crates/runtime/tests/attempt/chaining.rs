//! Operators that are called by the one before them, on real workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_runtime::sink::{Sink, SinkContext, SinkWriter};
use tidegate_runtime::{
    Batch, BoxError, Collector, EdgeKind, FlatMap, Flow, JobPlan, Rebalance, Ticks,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::Report;
use tidegate_types::{CheckpointId, OperatorId};

use crate::pipelines::{wait_for_all_ends, wait_until};
use crate::support::{Collected, Driven, Numbers, Options, States, operator};

/// Longer than calls are nested.
const LONG: u64 = 80;

fn forward(plan: &mut JobPlan, edge: (OperatorId, OperatorId)) {
    let rebalance = |_| Box::new(Rebalance::default()) as _;
    plan.connect::<u64>(edge, Partitioning::Forward, EdgeKind::Records, rebalance);
}

fn map(
    plan: &mut JobPlan,
    (uid, parallelism): (&str, u32),
    function: impl FnMut(u64, &mut Collector<u64>) -> Result<(), BoxError>
    + Clone
    + Send
    + Sync
    + 'static,
) -> OperatorId {
    plan.operator::<u64, u64, _>(operator(uid, parallelism), move |_| {
        Ok(FlatMap::new(function.clone()))
    })
}

/// numbers → `LONG` times one more → collect, all in one chain per subtask.
fn long_chain(source: Numbers, parallelism: u32) -> (JobPlan, Collected<u64>) {
    let mut plan = JobPlan::new();
    let mut last = plan.source(operator("numbers", parallelism), source);
    for link in 0..LONG {
        let uid = format!("map{link}");
        let next = map(&mut plan, (&uid, parallelism), |number, out| {
            out.emit(number + 1);
            Ok(())
        });
        forward(&mut plan, (last, next));
        last = next;
    }
    let collected = Collected::<u64>::default();
    let sink = plan.sink(operator("sink", parallelism), collected.clone());
    forward(&mut plan, (last, sink));
    (plan, collected)
}

#[test]
fn a_long_chain_loses_nothing_and_acknowledges_in_every_link() {
    let (plan, collected) = long_chain(Numbers::up_to(20_000), 2);
    let mut driven = Driven::start(plan, Options::default());
    driven.trigger(1);
    assert_eq!(driven.acknowledgements(1).len(), driven.subtasks());
    wait_for_all_ends(&driven, 2);
    wait_until(|| collected.0.lock().unwrap().len() == 20_000);
    driven.trigger(2);
    assert_eq!(driven.acknowledgements(2).len(), driven.subtasks());
    driven.stop();
    let mut numbers = collected.0.lock().unwrap().clone();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(LONG..LONG + 20_000));
}

// A barrier passes a chain in the same place of the stream for every operator: what a snapshot of
// the source says is exactly what the end of the chain has seen before its own.
#[test]
fn a_chain_is_cut_in_one_place() {
    let seen_at_snapshot = Arc::new(AtomicU64::new(0));
    let count = Counting {
        seen: Arc::default(),
        at_snapshot: Arc::clone(&seen_at_snapshot),
    };
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let evens = map(&mut plan, ("evens", 1), |number, out| {
        if number % 2 == 0 {
            out.emit(number);
        }
        Ok(())
    });
    let sink = plan.sink(operator("sink", 1), count);
    forward(&mut plan, (numbers, evens));
    forward(&mut plan, (evens, sink));
    let mut driven = Driven::start(plan, Options::default());
    for checkpoint in 1..=5 {
        driven.trigger(checkpoint);
        let states = driven.acknowledgements(checkpoint);
        let read = first_unread(&driven, &states);
        assert_eq!(seen_at_snapshot.load(Ordering::SeqCst), read.div_ceil(2));
    }
    driven.stop();
}

/// The first number that a snapshot of the only reader says is still to be read.
fn first_unread(driven: &Driven, states: &States) -> u64 {
    let unread = crate::pipelines::unread(&driven.plan, states, "numbers");
    let next = unread.iter().map(|range| range.next).min();
    next.expect("the source is endless")
}

/// Counts what it gets, and what it had got at its last snapshot.
#[derive(Clone)]
struct Counting {
    seen: Arc<AtomicU64>,
    at_snapshot: Arc<AtomicU64>,
}

impl Sink<u64> for Counting {
    type Writer = Counting;

    fn writer(&self, _context: SinkContext) -> Result<Counting, BoxError> {
        Ok(self.clone())
    }
}

impl SinkWriter<u64> for Counting {
    fn write(&mut self, records: &mut Batch<u64>) -> Result<Flow, BoxError> {
        let count = records.count() as u64;
        self.seen.fetch_add(count, Ordering::SeqCst);
        Ok(Flow::Continue)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let seen = self.seen.load(Ordering::SeqCst);
        self.at_snapshot.store(seen, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_failure_within_a_call_is_that_of_the_operator_called() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let first = map(&mut plan, ("first", 1), |number, out| {
        out.emit(number);
        Ok(())
    });
    let second = map(&mut plan, ("second", 1), |number, _out| {
        assert!(number != 5_000, "the number is {number}");
        Ok(())
    });
    forward(&mut plan, (numbers, first));
    forward(&mut plan, (first, second));
    let mut driven = Driven::start(plan, Options::default());
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(failure.subtask.unwrap().operator, second);
            assert!(failure.cause.contains("5000"), "{}", failure.cause);
            true
        }
        _ => false,
    });
    driven.stop();
}

/// Takes one record, then pauses for a millisecond.
#[derive(Clone, Default)]
struct Slow(Arc<AtomicU64>);

impl Sink<u64> for Slow {
    type Writer = Slow;

    fn writer(&self, _context: SinkContext) -> Result<Slow, BoxError> {
        Ok(self.clone())
    }
}

impl SinkWriter<u64> for Slow {
    fn write(&mut self, records: &mut Batch<u64>) -> Result<Flow, BoxError> {
        self.0
            .fetch_add(records.take(1).count() as u64, Ordering::SeqCst);
        let pause = Ticks::now().after(Duration::from_millis(1));
        Ok(Flow::PauseUntil(pause))
    }
}

// A receiver that pauses stops its sender, however often it could be called, and goes on by itself.
#[test]
fn a_slow_link_holds_up_the_chain_before_it() {
    let taken = Slow::default();
    let emitted = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&emitted);
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let fast = map(&mut plan, ("fast", 1), move |number, out| {
        counter.fetch_add(1, Ordering::SeqCst);
        out.emit(number);
        Ok(())
    });
    let sink = plan.sink(operator("slow", 1), taken.clone());
    forward(&mut plan, (numbers, fast));
    forward(&mut plan, (fast, sink));
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| taken.0.load(Ordering::SeqCst) >= 100);
    let ahead = emitted.load(Ordering::SeqCst) - taken.0.load(Ordering::SeqCst);
    // 100 ms of work is what a window is for; twice that with what is staged.
    assert!(ahead <= 200, "{ahead} records ahead");
    driven.trigger(1);
    assert!(driven.acknowledgements(1).len() == driven.subtasks());
    assert_eq!(driven.metrics.held_back(CheckpointId(1)), []);
    driven.stop();
}

// What a link holds for a receiver on another worker leaves when the head of the chain is at rest.
#[test]
fn a_chain_at_rest_holds_nothing() {
    let limit = Arc::new(std::sync::Mutex::new(777));
    let source = Numbers {
        limit: Some(Arc::clone(&limit)),
        ..Numbers::endless()
    };
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 2), source);
    let first = map(&mut plan, ("first", 2), |number, out| {
        out.emit(number);
        Ok(())
    });
    let second = map(&mut plan, ("second", 2), |number, out| {
        out.emit(number);
        Ok(())
    });
    let collected = Collected::<u64>::default();
    let sink = plan.sink(operator("sink", 2), collected.clone());
    forward(&mut plan, (numbers, first));
    forward(&mut plan, (first, second));
    plan.connect::<u64>(
        (second, sink),
        Partitioning::Rebalance,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    let mut driven = Driven::start(plan, Options::default());
    wait_until(|| collected.0.lock().unwrap().len() == 777);
    *limit.lock().unwrap() += 223;
    wait_until(|| collected.0.lock().unwrap().len() == 1000);
    driven.stop();
}
