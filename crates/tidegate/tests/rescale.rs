//! A job in one process gets another parallelism while it runs; the result is as if undisturbed.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;
use tidegate::{CheckpointLocation, JobClient, RequestError, RunError};
use url::Url;

/// Counts digits, at a parallelism of 2 but for the sink, which has one subtask.
fn start(numbers: Option<u64>, counts: &CollectCommitted<(u64, u64)>) -> JobClient {
    start_in(
        Environment::for_tests().with_parallelism(2),
        numbers,
        counts,
    )
}

fn start_in(
    env: Environment,
    numbers: Option<u64>,
    counts: &CollectCommitted<(u64, u64)>,
) -> JobClient {
    let numbers = Generator::new(numbers, |index| index % 10).rate(20_000.0);
    env.source("numbers", numbers)
        .key_by(|digit| digit)
        .count("count")
        .sink("counts", counts.clone())
        .parallelism(1);
    let job = env.start("digits").unwrap();
    assert!(job.wait_until_running());
    job
}

// RS-14
#[test]
fn every_count_comes_once_whatever_the_parallelism() {
    let counts = CollectCommitted::new();
    let job = start(Some(20_000), &counts);
    let mut before = 2;
    for parallelism in [3, 1, 4] {
        let rescaled = job.rescale(parallelism).unwrap();
        assert_eq!((rescaled.from, rescaled.to), (before, parallelism));
        assert_eq!(job.parallelism(), parallelism);
        let latest = job.statistics().latest_restored.clone().unwrap();
        assert_eq!(Some(latest.checkpoint), rescaled.checkpoint);
        before = parallelism;
    }
    let report = job.wait().unwrap();
    assert_eq!(report.statistics.restarts, 0, "none of it was a failure");
    let mut counts = counts.take();
    counts.sort_unstable();
    let expected: Vec<_> = (0..10)
        .flat_map(|digit| (1..=2_000).map(move |count| (digit, count)))
        .collect();
    assert!(counts == expected);
}

#[test]
fn what_can_not_be_is_refused_and_changes_nothing() {
    let job = start(None, &CollectCommitted::new());
    let refused = |parallelism: u32| match job.rescale(parallelism).unwrap_err() {
        RequestError::NotRescaled(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(0), "a parallelism is at least `1`");
    let error = refused(129);
    assert!(
        error.contains("`129` is not between 1 and the max parallelism"),
        "{error}"
    );
    assert_eq!(
        job.rescale(2).unwrap().checkpoint,
        None,
        "it has that already"
    );
    assert!(job.is_running());
    job.suspend();
    assert!(matches!(job.wait(), Err(RunError::Suspended { .. })));
    assert_eq!(refused(3), "the job has ended");
}

/// Starts the job in `folder` as another process would, and says how parallel it is.
fn start_again(folder: &Path, parallelism: u32) -> JobClient {
    let url = Url::from_file_path(folder).unwrap();
    let env = Environment::for_tests()
        .with_parallelism(parallelism)
        .with_options(|options| options.location = CheckpointLocation::Directory(url));
    start_in(env, None, &CollectCommitted::new())
}

#[test]
fn who_goes_on_knows_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let suspended = |job: JobClient| {
        job.suspend();
        assert!(matches!(job.wait(), Err(RunError::Suspended { .. })));
    };
    let job = start_again(folder.path(), 2);
    assert!(job.rescale(3).unwrap().recorded);
    suspended(job);
    let job = start_again(folder.path(), 2);
    assert_eq!(job.parallelism(), 3);
    suspended(job);
    // Whoever says something else now means it, also afterwards.
    let job = start_again(folder.path(), 4);
    assert_eq!(job.parallelism(), 4);
    suspended(job);
    let job = start_again(folder.path(), 2);
    assert_eq!(job.parallelism(), 2);
    assert!(job.rescale(1).unwrap().recorded);
    job.cancel();
    assert!(matches!(job.wait(), Err(RunError::Cancelled { .. })));
    let job = start_again(folder.path(), 2);
    assert_eq!(job.parallelism(), 2, "it is begun anew");
    suspended(job);
}
