//! Dry runs as people run them: what is printed, and the exit code.

use crate::support::wait_until;
use crate::support::{Place, Process, example, files, text};

/// A running word count with completed checkpoints.
fn running(place: &Place) -> crate::support::Process {
    place.write("text.txt", text::zipf(3, 1_000));
    let run = place.start(&["--checkpoint-interval", "20ms", "--rate", "500"]);
    wait_until("checkpoints complete", || {
        place.completed().last() > Some(&2)
    });
    run
}

#[test]
fn a_dry_run_says_whether_the_job_could_go_on_and_changes_nothing() {
    let place = Place::new();
    let dry = ["--dry-run", "--parallelism", "3"];
    let ended = place.start(&dry).wait().success();
    assert!(
        ended.stdout.contains("nothing to restore"),
        "{}",
        ended.stdout
    );
    assert!(!place.checkpoints().exists() && !place.output().exists());

    running(&place).kill();
    let latest = *place.completed().last().unwrap();
    let before = (files(&place.namespace()), files(&place.output()));
    let ended = place.start(&dry).wait().success();
    assert!(
        ended
            .stdout
            .starts_with(&format!("`chk-{latest}` can be restored:")),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("`count`: parallelism 1 -> 3"),
        "{}",
        ended.stdout
    );
    assert_eq!(ended.stderr, "");

    let state = files(&place.namespace()).into_keys();
    let mut state = state.filter(|name| name.starts_with(&format!("chk-{latest}/a")));
    let state = place.namespace().join(state.next_back().unwrap());
    let whole = std::fs::read(&state).unwrap();
    std::fs::write(&state, &whole[1..]).unwrap();
    let shown = state.display().to_string();
    let ended = place.start(&dry).wait().failure(&[&shown, "can't go on"]);
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(1), ""));
    std::fs::write(&state, whole).unwrap();
    let mut after = (files(&place.namespace()), files(&place.output()));
    // Only this test has written to it.
    let name = state.strip_prefix(place.namespace()).unwrap();
    let name = name.display().to_string();
    let changed = before.0[&name].clone();
    assert_eq!(after.0.insert(name, changed.clone()).unwrap().1, changed.1);
    assert!(after == before, "a dry run wrote something");
    place.start(&[]).wait().success();
    let ended = place.start(&dry).wait().success();
    assert!(ended.stdout.contains("is finished"), "{}", ended.stdout);
}

// A snapshot can be tried without any namespace, by its folder or its metadata.
#[test]
fn a_dry_run_needs_no_checkpoint_directory() {
    let place = Place::new();
    running(&place).kill();
    let latest = *place.completed().last().unwrap();
    let folder = place.namespace().join(format!("chk-{latest}"));
    for given in [folder.clone(), folder.join("_metadata")] {
        let arguments = [
            "--output",
            &place.path("other").display().to_string(),
            "--input",
            &place.input().display().to_string(),
            "--restore-from",
            &given.display().to_string(),
            "--dry-run",
        ];
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let ended = Process::start(&example("wordcount"), &arguments).wait();
        let found = format!("`chk-{latest}` can be restored:");
        assert!(ended.success().stdout.starts_with(&found));
        assert!(!place.path("other").exists());
    }
}

// Whoever runs the job is not disturbed.
#[test]
fn a_dry_run_works_beside_the_job() {
    let place = Place::new();
    let mut run = running(&place);
    // A checkpoint may go while it is being looked at; then one looks again.
    wait_until("a dry run comes through", || {
        let ended = place.start(&["--dry-run"]).wait();
        ended.status.success() && ended.stdout.contains("can be restored")
    });
    assert!(run.is_running(), "{}", run.stderr());
}
