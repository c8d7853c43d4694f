//! The word count as a process that is killed: whatever the moment and whatever the parallelism
//! afterwards, the finished output is exact.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/support/oracle.rs"]
mod oracle;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use support::{Place, files, wait_until};

/// Three files of text, and one that is empty.
fn write_input(place: &Place, lines: usize) -> BTreeMap<String, u64> {
    let mut inputs: Vec<PathBuf> = (0..3)
        .map(|seed| place.write(&format!("{seed}.txt"), support::text::zipf(seed, lines)))
        .collect();
    inputs.push(place.write("empty.txt", ""));
    oracle::plain_count(&inputs, 1)
}

fn assert_exact(place: &Place, expected: &BTreeMap<String, u64>) {
    let lines = oracle::verify(&place.output(), expected).unwrap();
    assert_eq!(lines, expected.values().sum::<u64>());
}

/// What a run says that starts now.
fn expected_start(place: &Place) -> String {
    match place.completed().last() {
        Some(id) => format!("going on from chk-{id}\n"),
        None => "starting without a checkpoint\n".to_owned(),
    }
}

/// Counts that may be seen while the job runs: for each word each count at most once, and none that
/// the finished output won't have.
fn assert_partial(place: &Place, expected: &BTreeMap<String, u64>) {
    let mut seen = BTreeSet::new();
    for path in oracle::visible_files(&place.output()).unwrap_or_default() {
        for line in fs::read_to_string(path).unwrap().lines() {
            let (word, count) = line
                .rsplit_once('\t')
                .expect("only whole lines are visible");
            let count: u64 = count.parse().unwrap();
            assert!((1..=expected[word]).contains(&count), "{line}");
            assert!(seen.insert(line.to_owned()), "`{line}` is there twice");
        }
    }
}

#[test]
fn an_undisturbed_run_is_exact_and_runs_once() {
    let place = Place::new();
    let expected = write_input(&place, 400);
    let odd = ["👩‍👩‍👧‍👦", "مילה", "zero\u{200b}width", "the-last-word"];
    assert!(
        odd.iter()
            .filter(|word| expected.contains_key(**word))
            .count()
            >= 3
    );
    let run = place.start(&["--checkpoint-interval", "20ms", "--parallelism", "2"]);
    let ended = run.wait().success();
    assert!(
        ended.stderr.starts_with("starting without a checkpoint\n"),
        "{}",
        ended.stderr
    );
    for part in [
        "records in",
        "records/s",
        "checkpoints completed",
        "barriers paused",
    ] {
        assert!(
            ended.stderr.contains(part),
            "`{part}` is not in: {}",
            ended.stderr
        );
    }
    assert_exact(&place, &expected);
    place.assert_clean();

    let (output, namespace) = (files(&place.output()), files(&place.namespace()));
    let again = place.start(&["--checkpoint-interval", "20ms", "--parallelism", "3"]);
    let ended = again.wait().success();
    assert!(
        ended.stderr.contains("the job is finished"),
        "{}",
        ended.stderr
    );
    assert!(files(&place.output()) == output, "the output was changed");
    let mut now = files(&place.namespace());
    // The lock says who holds it, and the epoch counts owners; all else is as it was.
    for name in ["lock", "leader"] {
        let before = namespace[name].clone();
        assert!(now.insert(name.to_owned(), before).is_some(), "{name}");
    }
    assert!(now == namespace, "the checkpoints were changed");
}

// RS-02, TP-10: kill -9 at random moments, another parallelism at each restart.
#[test]
fn kills_and_other_parallelisms_change_nothing() {
    let folders = kill_again_and_again(11, &[]);
    assert!(folders <= 3, "{folders} folders were left by a kill");
}

// RX-12: the same with files that checkpoints share; none is left in the end, and none was missed.
#[test]
fn kills_of_incremental_checkpoints_change_nothing() {
    let folders = kill_again_and_again(12, &["--incremental-checkpoints"]);
    assert!(
        folders >= 4,
        "at most {folders} checkpoints had files of the latest"
    );
}

