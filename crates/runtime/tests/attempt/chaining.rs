//! Operators that are called by the one before them, on real workers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_runtime::sink::{Sink, SinkContext, SinkWriter};
use tidegate_runtime::{
    Batch, BoxError, Collector, EdgeKind, FlatMap, Flow, JobPlan, Rebalance, Route, Targets, Ticks,
};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::Report;
use tidegate_types::{CheckpointId, OperatorId};

use crate::pipelines::{wait_for_all_ends, wait_until};
use crate::support::{Collected, Driven, Files, Numbers, Options, States, operator};

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
    // What is said of a snapshot goes after its acknowledgement.
    wait_until(|| driven.metrics.held_back(CheckpointId(1)).is_empty());
    driven.stop();
}

// What a link holds for a receiver on another worker leaves when the head of the chain is at rest.
#[test]
fn a_chain_at_rest_holds_nothing() {
    let limit = Arc::new(Mutex::new(777));
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

// A receiver that computes for long, and did not before, is as slow as one that pauses: no more is
// handed over at once than takes it about 100 ms.
#[test]
fn a_link_that_becomes_slow_holds_up_little() {
    let slow = Arc::new(AtomicBool::new(false));
    let (emitted, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (is_slow, counted, seen) = (Arc::clone(&slow), Arc::clone(&emitted), Arc::clone(&taken));
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let fast = map(&mut plan, ("fast", 1), move |number, out| {
        counted.fetch_add(1, Ordering::SeqCst);
        out.emit(number);
        Ok(())
    });
    let compute = map(&mut plan, ("compute", 1), move |_number, _out| {
        seen.fetch_add(1, Ordering::SeqCst);
        if is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    forward(&mut plan, (numbers, fast));
    forward(&mut plan, (fast, compute));
    let mut driven = Driven::start(plan, Options::default());
    let taken = || taken.load(Ordering::SeqCst);
    wait_until(|| taken() > 1_000_000);
    slow.store(true, Ordering::SeqCst);
    // What it was given before it was known to be slow.
    let known = taken() + 2_000;
    wait_until(|| taken() > known);
    let mut ahead_max = 0;
    while taken() < known + 1_000 {
        let emitted = emitted.load(Ordering::SeqCst);
        ahead_max = ahead_max.max(emitted.saturating_sub(taken()));
        std::thread::yield_now();
    }
    driven.stop();
    assert!((1..=250).contains(&ahead_max), "{ahead_max} records ahead");
}

/// Panics when it is to route the number 13.
#[derive(Debug)]
struct Superstitious;

impl Route<u64> for Superstitious {
    fn route(&mut self, staged: &mut Vec<u64>, targets: &mut Targets<u64>) {
        assert!(!staged.contains(&13), "13 is not to be sent");
        targets.append(0, staged);
    }

    fn is_full(&self, targets: &Targets<u64>) -> bool {
        targets.is_full(0)
    }
}

// The head of a chain flushes it when it comes to rest; what goes wrong in that is still a failure
// of the link.
#[test]
fn a_failure_within_a_flush_is_that_of_the_operator_flushed() {
    let source = Numbers {
        limit: Some(Arc::new(Mutex::new(14))),
        ..Numbers::endless()
    };
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), source);
    let link = map(&mut plan, ("link", 1), |number, out| {
        out.emit(number);
        Ok(())
    });
    let sink = plan.sink(operator("sink", 1), Collected::<u64>::default());
    forward(&mut plan, (numbers, link));
    plan.connect::<u64>(
        (link, sink),
        Partitioning::Rebalance,
        EdgeKind::Records,
        |_| Box::new(Superstitious),
    );
    let mut driven = Driven::launch(plan, Options::default(), Files::default(), None);
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(failure.subtask.unwrap().operator, link);
            assert!(failure.cause.contains("13 is not"), "{}", failure.cause);
            true
        }
        _ => false,
    });
    driven.stop();
}

// One output that leads on within the chain and to other workers, and two ways to one receiver.
#[test]
fn branches_of_a_chain_meet_again() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 2), Numbers::up_to(30_000));
    let pass = |number, out: &mut Collector<u64>| {
        out.emit(number);
        Ok(())
    };
    let [left, right, joined, elsewhere] =
        ["left", "right", "joined", "elsewhere"].map(|uid| map(&mut plan, (uid, 2), pass));
    let collected = Collected::<u64>::default();
    let sink = plan.sink(operator("sink", 2), collected.clone());
    for edge in [
        (numbers, left),
        (numbers, right),
        (left, joined),
        (right, joined),
        (joined, sink),
        (elsewhere, sink),
    ] {
        forward(&mut plan, edge);
    }
    plan.connect::<u64>(
        (numbers, elsewhere),
        Partitioning::Rebalance,
        EdgeKind::Records,
        |context| Box::new(Rebalance::starting_at(context.origin as usize)),
    );
    let mut driven = Driven::start(plan, Options::default());
    for checkpoint in 1..=3 {
        driven.trigger(checkpoint);
        let states = driven.acknowledgements(checkpoint);
        assert_eq!(states.len(), driven.subtasks());
    }
    wait_until(|| collected.0.lock().unwrap().len() == 90_000);
    driven.stop();
    let mut numbers = collected.0.lock().unwrap().clone();
    numbers.sort_unstable();
    let thrice = (0..30_000).flat_map(|number| [number; 3]);
    assert!(numbers.into_iter().eq(thrice));
}
