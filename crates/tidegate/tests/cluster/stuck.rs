//! What a TaskManager does while something that it waits for doesn't come: a process that is killed
//! and doesn't end, an address at which nobody answers.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::by_hand::{free_address, jobmanager, taskmanager};
use crate::members::{Kind, Member, children, signal};
use crate::support::{Place, Process, example, wait_until};
use crate::{assert_exact, write_input};

/// Keeps a process from ending, as a hanging disk would: for as long as somebody traces it who
/// stands still, its parent doesn't learn of its end.
struct Tracer(Child);

impl Tracer {
    /// `None` where processes can't be traced.
    fn hold(pid: u32) -> Option<Tracer> {
        let strace = Command::new("strace")
            .args(["-f", "-e", "trace=none", "-o", "/dev/null", "-p"])
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut tracer = Tracer(strace.ok()?);
        wait_until("the process is traced, or can't be", || {
            is_traced(pid) || !tracer.is_running()
        });
        if !tracer.is_running() {
            return None;
        }
        signal(tracer.member(), "STOP");
        Some(tracer)
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn member(&self) -> Member {
        let pid = self.0.id();
        Member {
            pid,
            kind: Kind::Task,
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All threads of it.
fn is_traced(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut statuses = threads
        .into_iter()
        .flatten()
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    statuses.all(|status| {
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    })
}

/// A job that runs on one TaskManager, whose process is held.
struct Held {
    place: Place,
    address: String,
    jobmanager: Process,
    taskmanager: Process,
    task: u32,
    tracer: Tracer,
    expected: std::collections::BTreeMap<String, u64>,
}

const ARGUMENTS: [&str; 8] = [
    "--repeat",
    "4",
    "--rate",
    "3000",
    "--checkpoint-interval",
    "30ms",
    "--heartbeat-timeout",
    "500ms",
];

impl Held {
    fn start() -> Option<Held> {
        let place = Place::new();
        let expected = write_input(&place, 300, 4);
        let address = free_address();
        let jobmanager = jobmanager(&place, &address, "s", &ARGUMENTS);
        let binary = example("wordcount");
        let taskmanager = taskmanager(&binary, &address, "s", &["--slots", "1"]);
        wait_until("a checkpoint has completed", || {
            !place.completed().is_empty()
        });
        let task = children(taskmanager.id())[0];
        let Some(tracer) = Tracer::hold(task) else {
            eprintln!("not tried: there is no strace, or it may not trace");
            return None;
        };
        Some(Held {
            place,
            address,
            jobmanager,
            taskmanager,
            task,
            tracer,
            expected,
        })
    }
}

fn registrations(taskmanager: &Process) -> usize {
    taskmanager.stderr().matches("registered").count()
}

#[test]
fn a_process_that_does_not_end_keeps_its_task_manager_from_no_job_manager() {
    let Some(held) = Held::start() else { return };
    assert_eq!(registrations(&held.taskmanager), 1);
    held.jobmanager.kill();
    let jobmanager = jobmanager(&held.place, &held.address, "s", &ARGUMENTS);
    wait_until("it has registered again", || {
        registrations(&held.taskmanager) == 2
    });
    let of_task_manager = children(held.taskmanager.id());
    assert_eq!(of_task_manager, [held.task], "never two processes at once");
    drop(held.tracer);
    let ended = jobmanager.wait().success();
    assert!(
        ended.stderr.contains("going on from chk-"),
        "{}",
        ended.stderr
    );
    held.taskmanager.wait().success();
    assert_exact(&held.place, &held.expected);
}

#[test]
fn a_process_that_does_not_end_keeps_its_task_manager_from_no_end() {
    let Some(mut held) = Held::start() else {
        return;
    };
    held.jobmanager.kill();
    wait_until("the JobManager is lost", || {
        held.taskmanager.stderr().contains("JobManager lost")
    });
    assert_eq!(children(held.taskmanager.id()), [held.task]);
    let member = Member {
        pid: held.taskmanager.id(),
        kind: Kind::TaskManager,
    };
    signal(member, "TERM");
    wait_until("the TaskManager has ended", || {
        !held.taskmanager.is_running()
    });
    assert!(Path::new(&format!("/proc/{}", held.task)).exists());
    // What it has written is known when nobody can write any more.
    drop(held.tracer);
    held.taskmanager.wait().success();
}

/// As from a machine that has vanished: connections are never taken, and nobody says so.
#[test]
fn an_address_where_nobody_answers_keeps_nobody_from_the_next() {
    let place = Place::new();
    let expected = write_input(&place, 50, 1);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free_address();
    let all = format!("{},{address}", silent.local_addr().unwrap());
    let jobmanager = jobmanager(&place, &address, "s", &[]);
    let taskmanager = taskmanager(&example("wordcount"), &all, "s", &["--slots", "1"]);
    jobmanager.wait().success();
    taskmanager.wait().success();
    assert_exact(&place, &expected);
}
