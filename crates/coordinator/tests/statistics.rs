//! What a job tells of its checkpoints, driven through its public interface alone.

use std::time::Duration;

use tidegate_coordinator::{
    CheckpointSettings, CheckpointStatus, Job, JobAction, JobEvent, JobSettings, NoticeTarget, Now,
    Recovery,
};
use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::message::{AddressedReport, Notice, Report, SnapshotMetrics, WriteOutcome};
use tidegate_types::{
    AttemptNumber, CheckpointId, FileHandle, JobId, KeyedPiece, KeyedStateHandle, ListState,
    MaxParallelism, Millis, OperatorId, OperatorUid, Redistribution, SnapshotFormat, SubtaskId,
    SubtaskState, UnixMillis,
};

const ATTEMPT: AttemptNumber = AttemptNumber(1);
const SOURCE: SubtaskId = subtask(0, 0);
const FIRST: SubtaskId = subtask(1, 0);
const SECOND: SubtaskId = subtask(1, 1);

const fn subtask(operator: u32, index: u32) -> SubtaskId {
    let operator = OperatorId(operator);
    SubtaskId { operator, index }
}

/// A source and two subtasks of `count` behind it.
fn graph() -> JobGraph {
    let operator = |uid: &str, parallelism, role| OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism,
        max_parallelism: MaxParallelism::derive(parallelism),
        max_parallelism_derived: true,
        role,
    };
    JobGraph {
        operators: vec![
            operator("source", 1, OperatorRole::Enumerator),
            operator("count", 2, OperatorRole::Transform),
        ],
        edges: vec![Edge {
            from: OperatorId(0),
            to: OperatorId(1),
            partitioning: Partitioning::KeyGroups,
        }],
    }
}

/// A job whose driver answers every write at once.
struct World {
    job: Job,
    now: u64,
    /// What the subtasks were told.
    notices: Vec<(Notice, NoticeTarget)>,
}

impl World {
    /// A checkpoint every 100 ms, which times out after 60; nothing runs yet.
    fn starting(history: u32) -> World {
        let settings = JobSettings {
            checkpoints: CheckpointSettings {
                interval: Some(Duration::from_millis(100)),
                timeout: Duration::from_millis(60),
                history,
                format: SnapshotFormat::Incremental,
                ..CheckpointSettings::default()
            },
            ..JobSettings::default()
        };
        let job = Job::new(JobId(1), graph(), settings, Recovery::default());
        let job = job.expect("the graph is valid");
        let mut world = World {
            job,
            now: 0,
            notices: Vec::new(),
        };
        world.step(0, JobEvent::Start);
        world
    }

    fn running(history: u32) -> World {
        let mut world = World::starting(history);
        for subtask in [SOURCE, FIRST, SECOND] {
            world.report(0, Report::Running { subtask });
        }
        world
    }

    fn step(&mut self, now: u64, event: JobEvent) {
        self.now = now;
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            let now = Now {
                monotonic: Millis(now),
                wall: UnixMillis(1_000_000 + now),
            };
            self.job.step(now, event, &mut actions);
            events.extend(
                actions
                    .into_iter()
                    .filter_map(|action| self.outcome(action)),
            );
        }
    }

    fn outcome(&mut self, action: JobAction) -> Option<JobEvent> {
        let outcome = WriteOutcome::Done;
        Some(match action {
            JobAction::ReserveAttempt => JobEvent::AttemptReserved {
                attempt: ATTEMPT,
                outcome,
            },
            JobAction::ReserveIds { up_to } => JobEvent::IdsReserved { up_to, outcome },
            JobAction::PublishMetadata(checkpoint) => JobEvent::MetadataPublished {
                checkpoint: checkpoint.id,
                outcome,
            },
            JobAction::StorePointer { checkpoint, .. } => JobEvent::PointerStored {
                checkpoint,
                outcome,
            },
            JobAction::DropCompleted { checkpoint, .. } => JobEvent::Deleted {
                checkpoint: checkpoint.id,
            },
            JobAction::Notify { notice, to, .. } => {
                self.notices.push((notice, to));
                return None;
            }
            _ => return None,
        })
    }

    fn report(&mut self, now: u64, report: Report) {
        let attempt = ATTEMPT;
        self.step(now, JobEvent::Report(AddressedReport { attempt, report }));
    }

    fn acknowledge(&mut self, now: u64, id: u64, subtask: SubtaskId) {
        self.acknowledge_with(now, id, subtask, Vec::new());
    }

    /// With seven bytes in a list, and keyed state in these pieces if there are any.
    fn acknowledge_with(&mut self, now: u64, id: u64, subtask: SubtaskId, pieces: Vec<KeyedPiece>) {
        let key_groups = MaxParallelism::derive(2).range(subtask.index, 2);
        let key_groups = key_groups.expect("two are enough");
        let keyed = KeyedStateHandle { pieces, key_groups };
        let list = ListState {
            name: "l".to_owned(),
            redistribution: Redistribution::Split,
            elements: vec![vec![0; 7]],
        };
        let acknowledged = Report::Acknowledged {
            checkpoint: CheckpointId(id),
            subtask,
            state: SubtaskState {
                keyed: Some(keyed).filter(|keyed| !keyed.pieces.is_empty()),
                lists: vec![list],
                ..SubtaskState::default()
            },
            metrics: SnapshotMetrics {
                sync: Duration::from_micros(u64::from(subtask.index) + 1),
                ..SnapshotMetrics::default()
            },
        };
        self.report(now, acknowledged);
    }

    /// Of `count`'s subtasks in a checkpoint: when each acknowledged, and whether in time.
    fn counts(&self, id: u64) -> Vec<Option<(u128, bool)>> {
        let entry = self.job.statistics().checkpoint(CheckpointId(id));
        let mut operators = entry.expect("it is remembered").operators();
        let count = operators.nth(1).expect("there are two operators");
        let shown = count.subtasks();
        shown
            .map(|s| s.map(|s| (s.acknowledged_after.as_millis(), s.in_time)))
            .collect()
    }
}

