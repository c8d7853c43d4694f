//! One run of the simulated job: subtasks, channels, notices on their way, background threads.
//!
//! It follows the rules of the real attempt: notices arrive in order per worker; stopping drops
//! what the workers hold, while the background threads first end what they have been given; only
//! then the attempt has stopped.

mod background;
mod barriers;
mod increments;
mod logic;
mod output;
mod subtask;

use std::collections::{BTreeMap, VecDeque};

use tidegate_types::graph::{JobGraph, Partitioning};
use tidegate_types::message::{Notice, Report, SubtaskFailure};
use tidegate_types::{AttemptNumber, RestorePlan, SubtaskId};

use crate::invariants::{Checked, Violation};
use crate::outside::Outside;
use crate::record::Channel;
use crate::topology::{Kind, Topology};
use crate::trace::trace;

use background::Task;
use output::EdgeOutput;
use subtask::Subtask;

/// Threads whose reports keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thread {
    Worker,
    Snapshots,
    Commits,
}

/// A thread of one worker.
pub(crate) type Lane = (Thread, u32);

/// How far stopping has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    No,
    Asked,
    /// The workers are gone; background threads end what they have.
    Draining,
}

/// The stream between the coordinator and an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Whole,
    /// Something on it was lost or changed its place, which no real stream does. Whoever waits for
    /// that may wait for ever, until somebody notices.
    Damaged,
    /// Nothing gets through any more.
    Lost,
}

/// Why a subtask stops in the middle of its work.
#[derive(Debug)]
enum Stop {
    /// It failed, as subtasks do.
    Failed(String),
    /// It broke a promise.
    Violated(Violation),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Stop::Violated(violation)
    }
}

/// Everything a subtask touches besides itself.
struct Hands<'a> {
    attempt: AttemptNumber,
    channels: &'a mut Vec<Channel>,
    reports: &'a mut Vec<(Lane, Report)>,
    tasks: &'a mut BTreeMap<Lane, VecDeque<Task>>,
    outside: &'a mut Outside,
}

impl Hands<'_> {
    /// Fails if this is where a subtask is to die.
    fn survive(&mut self) -> Result<(), Stop> {
        match self.outside.subtask_dies() {
            true => Err(Stop::Failed("killed".to_owned())),
            false => Ok(()),
        }
    }

    fn report(&mut self, lane: Lane, report: Report) {
        self.reports.push((lane, report));
    }
}

pub(crate) struct Attempt {
    pub(crate) number: AttemptNumber,
    pub(crate) stopping: Stopping,
    /// Whether its messages get through, and whether all of them did.
    pub(crate) stream: Stream,
    /// Reports that have not left yet.
    pub(crate) reports: Vec<(Lane, Report)>,
    subtasks: Vec<Subtask>,
    channels: Vec<Channel>,
    /// By worker.
    notices: Vec<VecDeque<Notice>>,
    tasks: BTreeMap<Lane, VecDeque<Task>>,
}

impl Attempt {
    pub(crate) fn new(
        number: AttemptNumber,
        graph: &JobGraph,
        plan: &RestorePlan,
        outside: &Outside,
    ) -> Self {
        let Topology { kinds, .. } = &outside.scenario.topology;
        let mode = outside.scenario.mode;
        let mut channels = Vec::new();
        let mut inputs: BTreeMap<SubtaskId, Vec<usize>> = BTreeMap::new();
        let mut outputs: BTreeMap<SubtaskId, Vec<EdgeOutput>> = BTreeMap::new();
        for (number, edge) in graph.edges.iter().enumerate() {
            for from in graph.subtasks_of(edge.from) {
                let mut output = EdgeOutput::new(graph, number, edge);
                for to in graph.subtasks_of(edge.to) {
                    let is_forward = edge.partitioning == Partitioning::Forward;
                    if is_forward && from.index != to.index {
                        continue;
                    }
                    output.add(channels.len());
                    inputs.entry(to).or_default().push(channels.len());
                    channels.push(Channel::default());
                }
                outputs.entry(from).or_default().push(output);
            }
        }
        let subtask = |id: SubtaskId| {
            let kind = kinds[id.operator.0 as usize];
            let inputs = inputs.remove(&id).unwrap_or_default();
            let outputs = outputs.remove(&id).unwrap_or_default();
            let of = (id, graph.operator(id.operator).parallelism);
            Subtask::new(of, kind, inputs, outputs, mode, plan.subtask(id).clone())
        };
        Attempt {
            number,
            stopping: Stopping::No,
            stream: Stream::Whole,
            reports: Vec::new(),
            subtasks: graph.subtasks().into_iter().map(subtask).collect(),
            channels,
            notices: (0..graph.parallelism_max())
                .map(|_| VecDeque::new())
                .collect(),
            tasks: BTreeMap::new(),
        }
    }

    /// Passes a notice to every worker, behind earlier ones.
    pub(crate) fn notify(&mut self, notice: Notice) {
        if self.stream == Stream::Lost {
            return;
        }
        self.notices
            .iter_mut()
            .for_each(|inbox| inbox.push_back(notice.clone()));
    }

