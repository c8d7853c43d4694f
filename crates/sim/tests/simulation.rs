//! The short run that every change goes through. The long one: `just sim --seeds 100000`.

use tidegate_sim::{Options, Tally, run};

fn run_all(seeds: std::ops::Range<u64>) -> Tally {
    let mut total = Tally::default();
    for seed in seeds {
        match run(seed, Options::default()) {
            Ok(report) => total.add(report.tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    total
}

// BC-02, BC-14, BC-15, BC-24, BC-26, BC-29, BC-55, BC-57; CC-06, CC-07, CC-11, CC-15, CC-16, CC-18,
// CC-19, CC-20, CC-23, CC-36, CC-42, CC-62; FT-01, FT-02
#[test]
fn every_promise_is_kept() {
    let total = run_all(0..300);
    // A run that meets no trouble proves nothing.
    let met = [
        total.crashes,
        total.attempts - 300,
        total.completed,
        total.aborted,
        total.failed_writes,
        total.commits,
    ];
    assert!(met.iter().all(|count| *count >= 100), "{total:?}");
}

#[test]
fn equal_seeds_give_equal_traces() {
    let hashes = |seeds: std::ops::Range<u64>| -> Vec<u64> {
        let report = |seed| run(seed, Options::default()).unwrap();
        seeds.map(|seed| report(seed).trace_hash).collect()
    };
    let once = hashes(0..30);
    assert_eq!(once, hashes(0..30));
    let mut different = once.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), once.len(), "seeds that give the same run");
}

#[test]
fn whoever_watches_changes_nothing() {
    use std::cell::RefCell;
    use std::rc::Rc;
    let lines = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&lines);
    let trace = Box::new(move |line: &str| kept.borrow_mut().push(line.to_owned())) as _;
    let watched = run(
        7,
        Options {
            trace: Some(trace),
            ..Options::default()
        },
    );
    assert_eq!(watched, run(7, Options::default()));
    assert!(lines.borrow().len() > 40, "a run has much to tell");
}

// Without faults nothing is ever restarted, and nothing fails.
#[test]
fn without_faults_one_attempt_is_enough() {
    for seed in 0..100 {
        let options = Options {
            fault_steps: Some(0),
            ..Options::default()
        };
        let tally = run(seed, options).unwrap().tally;
        assert_eq!(
            (tally.crashes, tally.attempts, tally.failed_writes),
            (0, 1, 0),
            "{seed}"
        );
    }
}
