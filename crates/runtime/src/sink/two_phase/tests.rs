//! Which transactions a two-phase sink commits, when, and what its snapshots list.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use tidegate_types::message::AddressedReport;
use tidegate_types::{
    AttemptNumber, FileHandle, MaxParallelism, OperatorId, SnapshotFormat, SnapshotKind,
    SnapshotLocation, SubtaskId, SubtaskRestore, UnixMillis,
};

use super::*;
use crate::batch::Batch;
use crate::clock::Clock;
use crate::output::SideOutputs;
use crate::report::Reporter;
use crate::sink::SinkContext;
use crate::snapshot::{StateFileRead, StateFileWrite, StateFiles};

/// What the outside world sees, and does.
#[derive(Default)]
struct Outside {
    /// Records in the order in which they became visible.
    visible: Vec<u64>,
    committed: BTreeSet<CheckpointId>,
    /// Transactions whose commits fail.
    refused: BTreeSet<CheckpointId>,
    cleaned_up: u32,
}

/// A sink whose transactions hold their records.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<Outside>>);

#[derive(Clone, Serialize, Deserialize)]
struct Rows {
    checkpoint: CheckpointId,
    records: Vec<u64>,
}

struct Open(Vec<u64>);

impl TwoPhaseSink<u64> for Table {
    type Transaction = Rows;
    type Writer = Open;
    type Committer = Table;

    fn writer(&self, _context: SinkContext) -> Result<Open, BoxError> {
        Ok(Open(Vec::new()))
    }

    fn committer(&self, _context: SinkContext) -> Result<Table, BoxError> {
        Ok(self.clone())
    }
}

impl TransactionWriter<u64> for Open {
    type Transaction = Rows;

    fn write(&mut self, records: &mut Batch<u64>) -> Result<Flow, BoxError> {
        self.0.extend(records);
        Ok(Flow::Continue)
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Vec<PreCommitted<Rows>>, BoxError> {
        let records = std::mem::take(&mut self.0);
        let rows = (!records.is_empty()).then_some(Rows {
            checkpoint,
            records,
        });
        let pre_committed = rows.into_iter().map(|transaction| PreCommitted {
            transaction,
            seal: Box::new(|| Ok(())),
        });
        Ok(pre_committed.collect())
    }
}

impl Committer for Table {
    type Transaction = Rows;

    fn commit(&mut self, rows: &Rows) -> Result<(), BoxError> {
        let mut outside = lock(&self.0);
        if outside.refused.contains(&rows.checkpoint) {
            return Err(format!("`{}` is refused", rows.checkpoint).into());
        }
        if outside.committed.insert(rows.checkpoint) {
            outside.visible.extend(&rows.records);
        }
        Ok(())
    }

    fn clean_up(&mut self, _attempt: AttemptNumber) -> Result<(), BoxError> {
        lock(&self.0).cleaned_up += 1;
        Ok(())
    }
}

struct NoFiles;

impl StateFiles for NoFiles {
    fn create(
        &self,
        _checkpoint: CheckpointId,
        _location: Option<&SnapshotLocation>,
        _subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        Err("a sink without keyed state writes no file".into())
    }

    fn open(&self, _file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        Err("nor does it read one".into())
    }

    fn discard(&self, _checkpoint: CheckpointId, _file: &FileHandle) {}
}

/// A subtask of the sink, without the channels around it.
struct Driven {
    logic: TwoPhase<u64, Table>,
    commits: Background,
    reports: Arc<Mutex<Vec<Report>>>,
    _thread: JoinHandle<()>,
}

impl Driven {
    fn open(table: &Table, restored: Vec<ListState>) -> Driven {
        let (commits, thread) = Background::start("commits".to_owned()).unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let keep = move |report: AddressedReport| lock(&sink).push(report.report);
        let max_parallelism = MaxParallelism::derive(1);
        let context = SubtaskContext {
            subtask: SubtaskId {
                operator: OperatorId(0),
                index: 0,
            },
            name: "table[0]".to_owned(),
            uid: "table".to_owned(),
            parallelism: 1,
            max_parallelism,
            attempt: AttemptNumber(1),
            placement: crate::piece::StatePlacement::default(),
            restored: None,
            restore: SubtaskRestore {
                key_groups: max_parallelism.range(0, 1).unwrap(),
                keyed: Vec::new(),
                lists: restored,
                finished: false,
            },
            files: Arc::new(NoFiles),
            clock: Clock::System,
            side_outputs: SideOutputs::default(),
            background: commits.clone(),
            commits: commits.clone(),
            reports: Reporter::new(AttemptNumber(1), Arc::new(keep)),
        };
        Driven {
            logic: TwoPhase::open(table, &context).unwrap(),
            commits,
            reports,
            _thread: thread,
        }
    }

    fn write(&mut self, record: u64) {
        let mut records = Batch::from(vec![record]);
        let mut out = Collector::collecting(1);
        self.logic.process(&mut records, &mut out).unwrap();
    }

