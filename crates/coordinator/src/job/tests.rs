//! A job step by step, with the exact actions.

use std::time::Duration;

use tidegate_types::graph::{Edge, GraphError, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::message::{DeclineReason, Notice, SnapshotMetrics};
use tidegate_types::{
    CheckpointBarrier, CheckpointId, FileHandle, HASH_ID, KeyGroupRange, KeyedStateHandle,
    MaxParallelism, OperatorCheckpoint, OperatorId, OperatorUid, Owner, RestorePlan, Scale,
    SnapshotFormat, SnapshotKind, SnapshotLocation, SubtaskRestore, SubtaskState, UnixMillis,
};

use crate::action::{JobNote, NoticeTarget};
use crate::event::DurableFacts;
use crate::request::{Answer, Request, RequestId};
use crate::settings::CheckpointSettings;

use super::*;

const JOB: JobId = JobId(7);
const ATTEMPT: AttemptNumber = AttemptNumber(3);
const ALL_KEY_GROUPS: KeyGroupRange = KeyGroupRange { start: 0, end: 127 };

/// One source, one keyed operator, one subtask each.
fn graph() -> JobGraph {
    let operator = |uid: &str, role| OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism: 1,
        max_parallelism: MaxParallelism::new(128).unwrap(),
        max_parallelism_derived: false,
        role,
    };
    JobGraph {
        operators: vec![
            operator("source", OperatorRole::Enumerator),
            operator("count", OperatorRole::Transform),
        ],
        edges: vec![Edge {
            from: OperatorId(0),
            to: OperatorId(1),
            partitioning: Partitioning::KeyGroups,
        }],
    }
}

fn settings() -> JobSettings {
    JobSettings {
        checkpoints: CheckpointSettings {
            interval: Some(Duration::from_secs(10)),
            ..CheckpointSettings::default()
        },
        ..JobSettings::default()
    }
}

/// Nothing of it is needed any more.
fn dropped(checkpoint: CompletedCheckpoint) -> JobAction {
    JobAction::DropCompleted {
        checkpoint: Box::new(checkpoint),
        spared: Vec::new(),
    }
}

/// State in the file `f7` of `chk-7`, for instance.
fn counts(name: &str) -> SubtaskState {
    SubtaskState {
        keyed: Some(KeyedStateHandle::of_file(
            FileHandle {
                name: match name.strip_prefix('f') {
                    Some(id) => format!("chk-{id}/{name}"),
                    None => format!("chk-7/{name}"),
                },
                bytes: 10,
                crc32c: 1,
            },
            ALL_KEY_GROUPS,
        )),
        ..SubtaskState::default()
    }
}

fn completed(id: u64, attempt: u64, triggered_at: u64, file: &str) -> CompletedCheckpoint {
    let operator = |uid: &str, state| OperatorCheckpoint {
        uid: OperatorUid(uid.to_owned()),
        max_parallelism: MaxParallelism::new(128).unwrap(),
        subtasks: vec![state],
    };
    CompletedCheckpoint {
        id: CheckpointId(id),
        job: JOB,
        attempt: AttemptNumber(attempt),
        kind: SnapshotKind::Checkpoint,
        location: None,
        owner: Owner::Job,
        triggered_at: UnixMillis(triggered_at),
        hash_id: HASH_ID.to_owned(),
        operators: vec![
            operator("source", SubtaskState::default()),
            operator("count", counts(file)),
        ],
    }
}

fn recovery(completed: Vec<CompletedCheckpoint>, facts: DurableFacts) -> Recovery {
    Recovery {
        completed,
        origin: None,
        facts,
    }
}

fn subtask(operator: u32) -> SubtaskId {
    SubtaskId {
        operator: OperatorId(operator),
        index: 0,
    }
}

/// Steps a job at a time in seconds, wall-clock time being 100 seconds ahead.
fn step(job: &mut Job, seconds: u64, event: JobEvent) -> Vec<JobAction> {
    let mut actions = Vec::new();
    let now = Now {
        monotonic: Millis(seconds * 1000),
        wall: UnixMillis((seconds + 100) * 1000),
    };
    job.step(now, event, &mut actions);
    actions
}

