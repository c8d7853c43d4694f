//! Counters, history and details against what was told.

use tidegate_types::graph::{JobGraph, OperatorRole, OperatorSpec};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, MaxParallelism, OperatorId, OperatorUid, SnapshotFormat,
};

use crate::subtasks::SubtaskTable;

use super::*;

/// Statistics of a job of one enumerator and two counters.
struct World {
    statistics: Statistics,
    subtasks: Arc<SubtaskTable>,
    now: u64,
}

fn world(history_size: usize) -> World {
    let operator = |uid: &str, parallelism| OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism,
        max_parallelism: MaxParallelism::derive(parallelism),
        max_parallelism_derived: true,
        role: OperatorRole::Transform,
    };
    let graph = JobGraph {
        operators: vec![operator("source", 1), operator("count", 2)],
        edges: vec![],
    };
    World {
        statistics: Statistics::new(history_size),
        subtasks: Arc::new(SubtaskTable::new(&graph)),
        now: 0,
    }
}

const SOURCE: SubtaskId = subtask(0, 0);
const FIRST: SubtaskId = subtask(1, 0);
const SECOND: SubtaskId = subtask(1, 1);

const fn subtask(operator: u32, index: u32) -> SubtaskId {
    let operator = OperatorId(operator);
    SubtaskId { operator, index }
}

impl World {
    fn trigger(&mut self, id: u64, kind: SnapshotKind) {
        let barrier = CheckpointBarrier {
            checkpoint: CheckpointId(id),
            kind,
            format: SnapshotFormat::Incremental,
            base: None,
            location: None,
            created: UnixMillis(1_000_000 + self.now),
        };
        let (attempt, deadline) = (AttemptNumber(3), Millis(u64::MAX));
        let (triggered, subtasks) = (Millis(self.now), &self.subtasks);
        let pending = PendingCheckpoint::new(barrier, attempt, triggered, deadline, subtasks);
        self.statistics.on_triggered(&pending);
        self.statistics.check_invariants();
    }

    fn checkpoint(&mut self, id: u64) {
        self.trigger(id, SnapshotKind::Checkpoint);
    }

    fn snapshot(&self, id: u64, subtask: SubtaskId, bytes: u64) -> SubtaskSnapshot {
        SubtaskSnapshot {
            checkpoint: CheckpointId(id),
            subtask,
            metrics: SnapshotMetrics {
                start_delay: Duration::from_millis(2),
                alignment: Duration::from_micros(300),
                alignment_bytes: 4096,
                sync: Duration::from_micros(40),
                write: Duration::from_micros(5000),
            },
            bytes,
            new_bytes: bytes / 10,
            at: Millis(self.now),
        }
    }

    fn acknowledge(&mut self, id: u64, subtask: SubtaskId, bytes: u64) {
        self.statistics
            .on_snapshot(&self.snapshot(id, subtask, bytes));
        self.statistics.check_invariants();
    }

    fn acknowledge_late(&mut self, id: u64, subtask: SubtaskId, bytes: u64) {
        self.statistics
            .on_late_snapshot(&self.snapshot(id, subtask, bytes));
        self.statistics.check_invariants();
    }

    fn complete(&mut self, id: u64, kind: SnapshotKind) {
        let checkpoint = CheckpointId(id);
        self.statistics.on_completed(CompletedSummary {
            checkpoint,
            kind,
            location: None,
            bytes: 100 * id,
            new_bytes: 10 * id,
            duration: Duration::from_millis(id),
        });
        self.statistics.check_invariants();
    }

    fn abort(&mut self, id: u64) {
        let (reason, now) = (format!("reason {id}"), Millis(self.now));
        self.statistics.on_aborted(CheckpointId(id), reason, now);
        self.statistics.check_invariants();
    }

    fn listed(&self) -> Vec<u64> {
        let history = self.statistics.history();
        history.map(|entry| entry.checkpoint.0).collect()
    }

    fn entry(&self, id: u64) -> &CheckpointStatistics {
        self.statistics.checkpoint(CheckpointId(id)).unwrap()
    }

    fn counts(&self) -> [u64; 4] {
        let Statistics {
            triggered,
            completed,
            failed,
            in_progress,
            ..
        } = self.statistics;
        [triggered, completed, failed, in_progress]
    }
}

// SS-01, B21
#[test]
fn counters_equal_events() {
    let mut world = world(10);
    world.checkpoint(1);
    world.checkpoint(2);
    assert_eq!(world.counts(), [2, 0, 0, 2]);
    world.abort(2);
    world.complete(1, SnapshotKind::Checkpoint);
    assert_eq!(world.counts(), [2, 1, 1, 0]);
}

// CC-39
#[test]
fn a_failure_without_an_id_counts_but_has_no_details() {
    let mut world = world(10);
    world.statistics.on_not_triggered("no id".to_owned());
    world.statistics.check_invariants();
    assert_eq!(world.counts(), [1, 0, 1, 0]);
    assert_eq!(world.listed(), []);
    let failed = world.statistics.latest_failed.unwrap();
    assert_eq!((failed.checkpoint, &*failed.reason), (None, "no id"));
}

