//! A hand-driven attempt: a small job, its reports in a queue, state files in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_runtime::Batch;
use tidegate_runtime::sink::{Sink, SinkContext, SinkWriter};
use tidegate_runtime::source::{
    NextSplit, ReadStatus, Source, SourceContext, SplitEnumerator, SplitReader,
};
use tidegate_runtime::{
    Attempt, AttemptContext, AttemptMetrics, BoxError, Clock, Collector, Flow, JobPlan,
    StateFileRead, StateFileWrite, StateFiles, StatePlacement, Ticks,
};
use tidegate_state::Record;
use tidegate_types::graph::{OperatorRole, OperatorSpec};
use tidegate_types::message::{Notice, Report};
use tidegate_types::{
    AlignmentMode, AttemptNumber, CheckpointBarrier, CheckpointId, FileHandle, MaxParallelism,
    OperatorUid, RestorePlan, SnapshotFormat, SnapshotKind, SnapshotLocation, SubtaskId,
    SubtaskRestore, SubtaskState, UnixMillis,
};

/// A test that waits longer than this has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn operator(uid: &str, parallelism: u32) -> OperatorSpec {
    OperatorSpec {
        uid: OperatorUid(uid.to_owned()),
        parallelism,
        max_parallelism: MaxParallelism::derive(parallelism),
        max_parallelism_derived: true,
        role: OperatorRole::Transform,
    }
}

/// The numbers from 0 to `count`, in ranges of `range`; without end if `count` is `None`.
#[derive(Clone)]
pub(crate) struct Numbers {
    pub(crate) count: Option<u64>,
    pub(crate) range: u64,
    /// Emits no more than this many records, as long as it is set.
    pub(crate) limit: Option<Arc<Mutex<u64>>>,
    /// Holds up the reader with index 1, in its `poll`.
    pub(crate) reader_gate: Gate,
    /// Holds up the making of the enumerator.
    pub(crate) opening_gate: Gate,
    /// Whether an enumerator can be made.
    pub(crate) opens: bool,
}

/// Blocks who passes while it is closed. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    closed: bool,
    waiting: usize,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.0.0.lock().unwrap().closed = true;
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().closed = false;
        self.0.1.notify_all();
    }

    /// How many are held up.
    pub(crate) fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    pub(crate) fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.waiting += 1;
        while state.closed {
            state = self.0.1.wait(state).unwrap();
        }
        state.waiting -= 1;
    }
}

impl Numbers {
    pub(crate) fn up_to(count: u64) -> Self {
        Numbers {
            count: Some(count),
            range: 1000,
            ..Numbers::endless()
        }
    }

    pub(crate) fn endless() -> Self {
        Numbers {
            count: None,
            range: 1000,
            limit: None,
            reader_gate: Gate::default(),
            opening_gate: Gate::default(),
            opens: true,
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) next: u64,
    pub(crate) end: u64,
}

impl Record for Range {}

pub(crate) struct Ranges {
    next: u64,
    source: Numbers,
}

impl SplitEnumerator for Ranges {
    type Split = Range;
    type State = u64;

    fn next(&mut self, _now: Ticks) -> Result<NextSplit<Range>, BoxError> {
        let count = self.source.count.unwrap_or(u64::MAX);
        if self.next >= count {
            return Ok(NextSplit::End);
        }
        let end = (self.next + self.source.range).min(count);
        let next = std::mem::replace(&mut self.next, end);
        Ok(NextSplit::Split(Range { next, end }))
    }

    fn snapshot(&self) -> u64 {
        self.next
    }
}

pub(crate) struct RangeReader {
    index: u32,
    ranges: Vec<Range>,
    source: Numbers,
}

impl SplitReader for RangeReader {
    type Split = Range;
    type Item = u64;

    fn assign(&mut self, split: Range) {
        self.ranges.push(split);
    }

    fn poll(&mut self, out: &mut Collector<u64>) -> Result<ReadStatus, BoxError> {
        if self.index == 1 {
            self.source.reader_gate.pass();
        }
        let Some(range) = self.ranges.first_mut() else {
            return Ok(ReadStatus::Drained);
        };
        let mut budget = 512;
        while range.next < range.end && budget > 0 && !out.is_full() {
            if let Some(limit) = &self.source.limit {
                let mut left = limit.lock().unwrap();
                if *left == 0 {
                    return Ok(ReadStatus::At(Ticks::now().after(Duration::from_millis(5))));
                }
                *left -= 1;
            }
            out.emit(range.next);
            range.next += 1;
            budget -= 1;
        }
        if range.next == range.end {
            self.ranges.remove(0);
        }
        Ok(if self.ranges.is_empty() {
            ReadStatus::Drained
        } else {
            ReadStatus::More
        })
    }

    fn unfinished(&self) -> usize {
        self.ranges.len()
    }

