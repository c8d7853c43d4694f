//! What a checkpoint costs the coordinator, by number of subtasks.
//!
//! Drives a real `Job` over the graph *enumerator → reader → three keyed operators → committing
//! sink* (or an enumerator alone) through checkpoints whose acknowledgements come in random order,
//! and answers every write at once. The times are those within `Job::step` alone, by the wall
//! clock, in the round that other load on the machine disturbed least; *late*, *commit* and *abort*
//! are measured once. Reports are made a few at a time, just before the job gets them, as they come
//! off a network. Bytes of metadata are counted by the tables of docs/formats.md.
//!
//! Run with `cargo bench -p tidegate-coordinator --bench scale [-- SUBTASKS…]`; sizes default to
//! 1, 100, 10 000 and 100 000.
#![allow(clippy::print_stdout)]
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use tidegate_coordinator::{
    CheckpointSettings, Job, JobAction, JobEnd, JobEvent, JobSettings, Now, Recovery,
};
use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::message::{AddressedReport, Notice, Report, SnapshotMetrics, WriteOutcome};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, JobId, KeyedStateHandle,
    ListState, MaxParallelism, Millis, OperatorId, OperatorUid, Redistribution, SubtaskId,
    SubtaskState, UnixMillis,
};

const ATTEMPT: AttemptNumber = AttemptNumber(1);
const INTERVAL: Duration = Duration::from_secs(1);
/// How many reports are made at a time.
const BATCH: usize = 64;

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let sizes = match sizes.is_empty() {
        true => vec![1, 100, 10_000, 100_000],
        false => sizes,
    };
    println!(
        "{:>8} {:>7} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12} {:>10} {:>10} {:>12} {:>8}",
        "subtasks",
        "rounds",
        "run ns",
        "ack ns",
        "late ns",
        "commit ns",
        "trigger µs",
        "publish µs",
        "done µs",
        "abort µs",
        "meta bytes",
        "RSS B/st"
    );
    for subtasks in sizes {
        measure(subtasks);
    }
}

/// Measures one size and prints its line.
fn measure(subtasks: usize) {
    let resident = resident_bytes();
    let mut bench = Bench::new(subtasks);
    let running = bench.run();
    let rounds = (400_000 / bench.subtasks.len()).clamp(12, 2000);
    let rounds_taken: Vec<Round> = (0..rounds).map(|_| bench.checkpoint()).collect();
    let held = resident_bytes().saturating_sub(resident) / subtasks as u64;
    let metadata = bench.metadata_bytes;
    let (abort, late) = bench.abort();
    let committed = bench.finish();
    let least = |of: fn(&Round) -> Duration| {
        let times = rounds_taken.iter().map(of);
        times.min().expect("there are rounds")
    };
    let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
    let each = |duration: Duration| duration.as_nanos() / bench.subtasks.len() as u128;
    println!(
        "{:>8} {rounds:>7} {:>10} {:>10} {:>10} {:>10} {:>12.1} {:>12.1} {:>10.1} {:>10.1} \
         {metadata:>12} {held:>8}",
        bench.subtasks.len(),
        each(running),
        least(|round| round.acknowledgement).as_nanos(),
        each(late),
        committed.as_nanos(),
        micros(least(|round| round.trigger)),
        micros(least(|round| round.publish)),
        micros(least(|round| round.publish + round.complete)),
        micros(abort),
    );
}

/// Time spent on one checkpoint.
struct Round {
    trigger: Duration,
    /// Of one acknowledgement, on average over all but the last.
    acknowledgement: Duration,
    /// The last one, which publishes.
    publish: Duration,
    /// From the outcome of publishing to completion.
    complete: Duration,
}

struct Bench {
    job: Job,
    subtasks: Vec<SubtaskId>,
    graph: JobGraph,
    now: u64,
    random: u64,
    metadata_bytes: usize,
    actions: Vec<JobAction>,
}

impl Bench {
    fn new(subtasks: usize) -> Self {
        let graph = graph(subtasks);
        let settings = JobSettings {
            checkpoints: CheckpointSettings {
                interval: Some(INTERVAL),
                timeout: INTERVAL / 2,
                tolerable_failures: None,
                ..CheckpointSettings::default()
            },
            ..JobSettings::default()
        };
        let job = Job::new(JobId(1), graph.clone(), settings, Recovery::default());
        Bench {
            job: job.expect("the graph is valid"),
            subtasks: graph.subtasks(),
            graph,
            now: 0,
            random: 42,
            metadata_bytes: 0,
            actions: Vec::new(),
        }
    }

