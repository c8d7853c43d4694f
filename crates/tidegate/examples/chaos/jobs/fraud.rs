//! Fraud detection: the alerts that a plain loop over the same transactions finds, each once.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::{Load, for_each_line};
use crate::transactions::{LARGE, ONE_MINUTE, SMALL, Transaction};

pub(super) fn arguments(_: &Path, load: &Load) -> Vec<String> {
    vec!["--transactions".to_owned(), load.records().to_string()]
}

pub(super) fn check(output: &Path, load: &Load) -> Result<u64, String> {
    let mut expected = alerts(load.records());
    let all = expected.len();
    let mut wrong = Vec::new();
    let lines = for_each_line(output, |line| {
        if !expected.remove(line) {
            wrong.push(line.to_owned());
        }
        Ok(())
    })?;
    if expected.is_empty() && wrong.is_empty() {
        return Ok(lines);
    }
    let some = |lines: &mut dyn Iterator<Item = String>| lines.take(5).collect::<Vec<_>>();
    Err(format!(
        "of {all} alerts {} are missing: {:?}; {} are wrong or come again: {:?}",
        expected.len(),
        some(&mut expected.iter().cloned()),
        wrong.len(),
        some(&mut wrong.iter().cloned())
    ))
}

/// What the job writes, found without it. No two alerts are alike: each has its own time.
fn alerts(transactions: u64) -> HashSet<String> {
    let mut small: HashMap<u64, i64> = HashMap::new();
    let mut alerts = HashSet::new();
    for transaction in (0..transactions).map(Transaction::nth) {
        let Transaction {
            account,
            time,
            cents,
        } = transaction;
        if let Some(before) = small.remove(&account)
            && cents > LARGE
            && time - before <= ONE_MINUTE
        {
            alerts.insert(format!("{account}\t{time}\t{cents}"));
        }
        if cents < SMALL {
            small.insert(account, time);
        }
    }
    alerts
}
