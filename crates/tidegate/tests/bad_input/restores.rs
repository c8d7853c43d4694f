//! Jobs that have changed since their checkpoint was taken, and jobs that can't be built.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;
use tidegate::{CheckpointLocation, MaxParallelism, RestartStrategy, StatePlacement};
use url::Url;

/// Injected errors hit every job of the process: jobs run one after the other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An environment with a checkpoint in `dir` every few milliseconds, which restarts nothing.
pub(crate) fn environment(dir: &Path) -> Environment {
    let url = Url::from_directory_path(dir).unwrap();
    Environment::for_tests().with_options(|options| {
        options.location = CheckpointLocation::Directory(url);
        options.settings.checkpoints.interval = Some(Duration::from_millis(5));
        options.settings.restart = RestartStrategy::None;
        options.placement = StatePlacement::Files {
            inline_bytes_max: 0,
        };
    })
}

/// Numbers to count by key: of 0 to 9, each a thousand times, in half a second.
pub(crate) fn numbers(env: &Environment) -> Stream<u64> {
    env.source(
        "numbers",
        Generator::new(Some(10_000), |index| index % 10).rate(20_000.0),
    )
}

/// The same, failing when most are through.
fn failing_numbers(env: &Environment) -> Stream<u64> {
    let numbers = Generator::new(Some(10_000), |index| index).rate(20_000.0);
    env.source("numbers", numbers).map("fragile", |index: u64| {
        assert!(index < 8_000, "so far and no further");
        index % 10
    })
}

/// Those numbers, going on where the failed job stopped.
fn numbers_again(env: &Environment) -> Stream<u64> {
    let numbers = Generator::new(Some(10_000), |index| index).rate(20_000.0);
    env.source("numbers", numbers)
        .map("fragile", |index: u64| index % 10)
}

/// Checks that the counts are 1 to 1000 for each of 0 to 9.
pub(crate) fn assert_counts(updates: Vec<(u64, u64)>) {
    let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, count) in updates {
        by_key.entry(key).or_default().push(count);
    }
    assert!(by_key.keys().copied().eq(0..10), "{:?}", by_key.keys());
    for (key, mut counts) in by_key {
        counts.sort_unstable();
        assert!(
            counts.iter().copied().eq(1..=1_000),
            "key {key}: {} counts",
            counts.len()
        );
    }
}

/// Leaves a checkpoint of a job `counts` in a new folder.
fn folder_with_checkpoint(counts: &CollectCommitted<(u64, u64)>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let env = environment(dir.path());
    failing_numbers(&env)
        .key_by(|key| key)
        .count("count")
        .sink("sink", counts.clone());
    let error = env.execute("counts").unwrap_err();
    assert!(
        format!("{error:?}").contains("so far and no further"),
        "{error:?}"
    );
    dir
}