    /// Takes one step and says how long it took.
    fn step(&mut self, event: JobEvent) -> Duration {
        let now = Now {
            monotonic: Millis(self.now),
            wall: UnixMillis(self.now),
        };
        let start = Instant::now();
        self.job.step(now, event, &mut self.actions);
        start.elapsed()
    }

    /// Takes a step for a report of each subtask, and says how long they took in all.
    fn steps(&mut self, from: &[SubtaskId], said: impl Fn(SubtaskId) -> Report) -> Duration {
        let now = Now {
            monotonic: Millis(self.now),
            wall: UnixMillis(self.now),
        };
        let mut spent = Duration::ZERO;
        for batch in from.chunks(BATCH) {
            let events: Vec<_> = batch.iter().map(|subtask| report(said(*subtask))).collect();
            let start = Instant::now();
            for event in events {
                self.job.step(now, event, &mut self.actions);
            }
            spent += start.elapsed();
        }
        spent
    }

    /// Answers every action until there are none; returns the time within the job and the id
    /// triggered last.
    fn answer(&mut self) -> (Duration, Option<CheckpointId>) {
        let (mut spent, mut triggered) = (Duration::ZERO, None);
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                if let JobAction::Notify { notice, .. } = &action
                    && let Notice::Trigger(barrier) = notice
                {
                    triggered = Some(barrier.checkpoint);
                }
                if let JobAction::PublishMetadata(checkpoint) = &action {
                    self.metadata_bytes = metadata_bytes(checkpoint);
                }
                if let Some(event) = outcome(action) {
                    spent += self.step(event);
                }
            }
        }
        (spent, triggered)
    }

    /// Brings every subtask to run; returns the time of all their reports.
    fn run(&mut self) -> Duration {
        self.step(JobEvent::Start);
        self.answer();
        let subtasks = self.subtasks.clone();
        let spent = self.steps(&subtasks, |subtask| Report::Running { subtask });
        self.answer();
        spent
    }

    fn trigger(&mut self) -> (Duration, CheckpointId) {
        self.now += INTERVAL.as_millis() as u64;
        let spent = self.step(JobEvent::Tick);
        let (more, id) = self.answer();
        (spent + more, id.expect("a checkpoint is due"))
    }

    /// All subtasks in a random order.
    fn shuffled(&mut self) -> Vec<SubtaskId> {
        let mut subtasks = self.subtasks.clone();
        for end in (1..subtasks.len()).rev() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            subtasks.swap(end, (self.random % (end as u64 + 1)) as usize);
        }
        subtasks
    }

    fn acknowledge(&mut self, checkpoint: CheckpointId, from: &[SubtaskId]) -> Duration {
        let graph = self.graph.clone();
        self.steps(from, |subtask| Report::Acknowledged {
            checkpoint,
            subtask,
            state: state(&graph, checkpoint, subtask),
            metrics: SnapshotMetrics {
                sync: Duration::from_micros(50),
                write: Duration::from_millis(3),
                ..SnapshotMetrics::default()
            },
        })
    }

    /// A checkpoint from trigger to completion.
    fn checkpoint(&mut self) -> Round {
        let (trigger, id) = self.trigger();
        self.complete(trigger, id)
    }

    fn complete(&mut self, trigger: Duration, id: CheckpointId) -> Round {
        let subtasks = self.shuffled();
        let (last, others) = subtasks.split_last().expect("there is a subtask");
        let acknowledgement = self.acknowledge(id, others) / others.len().max(1) as u32;
        assert!(self.actions.is_empty(), "one is missing");
        let publish = self.acknowledge(id, &[*last]);
        let (complete, _) = self.answer();
        let latest = self.job.latest_completed();
        assert_eq!(latest.map(|latest| latest.id), Some(id));
        Round {
            trigger,
            acknowledgement,
            publish,
            complete,
        }
    }

    /// Lets a checkpoint expire that lacks one acknowledgement: the time of the abort. Then they
    /// all come again: the time of those.
    fn abort(&mut self) -> (Duration, Duration) {
        let (_, id) = self.trigger();
        let subtasks = self.shuffled();
        self.acknowledge(id, &subtasks[1..]);
        self.now += INTERVAL.as_millis() as u64 / 2;
        let abort = self.step(JobEvent::Tick);
        self.answer();
        let late = self.acknowledge(id, &subtasks);
        self.answer();
        (abort, late)
    }

    /// Lets every source end and every sink commit: the time of one such report.
    fn finish(&mut self) -> Duration {
        let of = |role| self.graph.subtasks_where(|op| op.role == role);
        let (readers, sinks) = (of(OperatorRole::Reader), of(OperatorRole::CommittingSink));
        let Some(commits) = u32::try_from(sinks.len()).ok().filter(|count| *count > 0) else {
            return Duration::ZERO;
        };
        self.steps(&readers, |subtask| Report::SourceEnded { subtask });
        let (_, id) = self.answer();
        let checkpoint = id.expect("the final checkpoint is due");
        self.complete(Duration::ZERO, checkpoint);
        let spent = self.steps(&sinks, |subtask| Report::Committed {
            checkpoint,
            subtask,
        });
        let marked = |action: &JobAction| matches!(action, JobAction::MarkFinished { .. });
        assert!(self.actions.iter().any(marked), "everything is committed");
        self.answer();
        spent / commits
    }
}

