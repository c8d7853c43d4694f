//! What people get wrong, and what disks do: each is told in words that name the thing and what to
//! do, and loses nothing.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../examples/support/oracle.rs"]
mod oracle;
#[path = "../support/mod.rs"]
mod support;

mod checkpoints;
mod disks;
mod files;
mod restores;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;

use support::process::Ended;
use support::{Place, Process, example, wait_until};

/// A place with a small text to count.
fn place() -> (Place, BTreeMap<String, u64>) {
    let place = Place::new();
    let text = place.write("text.txt", support::text::zipf(3, 100));
    (place, oracle::plain_count(&[text], 1))
}

/// Runs the word count with the text of `place`, other folders being given.
fn run(place: &Place, output: &Path, checkpoints: &str, more: &[&str]) -> Ended {
    let mut arguments: Vec<String> = vec!["--input".to_owned()];
    arguments.push(place.input().display().to_string());
    arguments.extend(["--output".to_owned(), output.display().to_string()]);
    arguments.extend(["--checkpoint-dir".to_owned(), checkpoints.to_owned()]);
    arguments.extend(more.iter().map(|flag| (*flag).to_owned()));
    Process::start(&example("wordcount"), &arguments).wait()
}

/// Checks that, the trouble being over, the same command comes to the right end.
fn assert_recovers(place: &Place, expected: &BTreeMap<String, u64>) {
    place.start(&[]).wait().success();
    oracle::verify(&place.output(), expected).unwrap();
    place.assert_clean();
}

/// A word count that was killed when it had committed something, and its latest checkpoint.
fn killed(place: &Place) -> (u64, BTreeMap<String, u64>) {
    let text = place.write("text.txt", support::text::zipf(3, 1_000));
    let flags = [
        "--checkpoint-interval",
        "20ms",
        "--rate",
        "1000",
        "--parallelism",
        "2",
    ];
    let run = place.start(&flags);
    wait_until("a checkpoint completes", || {
        place.completed().last() > Some(&2)
            && oracle::visible_files(&place.output()).is_ok_and(|files| !files.is_empty())
    });
    run.kill();
    let latest = *place.completed().last().unwrap();
    (latest, oracle::plain_count(&[text], 1))
}
