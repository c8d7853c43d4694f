//! A process is killed at every crash point of this crate, and the next one finds its namespace
//! free, whole and without loss.
//!
//! The process is this binary again, told apart by an environment variable; hence no test harness.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it is its own test harness"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Place, checkpoint, savepoint, savepoint_of, write, write_at};
use tidegate_storage::{
    CheckpointPointer, NamespaceStatus, RestoreFrom, load_snapshot, parse_snapshot_path,
};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, CheckpointId, Owner, RestoreMode, SnapshotLocation};
use url::Url;

const CHILD: &str = "TIDEGATE_CRASHES_TEST_CHILD";
const WORK: &str = "TIDEGATE_CRASHES_TEST_WORK";

/// Where the third checkpoint is cut off, and whether it is complete then.
const CHECKPOINTS: [(&str, bool); 6] = [
    ("state-file:before#3", false),
    ("state-file:after#3", false),
    ("metadata:before#3", false),
    ("metadata:after#3", false),
    ("pointer:before#3", false),
    ("pointer:after#3", true),
];

/// Where a savepoint with which the job stops is cut off after two checkpoints, whether it can be
/// restored by its path then, and whether the job goes on from it.
const SAVEPOINT: [(&str, bool, bool); 6] = [
    ("state-file:before#3", false, false),
    ("state-file:after#3", false, false),
    ("metadata:before#3", false, false),
    ("metadata:after#3", true, false),
    ("pointer:before#3", true, false),
    ("pointer:after#3", true, true),
];

/// Where a job is cut off that claims a savepoint, then completes a checkpoint; and what it goes
/// on from.
const CLAIM: [(&str, &[u64]); 4] = [
    ("pointer:before#1", &[70]),
    ("pointer:after#1", &[70]),
    ("pointer:before#2", &[70]),
    ("pointer:after#2", &[70, 71]),
];

/// Where a job is cut off whose second checkpoint shares a file with the first and whose third
/// shares nothing; and what it goes on from. The second is dropped from the store before the fourth
/// is written, and its files after that.
const SHARED: [(&str, &[u64]); 6] = [
    ("pointer:before#2", &[1]),
    ("pointer:after#2", &[1, 2]),
    ("state-file:before#3", &[2]),
    ("pointer:after#3", &[2, 3]),
    ("state-file:before#4", &[3]),
    ("pointer:before#4", &[3]),
];

fn main() {
    // nextest asks for the list of tests.
    if std::env::args().any(|argument| argument == "--list") {
        if !std::env::args().any(|argument| argument == "--ignored") {
            println!("crashes: test");
        }
        return;
    }
    if let Some(dir) = std::env::var_os(CHILD) {
        let place = Place::at(Path::new(&dir));
        match std::env::var(WORK).unwrap().as_str() {
            "checkpoints" => take_checkpoints(&place),
            "savepoint" => stop_with_savepoint(&place),
            "claim" => claim(&place),
            "shared" => share_files(&place),
            other => panic!("`{other}`"),
        }
        panic!(
            "{} is reached",
            std::env::var(tidegate_fault::ARM_VARIABLE).unwrap()
        );
    }
    for (point, complete) in CHECKPOINTS {
        let place = Place::new();
        kill_at(point, "checkpoints", &place.dir);
        recovers(&place, point, complete);
    }
    for (point, whole, listed) in SAVEPOINT {
        let place = Place::new();
        kill_at(point, "savepoint", &place.dir);
        recovers_from_savepoint(&place, point, whole, listed);
    }
    for (point, expected) in CLAIM {
        let place = Place::new();
        kill_at(point, "claim", &place.dir);
        recovers_from_claim(&place, point, expected);
    }
    for (point, expected) in SHARED {
        let place = Place::new();
        kill_at(point, "shared", &place.dir);
        recovers_what_is_shared(&place, point, expected);
    }
    let count = CHECKPOINTS.len() + SAVEPOINT.len() + CLAIM.len() + SHARED.len();
    println!("crashes: recovered from {count} crash points");
}

