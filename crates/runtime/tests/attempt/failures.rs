//! Failures of user code: who is named, and what ends the attempt.

use tidegate_runtime::Batch;
use tidegate_runtime::sink::{
    Committer, PreCommitted, Sink, SinkContext, SinkWriter, TransactionWriter, TwoPhaseSink,
};
use tidegate_runtime::{BoxError, EdgeKind, Flow, JobPlan, Rebalance};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::{Notice, Report};
use tidegate_types::{AttemptNumber, CheckpointId, OperatorId};

use crate::pipelines::mapped;
use crate::support::{Driven, Numbers, Options, operator};

#[test]
fn a_panic_names_the_subtask_and_its_message() {
    let (plan, _collected) = mapped(Numbers::endless(), [1, 2, 1], |number, _out| {
        assert!(number != 12_345, "the number is {number}");
        Ok(())
    });
    let mut driven = Driven::start(plan, Options::default());
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(failure.subtask.unwrap().operator, OperatorId(2));
            assert!(
                failure.cause.contains("the number is 12345"),
                "{}",
                failure.cause
            );
            true
        }
        _ => false,
    });
    driven.stop();
}

#[test]
fn an_error_names_the_subtask_and_its_causes() {
    let (plan, _collected) = mapped(Numbers::endless(), [2, 2, 2], |number, _out| {
        if number == 777 {
            Err("a bad number".into())
        } else {
            Ok(())
        }
    });
    let mut driven = Driven::start(plan, Options::default());
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => failure.cause.contains("a bad number"),
        _ => false,
    });
    driven.stop();
}

/// Makes one empty transaction per checkpoint; committing or sealing it fails as told.
#[derive(Clone, Copy)]
struct Fragile {
    seal_fails: bool,
}

impl TwoPhaseSink<u64> for Fragile {
    type Transaction = u64;
    type Writer = Fragile;
    type Committer = Fragile;

    fn writer(&self, _context: SinkContext) -> Result<Fragile, BoxError> {
        Ok(*self)
    }

    fn committer(&self, _context: SinkContext) -> Result<Fragile, BoxError> {
        Ok(*self)
    }
}

impl TransactionWriter<u64> for Fragile {
    type Transaction = u64;

    fn write(&mut self, records: &mut Batch<u64>) -> Result<Flow, BoxError> {
        records.for_each(drop);
        Ok(Flow::Continue)
    }

    fn pre_commit(&mut self, checkpoint: CheckpointId) -> Result<Vec<PreCommitted<u64>>, BoxError> {
        let fails = self.seal_fails;
        let seal = move || if fails { Err("no sync".into()) } else { Ok(()) };
        Ok(vec![PreCommitted {
            transaction: checkpoint.0,
            seal: Box::new(seal),
        }])
    }
}

impl Committer for Fragile {
    type Transaction = u64;

    fn commit(&mut self, transaction: &u64) -> Result<(), BoxError> {
        panic!("commit of {transaction} went wrong");
    }

    fn clean_up(&mut self, _attempt: AttemptNumber) -> Result<(), BoxError> {
        Ok(())
    }
}

fn fragile(seal_fails: bool) -> Driven {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let sink = plan.two_phase_sink::<u64, _>(operator("sink", 1), Fragile { seal_fails });
    plan.connect::<u64>(
        (numbers, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    Driven::start(plan, Options::default())
}

fn assert_sink_fails(driven: &Driven, text: &str) {
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(
                failure.subtask.map(|subtask| subtask.operator),
                Some(OperatorId(2))
            );
            assert!(failure.cause.contains(text), "{}", failure.cause);
            true
        }
        _ => false,
    });
}

// A commit that panics ends the attempt rather than leaving it to wait for ever.
#[test]
fn a_panic_in_a_commit_fails_the_attempt() {
    let mut driven = fragile(false);
    driven.trigger(1);
    driven.acknowledgements(1);
    driven.notify(Notice::Completed {
        checkpoint: CheckpointId(1),
    });
    assert_sink_fails(&driven, "commit of 1 went wrong");
    driven.stop();
}

// What can't be made durable would be part of every later checkpoint: only a restart helps.
#[test]
fn a_failed_seal_fails_the_attempt() {
    let mut driven = fragile(true);
    driven.trigger(1);
    assert_sink_fails(&driven, "no sync");
    driven.stop();
}

/// Holds records back until it is flushed. The first flush loses them: its peer has gone.
#[derive(Clone, Default)]
struct Unsteady {
    held: Vec<u64>,
    has_failed: bool,
}

impl Sink<u64> for Unsteady {
    type Writer = Unsteady;

    fn writer(&self, _context: SinkContext) -> Result<Unsteady, BoxError> {
        Ok(self.clone())
    }
}

impl SinkWriter<u64> for Unsteady {
    fn write(&mut self, records: &mut Batch<u64>) -> Result<Flow, BoxError> {
        self.held.extend(records);
        Ok(Flow::Continue)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        let lost = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.has_failed, true) {
            false => Err(format!("the peer took none of {} records", lost.len()).into()),
            true => Ok(()),
        }
    }
}

// Were the checkpoint only declined, the next one would complete without these records.
#[test]
fn a_failed_flush_fails_the_attempt() {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let sink = plan.sink::<u64, _>(operator("sink", 1), Unsteady::default());
    plan.connect::<u64>(
        (numbers, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    let mut driven = Driven::start(plan, Options::default());
    driven.trigger(1);
    driven.trigger(2);
    driven.wait_for("failure", |report| match report {
        Report::Failed(failure) => {
            assert_eq!(failure.subtask, Some(driven.subtask("sink[0]")));
            assert!(failure.cause.contains("took none"), "{}", failure.cause);
            true
        }
        Report::Acknowledged { subtask, .. } => {
            assert_ne!(
                *subtask,
                driven.subtask("sink[0]"),
                "records are in no checkpoint"
            );
            false
        }
        _ => false,
    });
    driven.stop();
}
