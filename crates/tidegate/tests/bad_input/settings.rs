//! Settings from flags, variables and files: which of them counts, and what is wrong with them.

use std::fs;
use std::time::Duration;

use tidegate::prelude::*;
use tidegate::{CheckpointInterval, Error};

use crate::restores::{alone, numbers};
use crate::support::process::Ended;
use crate::support::{Place, Process, example};
use crate::{oracle, place};

/// Runs the word count without a checkpoint directory, unless the rest gives one.
fn run(place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Ended {
    let (input, output) = (place.input(), place.output());
    let mut arguments = vec![
        "--input".to_owned(),
        input.display().to_string(),
        "--output".to_owned(),
        output.display().to_string(),
    ];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Process::start_with(&example("wordcount"), &arguments, variables).wait()
}

/// Checks that it is refused in these words and leaves nothing behind.
fn refused(place: &Place, flags: &[&str], variables: &[(&str, &str)], parts: &[&str]) {
    run(place, flags, variables).failure(parts);
    assert!(!place.output().exists(), "{flags:?} {variables:?}");
    assert!(!place.checkpoints().exists(), "{flags:?} {variables:?}");
}

/// Writes `job.toml`.
fn file(place: &Place, content: &str) -> String {
    let path = place.path("job.toml");
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

#[test]
fn flags_that_do_not_fit_are_told() {
    let (place, _) = place();
    let with_nothing = |flags: &[&str], parts: &[&str]| refused(&place, flags, &[], parts);
    with_nothing(&[], &["sink `counts`", "pass --checkpoint-dir"]);
    with_nothing(
        &["--checkpoint-interval", "1s"],
        &["`--checkpoint-interval 1s` needs --checkpoint-dir"],
    );
    with_nothing(&["--colour"], &["--colour", "--help"]);
    with_nothing(&["--parallelism", "0"], &["`--parallelism 0`: must be"]);
    with_nothing(&["--parallelism", "two"], &["`--parallelism two`: must be"]);
    with_nothing(
        &["--checkpoint-interval", "soon", "--min-pause", "5"],
        &[
            "2 invalid settings",
            "`--checkpoint-interval soon`: must be a time",
            "`--min-pause 5`: must be a time",
            "`10s`",
        ],
    );
    let dir = place.checkpoints().display().to_string();
    let with_dir = |more: &[&str], parts: &[&str]| {
        let flags = [&["--checkpoint-dir", dir.as_str()], more].concat();
        refused(&place, &flags, &[], parts);
    };
    // The source is checked when the job's folder is there already.
    let with_source = |more: &[&str], parts: &[&str]| {
        let flags = [&["--checkpoint-dir", dir.as_str()], more].concat();
        run(&place, &flags, &[]).failure(parts);
        assert!(!place.output().exists(), "{more:?}");
    };
    with_dir(
        &["--checkpoint-interval", "0ms"],
        &["invalid setting: checkpoint-interval `0s` is below the minimum of `1ms`"],
    );
    with_dir(
        &["--retained-checkpoints", "0"],
        &["retained-checkpoints `0` is below the minimum of `1`"],
    );
    with_dir(
        &["--restart", "maybe"],
        &["`--restart maybe`", "fixed-delay:ATTEMPTS,DELAY"],
    );
    with_source(&["--repeat", "0"], &["operator `lines`", "at least once"]);
    with_source(&["--rate", "0"], &["operator `lines`", "`0`"]);
}

#[test]
fn a_flag_goes_before_a_variable_before_a_file() {
    let (place, expected) = place();
    let dir = |name| place.path(name).display().to_string();
    let config = file(
        &place,
        &format!("checkpoint-dir = {:?}\nquiet = true", dir("from-file")),
    );
    let (flag, variable) = (dir("from-flag"), dir("from-variable"));
    let variables = [
        ("TIDEGATE_CONFIG", config.as_str()),
        ("TIDEGATE_CHECKPOINT_DIR", variable.as_str()),
    ];
    let flags = ["--checkpoint-dir", &flag, "--config", &config];
    for (flags, variables, used) in [
        (&flags[..], &variables[..], "from-flag"),
        (&[], &variables[..], "from-variable"),
        (&[], &variables[..1], "from-file"),
        (&flags[2..], &[], "from-file"),
    ] {
        let ended = run(&place, flags, variables).success();
        assert_eq!(ended.stderr, "", "the file says to be quiet");
        oracle::verify(&place.output(), &expected).unwrap();
        for name in ["from-flag", "from-variable", "from-file"] {
            assert_eq!(place.path(name).exists(), name == used, "{name}, {used}");
        }
        fs::remove_dir_all(place.path(used)).unwrap();
        fs::remove_dir_all(place.output()).unwrap();
    }
}

#[test]
fn variables_and_files_are_refused_as_flags_are() {
    let (place, _) = place();
    let config = file(&place, "minpause = '1s'\ncheckpoint-timeout = 'x'\n[job]\n");
    refused(
        &place,
        &["--config", &config, "--parallelism=-1"],
        &[("TIDEGATE_MIN_PAUSE", "10"), ("TIDEGATE_QUIET", "")],
        &[
            "6 invalid settings",
            "`--parallelism -1`: must be a whole number",
            "`TIDEGATE_MIN_PAUSE=10`: must be a time",
            "`TIDEGATE_QUIET=`: must be `true` or `false`",
            "unknown key `minpause` in line 1 of `",
            "did you mean `min-pause`?",
            "`checkpoint-timeout = 'x'` in line 2 of `",
            "`job` in line 3 of `",
        ],
    );
    let missing = place.path("no-such.toml").display().to_string();
    let told = format!("`TIDEGATE_CONFIG={missing}`: No such file");
    refused(&place, &[], &[("TIDEGATE_CONFIG", &missing)], &[&told]);
    // What is out of its range is told with the place to correct.
    let dir = place.checkpoints().display().to_string();
    let told = "checkpoint-timeout `0s` is below the minimum of `1ms`, from `TIDEGATE_CHECKPOINT";
    refused(
        &place,
        &["--checkpoint-dir", &dir],
        &[("TIDEGATE_CHECKPOINT_TIMEOUT", "0s")],
        &[told],
    );
}

// Every setting of the reference has a variable, and an empty one is no value.
#[test]
fn each_setting_has_a_variable() {
    let (place, _) = place();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let docs = fs::read_to_string(docs).unwrap();
    let (_, table) = docs.split_once("<!-- settings: begin -->").unwrap();
    let (table, _) = table.split_once("<!-- settings: end -->").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let variables: Vec<String> = rows
        .map(|row| row.split('`').next().unwrap())
        .map(|name| format!("TIDEGATE_{}", name.to_uppercase().replace('-', "_")))
        .collect();
    assert!(variables.len() >= 19, "{variables:?}");
    let empty: Vec<(&str, &str)> = variables.iter().map(|name| (name.as_str(), "")).collect();
    let told: Vec<String> = variables
        .iter()
        .map(|name| format!("`{name}=`: must be "))
        .collect();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let count = format!("{} invalid settings", variables.len());
    refused(&place, &[], &empty, &[&told[..], &[&count]].concat());
}

#[test]
fn a_misspelt_variable_is_warned_of() {
    let (place, expected) = place();
    let dir = place.checkpoints().display().to_string();
    let variables = [
        ("TIDEGATE_MINPAUSE", "1h"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
    ];
    let ended = run(&place, &["--checkpoint-dir", &dir], &variables).success();
    let warned = |text| ended.stderr.contains(text);
    assert!(warned("TIDEGATE_MINPAUSE") && warned("min-pause"));
    assert!(!warned("SERVICE_HOST"), "{}", ended.stderr);
    oracle::verify(&place.output(), &expected).unwrap();
}

// B4: times that no clock reaches mean never, not a wrapped moment in the past.
#[test]
fn times_beyond_all_clocks_do_not_overflow() {
    let (place, expected) = place();
    let dir = place.checkpoints().display().to_string();
    let ever = "500000000000y";
    let flags = [
        "--checkpoint-dir",
        &dir,
        "--checkpoint-interval",
        ever,
        "--checkpoint-timeout",
        ever,
        "--min-pause",
        ever,
        "--buffer-timeout",
        ever,
        "--restart",
        "exponential-delay:1ms,500000000000y",
        "--parallelism",
        "2",
    ];
    let ended = run(&place, &flags, &[]).success();
    assert!(
        ended.stderr.contains("1 checkpoints completed, 0 failed"),
        "{}",
        ended.stderr
    );
    oracle::verify(&place.output(), &expected).unwrap();
}

#[test]
#[cfg(unix)]
fn what_is_not_unicode_is_named() {
    use std::os::unix::ffi::OsStringExt;
    let place = Place::new();
    let odd = PathBuf::from(std::ffi::OsString::from_vec(b"odd-\xff".to_vec()));
    let mut command = std::process::Command::new(example("wordcount"));
    let output = command
        .arg("--input")
        .arg(place.input())
        .arg("--output")
        .arg(place.output())
        .arg("--checkpoint-dir")
        .arg(place.path("x").join(odd))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--checkpoint-dir"), "{stderr}");
    assert!(stderr.contains("not Unicode"), "{stderr}");
}

/// The program itself may set what its users didn't, and is told the same.
#[test]
fn a_program_fills_in_settings() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut args = Args::default();
    args.checkpoint_interval = Some(CheckpointInterval::Every(Duration::from_millis(5)));
    args.checkpoint_history = Some(2);
    args.quiet = Some(true);
    let error = Environment::new(args.clone()).err().unwrap();
    assert!(matches!(error, Error::Settings(_)));
    let told = error.to_string();
    assert!(
        told.contains("`--checkpoint-interval 5ms` needs --checkpoint-dir"),
        "{told}"
    );
    args.checkpoint_dir = Some(dir.path().display().to_string());
    let env = Environment::new(args).unwrap();
    numbers(&env).sink("discard", Discard);
    let statistics = env.execute("numbers").unwrap().statistics;
    assert!(statistics.completed > 2, "{}", statistics.completed);
    assert_eq!(statistics.history().count(), 2);
}
