//! A cluster on this machine that is there to be looked at: a JobManager and TaskManagers with one
//! slot each, all of them processes of a job's binary.
//!
//! They die with the thread that has started them, whatever it dies of (`LOCAL_CLUSTER_MEMBER`),
//! and the processes of the attempt with the TaskManagers. So nothing is left behind when a
//! measurement fails or is broken off.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_server::cluster::control::{ControlClient, Job};
use tidegate_server::cluster::{ClusterSettings, LOCAL_CLUSTER_MEMBER};
use tidegate_server::data::Secret;

use super::processes::Load;
use crate::error::{Error, Result};

/// How long a cluster may take until its job runs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nobody else is told it; nothing leaves this machine.
const SECRET: &str = "of a cluster that is measured";

/// What a cluster runs, and how large it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    /// The job's binary: the example `throughput`.
    pub(super) program: &'a Path,
    /// TaskManagers, and the parallelism of the job.
    pub(super) processes: u32,
    /// What the job has to do.
    pub(super) load: Load,
}

/// A cluster, which is killed when it is dropped.
pub(super) struct Cluster {
    /// The JobManager is the first.
    members: Vec<Child>,
    address: SocketAddr,
    folder: TempDir,
    control: Option<ControlClient>,
}

impl Cluster {
    /// Starts it, and waits until every subtask runs.
    ///
    /// # Errors
    /// If it doesn't come to that.
    pub(super) fn start(plan: Plan<'_>) -> Result<Cluster> {
        let folder = tempfile::tempdir().map_err(Error::io("make", "a temporary folder"))?;
        let bound = TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen at", "loopback"))?;
        let address = bound.local_addr();
        let mut cluster = Cluster {
            members: Vec::new(),
            address: address.map_err(Error::io("listen at", "loopback"))?,
            folder,
            control: None,
        };
        cluster.start_jobmanager(plan, bound)?;
        for number in 1..=plan.processes {
            cluster.start_taskmanager(plan.program, number)?;
        }
        cluster.wait_until_running()?;
        Ok(cluster)
    }

    fn start_jobmanager(&mut self, plan: Plan<'_>, bound: TcpListener) -> Result<()> {
        let mut command = self.member(plan.program, "jobmanager")?;
        let (rate, interval) = plan.load.settings(plan.processes);
        let settings = [
            ("--listen", self.address.to_string()),
            ("--parallelism", plan.processes.to_string()),
            ("--records", u64::MAX.to_string()),
            ("--rate", rate.to_string()),
            ("--checkpoint-interval", interval.to_owned()),
        ];
        for (name, value) in settings {
            command.args([name, &value]);
        }
        command
            .arg("--checkpoint-dir")
            .arg(self.folder.path().join("checkpoints"));
        command.arg("--quiet");
        command.stdin(Stdio::from(OwnedFd::from(bound)));
        self.spawn(plan.program, command)
    }

    fn start_taskmanager(&mut self, program: &Path, number: u32) -> Result<()> {
        let mut command = self.member(program, "taskmanager")?;
        let name = format!("taskmanager-{number}");
        command.args(["--jobmanager", &self.address.to_string()]);
        command.args(["--slots", "1", "--name", &name]);
        command.stdin(Stdio::null());
        self.spawn(program, command)
    }

    fn member(&self, program: &Path, role: &str) -> Result<Command> {
        let log = self.log();
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(Error::io("open", log))?;
        let mut command = Command::new(program);
        command
            .arg(role)
            .env(LOCAL_CLUSTER_MEMBER, std::process::id().to_string())
            .env("TIDEGATE_CLUSTER_SECRET", SECRET)
            .stdout(Stdio::null())
            .stderr(file);
        Ok(command)
    }

    fn spawn(&mut self, program: &Path, mut command: Command) -> Result<()> {
        let child = command.spawn().map_err(Error::io("run", program))?;
        self.members.push(child);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn wait_until_running(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.job().is_ok_and(|job| job.running) {
                return Ok(());
            }
            let ended = self
                .members
                .iter_mut()
                .any(|m| !matches!(m.try_wait(), Ok(None)));
            if ended || Instant::now() > deadline {
                return Err(self.failure("start a cluster"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Asks the job how it is.
    ///
    /// # Errors
    /// If it doesn't answer.
    pub(super) fn job(&mut self) -> Result<Job> {
        let failed = |cause| Error::Other {
            what: "ask the JobManager",
            cause: Box::new(cause),
        };
        let control = match &mut self.control {
            Some(control) => control,
            none => {
                let settings = ClusterSettings {
                    secret: Secret::new(SECRET),
                    insecure: false,
                    tls: None,
                };
                let connected = ControlClient::connect(&[self.address.to_string()], &settings);
                none.insert(connected.map_err(failed)?)
            }
        };
        control.describe().map_err(failed)
    }

    /// Waits until a checkpoint has just completed, if there are any, and everybody has told what
    /// that took.
    ///
    /// # Errors
    /// If none completes.
    pub(super) fn settle(&mut self, load: Load) -> Result<()> {
        if load != Load::Nothing {
            let deadline = Instant::now() + PATIENCE;
            let before = self.job()?.checkpoints_completed;
            while self.job()?.checkpoints_completed == before {
                if Instant::now() > deadline {
                    return Err(self.failure("complete a checkpoint"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // Processes tell of themselves five times a second.
        std::thread::sleep(Duration::from_millis(400));
        Ok(())
    }

    /// With the end of what its members have written.
    fn failure(&self, what: &'static str) -> Error {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        Error::Other {
            what,
            cause: format!("its members have said:\n{last}").into(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // What they have started dies with them.
        for member in &mut self.members {
            let _ = member.kill();
        }
        for member in &mut self.members {
            let _ = member.wait();
        }
    }
}