fn report(report: Report) -> JobEvent {
    JobEvent::Report(AddressedReport {
        attempt: ATTEMPT,
        report,
    })
}

/// What a perfect driver answers.
fn outcome(action: JobAction) -> Option<JobEvent> {
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
        JobAction::DiscardFiles { checkpoint, .. } => JobEvent::Deleted { checkpoint },
        JobAction::MarkFinished { .. } => JobEvent::MarkedFinished { outcome },
        JobAction::StopAttempt { attempt } => JobEvent::AttemptStopped { attempt },
        JobAction::End(end) => {
            assert_eq!(end, JobEnd::Finished);
            return None;
        }
        _ => return None,
    })
}

/// An enumerator, and if there is more than one subtask, five operators behind it that share the
/// rest.
fn graph(subtasks: usize) -> JobGraph {
    use OperatorRole::{CommittingSink, Enumerator, Reader, Transform};
    let roles = [Reader, Transform, Transform, Transform, CommittingSink];
    let left = (subtasks - 1) as u32;
    let share = |index: usize| left / 5 + u32::from((index as u32) < left % 5);
    let behind = roles.into_iter().enumerate();
    let behind = behind.map(|(index, role)| (role, share(index)));
    let all = std::iter::once((Enumerator, 1)).chain(behind);
    let operators: Vec<OperatorSpec> = all
        .filter(|(_, parallelism)| *parallelism > 0)
        .enumerate()
        .map(|(index, (role, parallelism))| OperatorSpec {
            uid: OperatorUid(format!("operator-{index}")),
            parallelism,
            max_parallelism: MaxParallelism::new(32768).expect("it is the limit"),
            max_parallelism_derived: false,
            role,
        })
        .collect();
    let edge = |to: usize| Edge {
        from: OperatorId(to as u32 - 1),
        to: OperatorId(to as u32),
        partitioning: Partitioning::KeyGroups,
    };
    JobGraph {
        edges: (1..operators.len()).map(edge).collect(),
        operators,
    }
}

/// Offsets for sources and sinks, a file for all others.
fn state(graph: &JobGraph, checkpoint: CheckpointId, subtask: SubtaskId) -> SubtaskState {
    let spec = graph.operator(subtask.operator);
    if spec.role != OperatorRole::Transform {
        return SubtaskState {
            lists: vec![ListState {
                name: "offsets".to_owned(),
                redistribution: Redistribution::Split,
                elements: vec![vec![0; 16]],
            }],
            ..SubtaskState::default()
        };
    }
    let key_groups = spec.max_parallelism.range(subtask.index, spec.parallelism);
    SubtaskState {
        keyed: Some(KeyedStateHandle::of_file(
            FileHandle {
                name: format!("{checkpoint}/1-0123456789abcdef0123456789abcdef-{subtask}.state"),
                bytes: 1 << 20,
                crc32c: 1,
            },
            key_groups.expect("parallelism is below the limit"),
        )),
        ..SubtaskState::default()
    }
}

/// The length of `_metadata` by the tables of docs/formats.md.
fn metadata_bytes(checkpoint: &CompletedCheckpoint) -> usize {
    let text = |text: &str| 4 + text.len();
    let list = |list: &ListState| {
        let elements = list.elements.iter().map(|element| 4 + element.len());
        text(&list.name) + 5 + elements.sum::<usize>()
    };
    let subtask = |state: &SubtaskState| {
        let keyed = state.keyed.iter().map(|_| 8).sum::<usize>();
        let files = state.files().map(|file| 1 + text(&file.name) + 12);
        5 + keyed + files.sum::<usize>() + state.lists.iter().map(list).sum::<usize>()
    };
    let operators = checkpoint.operators.iter().map(|operator| {
        text(&operator.uid.0) + 8 + operator.subtasks.iter().map(subtask).sum::<usize>()
    });
    28 + 41 + text(&checkpoint.hash_id) + 4 + operators.sum::<usize>()
}

/// Memory of the process that is in RAM; zero where the system doesn't tell.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    pages.unwrap_or(0) * 4096
}
