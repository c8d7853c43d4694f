//! The handle on a running job: what it is asked for, what it tells, and the end.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use support::wait_until;
use tidegate::prelude::*;
use tidegate::source::{
    NextSplit, ReadStatus, Source, SourceContext, SplitEnumerator, SplitReader,
};
use tidegate::{
    AbortReason, BoxError, JobClient, JobOutcome, RequestError, RunError, Ticks, TriggerRefusal,
    WaitingFor, WaitsBecause,
};

/// A source whose reader 1 stands still in `poll` while the gate is closed.
#[derive(Clone, Default)]
struct Gated {
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: bool,
}

impl Gated {
    fn set(&self, closed: bool) {
        self.gate.0.lock().unwrap().closed = closed;
        self.gate.1.notify_all();
    }

    fn is_waiting(&self) -> bool {
        self.gate.0.lock().unwrap().waiting
    }

    fn pass(&self) {
        let mut gate = self.gate.0.lock().unwrap();
        while gate.closed {
            gate.waiting = true;
            gate = self.gate.1.wait(gate).unwrap();
        }
        gate.waiting = false;
    }
}

struct NoSplits;

impl SplitEnumerator for NoSplits {
    type Split = u64;
    type State = u64;

    fn next(&mut self, now: Ticks) -> Result<NextSplit<u64>, BoxError> {
        Ok(NextSplit::At(now.after(Duration::from_secs(3600))))
    }

    fn snapshot(&self) -> u64 {
        0
    }
}

struct GatedReader {
    source: Gated,
    index: u32,
}

impl SplitReader for GatedReader {
    type Split = u64;
    type Item = u64;

    fn assign(&mut self, _split: u64) {}

    fn poll(&mut self, out: &mut Collector<u64>) -> Result<ReadStatus, BoxError> {
        if self.index == 1 {
            self.source.pass();
        }
        out.emit(u64::from(self.index));
        Ok(ReadStatus::At(Ticks::now().after(Duration::from_millis(1))))
    }

    fn unfinished(&self) -> usize {
        0
    }

    fn snapshot(&self) -> Vec<u64> {
        Vec::new()
    }
}

impl Source for Gated {
    type Item = u64;
    type Split = u64;
    type Enumerator = NoSplits;
    type Reader = GatedReader;

    fn enumerator(&self, _: SourceContext, _: Option<u64>) -> Result<NoSplits, BoxError> {
        Ok(NoSplits)
    }

    fn reader(&self, context: SourceContext) -> Result<GatedReader, BoxError> {
        Ok(GatedReader {
            source: self.clone(),
            index: context.subtask.index,
        })
    }
}

/// Two readers, then one subtask of everything. Takes checkpoints when it is asked to.
fn start(source: &Gated, timeout: Duration) -> JobClient {
    let env = Environment::for_tests().with_options(|options| {
        options.settings.checkpoints.timeout = timeout;
    });
    env.source("numbers", source.clone())
        .parallelism(2)
        .key_by(|number| number)
        .count("count")
        .sink("sink", Discard);
    let job = env.start("gated").unwrap();
    assert!(job.wait_until_running());
    job
}

/// Waits until what a checkpoint waits for has settled: reader 1, and who waits for it.
fn wait_for_stuck(job: &JobClient) -> WaitingFor {
    let stuck = || job.waiting_for().filter(|w| w.subtasks.len() == 3);
    wait_until("the checkpoint waits for the stuck reader alone", || {
        stuck().is_some_and(|waiting| waiting.subtasks[0].name == "numbers[1]")
    });
    stuck().unwrap()
}

const LONG: Duration = Duration::from_secs(600);

// P7, P11: a checkpoint on request although periodic ones are off. Nobody chooses its id, and the
// answer is what statistics say.
#[test]
fn checkpoints_on_request_complete_and_show_in_the_statistics() {
    let job = start(&Gated::default(), LONG);
    let before = job.statistics();
    let mut last = None;
    for _ in 0..3 {
        let checkpoint = job.checkpoint().unwrap();
        assert!(last < Some(checkpoint.checkpoint));
        last = Some(checkpoint.checkpoint);
        assert_eq!(job.statistics().latest_completed, Some(checkpoint));
    }
    assert_eq!(before.completed, 0, "a picture doesn't change");
    assert_eq!(job.statistics().completed, 3);
    assert!(!job.has_ended());
    job.cancel();
    let error = job.wait().unwrap_err();
    assert!(matches!(error, RunError::Cancelled { latest: None, .. }));
    assert_eq!(
        error.to_string(),
        "job `gated` was cancelled; no checkpoint of it is kept"
    );
}

