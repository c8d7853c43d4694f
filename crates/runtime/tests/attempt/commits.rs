//! When a two-phase sink commits.

use std::sync::{Arc, Mutex};

use tidegate_runtime::Batch;
use tidegate_runtime::sink::{
    Committer, PreCommitted, SinkContext, TransactionWriter, TwoPhaseSink,
};
use tidegate_runtime::{BoxError, EdgeKind, Flow, JobPlan, Rebalance};
use tidegate_types::graph::Partitioning;
use tidegate_types::message::Report;
use tidegate_types::{AttemptNumber, CheckpointId, SnapshotKind};

use crate::support::{Driven, Files, Numbers, Options, States, operator};

/// One transaction per snapshot, named by its checkpoint; the list is of what was committed.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<u64>>>);

impl TwoPhaseSink<u64> for Ledger {
    type Transaction = u64;
    type Writer = Ledger;
    type Committer = Ledger;

    fn writer(&self, _context: SinkContext) -> Result<Ledger, BoxError> {
        Ok(self.clone())
    }

    fn committer(&self, _context: SinkContext) -> Result<Ledger, BoxError> {
        Ok(self.clone())
    }
}

impl TransactionWriter<u64> for Ledger {
    type Transaction = u64;

    fn write(&mut self, records: &mut Batch<u64>) -> Result<Flow, BoxError> {
        records.for_each(drop);
        Ok(Flow::Continue)
    }

    fn pre_commit(&mut self, checkpoint: CheckpointId) -> Result<Vec<PreCommitted<u64>>, BoxError> {
        Ok(vec![PreCommitted {
            transaction: checkpoint.0,
            seal: Box::new(|| Ok(())),
        }])
    }
}

impl Committer for Ledger {
    type Transaction = u64;

    fn commit(&mut self, transaction: &u64) -> Result<(), BoxError> {
        self.0.lock().unwrap().push(*transaction);
        Ok(())
    }

    fn clean_up(&mut self, _attempt: AttemptNumber) -> Result<(), BoxError> {
        Ok(())
    }
}

fn start(ledger: &Ledger, files: Files, restored: Option<(CheckpointId, &States)>) -> Driven {
    let mut plan = JobPlan::new();
    let numbers = plan.source(operator("numbers", 1), Numbers::endless());
    let sink = plan.two_phase_sink::<u64, _>(operator("sink", 1), ledger.clone());
    plan.connect::<u64>(
        (numbers, sink),
        Partitioning::Forward,
        EdgeKind::Records,
        |_| Box::new(Rebalance::default()),
    );
    Driven::start_from(plan, Options::default(), files, restored)
}

/// Waits for the next report of a commit, which must be about `checkpoint`.
fn committed(driven: &Driven, ledger: &Ledger, checkpoint: u64) -> Vec<u64> {
    driven.wait_for("commit", |report| match report {
        Report::Committed {
            checkpoint: committed,
            ..
        } => {
            assert_eq!(*committed, CheckpointId(checkpoint));
            true
        }
        _ => false,
    });
    std::mem::take(&mut *ledger.0.lock().unwrap())
}

// A savepoint commits nothing; what it pre-committed goes out with the next checkpoint.
#[test]
fn what_a_savepoint_pre_commits_waits_for_a_checkpoint() {
    let ledger = Ledger::default();
    let mut driven = start(&ledger, Files::default(), None);
    driven.trigger(1);
    driven.acknowledgements(1);
    driven.trigger_savepoint(2, SnapshotKind::Savepoint);
    let savepoint = driven.acknowledgements(2);
    driven.complete(1);
    assert_eq!(committed(&driven, &ledger, 1), [1]);
    driven.trigger(3);
    driven.acknowledgements(3);
    driven.complete(3);
    assert_eq!(committed(&driven, &ledger, 3), [2, 3]);
    driven.stop();

    // Whoever starts from the savepoint commits what it holds, whether or not that has happened.
    let restored = Some((CheckpointId(2), &savepoint));
    let mut driven = start(&ledger, Files::default(), restored);
    assert_eq!(std::mem::take(&mut *ledger.0.lock().unwrap()), [1, 2]);
    driven.stop();
}

#[test]
fn a_stop_commits_like_a_checkpoint() {
    for drain in [false, true] {
        let ledger = Ledger::default();
        let mut driven = start(&ledger, Files::default(), None);
        driven.trigger_savepoint(1, SnapshotKind::Savepoint);
        driven.acknowledgements(1);
        driven.trigger_savepoint(2, SnapshotKind::StopWithSavepoint { drain });
        driven.acknowledgements(2);
        driven.complete(2);
        assert_eq!(committed(&driven, &ledger, 2), [1, 2]);
        driven.stop();
    }
}

// The news that comes with an abort is for tidying up. It commits nothing, not even of a
// checkpoint whose completion this subtask has missed; the next one does.
#[test]
fn an_abort_commits_nothing() {
    let ledger = Ledger::default();
    let mut driven = start(&ledger, Files::default(), None);
    for checkpoint in 1..=4 {
        driven.trigger(checkpoint);
        driven.acknowledgements(checkpoint);
    }
    driven.abort(4, 3);
    driven.complete(1);
    driven.trigger(5);
    driven.acknowledgements(5);
    assert_eq!(*ledger.0.lock().unwrap(), [0; 0]);
    driven.complete(5);
    assert_eq!(committed(&driven, &ledger, 5), [1, 2, 3, 4, 5]);
    driven.stop();
}

// SC-13: the notice of an id that this attempt didn't take, here the one it was restored from.
#[test]
fn a_notice_from_before_the_attempt_is_ignored() {
    let ledger = Ledger::default();
    let mut driven = start(&ledger, Files::default(), None);
    driven.trigger(5);
    let states = driven.acknowledgements(5);
    driven.stop();
    let mut driven = start(&ledger, Files::default(), Some((CheckpointId(5), &states)));
    assert_eq!(std::mem::take(&mut *ledger.0.lock().unwrap()), [5]);
    driven.complete(5);
    driven.trigger(6);
    driven.acknowledgements(6);
    driven.complete(6);
    // Had the notice of 5 been taken for news, `Committed(5)` would have come first.
    assert_eq!(committed(&driven, &ledger, 6), [6]);
    driven.stop();
}
