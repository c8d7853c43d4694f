//! Keyed state and timers: each alert comes out once.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::Demo;
use crate::transactions::{LARGE, ONE_MINUTE, SMALL, Transaction};

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

// IT-02
#[test]
fn kills_lose_and_double_no_alert() {
    let mut random = StdRng::seed_from_u64(5);
    let demo = Demo::new("fraud");
    let count = TRANSACTIONS.to_string();
    let expected = expected_alerts();
    assert!(expected.len() > 100, "{}", expected.len());
    let mut went_on = 0;
    for parallelism in ["2", "1", "3", "2"] {
        let arguments = ["--rate", "20000", "--transactions", &count];
        let arguments = [&arguments[..], &["--parallelism", parallelism]].concat();
        went_on += u32::from(demo.run_and_kill(&arguments, &mut random));
        let seen = demo.committed();
        let twice = seen.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None);
        let unexpected = seen
            .iter()
            .find(|line| expected.binary_search(line).is_err());
        assert_eq!(unexpected, None);
    }
    assert!(
        went_on >= 2,
        "{went_on} of 4 runs went on from a checkpoint"
    );
    demo.finish(&["--transactions", &count, "--parallelism", "4"]);
    let found = demo.committed();
    assert!(
        found == expected,
        "{} alerts, expected {}",
        found.len(),
        expected.len()
    );
}