    fn snapshot(&self) -> Vec<Range> {
        self.ranges.clone()
    }
}

impl Source for Numbers {
    type Item = u64;
    type Split = Range;
    type Enumerator = Ranges;
    type Reader = RangeReader;

    fn enumerator(
        &self,
        _context: SourceContext,
        restored: Option<u64>,
    ) -> Result<Ranges, BoxError> {
        self.opening_gate.pass();
        if !self.opens {
            return Err("no such numbers".into());
        }
        Ok(Ranges {
            next: restored.unwrap_or(0),
            source: self.clone(),
        })
    }

    fn reader(&self, context: SourceContext) -> Result<RangeReader, BoxError> {
        Ok(RangeReader {
            index: context.subtask.index,
            ranges: Vec::new(),
            source: self.clone(),
        })
    }
}

/// Collects what arrives.
#[derive(Clone, Default)]
pub(crate) struct Collected<T>(pub(crate) Arc<Mutex<Vec<T>>>);

impl<T: Record> Sink<T> for Collected<T> {
    type Writer = Collected<T>;

    fn writer(&self, _context: SinkContext) -> Result<Self::Writer, BoxError> {
        Ok(self.clone())
    }
}

impl<T: Record> SinkWriter<T> for Collected<T> {
    fn write(&mut self, records: &mut Batch<T>) -> Result<Flow, BoxError> {
        self.0.lock().unwrap().extend(records);
        Ok(Flow::Continue)
    }
}

/// State files in memory.
#[derive(Clone, Default)]
pub(crate) struct Files {
    contents: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Holds up every write.
    pub(crate) gate: Gate,
    /// Makes writes fail, once they have passed the gate.
    pub(crate) full: Arc<AtomicBool>,
    /// Files being written.
    open: Arc<AtomicUsize>,
}

impl Files {
    pub(crate) fn names(&self) -> Vec<String> {
        self.contents.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl StateFiles for Files {
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        let name = match location {
            Some(location) => format!("{location}/{subtask}"),
            None => format!("{checkpoint}/{subtask}"),
        };
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(File {
            files: self.clone(),
            name,
            bytes: Vec::new(),
        }))
    }

    fn open(&self, file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        let bytes = self.contents.lock().unwrap().get(&file.name).cloned();
        Ok(Box::new(Cursor::new(bytes.ok_or("no such file")?)))
    }

    fn discard(&self, _checkpoint: CheckpointId, file: &FileHandle) {
        self.contents.lock().unwrap().remove(&file.name);
    }
}

struct File {
    files: Files,
    name: String,
    bytes: Vec<u8>,
}

impl Drop for File {
    fn drop(&mut self) {
        self.files.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.files.gate.pass();
        if self.files.full.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("no space"));
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl StateFileWrite for File {
    fn finish(mut self: Box<Self>) -> Result<FileHandle, BoxError> {
        let handle = FileHandle {
            name: self.name.clone(),
            bytes: self.bytes.len() as u64,
            crc32c: 0,
        };
        let mut contents = self.files.contents.lock().unwrap();
        contents.insert(handle.name.clone(), std::mem::take(&mut self.bytes));
        drop(contents);
        Ok(handle)
    }
}

/// An attempt under a test's control.
pub(crate) struct Driven {
    pub(crate) attempt: Option<Attempt>,
    pub(crate) reports: Receiver<Report>,
    pub(crate) files: Files,
    pub(crate) plan: Arc<JobPlan>,
    /// Readers that have reported their end so far.
    pub(crate) ended: RefCell<Vec<SubtaskId>>,
    pub(crate) metrics: AttemptMetrics,
}

/// How the workers exchange items and align barriers.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) serialize: bool,
    pub(crate) mode: AlignmentMode,
    pub(crate) placement: StatePlacement,
}

/// However small.
pub(crate) const ALL_IN_FILES: StatePlacement = StatePlacement::Files {
    inline_bytes_max: 0,
};

impl Default for Options {
    fn default() -> Self {
        Options {
            serialize: false,
            mode: AlignmentMode::ExactlyOnce,
            placement: ALL_IN_FILES,
        }
    }
}

pub(crate) fn barrier(checkpoint: u64) -> CheckpointBarrier {
    CheckpointBarrier {
        checkpoint: CheckpointId(checkpoint),
        kind: SnapshotKind::Checkpoint,
        format: SnapshotFormat::Full,
        base: None,
        location: None,
        created: UnixMillis(0),
    }
}

pub(crate) type States = BTreeMap<SubtaskId, SubtaskState>;

impl Driven {
    pub(crate) fn start(plan: JobPlan, options: Options) -> Driven {
        Self::start_from(plan, options, Files::default(), None)
    }

    /// Restores at equal parallelism from what subtasks acknowledged.
    pub(crate) fn start_from(
        plan: JobPlan,
        options: Options,
        files: Files,
        restored: Option<(CheckpointId, &States)>,
    ) -> Driven {
        let driven = Self::launch(plan, options, files, restored);
        driven.wait_until_running();
        driven
    }

