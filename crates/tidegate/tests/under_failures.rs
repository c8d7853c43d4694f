//! Pipelines under seeded failures, in one process: the result is what it is undisturbed.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;
use tidegate::testing;

/// Counts digits under failures; returns the counts, sorted, and how often the job restarted.
fn digits(seed: u64, failures: u32, parallelism: u32) -> (Vec<(u64, u64)>, u64) {
    let counts = CollectCommitted::new();
    let env = testing::under_failures(seed, failures).with_parallelism(parallelism);
    let numbers = Generator::new(Some(5_000), |index| index % 10).rate(20_000.0);
    env.source("numbers", numbers)
        .key_by(|digit| digit)
        .count("count")
        .sink("counts", counts.clone());
    let report = env.execute("digits").unwrap();
    let mut counts = counts.take();
    counts.sort_unstable();
    (counts, report.statistics.restarts)
}

// IT-02: several failures, exact counts.
#[test]
fn counts_are_exact_whatever_the_seed() {
    let expected: Vec<_> = (0..10)
        .flat_map(|digit| (1..=500).map(move |count| (digit, count)))
        .collect();
    let mut restarts = 0;
    for seed in 0..6 {
        let (counts, restarted) = digits(seed, 8, 1 + seed as u32 % 3);
        assert!(counts == expected, "seed {seed}");
        restarts += restarted;
    }
    assert!(restarts > 20, "{restarts} restarts");
    assert_eq!(digits(0, 0, 2), (expected, 0));
}
