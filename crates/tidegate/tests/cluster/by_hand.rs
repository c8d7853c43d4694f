//! JobManager and TaskManagers started one by one: who gets in, and who is turned away.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::members::{Kind, Member, signal};
use crate::support::{Place, Process, example, wait_until};
use crate::{assert_exact, write_input};

/// A port that is free now.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

pub(crate) fn jobmanager(
    place: &Place,
    address: &str,
    secret: &str,
    arguments: &[&str],
) -> Process {
    let mut all = vec![
        "jobmanager".to_owned(),
        "--listen".to_owned(),
        address.to_owned(),
    ];
    all.extend(place.arguments());
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let secret = ("TIDEGATE_CLUSTER_SECRET", secret);
    Process::start_with(&example("wordcount"), &all, &[secret])
}

pub(crate) fn taskmanager(
    binary: &Path,
    address: &str,
    secret: &str,
    arguments: &[&str],
) -> Process {
    let mut all = vec![
        "taskmanager".to_owned(),
        "--jobmanager".to_owned(),
        address.to_owned(),
    ];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let variables = [("TIDEGATE_CLUSTER_SECRET", secret), ("RUST_LOG", "info")];
    Process::start_with(binary, &all, &variables)
}

fn wait_until_registered(taskmanager: &Process) {
    wait_until("the TaskManager has registered", || {
        taskmanager.stderr().contains("registered")
    });
}

#[test]
fn a_standby_takes_over_and_all_end_with_the_job() {
    let place = Place::new();
    let expected = write_input(&place, 300, 6);
    let address = free_address();
    // TaskManagers may come first.
    let start = |name: &str, slots: &str| {
        let arguments = ["--name", name, "--slots", slots];
        taskmanager(&example("wordcount"), &address, "s", &arguments)
    };
    let first = start("first", "2");
    let second = start("second", "2");
    let arguments = ["--parallelism", "4", "--checkpoint-interval", "30ms"];
    let slowly = ["--repeat", "6", "--rate", "4000"];
    let jobmanager = jobmanager(&place, &address, "s", &[&arguments[..], &slowly].concat());
    wait_until_registered(&first);
    wait_until_registered(&second);
    let standby = start("standby", "3");
    wait_until_registered(&standby);
    wait_until("a checkpoint has completed", || {
        !place.completed().is_empty()
    });
    drop(first.kill());
    let ended = jobmanager.wait().success();
    assert!(
        ended.stderr.contains("TaskManager `first` was lost"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("going on from chk-"),
        "{}",
        ended.stderr
    );
    assert_exact(&place, &expected);
    place.assert_clean();
    second.wait().success();
    standby.wait().success();
}

#[test]
fn whoever_does_not_belong_is_turned_away_and_told_why() {
    let place = Place::new();
    write_input(&place, 10, 1);
    let address = free_address();
    let mut waiting = jobmanager(&place, &address, "right", &[]);
    let wrong = taskmanager(&example("wordcount"), &address, "wrong", &[]).wait();
    wrong.failure(&["refuses this TaskManager", "TIDEGATE_CLUSTER_SECRET"]);
    let none = taskmanager(&example("wordcount"), &address, "", &[]).wait();
    none.failure(&["refuses this TaskManager", "TIDEGATE_CLUSTER_SECRET"]);

    // The same program, but not the same binary.
    let other = place.path("other");
    fs::copy(example("wordcount"), &other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let mut binary = fs::OpenOptions::new().append(true).open(&other).unwrap();
    binary.write_all(b"another build").unwrap();
    drop(binary);
    let refused = taskmanager(&other, &address, "right", &[]).wait();
    refused.failure(&["isn't the JobManager's", "install the same everywhere"]);

    assert!(waiting.is_running(), "{}", waiting.stderr());
    let right = taskmanager(&example("wordcount"), &address, "right", &[]);
    waiting.wait().success();
    right.wait().success();
}

#[test]
fn what_cannot_work_is_refused_before_anything_starts() {
    let place = Place::new();
    write_input(&place, 10, 1);
    jobmanager(&place, "0.0.0.0:0", "", &[])
        .wait()
        .failure(&["`0.0.0.0:0`", "--insecure"]);
    let forgotten = ["`TIDEGATE_CLUSTER_SECRET` is set, but empty", "--insecure"];
    jobmanager(&place, "0.0.0.0:0", "", &["--insecure"])
        .wait()
        .failure(&forgotten);
    taskmanager(&example("wordcount"), "192.0.2.1:6123", "", &["--insecure"])
        .wait()
        .failure(&forgotten);
    jobmanager(&place, "nowhere", "", &[])
        .wait()
        .failure(&["`nowhere`", "host:port"]);
    taskmanager(&example("wordcount"), "192.0.2.1:6123", "", &[])
        .wait()
        .failure(&["`192.0.2.1:6123`", "--insecure"]);
    taskmanager(&example("wordcount"), "127.0.0.1:1", "", &["--slots", "0"])
        .wait()
        .failure(&["--slots"]);
    let demo = ["jobmanager", "--listen", "127.0.0.1:0", "--limit", "10"].map(str::to_owned);
    Process::start(&example("throughput"), &demo)
        .wait()
        .failure(&["--limit"]);
}

#[test]
fn a_task_manager_waits_for_its_job_manager_until_it_is_told_to_end() {
    let mut waiting = taskmanager(&example("wordcount"), &free_address(), "", &[]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.is_running());
    let member = Member {
        pid: waiting.id(),
        kind: Kind::TaskManager,
    };
    signal(member, "TERM");
    waiting.wait().success();
}

#[test]
fn a_finished_job_needs_no_task_managers() {
    let place = Place::new();
    let expected = write_input(&place, 20, 1);
    place.start(&[]).wait().success();
    let address = free_address();
    let again = jobmanager(&place, &address, "", &[]).wait().success();
    assert!(again.stderr.contains("finished"), "{}", again.stderr);
    assert_exact(&place, &expected);
}

// A job that is over has no JobManager: what comes later must not wait for ever.
#[test]
fn a_task_manager_gives_up_when_no_job_manager_takes_it() {
    let arguments = ["--registration-timeout", "300ms"];
    let alone = taskmanager(&example("wordcount"), &free_address(), "", &arguments).wait();
    alone.failure(&["for 300ms no JobManager", "--registration-timeout"]);
}

#[test]
fn a_second_task_manager_of_one_name_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let expected = write_input(&place, 300, 6);
    let address = free_address();
    let named = ["--name", "same", "--slots", "1"];
    let first = taskmanager(&example("wordcount"), &address, "s", &named);
    let mut arguments = vec![
        "--checkpoint-interval",
        "30ms",
        "--heartbeat-timeout",
        "500ms",
    ];
    arguments.extend(["--repeat", "6", "--rate", "1500", "--parallelism", "1"]);
    let jobmanager = jobmanager(&place, &address, "s", &arguments);
    wait_until_registered(&first);
    let second = taskmanager(&example("wordcount"), &address, "s", &named).wait();
    second.failure(&["another TaskManager called `same`", "`--name` of its own"]);
    let ended = jobmanager.wait().success();
    assert!(!ended.stderr.contains("going on from"), "{}", ended.stderr);
    first.wait().success();
    assert_exact(&place, &expected);
}
