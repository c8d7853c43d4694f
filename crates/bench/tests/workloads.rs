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
    assert_eq!(outcome["workload"], arguments[0]);
    assert!(number(&outcome["seconds"]) > 0.0 && number(&outcome["peak_memory_bytes"]) > 1e6);
    let rate = number(&outcome["records"]) / number(&outcome["seconds"]);
    assert!((rate - number(&outcome["records_per_second"])).abs() <= rate * 1e-9);
    outcome
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Checks that they are measurements, in order.
fn assert_quantiles(quantiles: &Value) {
    let (p50, p99) = (number(&quantiles["p50"]), number(&quantiles["p99"]));
    let max = number(&quantiles["max"]);
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{quantiles}");
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

#[test]
fn keyed_strings_counts_every_record() {
    let arguments = [
        "keyed-strings",
        "--records",
        "20k",
        "--keys",
        "500",
        "--verify",
    ];
    assert_counts(&bench(&arguments), 20_000, 500);
}

#[test]
fn wordcount_counts_every_word_that_was_written() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let run = |peer| {
        let records = ["wordcount", "--records", "20k", "--verify", "--peer", peer];
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
            .args(records)
            .args(["--json", "--data-dir", data])
            .output()
            .unwrap();
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(outcome["records"], 20_000);
        assert_eq!(outcome["verified"]["sum_of_counts"], 20_000);
        outcome["verified"]["distinct_keys"].as_u64().unwrap()
    };
    let (by_tidegate, by_timely) = (run("tidegate"), run("timely"));
    assert_eq!(by_tidegate, by_timely);
    assert!((2_000..20_000).contains(&by_timely), "{by_timely}");
}

#[test]
fn timely_counts_every_record() {
    for parallelism in ["1", "2", "3"] {
        for (workload, keys) in [("keyed-count", 500), ("keyed-strings", 500), ("source", 0)] {
            let arguments = [workload, "--records", "100k", "--keys", "500"];
            let peer = ["--peer", "timely", "--parallelism", parallelism];
            let outcome = bench(&[&arguments[..], &peer].concat());
            assert_eq!(outcome["system"], "timely");
            assert_counts(&outcome, 100_000, keys);
        }
    }
}

#[test]
fn recovery_is_measured_from_the_kill_on() {
    let arguments = [
        "recovery",
        "--keys",
        "1k",
        "--rounds",
        "2",
        "--checkpoints",
        "1",
    ];
    let outcome = bench(&[&arguments[..], &["--checkpoint-interval", "20ms"]].concat());
    let recovery = &outcome["recovery"];
    assert_eq!(recovery["rounds"], 2);
    assert_quantiles(&recovery["until_running_ms"]);
    assert_quantiles(&recovery["until_checkpoint_ms"]);
    let (running, checkpoint) = (
        &recovery["until_running_ms"],
        &recovery["until_checkpoint_ms"],
    );
    assert!(
        number(&running["max"]) <= number(&checkpoint["max"]),
        "{recovery}"
    );
}

#[test]
fn latency_is_that_of_every_record() {
    let arguments = ["latency", "--rate", "5k", "--seconds", "0.4"];
    let outcome = bench(&[&arguments[..], &["--checkpoint-interval", "50ms"]].concat());
    assert_eq!(outcome["records"], 2_000);
    let latency = &outcome["latency"];
    let at = |field: &str| number(&latency[field]);
    assert!(
        0.0 < at("p50_ms") && at("p50_ms") <= at("p99_ms"),
        "{latency}"
    );
    assert!(at("p99_ms") <= at("p999_ms") && at("p999_ms") <= at("max_ms"));
    // The schedule alone takes this long.
    assert!(number(&outcome["seconds"]) >= 0.4);
}

#[test]
fn backpressure_holds_back_what_the_sink_does_not_take() {
    let arguments = ["backpressure", "--sink-rate", "2k", "--seconds", "0.3"];
    let outcome = bench(&[&arguments[..], &["--checkpoint-interval", "50ms"]].concat());
    let backpressure = &outcome["backpressure"];
    assert_eq!(backpressure["sink_records_per_second"], 2_000);
    assert!(
        number(&backpressure["queued_records"]["max"]) > 0.0,
        "{backpressure}"
    );
    assert!(outcome["checkpoints"]["count"].as_u64().is_some());
}

#[test]
fn state_is_measured_by_kind() {
    let outcome = bench(&["state", "--keys", "100", "--records", "5k"]);
    let accesses = outcome["state"].as_array().unwrap();
    for kind in ["value", "list", "map", "reducing", "aggregating", "timers"] {
        let of_kind: Vec<_> = accesses
            .iter()
            .filter(|access| access["kind"] == kind)
            .collect();
        assert_eq!(of_kind.len(), 2, "{kind}");
        assert!(of_kind.iter().all(|access| number(&access["nanos"]) > 0.0));
    }
}

#[test]
fn snapshots_come_back_whole() {
    let outcome = bench(&["snapshot", "--keys", "5k"]);
    let snapshot = &outcome["snapshot"];
    // 16 bytes of key and value each, or a little less.
    assert!(
        (20_000..200_000).contains(&snapshot["bytes"].as_u64().unwrap()),
        "{snapshot}"
    );
    for speed in ["encode", "file", "restore"] {
        assert!(
            number(&snapshot[format!("{speed}_mb_per_second")]) > 0.0,
            "{snapshot}"
        );
    }
    assert_quantiles(&snapshot["freeze_us"]);
}

#[test]
fn an_idle_job_takes_checkpoints() {
    let outcome = bench(&["idle", "--seconds", "0.5", "--checkpoint-interval", "20ms"]);
    assert!(number(&outcome["idle"]["cpu_seconds_per_minute"]) >= 0.0);
    assert_eq!(outcome["records"], 0);
    assert!(outcome["checkpoints"]["count"].as_u64().unwrap() >= 1);
}

#[test]
fn what_a_peer_cannot_do_is_said() {
    let cases = [
        ("timely", "idle"),
        ("flink", "idle"),
        ("renoir", "idle"),
        ("renoir-packed", "keyed-count"),
    ];
    for (peer, workload) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
            .args([workload, "--peer", peer])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let expected = format!("`{peer}` doesn't run `{workload}`");
        assert!(errors.contains(&expected), "{errors}");
    }
}

#[test]
fn people_get_a_table() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["source", "--records", "1k", "--checkpoint-interval", "off"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("source on tidegate"), "{text}");
    assert!(lines.contains(&"records                1 000"), "{text}");
}
