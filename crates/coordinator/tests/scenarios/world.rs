//! A job under test and what its driver would know of the outside world.
//!
//! Commands (each may say `now=…`, which sets the clock; subtasks are `map[0]` or `all`):
//!
//! ```text
//! job uid:parallelism:role … key=value …     makes the job (roles as in the graph)
//! start · tick · cancel · suspend
//! slots N                                    so many workers find room
//! request [full|incremental|canonical]       a checkpoint; requests are numbered from 1
//! request savepoint|stop|drain [DIR] · request abort CHK · request rescale N
//! prepared CHK [outcome]                     the folder of a savepoint is there
//! deleted CHK                                a deletion has ended (with `deletions=slow`)
//! attempt N [outcome]                        the attempt number is reserved
//! ids N [outcome]                            ids are reserved up to N
//! running S                                  subtasks report that they run
//! decline-many N                             so many checkpoints come and go
//! boot                                       all of the above until every subtask runs
//! ack CHK S [file=F,…] [attempt=N]           `file=each`: a file per subtask
//! decline CHK S REASON
//! recorded [outcome]                         the parallelism is recorded (with `records=slow`)
//! end-recorded [outcome]                     the ordered end is recorded (with `records=slow`)
//! published CHK [outcome] · stored CHK [outcome]
//! complete CHK                               ack by all, published, stored
//! ended S · committed CHK S
//! failed [S] CAUSE… · launch-failed CAUSE… · stopped [N] · marked [outcome]
//! recovered CHK … · recovered error
//! deadline · statistics · held-back          show what the job answers
//! ```

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_coordinator::{
    DurableFacts, Job, JobAction, JobEvent, Now, Recovery, RequestId, Statistics,
};
use tidegate_types::graph::{JobGraph, OperatorRole};
use tidegate_types::message::{
    AddressedReport, Notice, Report, SnapshotMetrics, SubtaskFailure, WriteOutcome,
};
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, JobId, KeyGroupRange, KeyedPiece,
    KeyedStateHandle, Millis, Scaling, SnapshotLocation, SubtaskId, SubtaskState, UnixMillis,
};

use crate::parse::{self, Command};
use crate::render;

/// Wall-clock time at monotonic time 0.
const WALL_ORIGIN_MS: u64 = 1_000_000;

#[derive(Default)]
pub(crate) struct World {
    job: Option<Job>,
    graph: JobGraph,
    now_ms: u64,
    started: bool,
    /// The attempt that was started last.
    attempt: u64,
    /// What `recovered` can list.
    published: BTreeMap<CheckpointId, CompletedCheckpoint>,
    /// Actions that wait for an answer of `boot`.
    attempt_wanted: bool,
    ids_wanted: Option<CheckpointId>,
    /// Whether `boot` has to report that all run.
    all_run: bool,
    /// The checkpoint that was triggered last.
    triggered: Option<CheckpointId>,
    requests: Cell<u64>,
    /// Whether deletions report back only when a command says so.
    slow_deletions: bool,
    /// Whether the parallelism, or the end, is recorded only when a command says so.
    slow_records: bool,
    discarded: BTreeSet<String>,
    /// The folders of savepoints.
    locations: BTreeMap<CheckpointId, SnapshotLocation>,
}

impl World {
    /// Carries out one command; returns what there is to show.
    pub(crate) fn command(&mut self, line: &str) -> Vec<String> {
        let command = Command::new(line);
        if let Some(now) = command.options.get("now") {
            self.now_ms = parse::duration(now).as_millis() as u64;
        }
        match command.words[0] {
            "job" => self.make(&command),
            "boot" => self.boot(),
            "complete" => self.complete(parse::checkpoint(command.words[1])),
            "decline-many" => self.decline_many(command.words[1].parse().unwrap()),
            "deadline" => vec![self.deadline()],
            "held-back" => vec![render::held_back(self.job().held_back())],
            "statistics" => vec![statistics(self.job().statistics())],
            _ => {
                let events = self.events(&command);
                events
                    .into_iter()
                    .flat_map(|event| self.step(event))
                    .collect()
            }
        }
    }