/// Takes checkpoints until killed, keeping two.
fn take_checkpoints(place: &Place) {
    let store = place.open();
    assert_eq!(
        place.run(store.reserve_attempt()).unwrap(),
        AttemptNumber(1)
    );
    let mut retained = Vec::new();
    for id in 1..10 {
        assert_eq!(
            place.run(store.reserve_ids(CheckpointId(id))),
            WriteOutcome::Done
        );
        retained.push(place.complete(&store, id));
        if retained.len() > 2 {
            place
                .run(store.drop_completed(&retained.remove(0), &[]))
                .unwrap();
        }
    }
}

fn savepoint_location(place: &Place) -> (PathBuf, SnapshotLocation) {
    let path = place.dir.join("savepoints/sp");
    let location = parse_snapshot_path(path.to_str().unwrap()).unwrap();
    (path, location)
}

fn stop_with_savepoint(place: &Place) {
    let store = place.open();
    place.complete(&store, 1);
    place.complete(&store, 2);
    let (_, location) = savepoint_location(place);
    let prepared = place.run(store.prepare_savepoint(CheckpointId(3), &location));
    assert_eq!(prepared, WriteOutcome::Done);
    let file = write_at(&store, &location, "count[0]", b"state");
    let stop = savepoint_of(&store, 3, &location, vec![file]);
    place.run(store.publish_metadata(&stop));
    place.run(store.store_pointer(&CheckpointPointer::to(&stop)));
}

fn claim(place: &Place) {
    let (other, _) = place.try_open("other").unwrap();
    let (_, location) = savepoint_location(place);
    savepoint(place, &other, 70, &location);
    let store = place.open();
    let from = RestoreFrom {
        location,
        mode: RestoreMode::Claim,
    };
    place.run(store.resume(Some(&from))).unwrap();
    place.complete(&store, 71);
}

/// Takes checkpoints until killed, keeping one, and drops those that share files as the
/// coordinator does.
fn share_files(place: &Place) {
    let store = place.open();
    let complete = |id, files| {
        let completed = checkpoint(&store, id, files);
        place.run(store.publish_metadata(&completed));
        place.run(store.store_pointer(&CheckpointPointer::to(&completed)));
        completed
    };
    let drop_sparing = |completed, spared: &[_]| {
        let dropped = store.drop_completed(completed, spared);
        place.run(dropped).unwrap();
    };
    let full = write(&store, 1, "count[0]", b"full");
    let first = complete(1, vec![full.clone()]);
    let change = write(&store, 2, "count[0]", b"change");
    let second = complete(2, vec![full.clone(), change.clone()]);
    drop_sparing(&first, std::slice::from_ref(&full));
    place.complete(&store, 3);
    drop_sparing(&second, &[full, change]);
    let newest = write(&store, 4, "count[0]", b"newest");
    drop_sparing(&second, &[]);
    complete(4, vec![newest]);
}

fn kill_at(point: &str, work: &str, dir: &Path) {
    let (announced, announcer) = std::io::pipe().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, dir)
        .env(WORK, work)
        .env(tidegate_fault::ANNOUNCE_VARIABLE, "/dev/fd/0")
        .env(tidegate_fault::ARM_VARIABLE, point)
        .stdin(Stdio::from(announcer))
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(announced).lines().map(Result::unwrap);
    let armed = lines.find(|line| line.ends_with(" armed"));
    assert!(armed.is_some(), "{point} is reached");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn recovers(place: &Place, point: &str, complete: bool) {
    let (store, status) = place.try_open("job").unwrap();
    assert_eq!(status, NamespaceStatus::Unfinished, "{point}");
    let recovered = place.run(store.recover()).unwrap();
    let ids: Vec<u64> = recovered.iter().map(|checkpoint| checkpoint.id.0).collect();
    assert_eq!(
        ids,
        if complete { vec![1, 2, 3] } else { vec![1, 2] },
        "{point}"
    );
    let report = place.run(store.sweep_orphans(&recovered)).unwrap();
    assert!(report.failures.is_empty(), "{point}: {:?}", report.failures);
    for checkpoint in &recovered {
        place.run(store.verify_files(checkpoint)).unwrap();
    }
    // Pointer, metadata and one state file each; nothing else is left.
    assert_eq!(place.files(&store).len(), 3 * recovered.len(), "{point}");

    // The next attempt has its own numbers, also where files of the dead one were swept.
    assert_eq!(
        place.run(store.reserve_attempt()).unwrap(),
        AttemptNumber(2)
    );
    let next = place.run(store.reserved_ids()).unwrap().next();
    assert_eq!(next, CheckpointId(4), "{point}");
    let full = checkpoint(
        &store,
        next.0,
        vec![write(&store, next.0, "count[0]", b"new")],
    );
    assert_eq!(place.run(store.publish_metadata(&full)), WriteOutcome::Done);
    assert_eq!(
        place.run(store.store_pointer(&CheckpointPointer::to(&full))),
        WriteOutcome::Done
    );
    assert_eq!(
        place.run(store.recover()).unwrap().last(),
        Some(&full),
        "{point}"
    );
}

