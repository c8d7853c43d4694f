//! DESIGN section 3 in whole jobs: what is in flight is bounded, and drains fast also behind a
//! slow sink; slow branches don't slow others; an idle job sleeps.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::connectors::Throttle;
use tidegate::prelude::*;
use tidegate::{JobReport, RestartStrategy};

fn environment(parallelism: u32) -> Environment {
    Environment::for_tests()
        .with_parallelism(parallelism)
        .with_options(|options| {
            options.settings.checkpoints.interval = Some(Duration::from_millis(100));
            options.settings.restart = RestartStrategy::None;
        })
}

fn assert_quick_checkpoints(report: &JobReport, least: u64) {
    let statistics = &report.statistics;
    assert!(statistics.completed >= least, "{statistics:?}");
    let p99 = statistics.duration_ms.p99().expect("some checkpoints");
    assert!(
        p99 <= 2_000,
        "checkpoints took {p99} ms (p99): {statistics:?}"
    );
}

/// Peak resident memory of this process, in bytes. Tests run in processes of their own.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[test]
fn small_records_behind_a_slow_sink() {
    let env = environment(2);
    env.source("numbers", Generator::new(Some(8_000), |index| index))
        .map("same", |number: u64| number)
        .key_by(|number| number)
        .count("count")
        .sink("slow", Discard.throttle(1_000.0))
        .parallelism(1);
    let report = env.execute("slow-small").unwrap();
    assert_quick_checkpoints(&report, 10);
}

#[test]
fn large_records_behind_a_slow_sink() {
    let before = peak_memory();
    let env = environment(2);
    env.source(
        "blobs",
        Generator::new(Some(400), |index| vec![index as u8; 1 << 20]),
    )
    .map("same", |blob: Vec<u8>| blob)
    .sink("slow", Discard.throttle(100.0))
    .parallelism(1);
    let report = env.execute("slow-large").unwrap();
    assert_quick_checkpoints(&report, 10);
    let used = peak_memory().saturating_sub(before);
    assert!(used < 100 << 20, "{} MiB in flight", used >> 20);
}

#[test]
fn one_record_that_makes_a_thousand() {
    let before = peak_memory();
    let env = environment(1);
    env.source("numbers", Generator::new(Some(10), |index| index))
        .flat_map("many", |number: u64, out: &mut Collector<u64>| {
            (0..1_000).for_each(|copy| out.emit(number * 1_000 + copy));
        })
        .sink("slow", Discard.throttle(1_000.0))
        .parallelism(1);
    let report = env.execute("slow-many").unwrap();
    assert_quick_checkpoints(&report, 3);
    let used = peak_memory().saturating_sub(before);
    assert!(used < 100 << 20, "{} MiB in flight", used >> 20);
}

#[test]
fn a_slow_pipeline_does_not_slow_its_neighbour() {
    let fast_done = Arc::new(AtomicU64::new(0));
    let done = Arc::clone(&fast_done);
    let began = Instant::now();
    let env = environment(2);
    env.source("slow-numbers", Generator::new(Some(5_000), |index| index))
        .sink("slow", Discard.throttle(1_000.0));
    env.source("fast-numbers", Generator::new(Some(300_000), |index| index))
        .map("watch", move |number: u64| {
            if number == 299_999 {
                done.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            }
            number
        })
        .sink("fast", Discard);
    let report = env.execute("branches").unwrap();
    assert!(
        report.elapsed >= Duration::from_millis(2_000),
        "{:?}",
        report.elapsed
    );
    let fast_ms = fast_done.load(Ordering::Relaxed);
    assert!(fast_ms < 1_000, "the fast branch took {fast_ms} ms");
    assert_quick_checkpoints(&report, 10);
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn an_idle_job_uses_little_cpu_and_takes_checkpoints() {
    let env = environment(2);
    // One record a second: nothing to do nearly all the time.
    env.source("drip", Generator::new(Some(3), |index| index).rate(1.0))
        .key_by(|number| number)
        .count("count")
        .sink("sink", Discard);
    let before = cpu_time();
    let report = env.execute("idle").unwrap();
    let used = cpu_time() - before;
    assert!(report.statistics.completed >= 10, "{:?}", report.statistics);
    let share = used.as_secs_f64() / report.elapsed.as_secs_f64();
    assert!(
        share < 0.25,
        "an idle job used {:.0} % of a core",
        share * 100.0
    );
}