    fn make(&mut self, command: &Command<'_>) -> Vec<String> {
        *self = World::default();
        self.graph = parse::graph(&command.words[1..]);
        let number = |key| command.options.get(key).map_or(0, |n| n.parse().unwrap());
        let facts = DurableFacts {
            checkpoint_max: CheckpointId(number("used")),
            attempt_max: AttemptNumber(number("attempts")),
            asked: command
                .options
                .get("asked")
                .map(|asked| parse::asked(asked)),
        };
        self.attempt = number("attempts");
        let settings = parse::settings(&command.options);
        let origin = command.options.get("origin");
        let recovery = Recovery {
            facts,
            origin: origin.map(|id| parse::origin(id.parse().unwrap(), &self.graph)),
            ..Recovery::default()
        };
        self.slow_records = command.options.contains_key("records");
        self.slow_deletions = command.options.contains_key("deletions");
        let job = Job::new(JobId(1), self.graph.clone(), settings, recovery);
        let scaling = Scaling::new(self.graph.clone(), vec![], &[]);
        self.job = Some(job.unwrap().with_scaling(scaling));
        vec![]
    }

    fn job(&mut self) -> &mut Job {
        self.job.as_mut().expect("a scenario begins with `job`")
    }

    fn step(&mut self, event: JobEvent) -> Vec<String> {
        let now = Now {
            monotonic: Millis(self.now_ms),
            wall: UnixMillis(WALL_ORIGIN_MS + self.now_ms),
        };
        let mut actions = Vec::new();
        self.job().step(now, event, &mut actions);
        actions.iter().for_each(|action| self.note(action));
        let mut shown: Vec<String> = actions.iter().map(render::action).collect();
        let records = |action: &JobAction| matches!(action, JobAction::RecordParallelism { .. });
        if !self.slow_records && actions.iter().any(records) {
            let outcome = WriteOutcome::Done;
            shown.extend(self.step(JobEvent::ParallelismRecorded { outcome }));
        }
        let ends = |action: &JobAction| matches!(action, JobAction::RecordEnd { .. });
        if !self.slow_records && actions.iter().any(ends) {
            let outcome = WriteOutcome::Done;
            shown.extend(self.step(JobEvent::EndRecorded { outcome }));
        }
        if self.slow_deletions {
            return shown;
        }
        for checkpoint in actions.iter().filter_map(deletion) {
            shown.extend(self.step(JobEvent::Deleted { checkpoint }));
        }
        shown
    }

    /// Remembers what later commands refer to, and checks that no file is discarded twice.
    fn note(&mut self, action: &JobAction) {
        match action {
            JobAction::ReserveAttempt => self.attempt_wanted = true,
            JobAction::ReserveIds { up_to } => self.ids_wanted = Some(*up_to),
            JobAction::StartAttempt { attempt, .. } => {
                self.attempt = attempt.0;
                self.all_run = false;
                self.graph = JobGraph::clone(self.job().graph());
            }
            JobAction::Notify {
                notice: Notice::Trigger(barrier),
                ..
            } => self.triggered = Some(barrier.checkpoint),
            JobAction::PublishMetadata(checkpoint) => {
                self.published.insert(checkpoint.id, (**checkpoint).clone());
            }
            JobAction::PrepareSavepoint {
                checkpoint,
                location,
            } => {
                self.locations.insert(*checkpoint, location.clone());
            }
            JobAction::DiscardFiles { files, .. } => self.discard(files.iter()),
            JobAction::DropCompleted { checkpoint, spared } => {
                let gone = checkpoint.files().filter(|file| !spared.contains(file));
                self.discard(gone);
            }
            _ => {}
        }
    }

    /// Files are named as they are shown: new ones without the folder, old ones with theirs.
    fn acknowledged(&self, id: CheckpointId, subtask: SubtaskId, files: Option<&str>) -> Report {
        let folder = match self.locations.get(&id) {
            None => id.to_string(),
            Some(location) => location.to_string(),
        };
        let name = |name: &str| match name {
            "each" => format!("{folder}/{}-{subtask}", id.0),
            old if old.contains('/') => old.to_owned(),
            new => format!("{folder}/{new}"),
        };
        let piece = |text: &str| {
            KeyedPiece::File(FileHandle {
                name: name(text),
                bytes: 100,
                crc32c: 0,
            })
        };
        let keyed = files.map(|files| KeyedStateHandle {
            pieces: files.split(',').map(piece).collect(),
            key_groups: KeyGroupRange { start: 0, end: 127 },
        });
        Report::Acknowledged {
            checkpoint: id,
            subtask,
            state: SubtaskState {
                keyed,
                ..SubtaskState::default()
            },
            metrics: SnapshotMetrics {
                alignment: Duration::from_micros(300),
                sync: Duration::from_micros(20),
                write: Duration::from_millis(2),
                ..SnapshotMetrics::default()
            },
        }
    }

