//! Whole jobs in this process, with checkpoints in memory: shapes, ends, failures, restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::RestartStrategy;
use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;

/// An environment that takes a checkpoint every few milliseconds and restarts at once.
fn environment(parallelism: u32, interval: Option<u64>) -> Environment {
    Environment::for_tests()
        .with_parallelism(parallelism)
        .with_options(|options| {
            options.settings.checkpoints.interval = interval.map(Duration::from_millis);
            options.settings.restart = RestartStrategy::FixedDelay {
                attempts: 5,
                delay: Duration::from_millis(1),
            };
        })
}

fn assert_counts(updates: Vec<(u64, u64)>, keys: u64, each: u64) {
    let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, count) in updates {
        by_key.entry(key).or_default().push(count);
    }
    assert_eq!(by_key.len() as u64, keys);
    for (key, mut counts) in by_key {
        counts.sort_unstable();
        assert!(counts.iter().copied().eq(1..=each), "key {key}: {counts:?}");
    }
}

// FT-01: the final checkpoint commits everything, also with periodic checkpoints off.
#[test]
fn a_bounded_job_commits_all_without_periodic_checkpoints() {
    let counts = CollectCommitted::new();
    let env = environment(2, None);
    env.source("numbers", Generator::new(Some(20_000), |index| index % 20))
        .key_by(|key| key)
        .count("count")
        .sink("sink", counts.clone());
    let report = env.execute("bounded").unwrap();
    assert_eq!(report.records, 20_000);
    assert_eq!(report.statistics.completed, 1);
    assert_counts(counts.take(), 20, 1000);
}

// IT-02, TP-03, BC-14: failures in user code, exactly once in state and output.
#[test]
fn panics_are_survived_exactly_once() {
    let counts = CollectCommitted::new();
    let failures = Arc::new(AtomicU64::new(0));
    let env = environment(2, Some(5));
    let failing = Arc::clone(&failures);
    env.source(
        "numbers",
        Generator::new(Some(100_000), |index| index % 50).rate(200_000.0),
    )
    .map("fragile", move |number: u64| {
        // Fails three times, some time after the start of an attempt.
        let calls = failing.fetch_add(1, Ordering::Relaxed);
        assert!(!matches!(calls, 20_000 | 50_000 | 90_000), "fragile");
        number
    })
    .key_by(|key| key)
    .count("count")
    .sink("sink", counts.clone());
    let report = env.execute("panicking").unwrap();
    assert_eq!(report.statistics.restarts, 3);
    assert!(report.statistics.completed > 3, "{:?}", report.statistics);
    assert_counts(counts.take(), 50, 2000);
}