fn report(report: Report) -> JobEvent {
    let attempt = ATTEMPT;
    JobEvent::Report(AddressedReport { attempt, report })
}

fn acknowledged(id: u64, operator: u32, state: SubtaskState) -> JobEvent {
    report(Report::Acknowledged {
        checkpoint: CheckpointId(id),
        subtask: subtask(operator),
        state,
        metrics: SnapshotMetrics::default(),
    })
}

/// A job that was restored from `chk-8`, the second one of two, and runs as its third attempt.
fn running() -> Job {
    running_with(settings())
}

fn running_with(settings: JobSettings) -> Job {
    let recovered = vec![completed(8, 2, 80, "f8"), completed(6, 1, 60, "f6")];
    let facts = DurableFacts {
        checkpoint_max: CheckpointId(20),
        attempt_max: AttemptNumber(1),
        asked: None,
    };
    let mut job = Job::new(JOB, graph(), settings, recovery(recovered, facts)).unwrap();
    step(&mut job, 0, JobEvent::Start);
    let attempt = ATTEMPT;
    let outcome = WriteOutcome::Done;
    step(&mut job, 0, JobEvent::AttemptReserved { attempt, outcome });
    for operator in [0, 1] {
        let subtask = subtask(operator);
        step(&mut job, 0, report(Report::Running { subtask }));
    }
    let up_to = CheckpointId(84);
    let outcome = WriteOutcome::Done;
    step(&mut job, 0, JobEvent::IdsReserved { up_to, outcome });
    job
}

#[test]
fn a_job_that_cannot_run_is_refused_before_anything_starts() {
    let make = |graph, settings, recovered| {
        Job::new(
            JOB,
            graph,
            settings,
            recovery(recovered, DurableFacts::default()),
        )
        .unwrap_err()
    };
    let empty = make(JobGraph::default(), settings(), vec![]);
    assert_eq!(empty, JobError::Graph(GraphError::Empty));

    let mut zero = settings();
    zero.checkpoints.max_concurrent = 0;
    let invalid = make(graph(), zero, vec![]);
    assert!(matches!(invalid, JobError::Settings(_)));

    let mut foreign = completed(4, 1, 0, "f");
    foreign.job = JobId(8);
    assert_eq!(
        make(graph(), settings(), vec![foreign]).to_string(),
        "`chk-4` belongs to job `00000000000000000000000000000008`, not to \
         `00000000000000000000000000000007`"
    );

    let mut rescaled = graph();
    rescaled.operators[1].max_parallelism = MaxParallelism::new(64).unwrap();
    let mismatch = make(rescaled, settings(), vec![completed(4, 1, 0, "f")]);
    assert!(matches!(
        mismatch,
        JobError::Restore(crate::RestoreError::MaxParallelism { .. })
    ));
}

// RS-01, I1, I2: the latest of the recovered checkpoints, numerically, is dealt out.
#[test]
fn an_attempt_starts_from_the_latest_checkpoint() {
    let recovered = vec![completed(10, 2, 80, "f10"), completed(9, 1, 60, "f9")];
    let facts = DurableFacts::default();
    let mut job = Job::new(JOB, graph(), settings(), recovery(recovered, facts)).unwrap();
    let started = step(&mut job, 0, JobEvent::Start);
    assert_eq!(started, [JobAction::ReserveAttempt]);
    let outcome = WriteOutcome::Done;
    let attempt = ATTEMPT;
    let plan = |keyed| {
        vec![SubtaskRestore {
            key_groups: ALL_KEY_GROUPS,
            keyed,
            lists: vec![],
            finished: false,
        }]
    };
    let handle = counts("f10").keyed.unwrap();
    assert_eq!(
        step(&mut job, 0, JobEvent::AttemptReserved { attempt, outcome }),
        [JobAction::StartAttempt {
            attempt,
            restore: Some(CheckpointId(10)),
            scale: Scale::default(),
            plan: Box::new(RestorePlan {
                operators: vec![plan(vec![]), plan(vec![handle])],
            }),
        }]
    );
}