    fn discard<'a>(&mut self, files: impl Iterator<Item = &'a FileHandle>) {
        for file in files {
            let new = self.discarded.insert(file.name.clone());
            assert!(new, "{} is discarded twice", file.name);
        }
    }

    fn boot(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        if !std::mem::replace(&mut self.started, true) {
            shown.extend(self.step(JobEvent::Start));
        }
        if std::mem::take(&mut self.attempt_wanted) {
            let attempt = AttemptNumber(self.attempt + 1);
            let outcome = WriteOutcome::Done;
            shown.extend(self.step(JobEvent::AttemptReserved { attempt, outcome }));
        }
        if !std::mem::replace(&mut self.all_run, true) {
            for subtask in self.graph.subtasks() {
                shown.extend(self.report(Report::Running { subtask }));
            }
        }
        if let Some(up_to) = self.ids_wanted.take() {
            let outcome = WriteOutcome::Done;
            shown.extend(self.step(JobEvent::IdsReserved { up_to, outcome }));
        }
        shown
    }

    fn report(&mut self, report: Report) -> Vec<String> {
        let attempt = AttemptNumber(self.attempt);
        self.step(JobEvent::Report(AddressedReport { attempt, report }))
    }

    fn complete(&mut self, checkpoint: CheckpointId) -> Vec<String> {
        let mut shown = Vec::new();
        for subtask in self.graph.subtasks() {
            let report = self.acknowledged(checkpoint, subtask, None);
            shown.extend(self.report(report));
        }
        let outcome = WriteOutcome::Done;
        shown.extend(self.step(JobEvent::MetadataPublished {
            checkpoint,
            outcome: outcome.clone(),
        }));
        shown.extend(self.step(JobEvent::PointerStored {
            checkpoint,
            outcome,
        }));
        shown
    }

    /// So many checkpoints are asked for and declined, silently.
    fn decline_many(&mut self, count: u64) -> Vec<String> {
        for _ in 0..count {
            self.command("request");
            if let Some(up_to) = self.ids_wanted.take() {
                let outcome = WriteOutcome::Done;
                self.step(JobEvent::IdsReserved { up_to, outcome });
            }
            let last = self.triggered.unwrap();
            self.command(&format!("decline {last} src[0] not-ready"));
        }
        vec![]
    }

    fn deadline(&mut self) -> String {
        match self.job().next_deadline() {
            Some(at) => format!("deadline {:?}", Duration::from_millis(at.0)),
            None => "no deadline".to_owned(),
        }
    }

    fn events(&self, command: &Command<'_>) -> Vec<JobEvent> {
        let number = || command.words[1].parse().unwrap();
        let current = AttemptNumber(self.attempt);
        let words = |from: usize| command.words[from..].join(" ");
        let event = match command.words[0] {
            "start" => JobEvent::Start,
            "tick" => JobEvent::Tick,
            "cancel" => JobEvent::CancelRequested,
            "suspend" => JobEvent::SuspendRequested,
            "slots" => JobEvent::Slots {
                slots: command.words[1].parse().unwrap(),
            },
            "request" => {
                self.requests.set(self.requests.get() + 1);
                JobEvent::Requested {
                    request: RequestId(self.requests.get()),
                    what: parse::request(command),
                }
            }
            "prepared" => JobEvent::SavepointPrepared {
                checkpoint: parse::checkpoint(command.words[1]),
                outcome: parse::outcome(command.word(2)),
            },
            "deleted" => JobEvent::Deleted {
                checkpoint: parse::checkpoint(command.words[1]),
            },
            "attempt" => JobEvent::AttemptReserved {
                attempt: AttemptNumber(number()),
                outcome: parse::outcome(command.word(2)),
            },
            "ids" => JobEvent::IdsReserved {
                up_to: CheckpointId(number()),
                outcome: parse::outcome(command.word(2)),
            },
            "published" => JobEvent::MetadataPublished {
                checkpoint: parse::checkpoint(command.words[1]),
                outcome: parse::outcome(command.word(2)),
            },
            "recorded" => JobEvent::ParallelismRecorded {
                outcome: parse::outcome(command.word(1)),
            },
            "end-recorded" => JobEvent::EndRecorded {
                outcome: parse::outcome(command.word(1)),
            },
            "stored" => JobEvent::PointerStored {
                checkpoint: parse::checkpoint(command.words[1]),
                outcome: parse::outcome(command.word(2)),
            },
            "launch-failed" => JobEvent::AttemptLaunchFailed {
                attempt: current,
                cause: words(1),
            },
            "stopped" => JobEvent::AttemptStopped {
                attempt: command
                    .word(1)
                    .map_or(current, |number| AttemptNumber(number.parse().unwrap())),
            },
            "marked" => JobEvent::MarkedFinished {
                outcome: parse::outcome(command.word(1)),
            },
            "recovered" => JobEvent::Recovered {
                completed: self.recovered(command),
            },
            _ => return self.reports(command),
        };
        vec![event]
    }

    fn recovered(&self, command: &Command<'_>) -> Result<Vec<CompletedCheckpoint>, String> {
        if command.word(1) == Some("error") {
            return Err("no route".to_owned());
        }
        let listed = command.words[1..]
            .iter()
            .map(|word| parse::checkpoint(word));
        Ok(listed.map(|id| self.published[&id].clone()).collect())
    }

    fn reports(&self, command: &Command<'_>) -> Vec<JobEvent> {
        let attempt = command.options.get("attempt");
        let attempt = AttemptNumber(attempt.map_or(self.attempt, |n| n.parse().unwrap()));
        let addressed = |report| JobEvent::Report(AddressedReport { attempt, report });
        let all = |role: OperatorRole| self.graph.subtasks_where(|op| op.role == role);
        let named = |index: usize, among| {
            let word = command.words[index];
            parse::subtasks(&self.graph, word, among).into_iter()
        };
        let id = |index: usize| parse::checkpoint(command.words[index]);
        let reports: Vec<Report> = match command.words[0] {
            "running" => named(1, self.graph.subtasks())
                .map(|subtask| Report::Running { subtask })
                .collect(),
            "ack" => named(2, self.graph.subtasks())
                .map(|subtask| {
                    let file = command.options.get("file").copied();
                    self.acknowledged(id(1), subtask, file)
                })
                .collect(),
            "decline" => named(2, vec![])
                .map(|subtask| Report::Declined {
                    checkpoint: id(1),
                    subtask,
                    reason: parse::decline(command.words[3]),
                })
                .collect(),
            "ended" => named(1, all(OperatorRole::Reader))
                .map(|subtask| Report::SourceEnded { subtask })
                .collect(),
            "committed" => named(2, all(OperatorRole::CommittingSink))
                .map(|subtask| Report::Committed {
                    checkpoint: id(1),
                    subtask,
                })
                .collect(),
            "failed" => vec![self.failed(command)],
            other => panic!("command `{other}`"),
        };
        reports.into_iter().map(addressed).collect()
    }

    fn failed(&self, command: &Command<'_>) -> Report {
        let subtask = command.word(1).filter(|word| word.ends_with(']'));
        let cause = &command.words[1 + usize::from(subtask.is_some())..];
        let subtask = subtask.map(|word| parse::subtasks(&self.graph, word, vec![])[0]);
        Report::Failed(SubtaskFailure::here(subtask, cause.join(" ")))
    }
}

/// The checkpoint that an action deletes something of.
fn deletion(action: &JobAction) -> Option<CheckpointId> {
    match action {
        JobAction::DropCompleted { checkpoint, .. } => Some(checkpoint.id),
        JobAction::DiscardFiles { checkpoint, .. } => Some(*checkpoint),
        _ => None,
    }
}

fn statistics(statistics: &Statistics) -> String {
    let Statistics {
        triggered,
        completed,
        failed,
        in_progress,
        restarts,
        ..
    } = statistics;
    format!(
        "triggered={triggered} completed={completed} failed={failed} in-progress={in_progress} \
         restarts={restarts} snapshots={}",
        statistics.alignment_us.count()
    )
}