// SS-02: what is under way is always listed; of what has ended, as much as is wanted. A
// history of size zero takes news of forgotten checkpoints like any other.
#[test]
fn the_history_is_bounded_and_newest_first() {
    for (size, after_four, at_the_end) in [
        (0, vec![5], vec![]),
        (1, vec![5, 4], vec![5]),
        (3, vec![5, 4, 3, 2], vec![5, 4, 3]),
        (9, vec![5, 4, 3, 2, 1], vec![5, 4, 3, 2, 1]),
    ] {
        let mut world = world(size);
        for id in 1..=4 {
            world.checkpoint(id);
            world.acknowledge(id, SOURCE, 1);
            match id {
                2 => world.abort(id),
                _ => world.complete(id, SnapshotKind::Checkpoint),
            }
            world.acknowledge_late(2, FIRST, 1);
        }
        world.checkpoint(5);
        assert_eq!(world.listed(), after_four);
        world.abort(5);
        assert_eq!(world.listed(), at_the_end);
        world.acknowledge_late(5, SOURCE, 1);
        assert_eq!(world.counts(), [5, 3, 2, 0]);
        let latest = |latest: &Option<CompletedSummary>| latest.as_ref().map(|l| l.checkpoint.0);
        assert_eq!(latest(&world.statistics.latest_completed), Some(4));
    }
}

// SS-02
#[test]
fn a_long_savepoint_outlives_the_checkpoints_that_push_others_out() {
    let mut world = world(1);
    world.trigger(1, SnapshotKind::Savepoint);
    for id in 2..=5 {
        world.checkpoint(id);
        world.complete(id, SnapshotKind::Checkpoint);
    }
    assert_eq!(world.listed(), [5, 1]);
    world.complete(1, SnapshotKind::Savepoint);
    assert_eq!(world.listed(), [5]);
}

// SS-02: no number of others pushes the latest of a kind out.
#[test]
fn the_latest_of_each_kind_is_kept_apart() {
    let mut world = world(0);
    let stop = SnapshotKind::StopWithSavepoint { drain: true };
    for (id, kind) in [
        (1, SnapshotKind::Savepoint),
        (2, SnapshotKind::Checkpoint),
        (3, stop),
        (4, SnapshotKind::Final),
    ] {
        world.trigger(id, kind);
        world.complete(id, kind);
    }
    world.checkpoint(5);
    world.abort(5);
    let statistics = &world.statistics;
    let savepoint = statistics.latest_savepoint.as_ref().unwrap();
    assert_eq!(
        (savepoint.checkpoint, savepoint.kind),
        (CheckpointId(3), stop)
    );
    let completed = statistics.latest_completed.as_ref().unwrap();
    assert_eq!(completed.checkpoint, CheckpointId(4));
    let failed = statistics.latest_failed.as_ref().unwrap();
    assert_eq!(failed.checkpoint, Some(CheckpointId(5)));
}

// SS-02: what was handed out doesn't change.
#[test]
fn a_picture_shares_what_stays_and_keeps_what_changes() {
    let mut world = world(10);
    world.checkpoint(1);
    world.complete(1, SnapshotKind::Checkpoint);
    world.checkpoint(2);
    world.acknowledge(2, SOURCE, 10);
    let picture = world.statistics.clone();
    world.acknowledge(2, FIRST, 20);
    world.abort(2);
    world.acknowledge_late(2, SECOND, 30);
    world.checkpoint(3);

    let then = picture.checkpoint(CheckpointId(2)).unwrap();
    assert_eq!(then.status, CheckpointStatus::InProgress);
    assert_eq!((then.acknowledged, then.bytes), (1, 10));
    assert_eq!(picture.history().count(), 2);
    assert_eq!((picture.in_progress, picture.sync_us.count()), (1, 1));
    let shared = |statistics: &Statistics| statistics.checkpoint(CheckpointId(1)).cloned();
    let (then, now) = (
        shared(&picture).unwrap(),
        shared(&world.statistics).unwrap(),
    );
    assert!(Arc::ptr_eq(&then, &now));
}

