//! What a job's driver and its clients share.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tidegate_coordinator::{Answer, JobEvent, JobFailure, Request, RequestId, Statistics};
use tidegate_types::CheckpointId;
use tidegate_types::graph::JobGraph;

use crate::clock::Clock;
use crate::error::RunError;
use crate::report::JobReport;
use crate::waiting::Observed;

use super::requests::Requests;

/// How the job ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Well(Box<JobReport>),
    Cancelled {
        latest: Option<CheckpointId>,
    },
    Suspended {
        latest: Option<CheckpointId>,
    },
    Failed(Box<JobFailure>),
    /// The driver is gone without a word.
    Panicked,
}

/// What clients may look at.
#[derive(Debug)]
struct View {
    /// Of the attempt that runs, or of the last one.
    graph: Arc<JobGraph>,
    statistics: Arc<Statistics>,
    observed: Option<Observed>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    name: String,
    pub(super) clock: Clock,
    events: Sender<JobEvent>,
    requests: Mutex<Requests>,
    view: Mutex<View>,
    stage: Mutex<Stage>,
    /// The stage has changed.
    moved: Condvar,
}

/// How far the job is.
#[derive(Debug, Default)]
struct Stage {
    /// Every subtask of its attempt runs.
    running: bool,
    ended: Option<Ended>,
}

impl Shared {
    pub(crate) fn new(
        name: String,
        graph: JobGraph,
        clock: Clock,
        events: Sender<JobEvent>,
    ) -> Shared {
        Shared {
            name,
            clock,
            events,
            requests: Mutex::default(),
            view: Mutex::new(View {
                graph: Arc::new(graph),
                statistics: Arc::default(),
                observed: None,
            }),
            stage: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    /// Asks the driver for something and waits for the answer.
    pub(super) fn request(&self, what: Request) -> Answer {
        let (request, answer) = lock(&self.requests).register();
        self.send(JobEvent::Requested { request, what });
        let ended = Answer::Refused(tidegate_coordinator::TriggerRefusal::Ended);
        answer.recv().unwrap_or(ended)
    }

    /// Nobody receives any more if the job has ended, which is fine.
    pub(super) fn send(&self, event: JobEvent) {
        let _ = self.events.send(event);
    }

    pub(crate) fn answer(&self, request: RequestId, answer: Answer) {
        lock(&self.requests).answer(request, answer);
    }

    pub(super) fn statistics(&self) -> Arc<Statistics> {
        Arc::clone(&lock(&self.view).statistics)
    }

    pub(super) fn observed(&self) -> Option<Observed> {
        lock(&self.view).observed.clone()
    }

    pub(super) fn records_of_sources(&self) -> u64 {
        let view = lock(&self.view);
        let observed = view.observed.as_ref();
        observed.map_or(0, |o| o.metrics.records_of_sources(&view.graph))
    }

    pub(crate) fn publish(&self, statistics: &Statistics) {
        let mut view = lock(&self.view);
        if *view.statistics != *statistics {
            view.statistics = Arc::new(statistics.clone());
        }
    }

    pub(super) fn graph(&self) -> Arc<JobGraph> {
        Arc::clone(&lock(&self.view).graph)
    }

    pub(crate) fn set_graph(&self, graph: Arc<JobGraph>) {
        lock(&self.view).graph = graph;
    }

    pub(crate) fn observe(&self, observed: Option<Observed>) {
        lock(&self.view).observed = observed;
    }

    pub(crate) fn set_running(&self, running: bool) {
        lock(&self.stage).running = running;
        self.moved.notify_all();
    }

    /// Answers whoever waits, and whoever asks from now on, that the job has ended.
    pub(crate) fn close_requests(&self) {
        lock(&self.requests).close();
    }

    /// Tells everybody that the job is over. The first to say how is believed.
    pub(crate) fn end(&self, how: Ended) {
        self.close_requests();
        let mut stage = lock(&self.stage);
        stage.running = false;
        stage.ended.get_or_insert(how);
        drop(stage);
        self.moved.notify_all();
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_running(&self) -> bool {
        lock(&self.stage).running
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.stage).ended.is_some()
    }

    /// Waits for the end, and for nothing more than a running job if that will do.
    fn wait_for_stage(&self, running_will_do: bool) -> Option<Ended> {
        let stage = lock(&self.stage);
        let waits =
            |stage: &mut Stage| stage.ended.is_none() && !(running_will_do && stage.running);
        let stage = self.moved.wait_while(stage, waits);
        stage.unwrap_or_else(PoisonError::into_inner).ended.clone()
    }

    pub(super) fn wait_until_running(&self) -> bool {
        self.wait_for_stage(true).is_none()
    }

    pub(super) fn wait(&self) -> Result<JobReport, RunError> {
        let job = self.name.clone();
        let ended = self.wait_for_stage(false);
        match ended.expect("that is what was waited for") {
            Ended::Well(report) => Ok(*report),
            Ended::Cancelled { latest } => Err(RunError::Cancelled { job, latest }),
            Ended::Suspended { latest } => Err(RunError::Suspended { job, latest }),
            Ended::Failed(cause) => Err(RunError::Failed { job, cause }),
            Ended::Panicked => panic!("the driver of job `{job}` panicked"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
