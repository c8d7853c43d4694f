//! Several JobManagers, of which ZooKeeper elects one: leaders are killed, paused and cut off from
//! ZooKeeper, and the output is exact.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::members::{Kind, Member, signal};
use crate::stores::zookeeper::ZooKeeper;
use crate::support::{Place, Process, example, wait_until};
use crate::{assert_exact, write_input};

/// What is said of a store that can't be reached.
const TROUBLE: &str = "the job's records can't be read";
const LEADS: &str = "this JobManager leads";

/// Two JobManagers and three TaskManagers, as users would start them.
struct Cluster<'a> {
    place: &'a Place,
    store: String,
    addresses: [String; 2],
    jobmanagers: Vec<Process>,
    taskmanagers: Vec<Process>,
}

impl<'a> Cluster<'a> {
    fn start(place: &'a Place, zookeeper: &ZooKeeper) -> Self {
        let mut cluster = Cluster {
            place,
            store: format!("zk://127.0.0.1:{}/tidegate", zookeeper.port),
            addresses: [
                crate::by_hand::free_address(),
                crate::by_hand::free_address(),
            ],
            jobmanagers: Vec::new(),
            taskmanagers: Vec::new(),
        };
        for index in 0..2 {
            let jobmanager = cluster.jobmanager(index);
            cluster.jobmanagers.push(jobmanager);
        }
        let jobmanagers = cluster.addresses.join(",");
        for _ in 0..3 {
            let arguments = ["taskmanager", "--jobmanager", &jobmanagers, "--slots", "1"];
            let arguments = arguments.map(str::to_owned);
            let taskmanager = Process::start(&example("wordcount"), &arguments);
            cluster.taskmanagers.push(taskmanager);
        }
        cluster
    }

    fn jobmanager(&self, index: usize) -> Process {
        let mut arguments = vec!["jobmanager".to_owned()];
        arguments.extend(self.place.arguments());
        let own = [
            ["--listen", &self.addresses[index]],
            ["--ha", &self.store],
            ["--ha-lease", "1s"],
            ["--heartbeat-timeout", "600ms"],
            ["--checkpoint-interval", "30ms"],
            ["--restart", "fixed-delay:1000,1ms"],
            ["--parallelism", "3"],
            ["--repeat", "30"],
            ["--rate", "3000"],
        ];
        arguments.extend(own.as_flattened().iter().map(|text| (*text).to_owned()));
        let info = [("RUST_LOG", "info")];
        Process::start_with(&example("wordcount"), &arguments, &info)
    }

    /// Waits until one of them leads, and all its subtasks run: a checkpoint completes.
    fn wait_for_leader(&mut self) -> usize {
        let mut leader = 0;
        wait_until("somebody leads", || {
            let of = |jobmanager: &Process| jobmanager.stderr().contains(LEADS);
            let found = self
                .jobmanagers
                .iter_mut()
                .position(|j| j.is_running() && of(j));
            leader = found.unwrap_or(leader);
            found.is_some()
        });
        leader
    }

    fn pid(&self, index: usize) -> Member {
        Member {
            pid: self.jobmanagers[index].id(),
            kind: Kind::JobManager,
        }
    }

    fn replace(&mut self, index: usize) {
        let fresh = self.jobmanager(index);
        self.jobmanagers[index] = fresh;
    }