    /// What the snapshot keeps.
    fn snapshot(&mut self, checkpoint: u64) -> Vec<ListState> {
        let barrier = CheckpointBarrier {
            checkpoint: CheckpointId(checkpoint),
            kind: SnapshotKind::Checkpoint,
            format: SnapshotFormat::Full,
            base: None,
            location: None,
            created: UnixMillis(0),
        };
        self.logic.snapshot(&barrier).unwrap().lists
    }

    /// Writes 42, 43 and 44 before the barriers of 1, 2 and 3.
    fn three_transactions(&mut self) {
        for (checkpoint, record) in [(1, 42), (2, 43), (3, 44)] {
            self.write(record);
            self.snapshot(checkpoint);
        }
    }

    /// The checkpoint has completed, and what follows from that has happened.
    fn complete(&mut self, checkpoint: u64) {
        self.logic.on_completed(CheckpointId(checkpoint)).unwrap();
        let (done, wait) = channel();
        self.commits
            .run(move || done.send(()).unwrap(), |panic| panic!("{panic}"));
        wait.recv().unwrap();
    }

    fn committed(&self) -> Vec<u64> {
        let reports = lock(&self.reports);
        let committed = reports.iter().filter_map(|report| match report {
            Report::Committed { checkpoint, .. } => Some(checkpoint.0),
            _ => None,
        });
        committed.collect()
    }
}

/// The checkpoints of the transactions that a snapshot lists.
fn listed(lists: &[ListState]) -> Vec<u64> {
    let [list] = lists else {
        panic!("one list is kept")
    };
    let kept = list.elements.iter().map(|element| {
        let kept: Kept<Rows> = postcard::from_bytes(element).unwrap();
        kept.checkpoint.0
    });
    kept.collect()
}

// TP-01
#[test]
fn a_completion_commits_everything_up_to_it_once_and_in_order() {
    let table = Table::default();
    let mut sink = Driven::open(&table, vec![]);
    sink.three_transactions();
    sink.complete(3);
    assert_eq!(lock(&table.0).visible, [42, 43, 44]);
    sink.complete(1);
    assert_eq!(lock(&table.0).visible, [42, 43, 44]);
    assert_eq!(sink.committed(), [3, 1]);
    // What is open is the only one left.
    sink.write(45);
    assert_eq!(listed(&sink.snapshot(4)), [4]);
}

// TP-02
#[test]
fn what_is_newer_than_a_completion_stays_pending() {
    let table = Table::default();
    let mut sink = Driven::open(&table, vec![]);
    sink.three_transactions();
    sink.complete(1);
    assert_eq!(lock(&table.0).visible, [42]);
    assert_eq!(listed(&sink.snapshot(4)), [2, 3]);
}

// TP-03, TP-08, BC-14, BC-15: what a snapshot lists is committed by whoever restores it, once.
#[test]
fn a_restore_commits_what_is_listed_however_often() {
    let table = Table::default();
    let mut sink = Driven::open(&table, vec![]);
    sink.three_transactions();
    let kept = sink.snapshot(4);
    drop(sink);
    assert_eq!(lock(&table.0).visible, []);
    for _ in 0..2 {
        Driven::open(&table, kept.clone());
        assert_eq!(lock(&table.0).visible, [42, 43, 44]);
    }
}

// TP-06: records behind the end are refused by the channel, before the sink sees them.
#[test]
fn after_the_end_snapshots_add_no_transaction() {
    let table = Table::default();
    let mut sink = Driven::open(&table, vec![]);
    sink.write(42);
    sink.logic.finish(&mut Collector::collecting(1)).unwrap();
    assert_eq!(listed(&sink.snapshot(1)), [1]);
    assert_eq!(listed(&sink.snapshot(2)), [1]);
    sink.complete(2);
    assert_eq!(listed(&sink.snapshot(3)), []);
}

// TP-07
#[test]
fn restored_from_after_the_end_nothing_is_thrown_away() {
    let table = Table::default();
    let mut sink = Driven::open(&table, vec![]);
    sink.write(42);
    sink.logic.finish(&mut Collector::collecting(1)).unwrap();
    let kept = sink.snapshot(1);
    let mut restored = Driven::open(&table, kept);
    assert_eq!(lock(&table.0).visible, [42]);
    assert_eq!(lock(&table.0).cleaned_up, 0, "others may not have restored");
    assert_eq!(listed(&restored.snapshot(2)), []);
    restored.complete(2);
    assert_eq!(lock(&table.0).visible, [42]);
    assert_eq!(lock(&table.0).cleaned_up, 1);
}

// TP-09
#[test]
fn one_commit_that_fails_keeps_no_other_from_being_tried() {
    let table = Table::default();
    let mut sink = Driven::open(&table, vec![]);
    sink.three_transactions();
    lock(&table.0).refused.insert(CheckpointId(1));
    sink.complete(3);
    assert_eq!(lock(&table.0).visible, [43, 44]);
    assert_eq!(sink.committed(), []);
    let reports = lock(&sink.reports);
    let [Report::Failed(failure)] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert_eq!(failure.cause, "`chk-1` is refused");
}
