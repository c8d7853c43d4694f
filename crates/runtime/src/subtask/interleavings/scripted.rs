//! A job whose sources say what a test tells them to, and whose operators write down what they
//! hear, on one worker that is stepped by hand: two sources → middle → sink, and from a side output
//! of the middle to another sink.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_types::graph::{OperatorRole, Partitioning};
use tidegate_types::message::{Notice, Report};
use tidegate_types::{
    AlignmentMode, CheckpointBarrier, CheckpointId, EventTime, OperatorId, SnapshotKind,
};
use timely::worker::Worker;

use super::job::{NoFiles, Shared, operator};
use super::{States, barrier, hands, restore_plan, states_of};
use crate::attempt::AttemptContext;
use crate::background::Background;
use crate::batch::Batch;
use crate::clock::{Clock, ManualClock};
use crate::error::BoxError;
use crate::logic::{Activity, Flow, Logic, Snapshot, WatermarkProgress};
use crate::metrics::AttemptMetrics;
use crate::output::{Collector, Rebalance, SideCollector};
use crate::plan::{BuiltWorker, EdgeKind, JobPlan, Output, build};

/// What a source is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Emit(u64),
    Watermark(i64),
    Idle,
    Active,
    End,
}

type Script = Arc<Mutex<VecDeque<Line>>>;

struct Actor {
    script: Script,
    ended: bool,
    log: Log,
    name: Who,
}

impl Logic<(), u64> for Actor {
    fn process(
        &mut self,
        _input: &mut Batch<()>,
        _out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        Ok(Flow::Continue)
    }

    fn poll(&mut self, _ended: bool, out: &mut Collector<u64>) -> Result<Activity, BoxError> {
        let line = self.script.lock().unwrap().pop_front();
        match line {
            None if self.ended => return Ok(Activity::Ended),
            None => return Ok(Activity::Idle),
            Some(Line::Emit(number)) => {
                self.log.note(self.name, Heard::Record(number));
                out.emit(number);
            }
            Some(Line::Watermark(time)) => out.emit_watermark(EventTime(time)),
            Some(Line::Idle) => out.emit_idle(),
            Some(Line::Active) => out.emit_active(),
            Some(Line::End) => self.ended = true,
        }
        Ok(Activity::Busy)
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        self.log
            .note(self.name, Heard::Snapshot(barrier.checkpoint.0));
        Ok(Snapshot::default())
    }
}

/// What an operator of the job has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Record(u64),
    Watermark(i64),
    Snapshot(u64),
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Source(usize),
    Middle,
    Sink,
    SideSink,
}

/// What happened, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Shared<(Who, Heard)>);

impl Log {
    fn note(&self, who: Who, heard: Heard) {
        self.0.lock().unwrap().push((who, heard));
    }

    pub(super) fn of(&self, who: Who) -> Vec<Heard> {
        let log = self.0.lock().unwrap();
        let of = log.iter().filter(|(by, _)| *by == who);
        of.map(|(_, heard)| *heard).collect()
    }
}

/// Passes numbers on, from [`SIDE`] on to its side output, and emits as many per watermark as it is
/// told to, one a call.
struct Ear {
    who: Who,
    log: Log,
    controls: Controls,
    fired: usize,
    side: SideCollector<u64>,
}

/// Numbers from here on take the way by the side.
pub(super) const SIDE: u64 = 2_000_000;

/// What a test changes while the job runs.
#[derive(Clone, Default)]
pub(super) struct Controls {
    /// Numbers that the middle emits for each watermark.
    pub(super) timers: Arc<AtomicUsize>,
    /// Which of the sinks takes a break before its first record, until the clock moves.
    pub(super) pausing: Arc<Mutex<Option<Who>>>,
    pub(super) clock: ManualClock,
    /// How often the middle was told that records wait.
    pub(super) told_of_waiting: Arc<AtomicUsize>,
}

/// What the middle emits when a watermark comes.
pub(super) const FIRED: u64 = 1_000_000;

/// How long the sink's break is.
pub(super) const BREAK: Duration = Duration::from_secs(3600);

impl Logic<u64, u64> for Ear {
    fn process(
        &mut self,
        input: &mut Batch<u64>,
        out: &mut Collector<u64>,
    ) -> Result<Flow, BoxError> {
        if *self.controls.pausing.lock().unwrap() == Some(self.who) {
            let now = Clock::Manual(self.controls.clock.clone()).ticks();
            if now.0 < BREAK {
                return Ok(Flow::PauseUntil(now.after(BREAK)));
            }
        }
        while !out.is_full() {
            let Some(number) = input.next() else { break };
            self.log.note(self.who, Heard::Record(number));
            match self.who {
                Who::Middle if number >= SIDE => self.side.emit(number),
                _ => out.emit(number),
            }
        }
        Ok(Flow::Continue)
    }

    fn on_watermark(
        &mut self,
        watermark: EventTime,
        out: &mut Collector<u64>,
    ) -> Result<WatermarkProgress, BoxError> {
        assert!(!out.is_full(), "only when there is room");
        let fires = self.who == Who::Middle && watermark < EventTime::MAX;
        if fires && self.fired < self.controls.timers.load(Ordering::SeqCst) {
            self.fired += 1;
            out.emit(FIRED + self.fired as u64);
            return Ok(WatermarkProgress::More);
        }
        self.fired = 0;
        self.log.note(self.who, Heard::Watermark(watermark.0));
        Ok(WatermarkProgress::Done)
    }