#[test]
fn a_strategy_that_gives_up_names_operator_subtask_and_cause() {
    let env = environment(1, None).with_options(|options| {
        options.settings.restart = RestartStrategy::FixedDelay {
            attempts: 2,
            delay: Duration::from_millis(1),
        };
    });
    env.source("numbers", Generator::new(Some(1_000), |index| index))
        .map("fragile", |number: u64| {
            assert!(number != 500, "number {number} is bad");
            number
        })
        .sink("sink", Discard);
    let error = format!("{:?}", env.execute("failing").unwrap_err());
    for part in [
        "failing",
        "subtask 0 of operator `fragile`",
        "number 500 is bad",
        "2 restarts",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn without_restarts_the_first_failure_is_the_last() {
    let env = environment(2, None)
        .with_options(|options| options.settings.restart = RestartStrategy::None);
    env.source("numbers", Generator::new(None, |index| index))
        .try_flat_map("fragile", |number: u64, _out: &mut Collector<u64>| {
            if number == 5_000 {
                Err("no more".into())
            } else {
                Ok(())
            }
        })
        .sink("sink", Discard);
    let error = format!("{:?}", env.execute("failing").unwrap_err());
    assert!(
        error.contains("of operator `fragile`") && error.contains("no more"),
        "{error}"
    );
}

// RS-08-like shapes: union of streams with parallelism of their own, two branches of one stream.
#[test]
fn unions_and_branches_deliver_everything_once() {
    let (all, odd) = (CollectCommitted::new(), CollectCommitted::new());
    let env = environment(2, Some(3));
    let low = env
        .source(
            "low",
            Generator::new(Some(10_000), |index| index).rate(50_000.0),
        )
        .parallelism(1);
    let high = env
        .source(
            "high",
            Generator::new(Some(10_000), |index| 10_000 + index).rate(80_000.0),
        )
        .map("shift", |number: u64| number)
        .parallelism(4);
    let both = low.union(high);
    both.clone()
        .filter("odd", |number| number % 2 == 1)
        .sink("odd-sink", odd.clone());
    both.map("same", |number: u64| number)
        .parallelism(3)
        .sink("all-sink", all.clone());
    env.execute("shapes").unwrap();
    let sorted = |mut numbers: Vec<u64>| {
        numbers.sort_unstable();
        numbers
    };
    assert!(sorted(all.take()).into_iter().eq(0..20_000));
    assert!(sorted(odd.take()).into_iter().eq((1..20_000).step_by(2)));
}

#[test]
fn pipelines_side_by_side_end_together() {
    let (first, second) = (CollectCommitted::new(), CollectCommitted::new());
    let env = environment(2, Some(5));
    env.source("a", Generator::new(Some(5_000), |index| index % 5))
        .key_by(|key| key)
        .count("count-a")
        .sink("sink-a", first.clone());
    env.source(
        "b",
        Generator::new(Some(3_000), |index| index % 3).rate(30_000.0),
    )
    .key_by(|key| key)
    .count("count-b")
    .parallelism(1)
    .sink("sink-b", second.clone());
    env.execute("side-by-side").unwrap();
    assert_counts(first.take(), 5, 1000);
    assert_counts(second.take(), 3, 1000);
}

// FT-06, IT-08: one source has ended long before the failure; after the restore it emits nothing.
#[test]
fn a_source_that_had_ended_stays_ended_after_a_restore() {
    let out = CollectCommitted::new();
    let env = environment(2, Some(5));
    let short = env.source("short", Generator::new(Some(100), |index| index));
    let long = env.source(
        "long",
        Generator::new(Some(40_000), |i| 1_000 + i).rate(100_000.0),
    );
    let failed = Arc::new(AtomicBool::new(false));
    short
        .union(long)
        .map("fragile", move |number: u64| {
            let fails = number == 21_000 && !failed.swap(true, Ordering::Relaxed);
            assert!(!fails, "once");
            number
        })
        .sink("sink", out.clone());
    let report = env.execute("half-ended").unwrap();
    assert_eq!(report.statistics.restarts, 1);
    let mut numbers = out.take();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq((0..100).chain(1_000..41_000)));
}

// A7: at least once loses nothing.
#[test]
fn at_least_once_loses_nothing() {
    let counts = Collect::new();
    let failed = Arc::new(AtomicBool::new(false));
    let env = environment(2, Some(5))
        .with_options(|options| options.mode = tidegate::AlignmentMode::AtLeastOnce);
    env.source(
        "numbers",
        Generator::new(Some(50_000), |index| index % 10).rate(200_000.0),
    )
    .map("fragile", move |number: u64| {
        let fails = number == 7 && rand_once(&failed);
        assert!(!fails, "once");
        number
    })
    .key_by(|key| key)
    .count("count")
    .sink("sink", counts.clone());
    env.execute("at-least-once").unwrap();
    let mut highest = BTreeMap::new();
    for (key, count) in counts.take() {
        let high: &mut u64 = highest.entry(key).or_default();
        *high = count.max(*high);
    }
    assert_eq!(highest.len(), 10);
    assert!(highest.values().all(|count| *count >= 5_000), "{highest:?}");
}

/// True at one call that comes some time after the start.
fn rand_once(done: &AtomicBool) -> bool {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) > 2_000 && !done.swap(true, Ordering::Relaxed)
}

// B5, CC-24: several checkpoints under way at once.
#[test]
fn concurrent_checkpoints_complete() {
    let counts = CollectCommitted::new();
    let env = environment(3, Some(1))
        .with_options(|options| options.settings.checkpoints.max_concurrent = 4);
    env.source(
        "numbers",
        Generator::new(Some(100_000), |index| index % 1000).rate(400_000.0),
    )
    .key_by(|key| key)
    .count("count")
    .sink("sink", counts.clone());
    let report = env.execute("concurrent").unwrap();
    assert!(report.statistics.completed >= 10, "{:?}", report.statistics);
    assert_counts(counts.take(), 1000, 100);
}

// TIMELY-NOTES: what crosses processes survives serialisation.
#[test]
fn records_survive_serialisation_between_workers() {
    let words = CollectCommitted::new();
    let env = environment(3, Some(5)).with_options(|options| options.serialize = true);
    env.source(
        "numbers",
        Generator::new(Some(9_000), |index| format!("wörd {}", index % 9)),
    )
    .key_by(|word| word)
    .count("count")
    .sink("sink", words.clone());
    env.execute("serialised").unwrap();
    let words: Vec<(String, u64)> = words.take();
    assert_eq!(words.len(), 9_000);
    assert!(words.contains(&("wörd 8".to_owned(), 1_000)));
}

#[test]
fn reduce_and_map_with_state_keep_state_by_key() {
    let (maxima, sums) = (CollectCommitted::new(), CollectCommitted::new());
    let env = environment(2, None);
    let numbers = env.source("numbers", Generator::new(Some(1_000), |index| index));
    numbers
        .clone()
        .key_by_value(|number| number % 2)
        .reduce("max", |highest, number| *highest = number.max(*highest))
        .sink("maxima", maxima.clone());
    numbers
        .key_by_value(|number| number % 4)
        .map_with_state(
            "sum",
            0u64,
            |number, sum, out: &mut Collector<(u64, u64)>| {
                *sum += number;
                out.emit((number % 4, *sum));
            },
        )
        .sink("sums", sums.clone());
    env.execute("stateful").unwrap();
    assert_eq!(maxima.take().into_iter().max(), Some(999));
    let mut totals = BTreeMap::new();
    for (key, sum) in sums.take() {
        let total: &mut u64 = totals.entry(key).or_default();
        *total = sum.max(*total);
    }
    let expected = (0..4).map(|key| (key, (0..1000).filter(|n| n % 4 == key).sum()));
    assert_eq!(totals, expected.collect());
}
