//! What documents show of programs that are elsewhere is what these are.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

const PORT_A_FLINK_JOB: &str = include_str!("../../../docs/port-a-flink-job.md");
const FRAUD: &str = include_str!("../examples/fraud.rs");

#[test]
fn the_ported_job_is_the_example() {
    let (_, code) = PORT_A_FLINK_JOB.split_once("```rust,ignore\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    assert!(code.lines().count() > 20, "{code}");
    assert!(
        FRAUD.contains(code),
        "docs/port-a-flink-job.md shows:\n{code}"
    );
}