/// Kills the job again and again, lets it run to its end and checks the output. Returns the largest
/// number of checkpoint folders that there were after a kill.
fn kill_again_and_again(seed: u64, settings: &[&str]) -> usize {
    let mut folders = 0;
    let mut random = StdRng::seed_from_u64(seed);
    let place = Place::new();
    let expected = write_input(&place, 2_000);
    let mut went_on = 0;
    for parallelism in ["1", "3", "5", "2", "5", "1"] {
        let start = expected_start(&place);
        went_on += u32::from(start.starts_with("going on"));
        let arguments = [
            "--checkpoint-interval",
            "10ms",
            "--rate",
            "2500",
            "--parallelism",
        ];
        let run = place.start(&[&arguments[..], &[parallelism], settings].concat());
        wait_until("the run says how it starts", || run.stderr().contains('\n'));
        std::thread::sleep(Duration::from_millis(random.random_range(1..300)));
        let killed = run.kill();
        assert!(
            killed.stderr.starts_with(&start),
            "expected {start}, found {}",
            killed.stderr
        );
        assert_partial(&place, &expected);
        folders = folders.max(place.checkpoint_folders().len());
    }
    assert!(
        went_on >= 4,
        "only {went_on} runs had a checkpoint to go on from"
    );
    let start = expected_start(&place);
    let ended = place
        .start(
            &[
                &["--checkpoint-interval", "10ms", "--parallelism", "2"],
                settings,
            ]
            .concat(),
        )
        .wait()
        .success();
    assert!(
        ended.stderr.starts_with(&start),
        "expected {start}, found {}",
        ended.stderr
    );
    assert_exact(&place, &expected);
    place.assert_clean();
    folders
}