// PL-01, SS-01, SS-03
#[test]
fn a_checkpoint_is_told_of_from_trigger_to_completion() {
    let mut world = World::running(10);
    world.step(100, JobEvent::Tick);
    let [(Notice::Trigger(barrier), NoticeTarget::Enumerators)] = &world.notices[..] else {
        panic!("sources alone are triggered: {:?}", world.notices);
    };
    assert_eq!(barrier.checkpoint, CheckpointId(1));
    world.acknowledge(101, 1, SOURCE);
    world.acknowledge(103, 1, SECOND);
    let statistics = world.job.statistics().clone();
    let entry = statistics.checkpoint(CheckpointId(1)).unwrap();
    assert_eq!(entry.status, CheckpointStatus::InProgress);
    assert_eq!((entry.acknowledged, entry.bytes), (2, 14));
    assert_eq!(entry.triggered_at, UnixMillis(1_000_100));
    assert_eq!(world.counts(1), [None, Some((3, true))]);

    world.acknowledge(110, 1, FIRST);
    let completed = CheckpointStatus::Completed {
        duration: Duration::from_millis(10),
    };
    let statistics = world.job.statistics();
    assert_eq!(
        statistics.checkpoint(CheckpointId(1)).unwrap().status,
        completed
    );
    let latest = statistics.latest_completed.as_ref().unwrap();
    assert_eq!((latest.checkpoint, latest.bytes), (CheckpointId(1), 21));
    assert_eq!((statistics.triggered, statistics.completed), (1, 1));
    let checkpoint = CheckpointId(1);
    let all = (Notice::Completed { checkpoint }, NoticeTarget::All);
    assert_eq!(world.notices.last(), Some(&all));
}

fn file(name: &str, bytes: u64) -> KeyedPiece {
    KeyedPiece::File(FileHandle {
        name: name.to_owned(),
        bytes,
        crc32c: 0,
    })
}