    /// Waits until a checkpoint completes: its folder has what it consists of.
    fn wait_until_it_works(&mut self, jobmanager: usize) {
        let leader = &self.jobmanagers[jobmanager];
        let before = self.place.checkpoint_folders().last().copied();
        wait_until("a leader's attempt works", || {
            let newest = self.place.checkpoint_folders().last().copied();
            leader.stderr().contains("all subtasks run") && newest > before
        });
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn whatever_becomes_of_leaders_and_zookeeper_the_output_is_exact() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let mut zookeeper = ZooKeeper::start();
    let mut cluster = Cluster::start(&place, &zookeeper);

    // The leader is killed, and another takes over.
    let first = cluster.wait_for_leader();
    cluster.wait_until_it_works(first);
    signal(cluster.pid(first), "KILL");
    let second = 1 - first;
    wait_until("the other one leads", || {
        cluster.jobmanagers[second].stderr().contains(LEADS)
    });
    cluster.replace(first);
    cluster.wait_until_it_works(second);

    // The leader is paused until it has been deposed; when it wakes up, it ends.
    signal(cluster.pid(second), "STOP");
    wait_until("the other one leads", || {
        cluster.jobmanagers[first].stderr().contains(LEADS)
    });
    cluster.wait_until_it_works(first);
    signal(cluster.pid(second), "CONT");
    wait_until("the deposed leader has ended", || {
        !cluster.jobmanagers[second].is_running()
    });
    let deposed = cluster.jobmanagers[second].stderr();
    assert!(deposed.contains("has lost the lead, and ends"), "{deposed}");
    cluster.replace(second);

    // ZooKeeper is gone for longer than the lease, and comes back.
    zookeeper.kill();
    std::thread::sleep(Duration::from_millis(1_500));
    zookeeper.restart();
    for index in 0..2 {
        if !cluster.jobmanagers[index].is_running() {
            cluster.replace(index);
        }
    }

    // Somebody brings it to its end.
    wait_until("the job has ended", || {
        cluster
            .taskmanagers
            .iter_mut()
            .all(|taskmanager| !taskmanager.is_running())
    });
    assert_exact(&place, &expected);
    for taskmanager in cluster.taskmanagers.drain(..) {
        taskmanager.wait().success();
    }
}

/// Asks the job, wherever its JobManager is, to end in this way.
fn end(cluster: &Cluster<'_>, verb: &[&str]) {
    let asked = Command::new(example("wordcount"))
        .args([verb[0], "--jobmanager", &cluster.addresses.join(",")])
        .args(&verb[1..])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{verb:?}: {error}");
}

#[test]
fn nobody_goes_on_with_a_job_that_was_ended_until_it_is_started_again() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let zookeeper = ZooKeeper::start();
    let savepoints = place.path("savepoints");
    let stop = ["stop", "--savepoint-dir", savepoints.to_str().unwrap()];
    for verb in [&["cancel"][..], &stop] {
        let mut cluster = Cluster::start(&place, &zookeeper);
        let leader = cluster.wait_for_leader();
        cluster.wait_until_it_works(leader);
        end(&cluster, verb);
        // The one that waited for the lead gets it, and finds nothing to do.
        let waited = cluster.jobmanagers.remove(1 - leader).wait().success();
        assert!(
            waited
                .stderr
                .contains("before this process could go on with it"),
            "{}",
            waited.stderr
        );
        cluster.jobmanagers.remove(0).wait().success();
        for taskmanager in cluster.taskmanagers.drain(..) {
            taskmanager.wait().success();
        }
    }
    let mut cluster = Cluster::start(&place, &zookeeper);
    for process in cluster.taskmanagers.drain(..) {
        process.wait().success();
    }
    assert_exact(&place, &expected);
}

/// What is in the election, as ZooKeeper lists it.
fn candidates(zookeeper: &ZooKeeper) -> usize {
    let mut connection = TcpStream::connect(("127.0.0.1", zookeeper.port)).unwrap();
    connection.write_all(b"dump").unwrap();
    let mut listed = String::new();
    connection.read_to_string(&mut listed).unwrap();
    listed.matches("/election/").count()
}

// Whoever is next in line must not wait for a candidate that is gone until its session expires.
#[test]
fn a_job_manager_that_waits_for_the_lead_gives_its_candidacy_back() {
    let place = Place::new();
    write_input(&place, 300, 30);
    let zookeeper = ZooKeeper::start();
    let mut cluster = Cluster::start(&place, &zookeeper);
    let leader = cluster.wait_for_leader();
    let waiting = 1 - leader;
    wait_until("the other one is a candidate", || {
        candidates(&zookeeper) == 2
    });
    signal(cluster.pid(waiting), "TERM");
    wait_until("it has ended", || {
        !cluster.jobmanagers[waiting].is_running()
    });
    assert_eq!(candidates(&zookeeper), 1);
    let ended = cluster.jobmanagers.remove(waiting).wait();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.stderr);
    for told in ["told to end while waiting for the lead", "given back"] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    // The one that leads goes on.
    assert!(cluster.jobmanagers[0].is_running());
}

// Also when there is nobody to give anything back to.
#[test]
fn a_job_manager_that_waits_for_its_store_ends_when_it_is_told_to() {
    let place = Place::new();
    let store = format!("zk://{}/tidegate", crate::by_hand::free_address());
    let arguments = ["--ha", &store, "--ha-lease", "1s"];
    let address = crate::by_hand::free_address();
    let mut waiting = crate::by_hand::jobmanager(&place, &address, "s", &arguments);
    wait_until("it has tried", || waiting.stderr().contains(TROUBLE));
    let member = Member {
        pid: waiting.id(),
        kind: Kind::JobManager,
    };
    // Once, however often it is tried meanwhile.
    std::thread::sleep(Duration::from_millis(600));
    assert!(waiting.is_running());
    signal(member, "TERM");
    let ended = waiting.wait();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.stderr);
    let told = ended.stderr.matches(TROUBLE).count();
    assert_eq!(told, 1, "{}", ended.stderr);
}