// SS-03
#[test]
fn each_subtask_tells_how_it_spent_its_time() {
    let mut world = world(10);
    world.now = 70;
    world.checkpoint(1);
    world.now = 75;
    world.acknowledge(1, SECOND, 12);
    world.now = 79;
    world.acknowledge(1, SOURCE, 30);
    let entry = world.entry(1);
    assert_eq!((entry.acknowledged, entry.subtask_count()), (2, 3));
    assert_eq!((entry.bytes, entry.duration()), (42, None));
    assert_eq!(entry.new_bytes, 4);
    assert_eq!(entry.triggered_at, UnixMillis(1_000_070));
    assert_eq!(entry.format, SnapshotFormat::Incremental);

    let [source, count] = entry.operators().collect::<Vec<_>>()[..] else {
        panic!("there are two operators");
    };
    assert_eq!(
        (source.uid.0.as_str(), count.uid.0.as_str()),
        ("source", "count")
    );
    assert_eq!((count.acknowledged(), count.bytes()), (1, 12));
    assert_eq!((source.new_bytes(), count.new_bytes()), (3, 1));
    assert_eq!(source.acknowledged_after(), Some(Duration::from_millis(9)));
    let expected = SubtaskStatistics {
        acknowledged_after: Duration::from_millis(5),
        in_time: true,
        start_delay: Duration::from_millis(2),
        alignment: Duration::from_micros(300),
        alignment_bytes: 4096,
        sync: Duration::from_micros(40),
        write: Duration::from_micros(5000),
        bytes: 12,
        new_bytes: 1,
    };
    let subtasks: Vec<_> = count.subtasks().collect();
    assert_eq!(subtasks, [None, Some(expected)]);
    let sync = count.distribution(|subtask| subtask.sync.as_micros() as u64);
    assert_eq!((sync.count(), sync.max()), (1, Some(40)));
    assert_eq!(world.statistics.write_us.max(), Some(5000));
    assert_eq!(world.statistics.start_delay_us.average(), Some(2000));
}

// SS-01
#[test]
fn an_entry_says_how_its_checkpoint_ended() {
    let mut world = world(10);
    world.checkpoint(1);
    world.checkpoint(2);
    world.now = 8;
    world.complete(1, SnapshotKind::Checkpoint);
    world.abort(2);
    let completed = CheckpointStatus::Completed {
        duration: Duration::from_millis(1),
    };
    let entry = world.entry(1);
    assert_eq!(entry.status, completed);
    assert_eq!((entry.bytes, entry.new_bytes), (100, 10));
    assert_eq!(world.statistics.bytes.sum(), 100);
    assert_eq!(world.statistics.new_bytes.sum(), 10);
    let failed = CheckpointStatus::Failed {
        duration: Duration::from_millis(8),
        reason: "reason 2".to_owned(),
    };
    assert_eq!(world.entry(2).status, failed);
    assert_eq!(world.statistics.duration_ms.count(), 1);
}

// CC-46
#[test]
fn late_acknowledgements_enrich_the_details_but_not_the_count() {
    let mut world = world(10);
    world.checkpoint(1);
    world.acknowledge(1, SOURCE, 5);
    world.now = 20;
    world.abort(1);
    world.now = 31;
    world.acknowledge_late(1, FIRST, 7);
    world.now = 99;
    world.acknowledge_late(1, FIRST, 1000);
    world.acknowledge_late(1, SOURCE, 1000);
    world.acknowledge_late(1, subtask(1, 2), 1000);
    let entry = world.entry(1);
    assert_eq!((entry.acknowledged, entry.bytes), (1, 5));
    let count = entry.operators().nth(1).unwrap();
    assert_eq!(count.acknowledged(), 0);
    let late = count.subtasks().next().unwrap().unwrap();
    assert!(!late.in_time);
    assert_eq!((late.bytes, late.acknowledged_after.as_millis()), (7, 31));
    let source = entry.operators().next().unwrap().subtasks().next();
    assert_eq!(source.unwrap().unwrap().bytes, 5);
    assert_eq!(world.statistics.sync_us.count(), 1);
}

// A repeated acknowledgement of a checkpoint that completed is no news.
#[test]
fn nothing_enriches_a_completed_checkpoint() {
    let mut world = world(10);
    world.checkpoint(1);
    world.complete(1, SnapshotKind::Checkpoint);
    let before = world.entry(1).clone();
    world.acknowledge_late(1, FIRST, 7);
    assert_eq!(*world.entry(1), before);
}

#[test]
fn times_too_long_for_a_record_are_cut_not_wrapped() {
    let mut world = world(10);
    world.checkpoint(1);
    let mut snapshot = world.snapshot(1, SOURCE, u64::MAX);
    snapshot.metrics.write = Duration::MAX;
    snapshot.at = Millis(u64::MAX);
    world.statistics.on_snapshot(&snapshot);
    let source = world.entry(1).operators().next().unwrap();
    let subtask = source.subtasks().next().unwrap().unwrap();
    assert_eq!(subtask.write, Duration::from_micros(u32::MAX.into()));
    assert_eq!(
        subtask.acknowledged_after,
        Duration::from_millis(u32::MAX.into())
    );
}

#[test]
fn what_has_ended_says_how_long_it_took() {
    let mut world = world(10);
    world.now = 70;
    world.checkpoint(1);
    world.checkpoint(2);
    assert_eq!(world.entry(1).age(Millis(95)), Duration::from_millis(25));
    world.now = 90;
    world.abort(2);
    world.complete(1, SnapshotKind::Checkpoint);
    let took = |id| world.entry(id).duration();
    assert_eq!(took(1), Some(Duration::from_millis(1)));
    assert_eq!(took(2), Some(Duration::from_millis(20)));
}
