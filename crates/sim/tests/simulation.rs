//! The short run that every change goes through. The long one: `just sim --seeds 100000`.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_sim::{Focus, Options, Tally, TraceSink, run, run_everywhere};

fn run_all(seeds: std::ops::Range<u64>, options: impl Fn() -> Options) -> Tally {
    let mut total = Tally::default();
    for seed in seeds {
        match run(seed, options()) {
            Ok(report) => total.add(report.tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    total
}

// BC-01, BC-02, BC-06, BC-12, BC-14, BC-15, BC-19, BC-24, BC-26, BC-27, BC-29, BC-55, BC-57;
// IT-02, IT-03, IT-04, IT-08; CC-06, CC-07, CC-11, CC-15, CC-16, CC-18, CC-19, CC-20, CC-23, CC-36,
// CC-42, CC-62; FT-01, FT-02
#[test]
fn every_promise_is_kept() {
    let total = run_all(0..300, Options::default);
    // A run that meets no trouble proves nothing.
    let met = [
        total.crashes,
        total.attempts - 300,
        total.completed,
        total.aborted,
        total.failed_writes,
        total.commits,
        total.damaged,
        total.answers,
        total.savepoints,
    ];
    assert!(met.iter().all(|count| *count >= 100), "{total:?}");
    assert!(total.stops >= 10 && total.moves >= 10, "{total:?}");
    assert!(total.rescales >= 30, "{total:?}");
}

// BC-55
#[test]
fn lost_notices_leave_nothing_behind_and_delete_nothing_early() {
    let options = || Options {
        focus: Some(Focus::LostOutcomes),
        ..Options::default()
    };
    let total = run_all(1_000..1_040, options);
    assert!(total.damaged >= 100 && total.completed >= 100, "{total:?}");
}

// BC-57
#[test]
fn clocks_that_jump_and_drivers_that_stand_still_cause_no_burst() {
    let options = || Options {
        focus: Some(Focus::Clocks),
        ..Options::default()
    };
    let total = run_all(2_000..2_060, options);
    assert!(total.completed >= 50 && total.aborted >= 50, "{total:?}");
}

// BC-21, BC-22, BC-23, BC-60: jobs that are stopped with savepoints all the time, and
// go on from them.
#[test]
fn savepoints_and_stops_keep_every_promise() {
    let options = || Options {
        focus: Some(Focus::Savepoints),
        ..Options::default()
    };
    let total = run_all(3_000..3_100, options);
    assert!(total.savepoints >= 100 && total.stops >= 30, "{total:?}");
    assert!(total.moves >= 20, "{total:?}");
}

// BC-14, BC-15, BC-26, BC-29: a death between any two effects of a run.
#[test]
fn a_process_or_a_subtask_may_die_anywhere() {
    let undisturbed = || Options {
        fault_steps: Some(0),
        ..Options::default()
    };
    let with_savepoints = || Options {
        focus: Some(Focus::Calm),
        ..Options::default()
    };
    // Short runs with several checkpoints and commits, the latter with stops and new namespaces.
    let mut total = die_everywhere(&[272], undisturbed);
    assert!(total.crashes >= 80 && total.attempts > 500, "{total:?}");
    total = die_everywhere(&[19, 87, 533, 536], with_savepoints);
    assert!(total.crashes >= 200 && total.stops > 200, "{total:?}");
    assert!(total.moves > 100, "{total:?}");
}

fn die_everywhere(seeds: &[u64], options: fn() -> Options) -> Tally {
    let mut total = Tally::default();
    for seed in seeds {
        match run_everywhere(*seed, options) {
            Ok(tally) => total.add(tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    total
}

#[test]
fn equal_seeds_give_equal_traces() {
    let hashes = |fault_steps: Option<u64>| -> Vec<u64> {
        let options = || Options {
            fault_steps,
            ..Options::default()
        };
        (0..30)
            .map(|seed| run(seed, options()).unwrap().trace_hash)
            .collect()
    };
    for fault_steps in [None, Some(0), Some(1_500)] {
        let once = hashes(fault_steps);
        assert_eq!(once, hashes(fault_steps));
        let mut different = once.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), once.len(), "seeds that give the same run");
    }
}

// Only what happens after the faults have stopped depends on when they do.
#[test]
fn a_run_is_the_same_up_to_the_end_of_its_faults() {
    let lines = |seed, steps: u64| -> Vec<String> {
        let (kept, trace) = watch();
        let options = Options {
            fault_steps: Some(steps),
            trace: Some(trace),
            ..Options::default()
        };
        run(seed, options).unwrap();
        let step = |line: &String| {
            line.split_whitespace()
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let kept = kept.borrow();
        kept.iter()
            .filter(|line| step(line) < 1_000)
            .cloned()
            .collect()
    };
    for seed in 0..20 {
        assert_eq!(lines(seed, 1_000), lines(seed, 2_000));
    }
}

fn watch() -> (Rc<RefCell<Vec<String>>>, TraceSink) {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&lines);
    let trace = Box::new(move |line: &str| kept.borrow_mut().push(line.to_owned()));
    (lines, trace)
}

#[test]
fn whoever_watches_changes_nothing() {
    let (lines, trace) = watch();
    let watched = run(
        1,
        Options {
            trace: Some(trace),
            ..Options::default()
        },
    );
    assert_eq!(watched, run(1, Options::default()));
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
