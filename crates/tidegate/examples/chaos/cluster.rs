//! A cluster that runs a job: two JobManagers, four TaskManagers of which one has nothing to do,
//! and whoever starts them again when they have ended.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::jobs::Job;
use crate::journal::Journal;
use crate::network::{JOBMANAGERS, Machine, Network, TASKMANAGERS};
use crate::process::{Running, children, was_killed};
use crate::zookeeper::ZooKeeper;

/// What systemd, say, would wait before it starts something again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// TaskManagers of which an attempt needs one each.
const PARALLELISM: &str = "3";

/// How patient the cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) heartbeat: Duration,
    pub(crate) lease: Duration,
}

/// What a cluster is made of.
pub(crate) struct Parts {
    pub(crate) network: Network,
    pub(crate) program: PathBuf,
    pub(crate) job: Job,
    pub(crate) zookeeper: Option<ZooKeeper>,
    pub(crate) patience: Patience,
    /// The first of two ports.
    pub(crate) port: u16,
    pub(crate) logs: PathBuf,
}

/// Where a process has its place, whether it runs or not.
struct Seat {
    machine: Machine,
    process: Option<Running>,
    /// When it is started again.
    due: Instant,
    /// It has ended well, since the job is over.
    over: bool,
}

pub(crate) struct Cluster {
    pub(crate) parts: Parts,
    pub(crate) journal: Journal,
    seats: Vec<Seat>,
    /// Whether the job runs as fast as it can.
    unlimited: bool,
    /// Exits of JobManagers that nobody had killed, by status.
    pub(crate) exits: Vec<(Machine, Option<i32>)>,
}

impl Cluster {
    pub(crate) fn start(parts: Parts) -> Result<Cluster, String> {
        let seat = |machine| Seat {
            machine,
            process: None,
            due: Instant::now(),
            over: false,
        };
        let machines = JOBMANAGERS.into_iter().chain(TASKMANAGERS);
        let mut cluster = Cluster {
            parts,
            journal: Journal::default(),
            seats: machines.map(seat).collect(),
            unlimited: false,
            exits: Vec::new(),
        };
        cluster.tend()?;
        Ok(cluster)
    }

    /// Starts again what has ended. Called all the time.
    ///
    /// # Errors
    /// If something has ended that should not have.
    pub(crate) fn tend(&mut self) -> Result<(), String> {
        for index in 0..self.seats.len() {
            let seat = &mut self.seats[index];
            let machine = seat.machine;
            if let Some(status) = seat.process.as_mut().and_then(Running::ended) {
                seat.process = None;
                seat.due = Instant::now() + RESTART_PAUSE;
                seat.over = status.success();
                let is_jobmanager = JOBMANAGERS.contains(&machine);
                if !status.success() && !was_killed(status) {
                    if !is_jobmanager {
                        let name = machine.name();
                        return Err(format!("the TaskManager on `{name}` ended: {status}"));
                    }
                    self.exits.push((machine, status.code()));
                }
            }
            let seat = &self.seats[index];
            if seat.process.is_none() && !seat.over && seat.due <= Instant::now() {
                self.seats[index].process = Some(self.launch(machine)?);
            }
        }
        Ok(())
    }

    /// Waits while looking after the cluster.
    pub(crate) fn tend_until(&mut self, until: Instant) -> Result<(), String> {
        loop {
            self.tend()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
    }

    /// Whether every process has ended since the job is over.
    pub(crate) fn is_over(&self) -> bool {
        self.seats.iter().all(|seat| seat.over)
    }

    /// From now on the job runs as fast as it can: with other arguments, so its JobManagers are
    /// killed and started anew.
    pub(crate) fn hurry(&mut self) {
        self.unlimited = true;
        for seat in &mut self.seats {
            if JOBMANAGERS.contains(&seat.machine) && seat.process.take().is_some() {
                seat.due = Instant::now();
            }
        }
    }

    fn launch(&self, machine: Machine) -> Result<Running, String> {
        let parts = &self.parts;
        let mut command = parts
            .network
            .command(machine, &parts.program.to_string_lossy());
        let log = parts.logs.join(machine.name());
        if !JOBMANAGERS.contains(&machine) {
            command.args(self.taskmanager(machine));
            return Running::start(command, &log, Box::new(|_| {}));
        }
        command.args(self.jobmanager(machine));
        let by = Arc::new(Mutex::new(0));
        // Nobody notes anything before it is known who says it.
        let mut known = by.lock().unwrap_or_else(PoisonError::into_inner);
        let running = Running::start(command, &log, self.journal.listener(Arc::clone(&by)))?;
        *known = running.pid();
        drop(known);
        Ok(running)
    }

    fn address(&self, jobmanager: Machine) -> String {
        let port = self.parts.port + jobmanager.0 as u16;
        format!("{}:{port}", self.parts.network.address(jobmanager))
    }

    fn jobmanager(&self, machine: Machine) -> Vec<String> {
        let Parts { job, patience, .. } = &self.parts;
        let ha = match &self.parts.zookeeper {
            Some(zookeeper) => zookeeper.url(job.name),
            None => format!("dir://{}", job.checkpoints().with_extension("ha").display()),
        };
        let mut arguments = vec!["jobmanager".to_owned()];
        arguments.extend(job.arguments(self.unlimited));
        let own = [
            ["--listen", &self.address(machine)],
            ["--ha", &ha],
            ["--ha-lease", &format!("{:?}", patience.lease)],
            ["--heartbeat-timeout", &format!("{:?}", patience.heartbeat)],
            ["--checkpoint-interval", "100ms"],
            ["--parallelism", PARALLELISM],
            ["--restart", "fixed-delay:1000000,1ms"],
        ];
        arguments.extend(own.as_flattened().iter().map(|text| (*text).to_owned()));
        arguments.push("--insecure".to_owned());
        arguments
    }

    fn taskmanager(&self, machine: Machine) -> Vec<String> {
        let jobmanagers = JOBMANAGERS.map(|machine| self.address(machine)).join(",");
        let own = [
            "taskmanager",
            "--jobmanager",
            &jobmanagers,
            "--slots",
            "1",
            "--insecure",
        ];
        let named = ["--name", machine.name(), "--host"];
        let address = self.parts.network.address(machine);
        let all = own.into_iter().chain(named).chain([address.as_str()]);
        all.map(str::to_owned).collect()
    }

    fn pid(&self, machine: Machine) -> Option<u32> {
        let seat = self.seats.iter().find(|seat| seat.machine == machine)?;
        Some(seat.process.as_ref()?.pid())
    }

    /// The JobManager that leads, and its process.
    pub(crate) fn leader(&self) -> Option<(Machine, u32)> {
        let leader = self.journal.leader()?;
        let running = |machine| Some((machine, self.pid(machine)?));
        JOBMANAGERS
            .into_iter()
            .filter_map(running)
            .find(|(_, pid)| *pid == leader)
    }

    /// The JobManager that waits for the lead, and its process.
    pub(crate) fn waiting(&self) -> Option<(Machine, u32)> {
        let (leader, _) = self.leader()?;
        let other = JOBMANAGERS.into_iter().find(|machine| *machine != leader)?;
        Some((other, self.pid(other)?))
    }

    /// The TaskManagers, each with its process and that of the attempt, if it runs one.
    pub(crate) fn taskmanagers(&self) -> Vec<(Machine, u32, Option<u32>)> {
        let running = |machine| {
            let pid = self.pid(machine)?;
            Some((machine, pid, children(pid).into_iter().next()))
        };
        TASKMANAGERS.into_iter().filter_map(running).collect()
    }
}
