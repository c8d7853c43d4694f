//! What is asked of a running cluster from outside, and what it does when it is told to end.

use std::process::{Command, Output};

use crate::by_hand::free_address;
use crate::members::{Kind, of_kind, signal};
use crate::support::{Place, Process, example, wait_until};
use crate::{assert_exact, write_input};

const SECRET: (&str, &str) = ("TIDEGATE_CLUSTER_SECRET", "known to both");

/// A local cluster that can be asked at this address, and takes a while.
fn cluster(place: &Place, address: &str, arguments: &[&str]) -> Process {
    let mut all = vec!["local-cluster".to_owned()];
    let own = ["--listen", address, "--checkpoint-interval", "50ms"];
    let slowly = ["--repeat", "30", "--rate", "6000"];
    all.extend(own.iter().chain(&slowly).map(|own| (*own).to_owned()));
    all.extend(place.arguments());
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Process::start_with(&example("wordcount"), &all, &[SECRET])
}

/// Asks the job at this address, with the job's own program.
fn ask(address: &str, words: &[&str]) -> Output {
    Command::new(example("wordcount"))
        .arg(words[0])
        .args(["--jobmanager", address])
        .args(&words[1..])
        .env(SECRET.0, SECRET.1)
        .output()
        .unwrap()
}

fn said(address: &str, words: &[&str]) -> String {
    let output = ask(address, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(address: &str, words: &[&str], parts: &[&str]) {
    let output = ask(address, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
    for part in parts {
        assert!(error.contains(part), "{words:?}: {error}");
    }
}

pub(crate) fn terminate(process: &Process) {
    let pid = process.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(killed.success());
}

fn wait_until_it_runs(address: &str) {
    wait_until("all subtasks run", || {
        let output = ask(address, &["status"]);
        String::from_utf8_lossy(&output.stdout).contains("running")
    });
}

#[test]
fn a_running_cluster_is_rescaled_and_stays_exact() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let address = free_address();
    let arguments = ["--taskmanagers", "3", "--slots", "1", "--parallelism", "2"];
    let cluster = cluster(&place, &address, &arguments);
    wait_until_it_runs(&address);
    refused(
        &address,
        &["rescale", "--parallelism", "4"],
        &["`4` slots", "`3`"],
    );
    let grown = said(&address, &["rescale", "--parallelism", "3"]);
    assert!(grown.contains("rescaled from 2 to 3 by chk-"), "{grown}");
    let status = said(&address, &["status"]);
    assert!(
        status.contains("a parallelism of 3, 0 restarts"),
        "{status}"
    );
    assert!(status.contains(" about progress"), "{status}");
    let shrunk = said(&address, &["rescale", "--parallelism", "1"]);
    assert!(shrunk.contains("rescaled from 3 to 1 by chk-"), "{shrunk}");
    // A failure keeps the parallelism that was asked for.
    for task in of_kind(cluster.id(), Kind::Task) {
        signal(task, "KILL");
    }
    wait_until("the job has restarted", || {
        let status = ask(&address, &["status"]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        status.contains("running with a parallelism of 1, 1 restarts")
    });
    // So does the next JobManager, which was started for a parallelism of 2.
    for jobmanager in of_kind(cluster.id(), Kind::JobManager) {
        signal(jobmanager, "KILL");
    }
    wait_until("the next JobManager goes on", || {
        let status = ask(&address, &["status"]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        status.contains("running with a parallelism of 1, 0 restarts")
    });
    eprintln!("{grown}{shrunk}");
    cluster.wait().success();
    assert_exact(&place, &expected);
    place.assert_clean();
}

#[test]
fn a_savepoint_is_taken_and_a_stopped_job_goes_on_from_its_own() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let address = free_address();
    let arguments = ["--taskmanagers", "2", "--parallelism", "2"];
    let running = cluster(&place, &address, &arguments);
    wait_until_it_runs(&address);
    refused(&address, &["savepoint"], &["--savepoint-dir"]);
    let folder = place.path("savepoints");
    let folder = folder.to_str().unwrap();
    let taken = said(&address, &["savepoint", "--savepoint-dir", folder]);
    assert!(taken.contains("savepoints/savepoint-"), "{taken}");
    said(&address, &["checkpoint"]);
    let stopped = said(&address, &["stop", "--savepoint-dir", folder]);
    assert!(stopped.starts_with("stopped: file://"), "{stopped}");
    let ended = running.wait().success();
    assert!(
        ended.stderr.contains("stopped with savepoint"),
        "{}",
        ended.stderr
    );
    refused(
        &address,
        &["status"],
        &["no JobManager that leads was found"],
    );
    cluster(&place, &address, &arguments).wait().success();
    assert_exact(&place, &expected);
}

#[test]
fn strangers_ask_in_vain() {
    let place = Place::new();
    write_input(&place, 50, 30);
    let address = free_address();
    let cluster = cluster(&place, &address, &["--taskmanagers", "1"]);
    wait_until_it_runs(&address);
    let output = Command::new(example("wordcount"))
        .args(["cancel", "--jobmanager", &address])
        .env(SECRET.0, "a guess")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(SECRET.0), "{error}");
    said(&address, &["checkpoint"]);
    said(&address, &["cancel"]);
    let ended = cluster.wait();
    let ended = ended.success();
    assert!(
        ended
            .stderr
            .contains("was cancelled; the next run goes on from `chk-"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_cluster_that_is_told_to_end_goes_on_where_it_was() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let address = free_address();
    let arguments = ["--taskmanagers", "2", "--parallelism", "2"];
    // Nothing is lost by being told to end, whatever becomes of jobs that are cancelled.
    let retention = ["--checkpoint-retention", "no-retention"];
    let arguments = [&arguments[..], &retention].concat();
    let running = cluster(&place, &address, &arguments);
    wait_until_it_runs(&address);
    said(&address, &["checkpoint"]);
    terminate(&running);
    let ended = running.wait();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("was suspended; the next run goes on from `chk-")
    );
    cluster(&place, &address, &arguments).wait().success();
    assert_exact(&place, &expected);
    place.assert_clean();
}

#[test]
fn a_job_that_is_told_to_end_may_be_stopped_with_a_savepoint() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let address = free_address();
    let folder = place.path("savepoints");
    let folder = folder.to_str().unwrap();
    let stops = ["--on-sigterm", "stop", "--savepoint-dir", folder];
    let running = cluster(&place, &address, &stops);
    wait_until_it_runs(&address);
    terminate(&running);
    let ended = running.wait().success();
    assert!(
        ended.stderr.contains("stopped with savepoint"),
        "{}",
        ended.stderr
    );
    cluster(&place, &address, &stops).wait().success();
    assert_exact(&place, &expected);
}

#[test]
fn a_job_runs_smaller_while_slots_are_missing_and_grows_when_they_are_back() {
    let place = Place::new();
    let expected = write_input(&place, 300, 60);
    let address = free_address();
    let common = [
        "--checkpoint-interval",
        "50ms",
        "--restart",
        "fixed-delay:1000,1ms",
    ];
    let elastic = ["--parallelism-min", "1", "--stabilization-timeout", "500ms"];
    let slowly = ["--parallelism", "3", "--repeat", "60", "--rate", "6000"];
    let all = [&common[..], &elastic, &slowly].concat();
    let mut arguments = vec![
        "jobmanager".to_owned(),
        "--listen".to_owned(),
        address.clone(),
    ];
    arguments.extend(place.arguments());
    arguments.extend(all.iter().map(|argument| (*argument).to_owned()));
    let jobmanager = Process::start_with(&example("wordcount"), &arguments, &[SECRET]);
    let taskmanager = |name: &str| {
        let arguments = [
            "taskmanager",
            "--jobmanager",
            &address,
            "--slots",
            "1",
            "--name",
            name,
        ];
        let arguments = arguments.map(str::to_owned);
        Process::start_with(&example("wordcount"), &arguments, &[SECRET])
    };
    let runs_at = |parallelism: u32| {
        let wanted = format!("running with a parallelism of {parallelism},");
        wait_until(&wanted, || {
            let output = ask(&address, &["status"]);
            String::from_utf8_lossy(&output.stdout).contains(&wanted)
        });
    };
    let mut three: Vec<Process> = ["a", "b", "c"].map(taskmanager).into();
    runs_at(3);
    drop(three.remove(0).kill());
    runs_at(2);
    three.push(taskmanager("d"));
    runs_at(3);
    jobmanager.wait().success();
    for taskmanager in three {
        taskmanager.wait().success();
    }
    assert_exact(&place, &expected);
    place.assert_clean();
}