// O4, SS-03: a checkpoint that rests on another counts each byte of its state once, and apart from
// that those that were written for it: also per subtask and operator, and when it has completed.
#[test]
fn what_is_new_is_told_apart_from_what_a_checkpoint_rests_on() {
    let mut world = World::running(10);
    let full = |name: &str| file(&format!("chk-1/{name}"), 1000);
    let change = |name: &str| file(&format!("chk-2/{name}"), 50);
    world.step(100, JobEvent::Tick);
    world.acknowledge(100, 1, SOURCE);
    world.acknowledge_with(100, 1, FIRST, vec![full("a")]);
    world.acknowledge_with(100, 1, SECOND, vec![full("b")]);
    world.step(200, JobEvent::Tick);
    world.acknowledge(200, 2, SOURCE);
    let chain = vec![full("a"), change("c")];
    world.acknowledge_with(200, 2, FIRST, chain);
    // What is inline is written into each metadata anew.
    let inline = KeyedPiece::Inline(vec![0; 20].into());
    let entry = |world: &World, id| {
        let statistics = world.job.statistics();
        statistics.checkpoint(CheckpointId(id)).unwrap().clone()
    };
    let under_way = entry(&world, 2);
    assert_eq!((under_way.bytes, under_way.new_bytes), (1064, 64));
    world.acknowledge_with(200, 2, SECOND, vec![full("b"), inline]);

    let first = entry(&world, 1);
    assert_eq!((first.bytes, first.new_bytes), (2021, 2021));
    let second = entry(&world, 2);
    assert_eq!((second.bytes, second.new_bytes), (2091, 91));
    let count = second.operators().nth(1).unwrap();
    assert_eq!((count.bytes(), count.new_bytes()), (2084, 84));
    let subtasks = count.subtasks().flatten();
    let sizes: Vec<_> = subtasks.map(|s| (s.bytes, s.new_bytes)).collect();
    assert_eq!(sizes, [(1057, 57), (1027, 27)]);
    let statistics = world.job.statistics();
    let latest = statistics.latest_completed.as_ref().unwrap();
    assert_eq!((latest.bytes, latest.new_bytes), (2091, 91));
    assert_eq!(statistics.bytes.sum(), 2021 + 2091);
    assert_eq!(statistics.new_bytes.sum(), 2021 + 91);
}

// O4, CC-46: what comes too late tells the same.
#[test]
fn what_comes_late_tells_what_is_new_in_it() {
    let mut world = World::running(10);
    let full = || file("chk-1/a", 1000);
    world.step(100, JobEvent::Tick);
    world.acknowledge(100, 1, SOURCE);
    world.acknowledge_with(100, 1, FIRST, vec![full()]);
    world.acknowledge(100, 1, SECOND);
    world.step(200, JobEvent::Tick);
    world.step(260, JobEvent::Tick);
    world.acknowledge_with(270, 2, FIRST, vec![full(), file("chk-2/c", 50)]);
    let statistics = world.job.statistics();
    let entry = statistics.checkpoint(CheckpointId(2)).unwrap();
    let count = entry.operators().nth(1).unwrap();
    assert_eq!((count.bytes(), count.new_bytes()), (1057, 57));
    assert_eq!((entry.bytes, entry.new_bytes), (0, 0));
}

// PL-06
#[test]
fn nothing_is_triggered_while_a_subtask_does_not_run() {
    let mut world = World::starting(10);
    for subtask in [SOURCE, SECOND] {
        world.report(0, Report::Running { subtask });
    }
    world.step(1000, JobEvent::Tick);
    assert_eq!(
        (world.job.statistics().triggered, world.notices.len()),
        (0, 0)
    );
    world.report(1000, Report::Running { subtask: FIRST });
    world.step(1100, JobEvent::Tick);
    assert_eq!(world.job.statistics().triggered, 1);
}

// CC-46, PC-07
#[test]
fn an_aborted_checkpoint_is_told_of_with_what_comes_late() {
    let mut world = World::running(10);
    world.step(100, JobEvent::Tick);
    world.acknowledge(101, 1, FIRST);
    assert_eq!(world.job.next_deadline(), Some(Millis(160)));
    world.step(160, JobEvent::Tick);
    assert_eq!(world.job.next_deadline(), Some(Millis(200)));
    world.acknowledge(190, 1, SECOND);
    world.acknowledge(191, 1, FIRST);
    let entry = world.job.statistics().checkpoint(CheckpointId(1)).unwrap();
    assert_eq!((entry.acknowledged, entry.bytes), (1, 7));
    let failed = CheckpointStatus::Failed {
        duration: Duration::from_millis(60),
        reason: "it timed out waiting for `source[0]`, `count[1]`".to_owned(),
    };
    assert_eq!(entry.status, failed);
    assert_eq!(world.counts(1), [Some((1, true)), Some((90, false))]);
    assert_eq!(world.job.statistics().sync_us.count(), 1);
}

// SS-02
#[test]
fn the_history_is_as_long_as_the_settings_say() {
    for history in [0, 1, 2] {
        let mut world = World::running(history);
        for id in 1..=3 {
            world.step(id * 100, JobEvent::Tick);
            for subtask in [SOURCE, FIRST, SECOND] {
                world.acknowledge(id * 100, id, subtask);
            }
        }
        let statistics = world.job.statistics();
        let listed: Vec<u64> = statistics
            .history()
            .map(|entry| entry.checkpoint.0)
            .collect();
        assert_eq!(listed, [3, 2][..history as usize]);
        assert_eq!(statistics.completed, 3);
    }
}
