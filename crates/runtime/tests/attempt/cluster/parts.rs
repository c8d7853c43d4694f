//! An attempt in several parts that are connected over loopback, as processes are; each test runs
//! them side by side in its own process.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidegate_runtime::{
    Attempt, AttemptContext, AttemptMetrics, Clock, ClusterPart, Connection, JobPlan,
};
use tidegate_types::graph::JobGraph;
use tidegate_types::message::{Notice, Report, SubtaskFailure};
use tidegate_types::{
    AlignmentMode, AttemptNumber, CheckpointId, ListState, RestorePlan, SubtaskId, SubtaskRestore,
};

use crate::support::{ALL_IN_FILES, Files, PATIENCE, States, barrier};

/// Processes, and threads of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) processes: u32,
    pub(crate) threads: u32,
}

/// One process's part.
pub(crate) struct Part {
    pub(crate) attempt: Option<Attempt>,
    pub(crate) metrics: AttemptMetrics,
    pub(crate) plan: Weak<JobPlan>,
}

/// All parts of an attempt, under a test's control.
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    pub(crate) reports: Receiver<(u32, Report)>,
    pub(crate) graph: JobGraph,
    pub(crate) files: Files,
}

/// Two ends of one connection.
fn pair() -> (Connection, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (
        Connection::tcp(near).unwrap(),
        Connection::tcp(far).unwrap(),
    )
}

/// Everyone's connections to everyone else.
pub(crate) fn connections(processes: u32) -> Vec<Vec<Option<Connection>>> {
    let processes = processes as usize;
    let none = |_| (0..processes).map(|_| None).collect();
    let mut all: Vec<Vec<Option<Connection>>> = (0..processes).map(none).collect();
    for near in 1..processes {
        let (before, rest) = all.split_at_mut(near);
        for (far, its) in before.iter_mut().enumerate() {
            let (one, other) = pair();
            rest[0][far] = Some(one);
            its[near] = Some(other);
        }
    }
    all
}

/// One list of each name, with the elements of all.
fn merged(lists: impl Iterator<Item = ListState>) -> Vec<ListState> {
    let mut merged: Vec<ListState> = Vec::new();
    for list in lists {
        match merged.iter_mut().find(|known| known.name == list.name) {
            Some(known) => known.elements.extend(list.elements),
            None => merged.push(list),
        }
    }
    merged
}

/// What each subtask starts from, whatever the parallelism of the snapshot was: keyed state by key
/// groups, and lists dealt out if the number of subtasks is another one.
pub(crate) fn restore(graph: &JobGraph, states: &States) -> RestorePlan {
    let of = |subtask: SubtaskId| {
        let spec = graph.operator(subtask.operator);
        let range = spec.max_parallelism.range(subtask.index, spec.parallelism);
        let before: Vec<_> = states
            .iter()
            .filter(|(old, _)| old.operator == subtask.operator)
            .map(|(old, state)| (old.index, state))
            .collect();
        let is_mine = |index: u32| index % spec.parallelism == subtask.index;
        let mine = || before.iter().filter(|(index, _)| is_mine(*index));
        SubtaskRestore {
            key_groups: range.unwrap(),
            keyed: before.iter().filter_map(|(_, s)| s.keyed.clone()).collect(),
            lists: merged(mine().flat_map(|(_, state)| state.lists.clone())),
            finished: false,
        }
    };
    let operators = graph.operator_ids();
    RestorePlan {
        operators: operators
            .map(|id| graph.subtasks_of(id).map(of).collect())
            .collect(),
    }
}

pub(crate) fn context(
    graph: &JobGraph,
    files: &Files,
    states: Option<&States>,
    part: ClusterPart,
    reports: impl Fn(Report) + Send + Sync + 'static,
) -> AttemptContext {
    let first = part.process * part.threads;
    let plan = restore(graph, states.unwrap_or(&States::new()));
    AttemptContext {
        number: AttemptNumber(1),
        placement: ALL_IN_FILES,
        restored: states.map(|_| CheckpointId(7)),
        restore: plan.part(first..first + part.threads),
        cluster: Some(part),
        files: Arc::new(files.clone()),
        reports: Arc::new(move |report| reports(report.report)),
        metrics: AttemptMetrics::new(graph),
        mode: AlignmentMode::ExactlyOnce,
        buffer_timeout: Duration::from_millis(5),
        clock: Clock::System,
        serialize: false,
    }
}

