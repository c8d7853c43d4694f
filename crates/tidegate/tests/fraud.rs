//! The fraud example as a process that is killed: its finished output has each alert once, whatever
//! the moments and whatever the parallelism afterwards.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/support/oracle.rs"]
#[allow(dead_code, reason = "only its look at committed files is needed")]
mod oracle;
mod support;
#[path = "../examples/support/transactions.rs"]
mod transactions;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{Process, example, wait_until};
use transactions::{LARGE, ONE_MINUTE, SMALL, Transaction};

const TRANSACTIONS: u64 = 30_000;

/// The alerts as lines, by a loop over all transactions.
fn expected_alerts() -> Vec<String> {
    let mut small_at: HashMap<u64, i64> = HashMap::new();
    let mut alerts = Vec::new();
    for transaction in (0..TRANSACTIONS).map(Transaction::nth) {
        let Transaction {
            account,
            time,
            cents,
        } = transaction;
        let small = small_at.remove(&account);
        if cents > LARGE && small.is_some_and(|small| time - small <= ONE_MINUTE) {
            alerts.push(format!("{account}\t{time}\t{cents}"));
        }
        if cents < SMALL {
            small_at.insert(account, time);
        }
    }
    alerts.sort_unstable();
    alerts
}

fn committed_lines(output: &Path) -> Vec<String> {
    let files = oracle::visible_files(output).unwrap_or_default();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let mut lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.sort_unstable();
    lines
}

fn start(folder: &Path, arguments: &[&str]) -> Process {
    let mut all = vec![
        "--transactions".to_owned(),
        TRANSACTIONS.to_string(),
        "--output".to_owned(),
        folder.join("output").display().to_string(),
        "--checkpoint-dir".to_owned(),
        folder.join("checkpoints").display().to_string(),
        "--checkpoint-interval".to_owned(),
        "20ms".to_owned(),
    ];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Process::start(&example("fraud"), &all)
}

// IT-02, IT-13: keyed state and timers through kill -9 and other parallelisms.
#[test]
fn kills_lose_and_double_no_alert() {
    const SEED: u64 = 5;
    let mut random = StdRng::seed_from_u64(SEED);
    let place = tempfile::tempdir().unwrap();
    let expected = expected_alerts();
    assert!(expected.len() > 100, "{}", expected.len());
    let mut went_on = 0;
    for parallelism in ["2", "1", "3", "2"] {
        let run = start(
            place.path(),
            &["--rate", "20000", "--parallelism", parallelism],
        );
        wait_until("the run says how it starts", || run.stderr().contains('\n'));
        std::thread::sleep(Duration::from_millis(random.random_range(50..350)));
        let killed = run.kill();
        went_on += u32::from(killed.stderr.starts_with("going on from"));
        let seen = committed_lines(&place.path().join("output"));
        assert!(
            seen.windows(2).all(|pair| pair[0] != pair[1]),
            "an alert is there twice"
        );
        let unexpected = seen
            .iter()
            .find(|line| expected.binary_search(line).is_err());
        assert_eq!(unexpected, None);
    }
    assert!(
        went_on >= 2,
        "{went_on} of 4 runs went on from a checkpoint"
    );
    let ended = start(place.path(), &["--parallelism", "4"])
        .wait()
        .success();
    assert!(
        ended.stderr.starts_with("going on from"),
        "{}",
        ended.stderr
    );
    let found = committed_lines(&place.path().join("output"));
    assert!(
        found == expected,
        "{} alerts, expected {}",
        found.len(),
        expected.len()
    );
}