// An attempt's number lies above those in the recovered checkpoints, whatever the counter says.
#[test]
fn an_attempt_number_found_in_a_checkpoint_is_in_use() {
    let recovered = vec![completed(10, 5, 80, "f10")];
    let facts = DurableFacts::default();
    let mut job = Job::new(JOB, graph(), settings(), recovery(recovered, facts)).unwrap();
    step(&mut job, 0, JobEvent::Start);
    let outcome = WriteOutcome::Done;
    let attempt = AttemptNumber(5);
    let actions = step(&mut job, 0, JobEvent::AttemptReserved { attempt, outcome });
    assert!(matches!(
        actions[..],
        [JobAction::Note(JobNote::AttemptFailed { .. })]
    ));
}

// SP-13: another job's attempts are none of this one's, also if its savepoint was claimed.
#[test]
fn attempt_numbers_of_a_claimed_savepoint_are_free() {
    let claimed = CompletedCheckpoint {
        job: JobId(8),
        location: Some(SnapshotLocation::new("file:///savepoints/of-8")),
        ..completed(10, 5, 80, "file:///savepoints/of-8/f10")
    };
    let facts = DurableFacts::default();
    let mut job = Job::new(JOB, graph(), settings(), recovery(vec![claimed], facts)).unwrap();
    step(&mut job, 0, JobEvent::Start);
    let outcome = WriteOutcome::Done;
    let attempt = AttemptNumber(1);
    let actions = step(&mut job, 0, JobEvent::AttemptReserved { attempt, outcome });
    assert!(matches!(
        actions[..],
        [JobAction::StartAttempt {
            restore: Some(CheckpointId(10)),
            ..
        }]
    ));
}

// CC-05, CC-07, CC-08, G5, G8, ID-06: every field of what goes out.
#[test]
fn a_checkpoint_from_trigger_to_completion() {
    let mut job = running();
    assert_eq!(
        step(&mut job, 10, JobEvent::Tick),
        [JobAction::Notify {
            attempt: ATTEMPT,
            notice: Notice::Trigger(CheckpointBarrier {
                checkpoint: CheckpointId(21),
                kind: SnapshotKind::Checkpoint,
                format: SnapshotFormat::Full,
                base: None,
                location: None,
                created: UnixMillis(110_000),
            }),
            to: NoticeTarget::Enumerators,
        }]
    );
    let stateless = SubtaskState::default();
    assert_eq!(step(&mut job, 10, acknowledged(21, 0, stateless)), []);
    let expected = Arc::new(completed(21, ATTEMPT.0, 110_000, "f21"));
    assert_eq!(
        step(&mut job, 11, acknowledged(21, 1, counts("f21"))),
        [JobAction::PublishMetadata(expected.clone())]
    );
    let checkpoint = CheckpointId(21);
    let outcome = WriteOutcome::Done;
    let published = JobEvent::MetadataPublished {
        checkpoint,
        outcome: outcome.clone(),
    };
    assert_eq!(
        step(&mut job, 11, published),
        [JobAction::StorePointer {
            checkpoint,
            location: None,
            owner: Owner::Job,
        }]
    );
    let stored = JobEvent::PointerStored {
        checkpoint,
        outcome,
    };
    let note = JobNote::CheckpointCompleted {
        checkpoint,
        kind: SnapshotKind::Checkpoint,
        bytes: 10,
        new_bytes: 10,
        duration: Duration::from_secs(2),
    };
    assert_eq!(
        step(&mut job, 12, stored),
        [
            JobAction::Note(note),
            JobAction::Notify {
                attempt: ATTEMPT,
                notice: Notice::Completed { checkpoint },
                to: NoticeTarget::All,
            },
            // Two were recovered, though one is retained.
            dropped(completed(6, 1, 60, "f6")),
            dropped(completed(8, 2, 80, "f8")),
        ]
    );
    assert_eq!(job.latest_completed(), Some(&*expected));
}

