//! Timers in whole jobs: beside a flood of records, at the end, and when told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;

/// Answers each record by a timer that is due at once.
struct Echo {
    processed: Arc<AtomicU64>,
    /// Records that had been processed when the first timer fired.
    first_fired: Arc<AtomicU64>,
    busy: Duration,
}

impl KeyedProcessFunction for Echo {
    type Key = u64;
    type In = u64;
    type Out = (u64, String);

    fn process(
        &mut self,
        _record: u64,
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<(u64, String)>,
    ) -> Result<(), BoxError> {
        self.processed.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        while began.elapsed() < self.busy {}
        ctx.timer_service()
            .register_processing_time_timer(UnixMillis(1))?;
        Ok(())
    }

    fn on_timer(
        &mut self,
        _timer: Timer,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, String)>,
    ) -> Result<(), BoxError> {
        let processed = self.processed.load(Ordering::Relaxed);
        let _ =
            self.first_fired
                .compare_exchange(0, processed, Ordering::Relaxed, Ordering::Relaxed);
        // Large enough to fill the output again and again.
        out.emit((*ctx.key(), "x".repeat(200)));
        Ok(())
    }
}

/// Runs an echo of so many records; returns what was committed, and how many records had been
/// processed when the first timer fired.
fn echo(records: u64, busy: Duration) -> (Vec<u64>, u64) {
    let (processed, first_fired) = (Arc::default(), Arc::default());
    let echoes = CollectCommitted::new();
    let env = Environment::for_tests();
    let first = Arc::clone(&first_fired);
    env.source("numbers", Generator::new(Some(records), |index| index))
        .key_by(|number| number)
        .process("echo", move |_| {
            let (processed, first_fired) = (Arc::clone(&processed), Arc::clone(&first));
            Ok(Echo {
                processed,
                first_fired,
                busy,
            })
        })
        .sink("echoes", echoes.clone());
    env.execute("echo").unwrap();
    let mut echoes: Vec<u64> = echoes.take().into_iter().map(|(key, _)| key).collect();
    echoes.sort_unstable();
    (echoes, first_fired.load(Ordering::Relaxed))
}

// The final barrier is right behind the end of the data: what is due then is emitted before it,
// however often the output is full meanwhile.
#[test]
fn timers_that_are_due_at_the_end_come_before_the_final_checkpoint() {
    const RECORDS: u64 = 30_000;
    let (echoes, _) = echo(RECORDS, Duration::ZERO);
    assert!(echoes.into_iter().eq(0..RECORDS));
}

#[test]
fn timers_fire_although_there_is_always_input() {
    const RECORDS: u64 = 40_000;
    let (echoes, first_fired) = echo(RECORDS, Duration::from_micros(10));
    assert_eq!(echoes.len() as u64, RECORDS);
    assert!(first_fired < RECORDS / 2, "after {first_fired} records");
}

/// Registers a timer anew whenever it fires, without end.
struct Restless;

impl KeyedProcessFunction for Restless {
    type Key = u64;
    type In = u64;
    type Out = u64;

    fn process(
        &mut self,
        record: u64,
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<u64>,
    ) -> Result<(), BoxError> {
        let first = EventTime(record as i64);
        ctx.timer_service().register_event_time_timer(first)?;
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<u64>,
    ) -> Result<(), BoxError> {
        let next = EventTime(timer.time + 1);
        ctx.timer_service().register_event_time_timer(next)?;
        Ok(())
    }
}

// At the end of the data event time comes to its end, which such a timer never reaches.
#[test]
fn a_job_whose_timers_never_end_can_be_cancelled() {
    let env = Environment::for_tests();
    env.source("numbers", Generator::new(Some(10), |index| index))
        .key_by(|number| number)
        .process("restless", |_| Ok(Restless))
        .sink("nothing", Discard);
    let job = env.start("restless").unwrap();
    assert!(job.wait_until_running());
    job.cancel();
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(job.wait().is_err()));
    assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(true));
}

/// Keeps what it gets, and emits it when the input has ended.
struct Buffer {
    kept: OperatorListState<u64>,
}

impl ProcessFunction for Buffer {
    type In = u64;
    type Out = u64;

    fn process(
        &mut self,
        record: u64,
        _ctx: &mut ProcessContext<'_>,
        _out: &mut Collector<u64>,
    ) -> Result<(), BoxError> {
        self.kept.add(record);
        Ok(())
    }

    fn finish(&mut self, out: &mut Collector<u64>) -> Result<(), BoxError> {
        self.kept.get().into_iter().for_each(|kept| out.emit(kept));
        self.kept.clear();
        Ok(())
    }
}

#[test]
fn what_is_left_at_the_end_can_be_emitted_once() {
    for seed in 0..3 {
        let kept = CollectCommitted::new();
        let env = tidegate::testing::under_failures(seed, 4).with_parallelism(2);
        env.source(
            "numbers",
            Generator::new(Some(500), |index| index).rate(5_000.0),
        )
        .process("buffer", |states| {
            let kept = states.split_list("kept")?;
            Ok(Buffer { kept })
        })
        .sink("kept", kept.clone());
        env.execute("buffer").unwrap();
        let mut kept = kept.take();
        kept.sort_unstable();
        assert!(kept.into_iter().eq(0..500), "seed {seed}");
    }
}