// D1, D2: everybody is answered, also when the job ends meanwhile or has ended.
#[test]
fn requests_are_answered_whenever_the_job_ends() {
    let source = Gated::default();
    let job = start(&source, LONG);
    job.checkpoint().unwrap();
    source.set(true);
    wait_until("the reader is stuck", || source.is_waiting());
    let stuck = job.clone();
    let asked = std::thread::spawn(move || stuck.checkpoint());
    wait_for_stuck(&job);
    job.cancel();
    let error = asked.join().unwrap().unwrap_err();
    assert!(matches!(
        error,
        RequestError::Failed {
            reason: AbortReason::AttemptEnded,
            ..
        }
    ));
    source.set(false);
    job.wait().unwrap_err();
    assert!(job.has_ended() && !job.wait_until_running());
    for ask in [
        |job: &JobClient| job.checkpoint().map(drop),
        |job: &JobClient| job.savepoint(Some("/no/such/place")).map(drop),
        |job: &JobClient| job.stop_with_savepoint(None, true).map(drop),
        |job: &JobClient| job.abort_checkpoint(tidegate::CheckpointId(1)),
    ] {
        let refused = ask(&job).unwrap_err();
        assert!(
            matches!(refused, RequestError::Refused(TriggerRefusal::Ended)),
            "{refused}"
        );
    }
    // Again, and from a clone.
    assert!(matches!(
        job.clone().wait(),
        Err(RunError::Cancelled { .. })
    ));
}

// P8: whoever asked for a checkpoint is told that somebody else has aborted it.
#[test]
fn a_stuck_checkpoint_is_explained_and_can_be_aborted() {
    let source = Gated::default();
    let job = start(&source, LONG);
    job.checkpoint().unwrap();
    source.set(true);
    wait_until("the reader is stuck", || source.is_waiting());
    assert_eq!(job.waiting_for(), None, "nothing is under way");

    let stuck = job.clone();
    let asked = std::thread::spawn(move || stuck.checkpoint());
    let waiting = wait_for_stuck(&job);
    let [reader, count, sink] = &waiting.subtasks[..] else {
        panic!("{waiting}")
    };
    let name = |name: &str| vec![name.to_owned()];
    let busy = WaitsBecause::BusyWithDataFrom(name("numbers-splits[0]"));
    assert_eq!((&*reader.name, &reader.by), ("numbers[1]", &busy));
    let reader = WaitsBecause::NoBarrierFrom(name("numbers[1]"));
    assert_eq!((&*count.name, &count.by), ("count[0]", &reader));
    let count = WaitsBecause::NoBarrierFrom(name("count[0]"));
    assert_eq!((&*sink.name, &sink.by), ("sink[0]", &count));

    job.abort_checkpoint(waiting.checkpoint).unwrap();
    let error = asked.join().unwrap().unwrap_err();
    assert!(matches!(
        error,
        RequestError::Failed { checkpoint, reason: AbortReason::Requested, .. }
            if checkpoint == waiting.checkpoint
    ));
    let again = job.abort_checkpoint(waiting.checkpoint).unwrap_err();
    assert!(matches!(
        again,
        RequestError::Refused(TriggerRefusal::NotPending { .. })
    ));
    source.set(false);
    job.checkpoint().unwrap();
    job.cancel();
    job.wait().unwrap_err();
}

/// What has been logged by this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

// A checkpoint that takes long is explained in the log, once; and once more when it expires.
#[test]
fn a_slow_checkpoint_is_logged_with_what_it_waits_for() {
    let log = Log::default();
    let writer = log.clone();
    // Other tests of this process, if there are any, only add lines about other checkpoints.
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let source = Gated::default();
    let job = start(&source, Duration::from_millis(600));
    job.checkpoint().unwrap();
    source.set(true);
    wait_until("the reader is stuck", || source.is_waiting());
    let error = job.checkpoint().unwrap_err();
    assert!(matches!(
        error,
        RequestError::Failed {
            reason: AbortReason::Expired { .. },
            ..
        }
    ));
    source.set(false);
    job.cancel();
    job.wait().unwrap_err();

    let reason = "`numbers[1]` is busy with data before the barrier from `numbers-splits[0]`; \
                  `count[0]` waits for the barrier from `numbers[1]`";
    let about = |what: &str| {
        let lines = log.lines().into_iter();
        let found = lines.filter(|line| line.contains(what) && line.contains(reason));
        found.collect::<Vec<_>>()
    };
    let slow = about("slow checkpoint: ");
    assert_eq!(slow.len(), 1, "{:?}", log.lines());
    assert!(slow[0].contains("WARN") && slow[0].contains("has been under way for"));
    assert_eq!(about("checkpoint expired: ").len(), 1, "{:?}", log.lines());
}

#[test]
fn a_job_goes_on_without_anybody_holding_it() {
    let counts = tidegate::connectors::CollectCommitted::new();
    let env = Environment::for_tests();
    env.source("numbers", Generator::new(Some(500), |index| index))
        .sink("sink", counts.clone());
    drop(env.start("forgotten").unwrap());
    let mut seen = 0;
    wait_until("everything is committed", || {
        seen += counts.take().len();
        seen == 500
    });
}

#[test]
fn a_finished_job_is_reported_to_everybody() {
    let env = Environment::for_tests();
    env.source("numbers", Generator::new(Some(500), |index| index))
        .sink("sink", Discard);
    let job = env.start("finishing").unwrap();
    let other = job.clone();
    let waiting = std::thread::spawn(move || other.wait());
    let report = job.wait().unwrap();
    assert_eq!(
        (report.outcome, report.records),
        (JobOutcome::Finished, 500)
    );
    assert_eq!(waiting.join().unwrap().unwrap().records, 500);
    assert_eq!(job.statistics().completed, 1);
    assert_eq!(job.waiting_for(), None);
    // Too late to change anything.
    job.cancel();
    assert!(job.wait().is_ok());
}