// SS-01, SS-02, SS-03, SS-05, RS-23
#[test]
fn statistics_tell_what_happened() {
    let mut job = running();
    step(&mut job, 10, JobEvent::Tick);
    for (operator, micros) in [(0, 100), (1, 300)] {
        let metrics = SnapshotMetrics {
            alignment: Duration::from_micros(micros),
            sync: Duration::from_micros(micros / 10),
            write: Duration::from_millis(3),
            ..SnapshotMetrics::default()
        };
        let event = report(Report::Acknowledged {
            checkpoint: CheckpointId(21),
            subtask: subtask(operator),
            state: counts("f21"),
            metrics,
        });
        step(&mut job, 10, event);
    }
    let checkpoint = CheckpointId(21);
    let outcome = WriteOutcome::NotDone {
        cause: "no space".to_owned(),
    };
    let published = JobEvent::MetadataPublished {
        checkpoint,
        outcome,
    };
    step(&mut job, 11, published);
    let statistics = job.statistics();
    assert_eq!((statistics.triggered, statistics.failed), (1, 1));
    let restored = statistics.latest_restored.as_ref().unwrap();
    assert_eq!(restored.checkpoint, CheckpointId(8));
    assert_eq!(restored.kind, SnapshotKind::Checkpoint);
    assert_eq!(
        (&restored.location, restored.restored_at),
        (&None, UnixMillis(100_000))
    );
    assert_eq!(statistics.latest_completed, None);
    let failed = statistics.latest_failed.as_ref().unwrap();
    assert_eq!(failed.checkpoint, Some(checkpoint));
    assert_eq!(failed.reason, "publishing its metadata failed: no space");
    let alignment = &statistics.alignment_us;
    assert_eq!((alignment.min(), alignment.max()), (Some(100), Some(300)));
    assert_eq!(statistics.sync_us.sum(), 40);
    assert_eq!(statistics.write_us.p99(), Some(3000));
    assert_eq!(statistics.duration_ms.count(), 0);
}

// A checkpoint that can't be restored isn't tried again.
#[test]
fn a_recovered_checkpoint_that_does_not_fit_ends_the_job() {
    let mut job = running();
    step(&mut job, 10, JobEvent::Tick);
    for operator in [0, 1] {
        step(&mut job, 10, acknowledged(21, operator, counts("f21")));
    }
    let checkpoint = CheckpointId(21);
    let outcome = WriteOutcome::Unknown {
        cause: "timeout".to_owned(),
    };
    let published = JobEvent::MetadataPublished {
        checkpoint,
        outcome,
    };
    step(&mut job, 10, published);
    step(&mut job, 10, JobEvent::AttemptStopped { attempt: ATTEMPT });
    let mut corrupt = completed(21, 3, 0, "f");
    corrupt.hash_id = "other".to_owned();
    let completed = Ok(vec![corrupt]);
    let actions = step(&mut job, 20, JobEvent::Recovered { completed });
    assert_eq!(actions, [JobAction::ReserveAttempt]);
    let attempt = AttemptNumber(4);
    let outcome = WriteOutcome::Done;
    let actions = step(&mut job, 20, JobEvent::AttemptReserved { attempt, outcome });
    let [JobAction::End(JobEnd::Failed(failure))] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(
        failure.reason.to_string(),
        "the job can't be restored: `chk-21` was made with the key hash `other`, this version \
         uses `xxh3-64/1`"
    );
}

