//! A cluster of processes with the settings of `deploy/`.

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::{Place, Process, example, wait_until};
use crate::{oracle, repository};

/// Where certificates lie on the machines that `deploy/` is for.
const CERTIFICATES: &str = "/etc/tidegate/tls/";

/// How one process is started.
pub(crate) struct Member {
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: BTreeMap<String, String>,
}

pub(crate) struct Cluster {
    place: Place,
    expected: BTreeMap<String, u64>,
    addresses: String,
    jobmanagers: Vec<Process>,
    taskmanagers: Vec<Process>,
}

impl Cluster {
    /// Starts them all. What is of other machines becomes what this one has: addresses are on
    /// loopback, stores are folders; the secret is one, and time is shorter. Certificates are made
    /// as the guide says.
    pub(crate) fn start(jobmanagers: Vec<Member>, taskmanagers: Vec<Member>) -> Cluster {
        let place = Place::new();
        make_certificates(&place);
        let text = place.write("text.txt", crate::support::text::zipf(5, 300));
        let expected = oracle::plain_count(&[text], 30);
        let addresses: Vec<String> = jobmanagers.iter().map(|_| free_address()).collect();
        let jobmanagers = jobmanagers.into_iter().zip(&addresses);
        let jobmanagers = jobmanagers.map(|(member, address)| {
            let listens = [("--listen", address.as_str()), ("TIDEGATE_LISTEN", address)];
            let slowly = ["--repeat=30", "--rate=1800", "--checkpoint-interval=50ms"];
            let soon = ["--heartbeat-timeout=2s", "--ha-lease=2s"];
            start(
                member,
                &listens,
                &place,
                &[slowly.as_slice(), &soon].concat(),
            )
        });
        let jobmanagers = jobmanagers.collect();
        let all = addresses.join(",");
        let looks = [
            ("--jobmanager", all.as_str()),
            ("TIDEGATE_JOBMANAGER", &all),
        ];
        let taskmanagers = taskmanagers.into_iter();
        let taskmanagers = taskmanagers.map(|member| start(member, &looks, &place, &[]));
        let taskmanagers = taskmanagers.collect();
        Cluster {
            place,
            expected,
            addresses: all,
            jobmanagers,
            taskmanagers,
        }
    }

    /// Somebody who knows the secret, and has no certificate, isn't let in.
    pub(crate) fn assert_strangers_are_refused(&self) {
        let stranger = Member {
            arguments: vec![
                "taskmanager".to_owned(),
                format!("--jobmanager={}", self.addresses),
            ],
            variables: BTreeMap::new(),
        };
        let stranger = start(stranger, &[], &self.place, &[]).wait();
        stranger.failure(&["refuses this TaskManager", "it encrypts"]);
    }

    fn completed(&self) -> usize {
        // Records are beside the lead, and each completed checkpoint is announced by its output.
        oracle::visible_files(&self.place.output()).map_or(0, |files| files.len())
    }

    /// Waits until another checkpoint has published its output.
    pub(crate) fn wait_for_checkpoint(&mut self) {
        let before = self.completed();
        wait_until("a checkpoint has completed", || self.completed() > before);
    }

    pub(crate) fn kill_task_manager(&mut self) {
        drop(self.taskmanagers.remove(0).kill());
        self.wait_for_checkpoint();
    }

    /// Kills the JobManager that leads; another one takes over.
    pub(crate) fn kill_leader(&mut self) {
        let leads = |jobmanager: &Process| jobmanager.stderr().contains("this JobManager leads");
        let leader = self.jobmanagers.iter().position(leads).expect("one leads");
        drop(self.jobmanagers.remove(leader).kill());
        self.wait_for_checkpoint();
    }

    /// Waits for the end of the job, with which everybody ends well, and checks its output.
    pub(crate) fn finish(self) {
        let mut ends = self
            .jobmanagers
            .into_iter()
            .map(|jobmanager| jobmanager.wait().success());
        let ended = ends.next().expect("one has driven the job");
        assert!(
            ended.stderr.contains("going on from chk-"),
            "{}",
            ended.stderr
        );
        for taskmanager in self.taskmanagers {
            taskmanager.wait().success();
        }
        let lines = oracle::verify(&self.place.output(), &self.expected).unwrap();
        assert_eq!(lines, self.expected.values().sum::<u64>());
    }
}

/// Starts a process as it is told, but for `instead`: values of flags and variables.
fn start(member: Member, instead: &[(&str, &str)], place: &Place, more: &[&str]) -> Process {
    let here = |name: &str, value: &str| {
        let other = instead.iter().find(|(of, _)| *of == name);
        let root = place.path("").display().to_string();
        match (name, value) {
            _ if other.is_some() => other.unwrap().1.to_owned(),
            ("TIDEGATE_HA", _) => format!("dir://{root}lead"),
            ("TIDEGATE_CHECKPOINT_DIR", _) => format!("{root}checkpoints"),
            ("TIDEGATE_CLUSTER_SECRET", _) => "a secret".to_owned(),
            _ => value
                .replace(CERTIFICATES, &format!("{root}tls/"))
                .replace("/data/", &root)
                .replace("/srv/tidegate/", &root),
        }
    };
    let mut arguments: Vec<String> = Vec::new();
    for argument in member.arguments {
        arguments.push(match argument.split_once('=') {
            Some((flag, value)) => format!("{flag}={}", here(flag, value)),
            None => here("", &argument),
        });
    }
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &member.variables {
        // What flags say besides counts more, and time is shorter here.
        variables.insert(name.clone(), here(name, value));
    }
    variables.insert("RUST_LOG".to_owned(), "info".to_owned());
    let secret = here("TIDEGATE_CLUSTER_SECRET", "");
    variables.insert("TIDEGATE_CLUSTER_SECRET".to_owned(), secret);
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Process::start_with(&example("wordcount"), &arguments, &variables)
}

/// With the script that the guide names.
fn make_certificates(place: &Place) {
    let made = Command::new("sh")
        .arg(repository("deploy/certificates.sh"))
        .arg(place.path("tls"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
}

/// A port that is free now.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
