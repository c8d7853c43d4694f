//! A cluster that shares nothing but a bucket: checkpoints are there, and the leader is elected
//! there. (Input and output are files, as the word count has them.)

use crate::by_hand::free_address;
use crate::members::{Kind, Member, signal};
use crate::stores::s3::{BUCKET, S3, options};
use crate::support::{Place, Process, example, wait_until};
use crate::{assert_exact, oracle, write_input};

const LEADS: &str = "this JobManager leads";

/// Long enough for a machine that is busy with other things.
const LEASE: &str = "3s";

/// Two JobManagers and two TaskManagers. Whoever ends is started again by [`Cluster::tend`], as
/// something else does where it is real.
struct Cluster<'a> {
    place: &'a Place,
    server: &'a S3,
    addresses: [String; 2],
    jobmanagers: Vec<Process>,
    taskmanagers: Vec<Process>,
}

impl<'a> Cluster<'a> {
    fn start(place: &'a Place, server: &'a S3) -> Self {
        let mut cluster = Cluster {
            place,
            server,
            addresses: [free_address(), free_address()],
            jobmanagers: Vec::new(),
            taskmanagers: Vec::new(),
        };
        for index in 0..2 {
            cluster.jobmanagers.push(cluster.jobmanager(index));
            cluster.taskmanagers.push(cluster.taskmanager());
        }
        cluster
    }

    fn jobmanager(&self, index: usize) -> Process {
        let (input, output) = (self.place.input(), self.place.output());
        let (checkpoints, leader) = (format!("s3://{BUCKET}/cp"), format!("s3://{BUCKET}/ha"));
        let arguments = [
            ["--listen", &self.addresses[index]],
            ["--input", input.to_str().unwrap()],
            ["--output", output.to_str().unwrap()],
            ["--checkpoint-dir", &checkpoints],
            ["--ha", &leader],
            ["--ha-lease", LEASE],
            ["--checkpoint-interval", "100ms"],
            // While the bucket stands still, checkpoints fail.
            ["--tolerable-failed-checkpoints", "unlimited"],
            ["--restart", "fixed-delay:1000,10ms"],
            // However small: so that state files are in the bucket, too.
            ["--state-inline-threshold", "0B"],
            ["--parallelism", "2"],
            ["--repeat", "30"],
            ["--rate", "2500"],
        ];
        self.process("jobmanager", arguments.as_flattened())
    }

    fn taskmanager(&self) -> Process {
        let jobmanagers = self.addresses.join(",");
        self.process(
            "taskmanager",
            &["--jobmanager", &jobmanagers, "--slots", "1"],
        )
    }

    /// A process that knows where the bucket is, and how to open it.
    fn process(&self, role: &str, arguments: &[&str]) -> Process {
        let mut all = vec![role.to_owned()];
        all.extend(arguments.iter().map(|text| (*text).to_owned()));
        let mut variables = vec![("RUST_LOG".to_owned(), "info".to_owned())];
        let bucket = options(self.server.port).into_iter();
        variables.extend(bucket.map(|(name, value)| (name.to_uppercase(), value)));
        let variables: Vec<(&str, &str)> = variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Process::start_with(&example("wordcount"), &all, &variables)
    }

    /// The JobManager that leads, once there is one.
    fn leader(&mut self) -> usize {
        let mut leader = None;
        wait_until("somebody leads", || {
            self.tend();
            let leads = |j: &mut Process| j.is_running() && j.stderr().contains(LEADS);
            leader = self.jobmanagers.iter_mut().position(leads);
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Starts again what has ended.
    fn tend(&mut self) {
        for index in 0..2 {
            if !self.jobmanagers[index].is_running() {
                self.jobmanagers[index] = self.jobmanager(index);
            }
            if !self.taskmanagers[index].is_running() {
                self.taskmanagers[index] = self.taskmanager();
            }
        }
    }

    /// Waits until a checkpoint has published its output.
    fn wait_for_checkpoint(&mut self) {
        let completed =
            |place: &Place| oracle::visible_files(&place.output()).map_or(0, |files| files.len());
        let before = completed(self.place);
        wait_until("a checkpoint has completed", || {
            self.tend();
            completed(self.place) > before
        });
    }

    fn kill(process: &Process, kind: Kind) {
        let pid = process.id();
        signal(Member { pid, kind }, "KILL");
    }
}

#[test]
fn a_bucket_is_all_that_machines_share_and_it_may_stand_still() {
    let place = Place::new();
    let expected = write_input(&place, 300, 30);
    let server = S3::start();
    let mut cluster = Cluster::start(&place, &server);
    cluster.wait_for_checkpoint();

    let leader = cluster.leader();
    Cluster::kill(&cluster.jobmanagers[leader], Kind::JobManager);
    wait_until("the other one leads", || {
        cluster.jobmanagers[1 - leader].stderr().contains(LEADS)
    });
    cluster.wait_for_checkpoint();

    Cluster::kill(&cluster.taskmanagers[0], Kind::TaskManager);
    cluster.wait_for_checkpoint();

    // For less than the lease: whatever was asked meanwhile is answered in the end.
    server.pause();
    std::thread::sleep(std::time::Duration::from_millis(700));
    server.resume();
    cluster.wait_for_checkpoint();

    // For longer. The leader can't know whether it still is one, and ends.
    let leader = cluster.leader();
    server.pause();
    wait_until("the leader has ended", || {
        !cluster.jobmanagers[leader].is_running()
    });
    let deposed = cluster.jobmanagers[leader].stderr();
    assert!(deposed.contains("has lost the lead, and ends"), "{deposed}");
    server.resume();
    cluster.leader();
    cluster.wait_for_checkpoint();

    // Nobody is started again any more: one JobManager brings the job to its end, and the other is
    // told by the bucket that it is over.
    wait_until("the job has ended", || {
        let mut taskmanagers = cluster.taskmanagers.iter_mut();
        taskmanagers.all(|taskmanager| !taskmanager.is_running())
    });
    for taskmanager in cluster.taskmanagers {
        taskmanager.wait().success();
    }
    let ends: Vec<_> = cluster.jobmanagers.into_iter().map(Process::wait).collect();
    assert!(ends.iter().any(|end| end.status.success()), "{ends:?}");
    assert_exact(&place, &expected);
}