    /// Doesn't wait until anything runs.
    pub(crate) fn launch(
        plan: JobPlan,
        options: Options,
        files: Files,
        restored: Option<(CheckpointId, &States)>,
    ) -> Driven {
        plan.validate().unwrap();
        let plan = Arc::new(plan);
        let graph = plan.graph();
        let restore = |subtask: SubtaskId| {
            let spec = graph.operator(subtask.operator);
            let key_groups = spec
                .max_parallelism
                .range(subtask.index, spec.parallelism)
                .unwrap();
            let state = restored
                .and_then(|(_, states)| states.get(&subtask))
                .cloned();
            let state = state.unwrap_or_default();
            SubtaskRestore {
                key_groups,
                keyed: state.keyed.into_iter().collect(),
                lists: state.lists,
                finished: state.finished,
            }
        };
        let operators = graph
            .operator_ids()
            .map(|id| graph.subtasks_of(id).map(restore).collect())
            .collect();
        let (sender, reports) = channel();
        let metrics = AttemptMetrics::new(graph);
        let context = AttemptContext {
            number: AttemptNumber(1),
            placement: options.placement,
            restored: restored.map(|(id, _)| id),
            restore: RestorePlan { operators }.into(),
            cluster: None,
            files: Arc::new(files.clone()),
            reports: Arc::new(move |report| {
                let _ = sender.send(report.report);
            }),
            metrics: metrics.clone(),
            mode: options.mode,
            buffer_timeout: Duration::from_millis(5),
            clock: Clock::System,
            serialize: options.serialize,
        };
        let attempt = Some(Attempt::start(Arc::clone(&plan), context).unwrap());
        Driven {
            attempt,
            reports,
            files,
            plan,
            ended: RefCell::default(),
            metrics,
        }
    }

    /// The subtask that people call `name`.
    pub(crate) fn subtask(&self, name: &str) -> SubtaskId {
        let graph = self.plan.graph();
        let mut subtasks = graph.subtasks().into_iter();
        let found = subtasks.find(|subtask| graph.display(*subtask).to_string() == name);
        found.unwrap_or_else(|| panic!("no subtask `{name}`"))
    }

    pub(crate) fn subtasks(&self) -> usize {
        self.plan.graph().subtasks().len()
    }

    pub(crate) fn next_report(&self) -> Report {
        let report = self.reports.recv_timeout(PATIENCE);
        let report = report.expect("a report in time");
        if let Report::SourceEnded { subtask } = &report {
            self.ended.borrow_mut().push(*subtask);
        }
        report
    }

    fn wait_until_running(&self) {
        let mut left = self.subtasks();
        while left > 0 {
            match self.next_report() {
                Report::Running { .. } => left -= 1,
                Report::SourceEnded { .. } => {}
                Report::Failed(_) => return,
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn notify(&self, notice: Notice) {
        self.attempt.as_ref().unwrap().notify(notice);
    }

    pub(crate) fn trigger(&self, checkpoint: u64) {
        self.notify(Notice::Trigger(barrier(checkpoint)));
    }

    /// Triggers what lies in a folder of its own, as the coordinator does for savepoints.
    pub(crate) fn trigger_savepoint(&self, checkpoint: u64, kind: SnapshotKind) {
        self.notify(Notice::Trigger(CheckpointBarrier {
            kind,
            format: SnapshotFormat::Canonical,
            location: Some(SnapshotLocation::new("memory:/savepoint")),
            ..barrier(checkpoint)
        }));
    }

    pub(crate) fn complete(&self, checkpoint: u64) {
        let checkpoint = CheckpointId(checkpoint);
        self.notify(Notice::Completed { checkpoint });
    }

    pub(crate) fn abort(&self, checkpoint: u64, latest_completed: u64) {
        self.notify(Notice::Aborted {
            checkpoint: CheckpointId(checkpoint),
            latest_completed: CheckpointId(latest_completed),
        });
    }

    /// Waits until every subtask has acknowledged, and returns their states.
    pub(crate) fn acknowledgements(&self, wanted: u64) -> States {
        let mut states = States::new();
        while states.len() < self.subtasks() {
            match self.next_report() {
                Report::Acknowledged {
                    checkpoint,
                    subtask,
                    state,
                    ..
                } => {
                    if checkpoint == CheckpointId(wanted) {
                        assert!(states.insert(subtask, state).is_none(), "{subtask} twice");
                    }
                }
                Report::SourceEnded { .. } | Report::Running { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        states
    }

    pub(crate) fn wait_for(&self, what: &str, wanted: impl Fn(&Report) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if wanted(&self.next_report()) {
                return;
            }
        }
        panic!("no {what}");
    }

    pub(crate) fn stop(&mut self) {
        self.attempt.take().unwrap().stop();
    }
}
