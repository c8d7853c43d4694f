//! Errors that a test injects into its own process.

#![cfg(feature = "fault-points")]

use std::io::ErrorKind;

use tidegate_fault::{fail, inject};

#[test]
fn errors_come_for_the_chosen_calls_and_end_with_the_injection() {
    assert!(fail("metadata:write").is_none());
    let full = inject("metadata:write", ErrorKind::StorageFull, 1..3);
    assert_eq!(full.remaining(), 2);
    assert!(fail("metadata:write").is_none());
    assert!(fail("pointer:write").is_none(), "another operation");
    assert_eq!(
        fail("metadata:write").unwrap().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(full.remaining(), 1);
    assert_eq!(
        fail("metadata:write").unwrap().kind(),
        ErrorKind::StorageFull
    );
    assert!(fail("metadata:write").is_none());
    assert_eq!(full.remaining(), 0);

    let gone = inject("metadata:write", ErrorKind::TimedOut, 0..1);
    drop(gone);
    assert!(fail("metadata:write").is_none());
}

#[test]
#[should_panic(expected = "isn't in FAILURES")]
fn a_typo_is_no_silent_success() {
    let _injection = inject("metadata:wriet", ErrorKind::Other, 0..1);
}
