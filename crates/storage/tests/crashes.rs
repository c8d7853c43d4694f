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
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Place, checkpoint, write};
use tidegate_storage::{CheckpointPointer, NamespaceStatus};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, CheckpointId};

const CHILD: &str = "TIDEGATE_CRASHES_TEST_CHILD";

/// Where the third checkpoint is cut off, and whether it is complete then.
const CASES: [(&str, bool); 6] = [
    ("state-file:before#3", false),
    ("state-file:after#3", false),
    ("metadata:before#3", false),
    ("metadata:after#3", false),
    ("pointer:before#3", false),
    ("pointer:after#3", true),
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
        return take_checkpoints(Path::new(&dir));
    }
    for (point, complete) in CASES {
        let place = Place::new();
        kill_at(point, &place.dir);
        recovers(&place, point, complete);
    }
    println!("crashes: recovered from {} crash points", CASES.len());
}

/// Takes checkpoints until killed, keeping two.
fn take_checkpoints(dir: &Path) {
    let place = Place::at(dir);
    let store = place.open();
    assert_eq!(
        place.run(store.reserve_attempt()).unwrap(),
        AttemptNumber(1)
    );
    let mut retained = Vec::new();
    for id in 1.. {
        assert_eq!(
            place.run(store.reserve_ids(CheckpointId(id))),
            WriteOutcome::Done
        );
        retained.push(place.complete(&store, id));
        if retained.len() > 2 {
            place
                .run(store.drop_completed(&retained.remove(0)))
                .unwrap();
        }
    }
}

fn kill_at(point: &str, dir: &Path) {
    let (announced, announcer) = std::io::pipe().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, dir)
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