fn assert_says(error: &tidegate::Error, parts: &[&str]) {
    let text = format!("{error:?}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

// RS-05: state is never dropped silently.
#[test]
fn an_operator_that_is_gone_is_told_and_can_be_dropped() {
    let _alone = alone();
    let dir = folder_with_checkpoint(&CollectCommitted::new());
    let renamed = |allow| {
        let env = environment(dir.path())
            .with_options(|options| options.settings.allow_non_restored_state = allow);
        let counts = CollectCommitted::new();
        let words = numbers_again(&env).key_by(|key| key).count("tally");
        words.sink("sink", counts.clone());
        env.execute("counts").map(|report| (report, counts.take()))
    };
    let error = renamed(false).unwrap_err();
    let gone = "state of operators that the job doesn't have: `count`;";
    let new = "operators of the job that it knows nothing of: `tally`;";
    assert_says(
        &error,
        &[
            "restore job `counts`",
            gone,
            new,
            "--allow-non-restored-state",
        ],
    );
    let (report, updates) = renamed(true).unwrap();
    assert!(report.restored.is_some());
    // The source went on, the new operator began at nothing.
    assert!(report.records < 10_000, "{}", report.records);
    let zeros = updates
        .iter()
        .filter(|(key, count)| *key == 0 && *count == 1);
    assert_eq!(zeros.count(), 1);
}

// RS-03
#[test]
fn another_max_parallelism_is_told_with_both_numbers() {
    let _alone = alone();
    let counts = CollectCommitted::new();
    let dir = folder_with_checkpoint(&counts);
    let with = |max| {
        let env = environment(dir.path());
        numbers_again(&env)
            .key_by(|key| key)
            .count("count")
            .max_parallelism(MaxParallelism::new(max).unwrap())
            .sink("sink", counts.clone());
        env.execute("counts")
    };
    let error = with(64).unwrap_err();
    assert_says(
        &error,
        &[
            "operator `count`",
            "max parallelism `64`",
            "set it to `128`",
        ],
    );
    with(128).unwrap();
    assert_counts(counts.take());
}

#[test]
fn another_type_of_state_is_told_with_its_name() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let env = environment(dir.path());
    failing_numbers(&env)
        .key_by(|key| key)
        .map_with_state("sum", 0u64, |number, sum, out: &mut Collector<u64>| {
            *sum += number;
            out.emit(*sum);
        })
        .sink("sink", Discard);
    env.execute("sums").unwrap_err();
    let env = environment(dir.path());
    numbers_again(&env)
        .key_by(|key| key)
        .map_with_state(
            "sum",
            String::new(),
            |number, sum, out: &mut Collector<u64>| {
                *sum += &number.to_string();
                out.emit(sum.len() as u64);
            },
        )
        .sink("sink", Discard);
    let error = env.execute("sums").unwrap_err();
    let was = "state `state` was saved as `value state` version `1` of `u64`";
    assert_says(
        &error,
        &["operator `sum`", was, "the job declares", "of `string`"],
    );
}

#[test]
fn another_type_of_keys_is_told() {
    let _alone = alone();
    let dir = folder_with_checkpoint(&CollectCommitted::new());
    let env = environment(dir.path());
    numbers_again(&env)
        .key_by_value(|key| key.to_string())
        .count("count")
        .sink("sink", Discard);
    let error = env.execute("counts").unwrap_err();
    let was = "keys were saved as `u64`, but the job's key type is `string`";
    assert_says(&error, &["operator `count`", "a1-count.0-", was]);
}

#[test]
fn one_directory_serves_jobs_of_different_names() {
    let _alone = alone();
    let counts = CollectCommitted::new();
    let dir = folder_with_checkpoint(&counts);
    // Another job knows nothing of those checkpoints, and leaves them alone.
    let other = CollectCommitted::new();
    let env = environment(dir.path());
    numbers(&env)
        .key_by(|key| key)
        .count("tally")
        .sink("sink", other.clone());
    let report = env.execute("other").unwrap();
    assert_eq!(report.restored, None);
    assert_counts(other.take());

    let env = environment(dir.path());
    numbers_again(&env)
        .key_by(|key| key)
        .count("count")
        .sink("sink", counts.clone());
    let report = env.execute("counts").unwrap();
    assert!(report.restored.is_some());
    assert_counts(counts.take());
}

#[test]
fn a_folder_that_was_given_another_name_is_refused() {
    let _alone = alone();
    let dir = folder_with_checkpoint(&CollectCommitted::new());
    std::fs::rename(dir.path().join("counts"), dir.path().join("renamed")).unwrap();
    let env = environment(dir.path());
    numbers_again(&env)
        .key_by(|key| key)
        .count("count")
        .sink("sink", Discard);
    let error = env.execute("renamed").unwrap_err();
    let file = dir.path().join("renamed/job").display().to_string();
    assert_says(
        &error,
        &[&file, "belongs to the job named `counts`, not `renamed`"],
    );
}

#[test]
fn graphs_that_cannot_be_are_refused_before_anything_is_made() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = dir.path().join("checkpoints");
    let env = environment(&checkpoints);
    let numbers = numbers(&env);
    numbers
        .clone()
        .map("same", |number: u64| number)
        .sink("sink-a", Discard);
    numbers
        .map("same", |number: u64| number)
        .sink("sink-b", Discard);
    let error = env.execute("twice").unwrap_err();
    assert_says(
        &error,
        &["the job graph is invalid", "`same`", "must be unique"],
    );

    let error = environment(&checkpoints).execute("nothing").unwrap_err();
    assert_says(&error, &["the job graph is invalid", "no sources"]);

    let env = environment(&checkpoints);
    self::numbers(&env)
        .key_by(|key| key)
        .count("count")
        .max_parallelism(MaxParallelism::new(4).unwrap())
        .parallelism(5)
        .sink("sink", Discard)
        .parallelism(1);
    let error = env.execute("too-wide").unwrap_err();
    assert_says(
        &error,
        &["the job graph is invalid", "`count`", "`5`", "`4`"],
    );
    assert!(!checkpoints.exists(), "a folder was made for nothing");
}
