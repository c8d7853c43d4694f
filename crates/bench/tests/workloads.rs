//! Every workload runs as a small one, as a process of its own, and its results are right.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::process::Command;

use serde_json::Value;

/// Runs the program and reads the line that it prints.
fn bench(arguments: &[&str]) -> Value {
    let data = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(arguments)
        .args(["--json", "--data-dir"])
        .arg(data.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_plausible(&outcome);
    outcome
}

fn assert_plausible(outcome: &Value) {
    let positive = |field: &str| {
        let value = outcome[field].as_f64().unwrap();
        assert!(value > 0.0, "{field} in {outcome}");
        value
    };
    let rate = positive("records") / positive("seconds");
    assert!((rate / positive("records_per_second") - 1.0).abs() < 1e-9);
    positive("cpu_seconds");
    positive("records_per_cpu_second");
    assert!(positive("peak_memory_bytes") > 1e6);
}

fn assert_counts(outcome: &Value, records: u64, keys: u64) {
    assert_eq!(outcome["records"], records);
    assert_eq!(outcome["verified"]["sum_of_counts"], records);
    assert_eq!(outcome["verified"]["distinct_keys"], keys);
}

#[test]
fn source_moves_every_record() {
    let outcome = bench(&["source", "--records", "200k"]);
    assert_eq!(outcome["records"], 200_000);
    assert_eq!(outcome["checkpoint_interval_ms"], 1000.0);
    assert!(outcome["checkpoints"]["count"].as_u64().unwrap() >= 1);
    assert!(outcome["start_to_first_record_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn keyed_count_counts_every_record() {
    let arguments = [
        "keyed-count",
        "--records",
        "20k",
        "--keys",
        "100",
        "--verify",
    ];
    assert_counts(&bench(&arguments), 20_000, 100);
}

#[test]
fn checkpoints_can_be_off_and_frequent() {
    let arguments = ["keyed-count", "--records", "20k", "--checkpoint-interval"];
    let off = bench(&[&arguments[..], &["off"]].concat());
    assert_eq!(
        (&off["checkpoints"], &off["checkpoint_interval_ms"]),
        (&Value::Null, &Value::Null)
    );
    let often = bench(&[&arguments[..], &["1ms"]].concat());
    assert_eq!(often["checkpoint_interval_ms"], 1.0);
    let checkpoints = &often["checkpoints"];
    assert!(checkpoints["bytes"].as_u64().unwrap() > 0, "{checkpoints}");
    assert!(
        checkpoints["duration_ms"]["max"].as_f64() >= checkpoints["duration_ms"]["p50"].as_f64()
    );
}