// FT-01, CC-53, C6
#[test]
fn the_final_checkpoint_alone_commits_everything() {
    let place = Place::new();
    let expected = write_input(&place, 2_000);
    let flags = ["--checkpoint-interval", "off", "--parallelism"];
    let slow = place.start(&[&flags[..], &["1", "--rate", "4000"]].concat());
    wait_until("something is staged", || {
        !support::place::names(&place.staged()).is_empty()
    });
    assert_eq!(oracle::visible_files(&place.output()), Ok(Vec::new()));
    slow.kill();
    assert_eq!(place.completed(), Vec::<u64>::new());
    assert_eq!(place.checkpoint_folders(), Vec::<u64>::new());
    let ended = place.start(&[&flags[..], &["3"]].concat()).wait().success();
    assert!(
        ended.stderr.starts_with("starting without a checkpoint\n"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("1 checkpoints completed, 0 failed"),
        "{}",
        ended.stderr
    );
    assert_exact(&place, &expected);
    place.assert_clean();
}

#[test]
fn as_many_checkpoints_are_kept_as_was_asked_for() {
    let place = Place::new();
    let expected = write_input(&place, 500);
    let flags = [
        "--checkpoint-interval",
        "10ms",
        "--retained-checkpoints",
        "3",
    ];
    let mut run = place.start(&[&flags[..], &["--rate", "1500"]].concat());
    let (mut most_completed, mut most_folders) = (0, 0);
    while run.is_running() {
        most_completed = most_completed.max(place.completed().len());
        most_folders = most_folders.max(place.checkpoint_folders().len());
        std::thread::sleep(Duration::from_millis(1));
    }
    run.wait().success();
    // The oldest goes when the newest is safe; one more is under way.
    assert!(
        (3..=4).contains(&most_completed),
        "{most_completed} pointers"
    );
    // Two may be on their way out: no checkpoint is triggered while there are more than one.
    assert!(most_folders <= 6, "{most_folders} folders");
    assert_exact(&place, &expected);
    place.assert_clean();
}

// A7: at least once loses nothing, also across kills.
#[test]
fn at_least_once_loses_nothing() {
    let place = Place::new();
    let expected = write_input(&place, 1_000);
    let flags = [
        "--mode",
        "at-least-once",
        "--checkpoint-interval",
        "10ms",
        "--parallelism",
    ];
    for parallelism in ["2", "3", "1"] {
        let run = place.start(&[&flags[..], &[parallelism, "--rate", "2000"]].concat());
        std::thread::sleep(Duration::from_millis(300));
        run.kill();
    }
    place.start(&[&flags[..], &["2"]].concat()).wait().success();
    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for path in oracle::visible_files(&place.output()).unwrap() {
        for line in fs::read_to_string(path).unwrap().lines() {
            let (word, count) = line.rsplit_once('\t').unwrap();
            found
                .entry(word.to_owned())
                .or_default()
                .insert(count.parse().unwrap());
        }
    }
    assert!(
        found.keys().eq(expected.keys()),
        "words are missing or made up"
    );
    for (word, times) in expected {
        assert!(
            (1..=times).all(|count| found[&word].contains(&count)),
            "`{word}` {times}"
        );
    }
    place.assert_clean();
}

fn append(place: &Place, text: &str) {
    let path = place.input().join("growing.txt");
    let mut file: File = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Waits until all complete lines have been counted, exactly, and committed.
fn wait_for_lines(place: &Place, text: &str) {
    let mut expected = BTreeMap::new();
    for word in text.split_whitespace() {
        *expected.entry(word.to_owned()).or_insert(0) += 1;
    }
    wait_until("the lines are counted and committed", || {
        oracle::verify(&place.output(), &expected).is_ok()
    });
}

#[test]
fn a_growing_file_is_followed_across_kills() {
    let place = Place::new();
    let texts: Vec<String> = (0..5)
        .map(|seed| support::text::zipf(seed, 60) + "\n")
        .collect();
    append(&place, &texts[0]);
    let flags = ["--follow", "--checkpoint-interval", "20ms", "--parallelism"];
    let first = place.start(&[&flags[..], &["1"]].concat());
    wait_for_lines(&place, &texts[0]);
    append(&place, &texts[1]);
    // Half a line is nobody's yet.
    append(&place, "half of");
    wait_for_lines(&place, &texts[..2].concat());
    first.kill();
    append(&place, " a line\n");
    append(&place, &texts[2]);
    let whole = texts[..2].concat() + "half of a line\n" + &texts[2];
    let start = expected_start(&place);
    let second = place.start(&[&flags[..], &["3"]].concat());
    wait_for_lines(&place, &whole);
    assert!(second.stderr().starts_with(&start), "{}", second.stderr());
    // Killed while lines are under way.
    append(&place, &texts[3]);
    second.kill();
    append(&place, &texts[4]);
    let third = place.start(&[&flags[..], &["2"]].concat());
    wait_for_lines(&place, &(whole + &texts[3] + &texts[4]));
    third.kill();
}

// Every phase of a checkpoint, once.
#[test]
#[cfg(feature = "fault-points")]
fn survive_passes_at_a_small_scale() {
    let arguments = [
        "--kills", "9", "--seed", "7", "--repeat", "4", "--rate", "10000",
    ]
    .map(str::to_owned);
    let ended = support::Process::start(&support::example("survive"), &arguments)
        .wait()
        .success();
    let phases = [
        "barrier",
        "snapshot",
        "state-file",
        "acknowledge",
        "metadata",
        "pointer",
        "commit-link",
        "commit-unlink",
        "commit-sync",
    ];
    for phase in phases {
        let hit = ended
            .stdout
            .lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>() == [phase, "1"]);
        assert!(hit, "`{phase}` was not hit once: {}", ended.stdout);
    }
    assert!(
        ended.stdout.contains("survived 9 kills"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("each exactly once"),
        "{}",
        ended.stdout
    );
}
