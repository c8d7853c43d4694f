//! `kill -9` while a job is being stopped with a savepoint, and while one is being begun from it.

use std::collections::BTreeMap;

use crate::oracle;
#[cfg(feature = "fault-points")]
use crate::support::place::names;
use crate::support::{Place, Process, example, text, wait_until};

fn place() -> (Place, BTreeMap<String, u64>) {
    let place = Place::new();
    let text = place.write("text.txt", text::zipf(5, 800));
    (place, oracle::plain_count(&[text], 1))
}

/// The example that stops itself, without periodic checkpoints.
fn stopping(place: &Place, more: &[&str], variables: &[(&str, &str)]) -> Process {
    let mut arguments = place.arguments();
    arguments.extend(more.iter().map(|flag| (*flag).to_owned()));
    let savepoints = place.path("savepoints").display().to_string();
    let flags = ["--checkpoint-interval", "off", "--parallelism", "2"];
    arguments.extend(flags.map(str::to_owned));
    arguments.extend(["--rate", "1000", "--stop-after", "150ms"].map(str::to_owned));
    arguments.extend(["--savepoint-dir".to_owned(), savepoints]);
    Process::start_with(&example("savepoint"), &arguments, variables)
}

/// Lets the job complete some checkpoints before it is killed; returns the latest.
#[cfg(feature = "fault-points")]
fn killed_before(place: &Place) -> u64 {
    let run = place.start(&["--checkpoint-interval", "10ms", "--rate", "1000"]);
    wait_until("a checkpoint completes", || {
        place.completed().last() > Some(&1)
    });
    run.kill();
    *place.completed().last().unwrap()
}

/// Stops the job and kills it when it comes to a point for the first time.
#[cfg(feature = "fault-points")]
fn kill_stop_at(place: &Place, point: &str, more: &[&str]) {
    let announced = place.path("announced");
    let (armed, to) = (format!("{point}#1"), announced.display().to_string());
    let variables = [
        (tidegate_fault::ARM_VARIABLE, armed.as_str()),
        (tidegate_fault::ANNOUNCE_VARIABLE, to.as_str()),
    ];
    let run = stopping(place, more, &variables);
    wait_until(&format!("it comes to `{point}`"), || {
        let lines = std::fs::read_to_string(&announced).unwrap_or_default();
        lines.lines().any(|line| line.ends_with(" armed"))
    });
    run.kill();
}

// SP-10, BC-22: from the metadata of the savepoint to the end of the stop, whatever the moment.
// Once there is a pointer to it the job goes on from it and from nothing older, and commits what
// was not; before that, nothing of it counts.
#[test]
#[cfg(feature = "fault-points")]
fn a_stop_that_is_killed_is_exact_after_a_restart() {
    for (point, counts) in [
        ("metadata:before", false),
        ("metadata:after", false),
        ("pointer:after", true),
        ("commit-link:after", true),
        ("commit-sync:after", true),
        ("commit-unlink:after", true),
    ] {
        let (place, expected) = place();
        // What a restored job commits first would come to the same point.
        let older = match point.starts_with("commit") {
            true => 0,
            false => killed_before(&place),
        };
        kill_stop_at(&place, point, &[]);
        let newer = place.completed().last() > Some(&older);
        assert_eq!(newer, counts, "{point}");

        let again = place.start(&["--checkpoint-interval", "off", "--parallelism", "3"]);
        let ended = again.wait().success();
        let start = match counts {
            true => "going on from file://".to_owned(),
            false => format!("going on from chk-{older}\n"),
        };
        assert!(
            ended.stderr.starts_with(&start),
            "{point}: {}",
            ended.stderr
        );
        oracle::verify(&place.output(), &expected).unwrap();
        place.assert_clean();
        // What is whole is the user's; what never will be is gone.
        let savepoints = names(&place.path("savepoints")).len();
        assert_eq!(
            savepoints,
            usize::from(point != "metadata:before"),
            "{point}"
        );
    }
}

// SP-10: draining is for good from the moment at which there is a pointer to the savepoint.
// What runs next reads nothing more: it commits what was written, and is finished.
#[test]
#[cfg(feature = "fault-points")]
fn a_drain_that_is_killed_is_committed_and_finished_by_the_next_run() {
    for point in [
        "pointer:after",
        "commit-link:after",
        "commit-sync:after",
        "commit-unlink:after",
    ] {
        for parallelism in ["2", "3"] {
            let (place, all) = place();
            kill_stop_at(&place, point, &["--drain"]);
            let written = crate::written(&place.output());
            let run =
                || place.start(&["--checkpoint-interval", "off", "--parallelism", parallelism]);
            let ended = run().wait().success().stderr;
            assert!(
                ended.starts_with("going on from file://"),
                "{point}: {ended}"
            );
            let lines = crate::assert_drained(&place.output(), &written);
            assert!(lines < all.values().sum(), "{point}: it was not stopped");
            place.assert_clean();
            assert_eq!(names(&place.path("savepoints")).len(), 1, "{point}");

            let before = crate::support::files(&place.output());
            run().wait().success();
            assert!(crate::support::files(&place.output()) == before, "{point}");
        }
    }
}

// Before there is a pointer, a drain has not come about: the job goes on as if nobody had asked.
#[test]
#[cfg(feature = "fault-points")]
fn a_drain_that_is_killed_before_its_savepoint_counts_has_ended_nothing() {
    let (place, expected) = place();
    let older = killed_before(&place);
    kill_stop_at(&place, "metadata:after", &["--drain"]);
    let again = place.start(&["--checkpoint-interval", "off", "--parallelism", "3"]);
    let ended = again.wait().success().stderr;
    let start = format!("going on from chk-{older}\n");
    assert!(ended.starts_with(&start), "{ended}");
    oracle::verify(&place.output(), &expected).unwrap();
    place.assert_clean();
}

// Killed before its first own checkpoint, a job goes on from what it was begun from, though it
// isn't told again.
#[test]
fn a_begun_job_that_is_killed_knows_what_it_was_begun_from() {
    let (place, expected) = place();
    let stopped = stopping(&place, &[], &[]).wait().success();
    let stopped = stopped.stdout.trim();
    let location = stopped.strip_prefix("stopped with savepoint ").unwrap();

    let [output, checkpoints] = ["other-output", "other"].map(|name| place.path(name));
    let begin = |more: &[&str]| {
        let mut arguments = Vec::new();
        for (flag, path) in [
            ("--input", place.input()),
            ("--output", output.clone()),
            ("--checkpoint-dir", checkpoints.clone()),
        ] {
            arguments.extend([flag.to_owned(), path.display().to_string()]);
        }
        arguments.extend(more.iter().map(|flag| (*flag).to_owned()));
        Process::start(&example("wordcount"), &arguments)
    };
    let off = ["--checkpoint-interval", "off"];
    let slow = ["--restore-from", location, "--rate", "100"];
    let start = format!("going on from {location}\n");
    let run = begin(&[&off[..], &slow].concat());
    wait_until("it has begun", || run.stderr().contains('\n'));
    let killed = run.kill();
    assert!(killed.stderr.starts_with(&start), "{}", killed.stderr);

    let ended = begin(&[&off[..], &["--parallelism", "3"]].concat()).wait();
    let ended = ended.success();
    assert!(ended.stderr.starts_with(&start), "{}", ended.stderr);
    crate::assert_exact(&[place.output(), output], &expected);
}