// RD-09: whoever waits is kept, a newcomer is turned away and told how many wait.
#[test]
fn a_full_queue_of_requests_turns_newcomers_away() {
    let mut job = running();
    let request = |number| JobEvent::Requested {
        request: RequestId(number),
        what: Request::Checkpoint { format: None },
    };
    assert_eq!(step(&mut job, 1, request(0)).len(), 1, "triggered at once");
    for number in 1..=1000 {
        assert_eq!(step(&mut job, 1, request(number)), []);
    }
    let refused = Answer::Refused(TriggerRefusal::TooManyRequests { queued: 1000 });
    assert_eq!(
        step(&mut job, 1, request(1001)),
        [JobAction::Answer {
            request: RequestId(1001),
            answer: Box::new(refused),
        }]
    );
    let answered = step(&mut job, 1, JobEvent::CancelRequested);
    let answers = answered
        .iter()
        .filter(|action| matches!(action, JobAction::Answer { .. }));
    assert_eq!(answers.count(), 1001);
}

// CC-24, B5: exactly so many are triggered, and each end of one lets exactly one more start.
#[test]
fn as_many_checkpoints_are_under_way_as_may_be() {
    for max_concurrent in [1, 2, 5] {
        let mut settings = settings();
        settings.checkpoints.interval = Some(Duration::from_secs(1));
        settings.checkpoints.max_concurrent = max_concurrent;
        settings.checkpoints.tolerable_failures = None;
        let mut job = running_with(settings);
        let mut triggered = 0;
        for second in 1..20 {
            triggered += triggers(&step(&mut job, second, JobEvent::Tick));
            assert_eq!(triggered, max_concurrent.min(second as u32));
        }
        for (second, id) in (20..).zip(21..24) {
            let subtask = subtask(0);
            let declined = report(Report::Declined {
                checkpoint: CheckpointId(id),
                subtask,
                reason: DeclineReason::NotReady,
            });
            assert_eq!(triggers(&step(&mut job, second, declined)), 1);
            assert_eq!(triggers(&step(&mut job, second, JobEvent::Tick)), 0);
        }
    }
}

fn triggers(actions: &[JobAction]) -> u32 {
    let is_trigger = |action: &&JobAction| {
        matches!(
            action,
            JobAction::Notify {
                notice: Notice::Trigger(_),
                ..
            }
        )
    };
    actions.iter().filter(is_trigger).count() as u32
}

#[test]
fn nothing_happens_by_itself_once_a_job_has_ended() {
    let mut job = running();
    assert!(job.next_deadline().is_some());
    step(&mut job, 1, JobEvent::CancelRequested);
    step(&mut job, 1, JobEvent::AttemptStopped { attempt: ATTEMPT });
    assert_eq!(job.next_deadline(), None);
    assert_eq!(step(&mut job, 100, JobEvent::Tick), []);
}

#[test]
fn a_failure_names_the_subtask_if_there_is_one_of_that_id() {
    let reason = |operator| {
        let mut job = running();
        let failure = SubtaskFailure::here(Some(subtask(operator)), "boom");
        let actions = step(&mut job, 1, report(Report::Failed(failure)));
        let Some(JobAction::Note(JobNote::AttemptFailed { reason, .. })) = actions.first() else {
            panic!("{actions:?}")
        };
        reason.to_string()
    };
    assert_eq!(reason(1), "subtask 0 of operator `count` failed: boom");
    assert_eq!(reason(2), "boom");
    assert_eq!(reason(99), "boom");
}

// CC-21, BC-26: attempts before this job's first and after its last are not its own.
#[test]
fn acknowledgements_of_attempts_of_others_are_not_touched() {
    let mut job = running();
    for attempt in [0, 2, 4].map(AttemptNumber) {
        let report = Report::Acknowledged {
            checkpoint: CheckpointId(7),
            subtask: subtask(1),
            state: counts("theirs"),
            metrics: SnapshotMetrics::default(),
        };
        let event = JobEvent::Report(AddressedReport { attempt, report });
        assert_eq!(step(&mut job, 1, event), [], "{attempt}");
    }
    let ours = step(&mut job, 1, acknowledged(7, 1, counts("ours")));
    assert!(
        matches!(ours[..], [JobAction::DiscardFiles { .. }]),
        "{ours:?}"
    );
}
