//! Words of the scenario language.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_coordinator::{
    CheckpointSettings, ElasticSettings, JobSettings, Request, RestartStrategy, Retention,
};
use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::message::{DeclineReason, WriteOutcome};
use tidegate_types::{
    AskedParallelism, AttemptNumber, CheckpointId, CompletedCheckpoint, HASH_ID, JobId,
    MaxParallelism, OperatorCheckpoint, OperatorId, OperatorUid, Owner, SnapshotFormat,
    SnapshotKind, SnapshotLocation, SubtaskId, SubtaskState, UnixMillis,
};

/// A command: its words, and its `key=value` pairs.
pub(crate) struct Command<'a> {
    pub(crate) words: Vec<&'a str>,
    pub(crate) options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Command<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        let (options, words) = line.split_whitespace().partition(|word| word.contains('='));
        let options: Vec<&str> = options;
        Command {
            words,
            options: options
                .iter()
                .filter_map(|word| word.split_once('='))
                .collect(),
        }
    }

    /// The word at `index`, or nothing.
    pub(crate) fn word(&self, index: usize) -> Option<&'a str> {
        self.words.get(index).copied()
    }
}

/// A parallelism that was asked for: `3for2` when the job had been started with 2.
pub(crate) fn asked(text: &str) -> AskedParallelism {
    let (asked, declared) = text.split_once("for").unwrap();
    let number = |text: &str| text.parse().unwrap();
    AskedParallelism {
        declared: number(declared),
        asked: number(asked),
    }
}

/// `500ms`, `10s`, `10m`, `forever`.
pub(crate) fn duration(text: &str) -> Duration {
    if text == "forever" {
        return Duration::MAX;
    }
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().unwrap();
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(60 * number),
        "h" => Duration::from_secs(3600 * number),
        _ => panic!("unit of `{text}`"),
    }
}

/// `chk-7`.
pub(crate) fn checkpoint(text: &str) -> CheckpointId {
    let number = text
        .strip_prefix("chk-")
        .expect("checkpoints are called `chk-N`");
    CheckpointId(number.parse().unwrap())
}

/// `map[1]`, or `all` of those in `among`.
pub(crate) fn subtasks(graph: &JobGraph, text: &str, among: Vec<SubtaskId>) -> Vec<SubtaskId> {
    if text == "all" {
        return among;
    }
    let (uid, index) = text
        .trim_end_matches(']')
        .split_once('[')
        .expect("`uid[index]`");
    let known = graph.operators.iter().position(|op| op.uid.0 == uid);
    // A name that no operator has stands for a subtask that the job doesn't know.
    let operator = OperatorId(known.unwrap_or(99) as u32);
    let index = index.parse().unwrap();
    vec![SubtaskId { operator, index }]
}

/// Nothing or `done`, `not-done`, `unknown`.
pub(crate) fn outcome(text: Option<&str>) -> WriteOutcome {
    let cause = "disk full".to_owned();
    match text {
        None | Some("done") => WriteOutcome::Done,
        Some("not-done") => WriteOutcome::NotDone { cause },
        Some("unknown") => WriteOutcome::Unknown { cause },
        Some(other) => panic!("outcome `{other}`"),
    }
}

pub(crate) fn decline(text: &str) -> DeclineReason {
    let cause = "disk full".to_owned();
    match text {
        "not-ready" => DeclineReason::NotReady,
        "superseded" => DeclineReason::Superseded {
            latest: CheckpointId(9),
        },
        "subsumed" => DeclineReason::SubsumedByBarrier {
            newer: CheckpointId(9),
        },
        "cancelled" => DeclineReason::CancelledUpstream,
        "snapshot" => DeclineReason::SnapshotFailed { cause },
        "write" => DeclineReason::WriteFailed { cause },
        other => panic!("decline reason `{other}`"),
    }
}

/// `uid:parallelism:role` in a row, connected one after the other.
pub(crate) fn graph(words: &[&str]) -> JobGraph {
    let operators: Vec<OperatorSpec> = words.iter().map(|word| operator(word)).collect();
    let edge = |to: u32| Edge {
        from: OperatorId(to - 1),
        to: OperatorId(to),
        partitioning: Partitioning::Rebalance,
    };
    JobGraph {
        edges: (1..operators.len() as u32).map(edge).collect(),
        operators,
    }
}