    /// Notices that have not arrived, as one worker would get them.
    pub(crate) fn undelivered(&self) -> Vec<Notice> {
        self.notices
            .first()
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn has_workers(&self) -> bool {
        self.stopping != Stopping::Draining
    }

    /// Subtasks that have something to do.
    pub(crate) fn busy_subtasks(&self, outside: &Outside, into: &mut Vec<usize>) {
        if self.has_workers() {
            let busy = |at: &usize| self.subtasks[*at].has_work(&self.channels, outside);
            into.extend((0..self.subtasks.len()).filter(busy));
        }
    }

    /// Workers with notices on their way to them.
    pub(crate) fn noticed_workers(&self) -> Vec<usize> {
        let waiting = |worker: &usize| self.has_workers() && !self.notices[*worker].is_empty();
        (0..self.notices.len()).filter(waiting).collect()
    }

    /// Background threads with tasks.
    pub(crate) fn busy_threads(&self) -> Vec<Lane> {
        self.tasks
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(lane, _)| *lane)
            .collect()
    }

    /// Whether the last thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.stopping == Stopping::Draining && self.tasks.values().all(VecDeque::is_empty)
    }

    /// The subtasks, and apart from them what they work with.
    fn subtasks_and_hands<'a>(
        &'a mut self,
        outside: &'a mut Outside,
    ) -> (&'a mut [Subtask], Hands<'a>) {
        let hands = Hands {
            attempt: self.number,
            channels: &mut self.channels,
            reports: &mut self.reports,
            tasks: &mut self.tasks,
            outside,
        };
        (&mut self.subtasks, hands)
    }

    /// One activation of a subtask.
    pub(crate) fn activate(&mut self, at: usize, outside: &mut Outside) -> Checked {
        let (subtasks, mut hands) = self.subtasks_and_hands(outside);
        match subtasks[at].activate(&mut hands) {
            Ok(()) => Ok(()),
            Err(Stop::Violated(violation)) => Err(violation),
            Err(Stop::Failed(cause)) => {
                self.fail(at, cause, outside);
                Ok(())
            }
        }
    }

    /// The next notice arrives at a worker.
    pub(crate) fn deliver_notice(&mut self, worker: usize, outside: &mut Outside) {
        let Some(notice) = self.take_notice(worker, outside) else {
            return;
        };
        let duplicates = outside.faults.duplicate_notice;
        if outside.rng.chance(duplicates) {
            let later = outside.rng.below(self.notices[worker].len() + 1);
            self.notices[worker].insert(later, notice.clone());
        }
        for subtask in self
            .subtasks
            .iter_mut()
            .filter(|s| s.id.index as usize == worker)
        {
            let is_enumerator = matches!(subtask.kind, Kind::Enumerator { .. });
            if is_enumerator || !matches!(notice, Notice::Trigger(_)) {
                subtask.mailbox.push_back(notice.clone());
            }
        }
    }

    /// The notice that is next, which need not be the one that was sent first.
    fn take_notice(&mut self, worker: usize, outside: &mut Outside) -> Option<Notice> {
        let Outside { rng, faults, .. } = outside;
        let inbox = &mut self.notices[worker];
        if inbox.len() > 1 && rng.chance(faults.reorder_notice) {
            let later = rng.below(inbox.len());
            inbox.swap(0, later);
            self.damage(outside);
        }
        let Outside { rng, faults, .. } = outside;
        let notice = self.notices[worker].pop_front()?;
        let loss = match &notice {
            Notice::Trigger(_) => faults.lose_trigger,
            Notice::Completed { .. } | Notice::Aborted { .. } => faults.lose_outcome,
        };
        if rng.chance(loss) {
            self.damage(outside);
            trace!(outside, "worker {worker} never gets {notice:?}");
            return None;
        }
        Some(notice)
    }

    /// A message was lost or overtaken.
    pub(crate) fn damage(&mut self, outside: &mut Outside) {
        outside.tally.damaged += 1;
        if self.stream == Stream::Whole {
            self.stream = Stream::Damaged;
        }
    }

    /// From now on nothing gets through; what is on its way to the workers gets lost from some
    /// point on.
    pub(crate) fn disconnect(&mut self, outside: &mut Outside) {
        self.stream = Stream::Lost;
        for inbox in &mut self.notices {
            inbox.truncate(outside.rng.below(inbox.len() + 1));
        }
    }

    /// A random subtask fails, if any still runs.
    pub(crate) fn fail_one(&mut self, outside: &mut Outside) {
        let at = outside.rng.below(self.subtasks.len());
        if self.has_workers() && self.subtasks[at].is_alive() {
            self.fail(at, "injected".to_owned(), outside);
        }
    }

    fn fail(&mut self, at: usize, cause: String, outside: &mut Outside) {
        let subtask = self.subtasks[at].id;
        trace!(outside, "{} {subtask} fails: {cause}", self.number);
        self.subtasks[at].die(&mut self.channels);
        let failure = SubtaskFailure::here(Some(subtask), cause);
        self.reports
            .push(((Thread::Worker, subtask.index), Report::Failed(failure)));
    }

    /// What each subtask is at, for people who wonder why nothing happens.
    pub(crate) fn describe(&self) -> String {
        let texts: Vec<String> = self.subtasks.iter().map(Subtask::describe).collect();
        format!("{} {:?}: {}", self.number, self.stopping, texts.join(", "))
    }
}