/// Nothing is left of a savepoint that did not complete. One that did, though nobody refers to it,
/// is the user's to delete.
fn recovers_from_savepoint(place: &Place, point: &str, whole: bool, listed: bool) {
    let store = place.open();
    let recovered = place.run(store.recover()).unwrap();
    let ids: Vec<u64> = recovered.iter().map(|checkpoint| checkpoint.id.0).collect();
    let expected = if listed { vec![1, 2, 3] } else { vec![1, 2] };
    assert_eq!(ids, expected, "{point}");
    let (path, location) = savepoint_location(place);
    let entries = || std::fs::read_dir(&path).unwrap().count();
    let before = entries();
    let swept = place.run(store.sweep_orphans(&recovered)).unwrap();
    assert!(swept.failures.is_empty(), "{point}: {:?}", swept.failures);
    assert_eq!(path.exists(), whole, "{point}");
    // Two checkpoints of three files each, and the pointer: no record of the folder.
    let left = 3 * 2 + usize::from(listed);
    assert_eq!(place.files(&store).len(), left, "{point}");

    let loaded = place.run(load_snapshot(&Url::parse(location.as_str()).unwrap()));
    assert_eq!(loaded.is_ok(), whole, "{point}: {loaded:?}");
    if let Some(stop) = recovered.get(2) {
        assert_eq!(stop, &loaded.unwrap());
        place.run(store.verify_files(stop)).unwrap();
        // The user's, whatever becomes of the job.
        place.run(store.drop_completed(stop, &[])).unwrap();
        assert_eq!(entries(), before);
    }
}

/// What is listed is whole, and after a sweep nothing else is there.
// RX-01, BC-27
fn recovers_what_is_shared(place: &Place, point: &str, expected: &[u64]) {
    let store = place.open();
    let completed = place.run(store.resume(None)).unwrap().completed;
    let ids: Vec<u64> = completed.iter().map(|checkpoint| checkpoint.id.0).collect();
    assert_eq!(ids, expected, "{point}");
    let report = place.run(store.sweep_orphans(&completed)).unwrap();
    assert!(report.failures.is_empty(), "{point}: {:?}", report.failures);
    let mut state: Vec<_> = completed.iter().flat_map(|c| c.files()).collect();
    state.sort();
    state.dedup();
    for checkpoint in &completed {
        place.run(store.verify_files(checkpoint)).unwrap();
    }
    // Pointer and metadata of each, and every state file once.
    let left = 2 * completed.len() + state.len();
    assert_eq!(place.files(&store).len(), left, "{point}");
}

fn recovers_from_claim(place: &Place, point: &str, expected: &[u64]) {
    let store = place.open();
    let resumed = place.run(store.resume(None)).unwrap();
    let completed = &resumed.completed;
    let ids: Vec<u64> = completed.iter().map(|checkpoint| checkpoint.id.0).collect();
    assert_eq!(ids, expected, "{point}");
    assert!(completed.iter().all(|c| c.owner == Owner::Job), "{point}");
    place.run(store.sweep_orphans(completed)).unwrap();
    for checkpoint in completed {
        place.run(store.verify_files(checkpoint)).unwrap();
    }
    place.run(store.drop_completed(&completed[0], &[])).unwrap();
    assert!(!savepoint_location(place).0.exists(), "{point}");
}
