//! `docs/conformance.md` is what the tests' comments and the decisions make of the rows.

use std::fs;

use xtask::conformance::{DOCUMENT, check, check_share, read_all, render, waiting_core_rows};
use xtask::tidy::{report, repository_root};

/// What core rows of the coordinator may still wait for. This list may only shrink.
const CORE_MAY_WAIT_FOR: &[&str] = &["RocksDB backend"];

// One test, since an update in one process must not be read half-way by another.
#[test]
fn the_document_is_current_and_every_row_is_covered_or_decided() {
    let root = repository_root();
    let read = || read_all().expect("the work tree is readable");
    if std::env::var_os("UPDATE").is_some() {
        read().update(&root).expect("the work tree is writable");
    }
    let conformance = read();
    let violations = check(&conformance);
    let count = violations.len();
    assert_eq!(count, 0, "violations: {count}{}", report(violations));
    let current = fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    assert!(
        current == render(&conformance),
        "`{DOCUMENT}` is out of date: run `UPDATE=1 cargo test -p xtask` and commit what it changes"
    );
}

#[test]
fn few_core_rows_of_the_coordinator_are_not_applicable() {
    let conformance = read_all().expect("the work tree is readable");
    assert_eq!(check_share(&conformance), Ok(()));
}

#[test]
fn core_rows_of_the_coordinator_wait_for_little() {
    let conformance = read_all().expect("the work tree is readable");
    let waiting = waiting_core_rows(&conformance);
    let may_wait = |what: &str| CORE_MAY_WAIT_FOR.contains(&what);
    let found: Vec<_> = waiting.iter().filter(|(_, what)| !may_wait(what)).collect();
    assert!(
        found.is_empty(),
        "cover these, they may not wait: {found:?}"
    );
    let is_used = |what: &&&str| waiting.iter().any(|(_, waits)| waits == *what);
    let stale: Vec<_> = CORE_MAY_WAIT_FOR
        .iter()
        .filter(|what| !is_used(what))
        .collect();
    assert!(
        stale.is_empty(),
        "no core row waits for these any more, shorten the list: {stale:?}"
    );
}
