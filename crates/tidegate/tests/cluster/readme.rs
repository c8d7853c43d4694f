//! What the README says about clusters, word for word.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::members::{Kind, of_kind, signal};
use crate::support::{Process, example, wait_until};
use crate::{oracle, wait_for_tasks};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command of the README's section on clusters, with the program that it runs as it is here.
fn command() -> String {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let section = readme.split("### Try it on a cluster").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap();
    let command = block.split("```").next().unwrap();
    let program = "cargo run --release --example wordcount --";
    assert!(command.contains(program), "{command}");
    let here = example("wordcount").display().to_string();
    // Without the shell, which would be one more process between.
    format!("exec {}", command.replace(program, &here))
}

/// Runs the command in a folder that has what it reads, and is removed when it is dropped.
fn start() -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository().join("data"), folder.path().join("data")).unwrap();
    let in_folder = format!("cd '{}' && {}", folder.path().display(), command());
    let shell = ["-c".to_owned(), in_folder];
    (folder, Process::start(Path::new("/bin/sh"), &shell))
}

#[test]
fn the_command_of_the_readme_survives_what_the_readme_kills() {
    let (folder, mut cluster) = start();
    wait_for_tasks(&mut cluster);
    std::thread::sleep(Duration::from_millis(500));
    for kind in [Kind::TaskManager, Kind::JobManager] {
        for member in of_kind(cluster.id(), kind) {
            signal(member, "KILL");
        }
        std::thread::sleep(Duration::from_millis(100));
        wait_for_tasks(&mut cluster);
        std::thread::sleep(Duration::from_millis(700));
    }
    let ended = cluster.wait().success();
    let inputs: Vec<PathBuf> = std::fs::read_dir(repository().join("data/text"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    let expected = oracle::plain_count(&inputs, 20);
    let output = folder.path().join("cluster-demo/output");
    let lines = oracle::verify(&output, &expected).unwrap();
    assert_eq!(lines, expected.values().sum::<u64>());
    assert!(
        ended.stderr.contains("going on from chk-"),
        "{}",
        ended.stderr
    );
}

#[test]
fn help_names_the_role_and_what_it_can_be_told() {
    let help = |role: &str| {
        let output = Command::new(example("wordcount"))
            .args([role, "--help"])
            .output();
        let output = output.unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let taskmanager = help("taskmanager");
    assert!(
        taskmanager.contains("Usage: wordcount taskmanager"),
        "{taskmanager}"
    );
    assert!(taskmanager.contains("--slots"), "{taskmanager}");
    assert!(!taskmanager.contains("--input"), "{taskmanager}");
    let jobmanager = help("jobmanager");
    assert!(
        jobmanager.contains("--listen") && jobmanager.contains("--input"),
        "{jobmanager}"
    );
    let embedded = help("--parallelism=1");
    assert!(!embedded.contains("--listen"), "{embedded}");
}

#[test]
fn a_process_that_dies_takes_what_it_started_along() {
    let (_folder, mut cluster) = start();
    wait_for_tasks(&mut cluster);
    let members = crate::members::members(cluster.id());
    assert_eq!(members.len(), 7);
    cluster.kill();
    wait_until("all processes of the cluster have ended", || {
        let lives = |pid: u32| Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
        members.iter().all(|member| !lives(member.pid))
    });
}
