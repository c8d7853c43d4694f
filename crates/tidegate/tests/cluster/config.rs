//! A cluster whose parts are told what they are told by one file.

use std::fs;
use std::process::Command;

use crate::by_hand::free_address;
use crate::members::{Kind, of_kind, signal};
use crate::support::{Place, Process, example, wait_until};
use crate::{assert_exact, oracle, write_input};

/// Writes `cluster.toml`, which has what all parts are told, and the job.
fn file(place: &Place, address: &str) -> String {
    let path = place.path("cluster.toml");
    let content = format!(
        "listen = '{address}'\nheartbeat-timeout = '1s'\n\
         jobmanager = '{address}'\nslots = 1\nregistration-timeout = '20s'\n\
         parallelism = 2\ncheckpoint-dir = {:?}\ncheckpoint-interval = '30ms'\n\
         restart = 'fixed-delay:1000,1ms'\n",
        place.checkpoints()
    );
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// Starts a role with this file; a job's own arguments can't stand in it.
fn start(place: &Place, role: &str, file: &str, arguments: &[&str]) -> Process {
    let mut all = vec![role.to_owned()];
    if role != "taskmanager" {
        let (input, output) = (place.input(), place.output());
        let job = [("--input", input), ("--output", output)];
        all.extend(job.map(|(flag, path)| format!("{flag}={}", path.display())));
        all.extend(["--repeat", "6", "--rate", "3000"].map(str::to_owned));
    }
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let variables = [("TIDEGATE_CONFIG", file), ("RUST_LOG", "info")];
    Process::start_with(&example("wordcount"), &all, &variables)
}

fn wait_until_registered(taskmanager: &Process) {
    wait_until("the TaskManager has registered", || {
        taskmanager.stderr().contains("registered")
    });
}

fn wait_for_checkpoint(place: &Place) {
    wait_until("a checkpoint has completed", || {
        !place.completed().is_empty()
    });
}

#[test]
fn one_file_configures_a_whole_cluster() {
    let place = Place::new();
    let expected = write_input(&place, 300, 6);
    let address = free_address();
    let file = file(&place, &address);
    let jobmanager = start(&place, "jobmanager", &file, &[]);
    let taskmanagers = [0, 1].map(|_| start(&place, "taskmanager", &file, &[]));
    wait_for_checkpoint(&place);
    let status = Command::new(example("wordcount"))
        .args(["status", "--config", &file])
        .output();
    let status = String::from_utf8(status.unwrap().stdout).unwrap();
    assert!(status.contains("with a parallelism of 2"), "{status}");
    jobmanager.wait().success();
    for taskmanager in taskmanagers {
        taskmanager.wait().success();
    }
    assert_exact(&place, &expected);
    // Both slots had a part.
    let files = oracle::visible_files(&place.output()).unwrap();
    for part in ["part-0-", "part-1-"] {
        let is_of = |path: &std::path::PathBuf| path.display().to_string().contains(part);
        assert!(files.iter().any(is_of), "{part}");
    }
}

// The processes of attempts get the JobManager's arguments, on machines that don't have its file.
#[test]
fn only_whoever_is_started_by_hand_needs_the_file() {
    let place = Place::new();
    let expected = write_input(&place, 300, 6);
    let address = free_address();
    let file = file(&place, &address);
    // As a flag, which is among the arguments that are handed on.
    let flag = ["--config", file.as_str()];
    let jobmanager = start(&place, "jobmanager", &file, &flag);
    let first = start(&place, "taskmanager", &file, &flag);
    wait_until_registered(&first);
    fs::remove_file(&file).unwrap();
    let missing = start(&place, "taskmanager", &file, &[]).wait();
    assert_eq!(missing.status.code(), Some(2));
    missing.failure(&["`TIDEGATE_CONFIG=", "No such file"]);
    let arguments = ["taskmanager", "--slots", "1", "--jobmanager", &address];
    let second = Process::start(&example("wordcount"), &arguments.map(str::to_owned));
    wait_for_checkpoint(&place);
    jobmanager.wait().success();
    first.wait().success();
    second.wait().success();
    assert_exact(&place, &expected);
}

#[test]
fn members_of_a_local_cluster_start_again_without_the_file() {
    let place = Place::new();
    let expected = write_input(&place, 300, 6);
    let file = file(&place, "127.0.0.1:0");
    // Where the members find each other is not what the file says, but what became of it.
    let cluster = start(&place, "local-cluster", &file, &["--config", &file]);
    wait_for_checkpoint(&place);
    fs::remove_file(&file).unwrap();
    for kind in [Kind::JobManager, Kind::TaskManager] {
        let victim = of_kind(cluster.id(), kind).remove(0);
        signal(victim, "KILL");
        wait_until("another one is there", || {
            let now = of_kind(cluster.id(), kind);
            !now.is_empty() && !now.contains(&victim)
        });
    }
    let ended = cluster.wait().success();
    assert!(
        ended.stderr.contains("going on from chk-"),
        "{}",
        ended.stderr
    );
    assert_exact(&place, &expected);
}

/// Of `docs/configuration.md`: names of the settings of a role.
fn settings_of(role: &str) -> Vec<String> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let docs = fs::read_to_string(docs).unwrap();
    let (_, table) = docs.split_once("<!-- cluster settings: begin -->").unwrap();
    let (table, _) = table.split_once("<!-- cluster settings: end -->").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let of_role = rows.filter_map(|row| {
        let (name, rest) = row.split_once("` | ")?;
        let (of, _) = rest.split_once(" | ")?;
        let is_of = of == "all" || of.to_lowercase().contains(role);
        is_of.then(|| name.to_owned())
    });
    of_role.collect()
}

// Every setting of the reference has a variable, and an empty one is no value.
#[test]
fn each_setting_of_a_role_has_a_variable_and_all_that_is_wrong_is_told() {
    let place = Place::new();
    for role in ["jobmanager", "taskmanager"] {
        let variable =
            |name: &String| format!("TIDEGATE_{}", name.to_uppercase().replace('-', "_"));
        let variables: Vec<String> = settings_of(role).iter().map(variable).collect();
        assert!(variables.len() >= 10, "{variables:?}");
        let config = place.path("cluster.toml");
        fs::write(&config, "slot = 1\n").unwrap();
        let config = config.display().to_string();
        let mut all: Vec<(&str, &str)> = variables.iter().map(|v| (v.as_str(), "")).collect();
        all.extend([("TIDEGATE_CONFIG", config.as_str())]);
        let arguments = [role, "--insecure=x"].map(str::to_owned);
        let ended = Process::start_with(&example("wordcount"), &arguments, &all).wait();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        let told: Vec<String> = variables
            .iter()
            .filter(|name| *name != "TIDEGATE_INSECURE")
            .map(|name| format!("`{name}=`: must be "))
            .collect();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        ended.failure(
            &[
                &told[..],
                &["`--insecure x`: must be", "did you mean `slots`?"],
            ]
            .concat(),
        );
    }
}
