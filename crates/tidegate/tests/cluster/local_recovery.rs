//! TaskManagers that keep copies of the state files they write: after a failure those are read, and
//! not the checkpoint directory, unless something is wrong with them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::control::terminate;
use crate::members::{Kind, of_kind, signal};
use crate::support::{Place, Process, files, wait_until};
use crate::{assert_exact, start, wait_for_tasks, write_input};

/// A cluster that has every state in a file, and some seconds of work.
fn start_with_copies(place: &Place, restart: &str) -> Process {
    let directory = place.path("local");
    let arguments = [
        ["--checkpoint-interval", "50ms"],
        ["--repeat", "40"],
        ["--rate", "4000"],
        ["--restart", restart],
        ["--local-dir", directory.to_str().unwrap()],
    ];
    start(
        place,
        &[&["--local-recovery"], arguments.as_flattened()].concat(),
    )
}

/// Waits until an attempt runs that has completed a checkpoint.
fn wait_for_a_checkpoint(place: &Place, cluster: &mut Process) {
    wait_for_tasks(cluster);
    let before = place.completed();
    wait_until("a checkpoint has completed", || {
        place.completed().iter().any(|id| !before.contains(id)) || !cluster.is_running()
    });
}

fn kill_one(cluster: &Process, kind: Kind) {
    let victim = of_kind(cluster.id(), kind)[0];
    signal(victim, "KILL");
    wait_until("it is gone", || {
        !of_kind(cluster.id(), kind).contains(&victim)
    });
}

/// How many files were read to restore state, and how many of them were copies.
fn restored(summary: &str) -> (u64, u64) {
    let line = summary.lines().find_map(|line| {
        let (_, line) = line.split_once("state was restored from ")?;
        let (files, line) = line.split_once(" files, ")?;
        let (_, line) = line.split_once("; ")?;
        let (local, _) = line.split_once(" of them")?;
        Some((files.parse().unwrap(), local.parse().unwrap()))
    });
    line.unwrap_or_else(|| panic!("{summary}"))
}

/// All copies of all TaskManagers.
fn copies(place: &Place) -> Vec<PathBuf> {
    let directory = place.path("local");
    let names = files(&directory).into_keys();
    let copies = names.filter(|name| name.ends_with(".state"));
    copies.map(|name| directory.join(name)).collect()
}

fn damage(copy: &Path) {
    let mut bytes = fs::read(copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(copy, bytes).unwrap();
}

// LR-01, LR-04
#[test]
fn survivors_and_those_that_come_back_restore_from_their_own_disk() {
    let place = Place::new();
    let expected = write_input(&place, 300, 40);
    let mut cluster = start_with_copies(&place, "fixed-delay:1000,1ms");
    for kind in [Kind::Task, Kind::Task, Kind::TaskManager, Kind::Task] {
        wait_for_a_checkpoint(&place, &mut cluster);
        kill_one(&cluster, kind);
    }
    let ended = cluster.wait().success();
    assert_exact(&place, &expected);
    let (files, local) = restored(&ended.stderr);
    assert!(files >= 12, "{files} files: {}", ended.stderr);
    assert_eq!(files, local, "{}", ended.stderr);
    // Nobody will need them any more.
    assert_eq!(copies(&place), Vec::<PathBuf>::new());
}

// LR-01, LR-03
#[test]
fn copies_that_are_damaged_or_gone_are_read_from_the_checkpoint_directory() {
    let place = Place::new();
    let expected = write_input(&place, 300, 40);
    let mut cluster = start_with_copies(&place, "fixed-delay:1000,1s");
    let harm: [fn(&Path); 3] = [
        damage,
        |copy| fs::write(copy, "torn").unwrap(),
        |copy| fs::remove_file(copy).unwrap(),
    ];
    for harm in harm {
        wait_for_a_checkpoint(&place, &mut cluster);
        kill_one(&cluster, Kind::Task);
        wait_until("the attempt is over", || {
            of_kind(cluster.id(), Kind::Task).is_empty()
        });
        let copies = copies(&place);
        assert!(copies.len() >= 3, "{copies:?}");
        copies.iter().for_each(|copy| harm(copy));
    }
    let ended = cluster.wait().success();
    assert_exact(&place, &expected);
    let (files, local) = restored(&ended.stderr);
    assert_eq!((files, local), (9, 0), "{}", ended.stderr);
}

// Nobody will need them any more: the job goes on from its savepoint.
#[test]
fn a_cluster_that_is_told_to_stop_leaves_no_copies() {
    let place = Place::new();
    write_input(&place, 300, 40);
    let (local, savepoints) = (place.path("local"), place.path("savepoints"));
    let arguments = [
        ["--checkpoint-interval", "50ms"],
        ["--repeat", "40"],
        ["--rate", "4000"],
        ["--on-sigterm", "stop"],
        ["--savepoint-dir", savepoints.to_str().unwrap()],
        ["--local-dir", local.to_str().unwrap()],
    ];
    let arguments = [&["--local-recovery"], arguments.as_flattened()].concat();
    let mut cluster = start(&place, &arguments);
    wait_for_a_checkpoint(&place, &mut cluster);
    assert!(!copies(&place).is_empty());
    terminate(&cluster);
    let ended = cluster.wait().success();
    assert!(
        ended.stderr.contains("stopped with savepoint"),
        "{}",
        ended.stderr
    );
    assert_eq!(copies(&place), Vec::<PathBuf>::new());
}
