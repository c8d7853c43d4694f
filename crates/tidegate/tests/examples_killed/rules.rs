//! Broadcast state: each reading is judged once, and never by rules that were lost.

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::Demo;
use crate::support::wait_until;

const READINGS: u64 = 60_000;
const KINDS: u64 = 10;
/// The last version of each rule.
const VERSIONS: u64 = 10;

/// Number of a reading, version of its rule, and the verdict.
fn parsed(line: &str) -> (u64, u64, String) {
    let columns: Vec<&str> = line.split('\t').collect();
    let [number, version, verdict] = columns[..] else {
        panic!("`{line}` has no three columns")
    };
    let [number, version] = [number, version].map(|column| column.parse().unwrap());
    (number, version, verdict.to_owned())
}

/// What a rule of this version says of a reading.
fn verdict(number: u64, version: u64) -> &'static str {
    let limit = |version: u64| ((version - 1) * KINDS + number % KINDS) * 13 % 1000;
    match version {
        0 => "no rule",
        _ if number * 7 % 1000 > limit(version) => "too high",
        _ => "fine",
    }
}

// RS-13: at every parallelism each subtask has the rules, once.
#[test]
fn kills_lose_no_rule_and_judge_no_reading_twice() {
    let mut random = StdRng::seed_from_u64(7);
    let demo = Demo::new("rules");
    let count = READINGS.to_string();
    let with = |more: &[&'static str]| {
        let mut arguments: Vec<&str> = vec!["--readings", &count, "--rate", "30000"];
        arguments.extend(["--rules-rate", "400"]);
        arguments.extend(more);
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    // Until all rules are known, in a checkpoint with what was judged by them.
    let first = with(&["--parallelism", "2"]);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let run = demo.start(&first);
    wait_until("readings are judged by the last rules", || {
        let lines = demo.committed();
        lines.iter().any(|line| parsed(line).1 == VERSIONS)
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    run.kill();
    let judged_before = demo.committed().len();

    for parallelism in ["3", "1", "4"] {
        let arguments = with(&["--parallelism", parallelism]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert!(demo.run_and_kill(&arguments, &mut random));
    }
    demo.finish(&["--readings", &count, "--parallelism", "2"]);
    let mut judged: Vec<_> = demo.committed().iter().map(|line| parsed(line)).collect();
    judged.sort_unstable();
    assert!(judged.iter().map(|(number, ..)| *number).eq(0..READINGS));
    for (number, version, found) in &judged {
        assert_eq!(found, verdict(*number, *version), "reading {number}");
    }
    let by_older = judged.iter().filter(|(_, version, _)| *version < VERSIONS);
    assert!(
        by_older.count() <= judged_before,
        "readings after the kill were judged by rules that had been replaced"
    );
}