    fn on_records_waiting(&mut self) {
        if self.who == Who::Middle {
            self.controls.told_of_waiting.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn finish(&mut self, _out: &mut Collector<u64>) -> Result<(), BoxError> {
        self.log.note(self.who, Heard::Finish);
        Ok(())
    }

    fn snapshot(&mut self, barrier: &CheckpointBarrier) -> Result<Snapshot, BoxError> {
        self.log
            .note(self.who, Heard::Snapshot(barrier.checkpoint.0));
        Ok(Snapshot::default())
    }
}

/// The job while it is stepped.
pub(super) struct Play<'a> {
    worker: &'a mut Worker,
    built: BuiltWorker,
    scripts: [Script; 2],
    reports: Shared<Report>,
    pub(super) log: Log,
    pub(super) controls: Controls,
}

/// Operators, in the order in which they are built.
pub(super) const SOURCES: [usize; 2] = [0, 1];
const SINKS: [usize; 2] = [3, 4];
pub(super) const OPERATORS: usize = 5;

fn plan(
    scripts: &[Script; 2],
    log: &Log,
    controls: &Controls,
    partitioning: Partitioning,
) -> JobPlan {
    let mut plan = JobPlan::new();
    let sources = SOURCES.map(|index| {
        let spec = operator(&format!("source{index}"), OperatorRole::Transform);
        let (script, log) = (Arc::clone(&scripts[index]), log.clone());
        plan.operator::<(), u64, _>(spec, move |_| {
            Ok(Actor {
                script: Arc::clone(&script),
                ended: false,
                log: log.clone(),
                name: Who::Source(index),
            })
        })
    });
    let ears = [
        ("middle", Who::Middle),
        ("sink", Who::Sink),
        ("side-sink", Who::SideSink),
    ];
    let [middle, sink, side_sink] = ears.map(|(name, who)| {
        let (log, controls) = (log.clone(), controls.clone());
        plan.operator::<u64, u64, _>(operator(name, OperatorRole::Transform), move |context| {
            Ok(Ear {
                side: context.side_output("side")?,
                who,
                log: log.clone(),
                controls: controls.clone(),
                fired: 0,
            })
        })
    });
    let side = plan.side_output::<u64>(middle, "side").unwrap();
    let edges: [(Output, OperatorId); 4] = [
        (sources[0].into(), middle),
        (side.into(), side_sink),
        (sources[1].into(), middle),
        (middle.into(), sink),
    ];
    for edge in edges {
        plan.connect::<u64>(edge, partitioning, EdgeKind::Records, |_| {
            Box::new(Rebalance::default())
        });
    }
    plan
}

impl Play<'_> {
    pub(super) fn start<'a>(
        worker: &'a mut Worker,
        background: &Background,
        mode: AlignmentMode,
        partitioning: Partitioning,
    ) -> Play<'a> {
        let (scripts, log, controls) = Default::default();
        let reports: Shared<Report> = Shared::default();
        let plan = plan(&scripts, &log, &controls, partitioning);
        let sink = Arc::clone(&reports);
        let context = AttemptContext {
            placement: crate::piece::StatePlacement::default(),
            number: tidegate_types::AttemptNumber(1),
            restored: None,
            restore: restore_plan(OPERATORS, None).into(),
            files: Arc::new(NoFiles),
            reports: Arc::new(move |report| sink.lock().unwrap().push(report.report)),
            metrics: AttemptMetrics::new(plan.graph()),
            mode,
            buffer_timeout: Duration::from_millis(5),
            clock: Clock::Manual(controls.clock.clone()),
            serialize: false,
            cluster: None,
        };
        let hands = hands(background, &context);
        let built = build(worker, &plan, &context, hands);
        Play {
            worker,
            built,
            scripts,
            reports,
            log,
            controls,
        }
    }

    fn activate(&self, operator: usize) {
        self.built.mailboxes[operator].activator.activate();
    }

    /// Gives a source more to do, and nobody time to do it.
    pub(super) fn tell(&self, source: usize, lines: &[Line]) {
        self.scripts[source].lock().unwrap().extend(lines);
        self.activate(SOURCES[source]);
    }

    pub(super) fn trigger(&self, source: usize, checkpoint: u64, kind: SnapshotKind) {
        let notice = Notice::Trigger(barrier(checkpoint, kind));
        let mailbox = &self.built.mailboxes[SOURCES[source]];
        mailbox.notices.borrow_mut().push_back(notice);
        self.activate(SOURCES[source]);
    }

    pub(super) fn step(&mut self) {
        self.worker.step();
    }

    /// Far more steps than anything here needs, without waiting for time to pass.
    pub(super) fn settle(&mut self) {
        for _ in 0..100 {
            self.worker.step();
        }
    }

    /// The sinks' break is over.
    pub(super) fn end_break(&mut self) {
        self.controls.clock.advance(BREAK);
        SINKS.iter().for_each(|sink| self.activate(*sink));
        self.settle();
    }

    pub(super) fn states(&self, checkpoint: u64) -> States {
        states_of(&self.reports.lock().unwrap(), CheckpointId(checkpoint))
    }

    pub(super) fn close(self) {
        let failed = |report: &Report| matches!(report, Report::Failed(_));
        let reports = self.reports.lock().unwrap();
        assert!(!reports.iter().any(failed), "{reports:?}");
        for dataflow in self.worker.installed_dataflows() {
            self.worker.drop_dataflow(dataflow);
        }
    }
}