impl Parts {
    /// Every process puts the same job together.
    pub(crate) fn start(
        shape: Shape,
        plan: impl Fn() -> JobPlan,
        restored: Option<(&Files, &States)>,
    ) -> Parts {
        let graph = plan().graph().clone();
        let files = restored.map_or_else(Files::default, |(files, _)| files.clone());
        let (sender, reports) = channel();
        let mut parts = Vec::new();
        for (process, connections) in (0..).zip(connections(shape.processes)) {
            let part = ClusterPart {
                process,
                threads: shape.threads,
                connections,
            };
            let sender = sender.clone();
            let states = restored.map(|(_, states)| states);
            let context = context(&graph, &files, states, part, move |report| {
                let _ = sender.send((process, report));
            });
            let metrics = context.metrics.clone();
            let plan = Arc::new(plan());
            let weak = Arc::downgrade(&plan);
            parts.push(Part {
                attempt: Some(Attempt::start(plan, context).unwrap()),
                metrics,
                plan: weak,
            });
        }
        Parts {
            parts,
            reports,
            graph,
            files,
        }
    }

    pub(crate) fn next_report(&self) -> (u32, Report) {
        self.reports
            .recv_timeout(PATIENCE)
            .expect("a report in time")
    }

    pub(crate) fn attempt(&self, process: u32) -> &Attempt {
        self.parts[process as usize].attempt.as_ref().unwrap()
    }

    pub(crate) fn notify(&self, notice: &Notice) {
        let attempts = self.parts.iter().filter_map(|part| part.attempt.as_ref());
        attempts.for_each(|attempt| attempt.notify(notice.clone()));
    }

    pub(crate) fn trigger(&self, checkpoint: u64) {
        self.notify(&Notice::Trigger(barrier(checkpoint)));
    }

    /// Waits until every subtask has acknowledged, and returns their states.
    pub(crate) fn acknowledgements(&self, wanted: u64) -> States {
        let mut states = States::new();
        while states.len() < self.graph.subtasks().len() {
            let (process, report) = self.next_report();
            match report {
                Report::Acknowledged {
                    checkpoint: CheckpointId(checkpoint),
                    subtask,
                    state,
                    ..
                } if checkpoint == wanted => {
                    assert!(states.insert(subtask, state).is_none(), "{subtask} twice");
                }
                Report::Failed(failure) => panic!("process {process}: {failure:?}"),
                _ => {}
            }
        }
        states
    }

    /// Waits until so many readers have come to their end.
    pub(crate) fn wait_for_ends(&self, readers: u32) {
        let mut ended = 0;
        while ended < readers {
            match self.next_report() {
                (_, Report::SourceEnded { .. }) => ended += 1,
                (process, Report::Failed(failure)) => panic!("process {process}: {failure:?}"),
                _ => {}
            }
        }
    }

    /// Waits until the subtask called `name` has acknowledged.
    pub(crate) fn acknowledgement(&self, wanted: u64, name: &str) {
        let is_wanted = |report: Report| match report {
            Report::Acknowledged {
                checkpoint: CheckpointId(checkpoint),
                subtask,
                ..
            } => checkpoint == wanted && self.graph.display(subtask).to_string() == name,
            _ => false,
        };
        while !is_wanted(self.next_report().1) {}
    }

    /// The next failure, with the process that reports it.
    pub(crate) fn failure(&self) -> (u32, SubtaskFailure) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let (process, Report::Failed(failure)) = self.next_report() {
                return (process, failure);
            }
        }
        panic!("no failure");
    }

    /// Records that the subtask called `name` has taken and emitted.
    pub(crate) fn records(&self, name: &str) -> (u64, u64) {
        let mut subtasks = self.graph.subtasks().into_iter();
        let found = subtasks.find(|subtask| self.graph.display(*subtask).to_string() == name);
        let subtask = found.unwrap();
        let sum = |count: fn(&AttemptMetrics, SubtaskId) -> u64| {
            self.parts
                .iter()
                .map(|part| count(&part.metrics, subtask))
                .sum()
        };
        (
            sum(AttemptMetrics::records_in),
            sum(AttemptMetrics::records_out),
        )
    }

    pub(crate) fn abandon(&mut self, process: u32) {
        self.parts[process as usize]
            .attempt
            .take()
            .unwrap()
            .abandon();
    }

    /// Stops all parts, each of which waits for the others.
    pub(crate) fn stop(mut self) {
        let attempts: Vec<Attempt> = self
            .parts
            .iter_mut()
            .filter_map(|p| p.attempt.take())
            .collect();
        std::thread::scope(|scope| {
            for attempt in attempts {
                scope.spawn(|| attempt.stop());
            }
        });
        for part in &self.parts {
            assert_eq!(part.plan.strong_count(), 0, "threads of it are left");
        }
    }
}
