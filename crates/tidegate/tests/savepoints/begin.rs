//! What keeps a job from being begun from a snapshot is told before anything runs, by a start as by
//! a dry run, and leaves no trace.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::{JobOutcome, RestoreMode};

use crate::support::files;
use crate::{Run, Site, alone, assert_says, folder};

/// A savepoint of a job `a`.
fn savepoint(site: &Site, run: Run) -> PathBuf {
    let job = site.running("a", run);
    let savepoint = job.savepoint(Some(&site.savepoints())).unwrap();
    job.cancel();
    job.wait().unwrap_err();
    folder(&savepoint)
}

/// Tries to begin `b`, really and dry: both must say all of this, and change nothing.
fn assert_refused(site: &Site, run: impl Fn() -> Run, parts: &[&str]) {
    let before = files(site.dir.path());
    let dry = Run {
        change: |options| options.dry_run = true,
        ..run()
    };
    let error = site.start("b", dry).unwrap_err();
    assert_says(&error, parts);
    assert!(
        files(site.dir.path()) == before,
        "a dry run wrote something"
    );
    assert!(!site.path("b").exists(), "a dry run made a folder");

    let error = site.start("b", run()).unwrap_err();
    assert_says(&error, parts);
    assert!(!site.output("b").exists(), "a sink has made its folder");
    assert!(!site.namespace("b").join("origin").exists(), "it was begun");
    fs::remove_dir_all(site.path("b")).unwrap();
}

fn state_file(savepoint: &Path) -> PathBuf {
    let names = crate::support::place::names(savepoint);
    let state = names.iter().find(|name| name.ends_with(".state"));
    savepoint.join(state.expect("it has state"))
}

#[test]
fn missing_short_and_damaged_files_are_found_before_anything_runs() {
    let _alone = alone();
    let site = Site::new();
    let savepoint = savepoint(&site, Run::slow());
    let begin = || Run::from(&savepoint, RestoreMode::NoClaim);
    for path in [state_file(&savepoint), savepoint.join("_metadata")] {
        let shown = path.display().to_string();
        let whole = fs::read(&path).unwrap();
        let mut altered = whole.clone();
        altered[whole.len() / 2] ^= 0x20;
        fs::write(&path, &altered).unwrap();
        assert_refused(&site, begin, &[&shown, "damaged"]);
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_refused(&site, begin, &[&shown]);
        fs::remove_file(&path).unwrap();
        let place = savepoint.display().to_string();
        assert_refused(&site, begin, &[&place]);
        fs::write(&path, whole).unwrap();
    }
    let elsewhere = site.path("nothing");
    let nowhere = || Run::from(&elsewhere, RestoreMode::Claim);
    assert_refused(
        &site,
        nowhere,
        &[&elsewhere.display().to_string(), "missing"],
    );
    let report = site.start("b", begin()).unwrap().wait().unwrap();
    assert_eq!(report.outcome, JobOutcome::Finished);
    site.assert_exact(&["a", "b"]);
}

// BC-45: before any task starts, with both numbers.
#[test]
fn another_max_parallelism_is_refused_with_both_numbers() {
    let _alone = alone();
    let site = Site::new();
    let run = Run {
        max_parallelism: Some(128),
        ..Run::slow()
    };
    let savepoint = savepoint(&site, run);
    let begin = || Run {
        max_parallelism: Some(64),
        ..Run::from(&savepoint, RestoreMode::NoClaim)
    };
    assert_refused(&site, begin, &["`count`", "`64`", "`128`"]);
}

// One that nobody chose is that of the state, whatever would be derived from the parallelism now.
#[test]
fn a_derived_max_parallelism_is_that_of_the_state() {
    let _alone = alone();
    let site = Site::new();
    let savepoint = savepoint(&site, Run::slow());
    let wide = |rate| Run {
        parallelism: 100,
        rate,
        ..Run::from(&savepoint, RestoreMode::NoClaim)
    };
    let dry = Run {
        change: |options| options.dry_run = true,
        ..wide(None)
    };
    let report = site.start("b", dry).unwrap().wait().unwrap();
    let JobOutcome::DryRun(Some(outlook)) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    let count = outlook.operators.iter().find(|op| op.uid.0 == "count");
    assert_eq!(
        count.unwrap().max_parallelism.map(|max| max.get()),
        Some(128)
    );
    let job = site.running("b", wide(Some(1_000.0)));
    job.cancel();
    job.wait().unwrap_err();
}

#[test]
fn everything_that_does_not_fit_is_told_by_a_dry_run() {
    let _alone = alone();
    let site = Site::new();
    let run = Run {
        max_parallelism: Some(4),
        ..Run::slow()
    };
    let savepoint = savepoint(&site, run);
    let state = state_file(&savepoint);
    let mut altered = fs::read(&state).unwrap();
    altered[20] ^= 1;
    fs::write(&state, altered).unwrap();
    let dry = |count| Run {
        max_parallelism: Some(8),
        count,
        change: |options| options.dry_run = true,
        ..Run::from(&savepoint, RestoreMode::NoClaim)
    };
    let damaged = state.display().to_string();
    let error = site.start("b", dry("count")).unwrap_err();
    assert_says(&error, &["can't go on", "`4`", "`8`", &damaged]);
    let error = site.start("b", dry("tally")).unwrap_err();
    assert_says(&error, &["`count`", "`tally`", &damaged]);
    let error = error.to_string();
    assert_eq!(
        error.lines().count(),
        3,
        "one line for each reason: {error}"
    );
}
