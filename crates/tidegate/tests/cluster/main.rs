//! A word count on a cluster of processes on this machine, of which any may be killed at any
//! moment: the finished output is exact.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[cfg(feature = "s3")]
mod bucket;
mod by_hand;
#[cfg(feature = "tls")]
#[path = "../../../server/src/tls/testing/ca.rs"]
mod certificates;
#[cfg(feature = "zookeeper")]
mod chaos;
mod config;
mod control;
#[cfg(feature = "zookeeper")]
mod ha;
mod local_recovery;
mod members;
#[path = "../../examples/support/oracle.rs"]
mod oracle;
mod readme;
#[cfg(any(feature = "s3", feature = "zookeeper"))]
mod stores;
mod stuck;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use members::{Kind, Member, of_kind, signal};
use support::{Place, Process, example, wait_until};

fn write_input(place: &Place, lines: usize, repeat: u64) -> BTreeMap<String, u64> {
    let inputs: Vec<_> = (0..6)
        .map(|seed| place.write(&format!("{seed}.txt"), support::text::zipf(seed, lines)))
        .collect();
    oracle::plain_count(&inputs, repeat)
}

/// A cluster of three TaskManagers with one slot each.
fn start(place: &Place, arguments: &[&str]) -> Process {
    let mut all = vec!["local-cluster".to_owned()];
    all.extend(["--taskmanagers", "3", "--slots", "1", "--parallelism", "3"].map(str::to_owned));
    all.extend(place.arguments());
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Process::start(&example("wordcount"), &all)
}

fn assert_exact(place: &Place, expected: &BTreeMap<String, u64>) {
    let lines = oracle::verify(&place.output(), expected).unwrap();
    assert_eq!(lines, expected.values().sum::<u64>());
}

/// Waits until all three processes of an attempt are there.
fn wait_for_tasks(cluster: &mut Process) -> Vec<Member> {
    let id = cluster.id();
    let mut tasks = Vec::new();
    wait_until("three processes run an attempt", || {
        tasks = of_kind(id, Kind::Task);
        tasks.len() == 3 || !cluster.is_running()
    });
    tasks
}

#[test]
fn an_undisturbed_cluster_is_exact_and_leaves_nothing() {
    let place = Place::new();
    let expected = write_input(&place, 400, 1);
    let ended = start(&place, &["--checkpoint-interval", "50ms"]);
    let ended = ended.wait().success();
    assert!(
        ended.stderr.contains("checkpoints completed"),
        "{}",
        ended.stderr
    );
    assert_exact(&place, &expected);
    place.assert_clean();
    // Every subtask had its part: the words are counted in all three processes.
    for subtask in 0..3 {
        let files = oracle::visible_files(&place.output()).unwrap();
        let prefix = format!("part-{subtask}-");
        let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_owned();
        let of_subtask = |path| name(path).to_string_lossy().starts_with(&prefix);
        assert!(
            files.iter().any(of_subtask),
            "subtask {subtask} has written nothing"
        );
    }
}

// As when its JobManager waits for the lead: the cluster has nobody else to register with.
#[test]
fn task_managers_of_a_local_cluster_wait_for_its_job_manager_however_long() {
    let place = Place::new();
    let expected = write_input(&place, 300, 40);
    let mut all = vec!["local-cluster".to_owned()];
    let pace = ["--repeat", "40", "--rate", "6000"];
    let quick = ["--taskmanagers", "1", "--heartbeat-timeout", "500ms"];
    all.extend(pace.iter().chain(&quick).map(|own| (*own).to_owned()));
    all.extend(place.arguments());
    let variables = [
        ("TIDEGATE_REGISTRATION_TIMEOUT", "1ms"),
        ("RUST_LOG", "info,tidegate_server=debug"),
    ];
    let mut cluster = Process::start_with(&example("wordcount"), &all, &variables);
    wait_until("an attempt runs", || {
        !of_kind(cluster.id(), Kind::Task).is_empty() || !cluster.is_running()
    });
    let jobmanager = of_kind(cluster.id(), Kind::JobManager)[0];
    signal(jobmanager, "STOP");
    wait_until("its TaskManager has looked for it again and again", || {
        cluster.stderr().matches("no JobManager").count() >= 2 || !cluster.is_running()
    });
    assert!(cluster.is_running(), "{}", cluster.stderr());
    signal(jobmanager, "CONT");
    cluster.wait().success();
    assert_exact(&place, &expected);
    place.assert_clean();
}

#[test]
fn whoever_is_killed_the_output_is_exact() {
    let mut random = StdRng::seed_from_u64(7);
    let place = Place::new();
    let expected = write_input(&place, 300, 40);
    let arguments = [
        ["--checkpoint-interval", "30ms"],
        ["--repeat", "40"],
        ["--rate", "6000"],
        ["--heartbeat-timeout", "500ms"],
        ["--restart", "fixed-delay:1000,1ms"],
    ];
    let mut cluster = start(&place, arguments.as_flattened());
    let deadline = Instant::now() + Duration::from_secs(12);
    let mut killed: BTreeMap<Kind, u32> = BTreeMap::new();
    while Instant::now() < deadline && cluster.is_running() {
        wait_for_tasks(&mut cluster);
        std::thread::sleep(Duration::from_millis(random.random_range(20..400)));
        let kind = match random.random_range(0..6) {
            0 => Kind::JobManager,
            1 => Kind::TaskManager,
            _ => Kind::Task,
        };
        let candidates = of_kind(cluster.id(), kind);
        if !candidates.is_empty() {
            let victim = candidates[random.random_range(0..candidates.len())];
            let stops = random.random_range(0..5) == 0;
            signal(victim, if stops { "STOP" } else { "KILL" });
            if stops {
                std::thread::sleep(Duration::from_millis(random.random_range(100..1_500)));
                signal(victim, "CONT");
            }
            *killed.entry(kind).or_default() += 1;
        }
    }
    let ended = cluster.wait().success();
    eprintln!("{killed:?}\n{}", ended.stderr);
    assert_exact(&place, &expected);
    place.assert_clean();
}