fn operator(word: &str) -> OperatorSpec {
    let parts: Vec<&str> = word.split(':').collect();
    let parallelism = parts.get(1).map_or(1, |p| p.parse().unwrap());
    OperatorSpec {
        uid: OperatorUid(parts[0].to_owned()),
        parallelism,
        max_parallelism: MaxParallelism::new(128).unwrap(),
        max_parallelism_derived: false,
        role: match parts.get(2).copied() {
            Some("enumerator") => OperatorRole::Enumerator,
            Some("reader") => OperatorRole::Reader,
            Some("sink") => OperatorRole::Sink,
            Some("committing") => OperatorRole::CommittingSink,
            None | Some("transform") => OperatorRole::Transform,
            Some(other) => panic!("role `{other}`"),
        },
    }
}

fn format(text: &str) -> SnapshotFormat {
    match text {
        "full" => SnapshotFormat::Full,
        "incremental" => SnapshotFormat::Incremental,
        "canonical" => SnapshotFormat::Canonical,
        other => panic!("format `{other}`"),
    }
}

fn retention(text: &str) -> Retention {
    match text {
        "retain" => Retention::RetainOnCancellation,
        "delete" => Retention::DeleteOnCancellation,
        "none" => Retention::NoRetention,
        other => panic!("retention `{other}`"),
    }
}

/// `request …`: what is asked for.
pub(crate) fn request(command: &Command<'_>) -> Request {
    let directory = command.word(2).map(SnapshotLocation::new);
    match command.word(1) {
        None => Request::Checkpoint { format: None },
        Some("savepoint") => Request::Savepoint { directory },
        Some("stop") => Request::StopWithSavepoint {
            directory,
            drain: false,
        },
        Some("drain") => Request::StopWithSavepoint {
            directory,
            drain: true,
        },
        Some("rescale") => Request::Rescale {
            parallelism: command.words[2].parse().unwrap(),
        },
        Some("abort") => Request::Abort {
            checkpoint: checkpoint(command.words[2]),
        },
        Some(word) => Request::Checkpoint {
            format: Some(format(word)),
        },
    }
}

/// A savepoint of another job with stateless operators.
pub(crate) fn origin(id: u64, graph: &JobGraph) -> CompletedCheckpoint {
    CompletedCheckpoint {
        id: CheckpointId(id),
        job: JobId(99),
        attempt: AttemptNumber(1),
        kind: SnapshotKind::Savepoint,
        location: Some(SnapshotLocation::new("file:///elsewhere/savepoint")),
        owner: Owner::User,
        triggered_at: UnixMillis(0),
        hash_id: HASH_ID.to_owned(),
        operators: graph
            .operators
            .iter()
            .map(|op| OperatorCheckpoint {
                uid: op.uid.clone(),
                max_parallelism: op.max_parallelism,
                subtasks: vec![SubtaskState::default(); op.parallelism as usize],
            })
            .collect(),
    }
}

pub(crate) fn settings(options: &BTreeMap<&str, &str>) -> JobSettings {
    let mut checkpoints = CheckpointSettings::default();
    let mut restart = RestartStrategy::FixedDelay {
        attempts: 10,
        delay: Duration::from_millis(100),
    };
    let mut elastic = ElasticSettings::default();
    for (key, value) in options {
        match *key {
            "interval" => checkpoints.interval = Some(duration(value)),
            "timeout" => checkpoints.timeout = duration(value),
            "pause" => checkpoints.min_pause = duration(value),
            "max" => checkpoints.max_concurrent = value.parse().unwrap(),
            "retained" => checkpoints.retained = value.parse().unwrap(),
            "tolerable" => checkpoints.tolerable_failures = value.parse().ok(),
            "restarts" => {
                restart = RestartStrategy::FixedDelay {
                    attempts: value.parse().unwrap(),
                    delay: Duration::from_millis(100),
                }
            }
            "min" => elastic.parallelism_min = value.parse().ok(),
            "retention" => checkpoints.retention = retention(value),
            "savepoints" => checkpoints.savepoint_dir = Some(SnapshotLocation::new(value)),
            "format" => checkpoints.format = format(value),
            "used" | "attempts" | "asked" | "now" | "origin" | "deletions" | "records" => {}
            other => panic!("setting `{other}`"),
        }
    }
    JobSettings {
        checkpoints,
        restart,
        allow_non_restored_state: false,
        elastic,
    }
}
