//! A standalone cluster on loopback: one JobManager, and TaskManagers with a slot per subtask.
//!
//! Its processes are children of this one, started by their main classes (Flink's scripts would
//! start them in the background, out of sight). They are known by their pids, and are gone when the
//! [`Cluster`] is dropped, and its folder with them.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::configuration::{self, Ports, Shape};
use super::error::FlinkError;
use super::installation::{Installation, Memory, Process};
use super::responses::{Overview, TaskManagers};
use super::rest::Rest;
use crate::measure::process_usage;

/// Starting takes 5 to 25 s, depending on what else the machine does.
const START: Patience = Patience {
    timeout: Duration::from_secs(120),
    poll: Duration::from_millis(50),
};

/// Begins the names of clusters' folders; the pid of the process that made it comes next.
const FOLDER: &str = "cluster-";

/// How something is waited for. When it happened, Flink says itself, to the millisecond; so looking
/// seldom costs no precision, and leaves the processors to the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How long at most.
    pub(super) timeout: Duration,
    /// Time between two looks.
    pub(super) poll: Duration,
}

/// A running cluster.
pub(crate) struct Cluster {
    installation: Installation,
    shape: Shape,
    memory: Memory,
    job_manager: Jvm,
    task_managers: Vec<Jvm>,
    /// TaskManagers that were ever started: each has a number of its own.
    started: u32,
    /// When its first process was started, in milliseconds since 1970.
    pub(super) since: i64,
    pub(super) rest: Rest,
    /// Configuration, logs, checkpoints. The last field, so that it is deleted when the processes
    /// above have ended and nobody writes into it any more.
    folder: TempDir,
}

/// A process of the cluster.
struct Jvm {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Jvm {
    /// Processor time in seconds, and most resident memory in bytes, so far. One that is gone
    /// is found out elsewhere, and has none.
    fn usage(&self) -> (f64, u64) {
        process_usage(self.child.id()).map_or((0.0, 0), |(cpu, peak)| (cpu.as_secs_f64(), peak))
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell about any other error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cluster {
    /// Starts one and waits until a job could be run.
    ///
    /// # Errors
    /// If it doesn't start; everything that has started is ended again.
    pub(crate) fn start(installation: &Installation, shape: Shape) -> Result<Self, FlinkError> {
        let home = &installation.home;
        sweep(home).map_err(FlinkError::io("delete old folders in", home))?;
        let prefix = format!("{FOLDER}{}-", std::process::id());
        let folder = TempDir::with_prefix_in(prefix, home)
            .map_err(FlinkError::io("make a folder in", home))?;
        let ports = Ports::free().map_err(FlinkError::io("find a free port on", "127.0.0.1"))?;
        prepare(folder.path(), installation, &shape, &ports)?;
        // Sizing is not counted as starting: it could be done once and for all.
        let configuration = folder.path().join("conf");
        let of_job_manager = installation.memory(Process::JobManager, &configuration)?;
        let memory = installation.memory(Process::TaskManager, &configuration)?;
        let since = now_ms();
        let job_manager = spawn(
            installation,
            folder.path(),
            Process::JobManager,
            ("jobmanager", &of_job_manager),
        )?;
        let mut cluster = Cluster {
            installation: installation.clone(),
            shape,
            folder,
            memory,
            job_manager,
            task_managers: Vec::new(),
            started: 0,
            since,
            rest: Rest::new(ports.rest),
        };
        cluster.add_task_manager()?;
        cluster.wait_for_slots(cluster.shape.slots)?;
        Ok(cluster)
    }

    /// Starts one more TaskManager, and doesn't wait for it.
    ///
    /// # Errors
    /// If there is no Java, or its log can't be written.
    pub(super) fn add_task_manager(&mut self) -> Result<(), FlinkError> {
        self.started += 1;
        let name = format!("taskmanager-{}", self.started);
        let task_manager = spawn(
            &self.installation,
            self.folder.path(),
            Process::TaskManager,
            (&name, &self.memory),
        )?;
        self.task_managers.push(task_manager);
        Ok(())
    }

    /// Waits until so many slots are free.
    ///
    /// # Errors
    /// If it takes too long, or a process has ended.
    pub(super) fn wait_for_slots(&mut self, slots: u32) -> Result<(), FlinkError> {
        self.wait("free slots", START, |cluster| {
            // Nobody answers before the JobManager is up.
            let overview = cluster.rest.get::<Overview>("/overview").ok();
            Ok(overview
                .filter(|now| now.slots_available >= slots)
                .map(drop))
        })
    }

    /// Looks again and again until there is something.
    ///
    /// # Errors
    /// Those of `look`; and if it takes too long, or a process has ended meanwhile.
    pub(super) fn wait<T>(
        &mut self,
        what: &'static str,
        patience: Patience,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, FlinkError>,
    ) -> Result<T, FlinkError> {
        let begun = Instant::now();
        loop {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            self.check()?;
            if begun.elapsed() > patience.timeout {
                return Err(FlinkError::TimedOut {
                    what,
                    after: patience.timeout,
                    log: end_of(&self.job_manager.log),
                });
            }
            sleep(patience.poll);
        }
    }

    /// All processes must live.
    fn check(&mut self) -> Result<(), FlinkError> {
        let all = std::iter::once(&mut self.job_manager).chain(&mut self.task_managers);
        for jvm in all {
            let ended = jvm.child.try_wait();
            if let Some(status) = ended.map_err(FlinkError::io("ask for", &jvm.name))? {
                return Err(FlinkError::Exited {
                    who: jvm.name.clone(),
                    status,
                    log: end_of(&jvm.log),
                });
            }
        }
        Ok(())
    }

    /// Ends the TaskManager that most tasks run on, as `kill -9` does, and says when, in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// If it can't be found out.
    pub(super) fn kill_task_manager_in_use(&mut self) -> Result<i64, FlinkError> {
        let known: TaskManagers = self.rest.get("/taskmanagers")?;
        let used = known
            .taskmanagers
            .iter()
            .max_by_key(|one| one.slots - one.free);
        let found = self
            .task_managers
            .iter()
            .position(|jvm| used.is_some_and(|used| used.id == jvm.name));
        let mut victim = self.task_managers.remove(found.unwrap_or(0));
        let at = now_ms();
        victim
            .child
            .kill()
            .map_err(FlinkError::io("kill", &victim.name))?;
        drop(victim);
        Ok(at)
    }

    /// Processor time, in seconds, that its TaskManagers have taken so far.
    pub(crate) fn task_manager_cpu_seconds(&self) -> f64 {
        self.task_managers.iter().map(|jvm| jvm.usage().0).sum()
    }

    /// Processor time, in seconds, that all its processes have taken so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.job_manager.usage().0 + self.task_manager_cpu_seconds()
    }

    /// Most memory that its processes ever had resident, in bytes, together.
    pub(crate) fn peak_memory_bytes(&self) -> u64 {
        let all = std::iter::once(&self.job_manager).chain(&self.task_managers);
        all.map(|jvm| jvm.usage().1).sum()
    }
}

/// Deletes the folders of clusters whose maker was killed before it could do so.
fn sweep(home: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(home)? {
        let entry = entry?;
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER)?.split('-').next());
        let gone = |pid: &str| !Path::new("/proc").join(pid).exists();
        if maker.is_some_and(gone) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Makes what the processes find in the cluster's folder. A jar that lies among the uploaded ones
/// needs no upload.
fn prepare(
    folder: &Path,
    installation: &Installation,
    shape: &Shape,
    ports: &Ports,
) -> Result<(), FlinkError> {
    let uploads = folder.join("web/flink-web-upload");
    for new in [&folder.join("conf"), &uploads] {
        fs::create_dir_all(new).map_err(FlinkError::io("make", new))?;
    }
    let jar = uploads.join(configuration::JAR);
    fs::copy(&installation.jobs, &jar).map_err(FlinkError::io("copy the jobs to", &jar))?;
    let files = [
        (
            "conf/config.yaml",
            configuration::yaml(folder, shape, ports),
        ),
        ("conf/log4j.properties", configuration::LOGGING.to_owned()),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(FlinkError::io("write", &path))?;
    }
    Ok(())
}

fn spawn(
    installation: &Installation,
    folder: &Path,
    process: Process,
    (name, memory): (&str, &Memory),
) -> Result<Jvm, FlinkError> {
    let log = folder.join(format!("{name}.log"));
    let output = File::create(&log).map_err(FlinkError::io("create", &log))?;
    let errors = output.try_clone().map_err(FlinkError::io("open", &log))?;
    let configuration = folder.join("conf");
    let logging = configuration.join("log4j.properties");
    let mut options = memory.jvm.clone();
    options.push(format!("-Dlog4j.configurationFile={}", logging.display()));
    let mut command = installation.java(&options, process.class());
    command
        .arg("--configDir")
        .arg(configuration)
        .args(&memory.flink);
    if process == Process::TaskManager {
        // So that its pid can be told from what the JobManager says.
        command.args(["-D", &format!("taskmanager.resource-id={name}")]);
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(FlinkError::Java)?;
    Ok(Jvm {
        name: name.to_owned(),
        child,
        log,
    })
}

impl Ports {
    /// Two that nobody listens on at the moment. Somebody else could take them before Flink does;
    /// it then says so and ends.
    fn free() -> std::io::Result<Self> {
        let [one, other] = [
            TcpListener::bind(("127.0.0.1", 0))?,
            TcpListener::bind(("127.0.0.1", 0))?,
        ];
        Ok(Ports {
            rest: one.local_addr()?.port(),
            rpc: other.local_addr()?.port(),
        })
    }
}

/// The time of day, in milliseconds since 1970, as Flink has it.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_millis() as i64)
}

/// The last lines of a log, which name the cause.
fn end_of(log: &Path) -> String {
    const LINES: usize = 15;
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_deleted_and_no_others() {
        let home = tempfile::tempdir().unwrap();
        let own = format!("cluster-{}-abc", std::process::id());
        // No process can have this pid.
        for name in ["cluster-4194305-abc", &own, "flink-2.3.0"] {
            fs::create_dir_all(home.path().join(name).join("conf")).unwrap();
        }
        sweep(home.path()).unwrap();
        let left = |name: &str| home.path().join(name).exists();
        assert!(!left("cluster-4194305-abc"));
        assert!(left(&own) && left("flink-2.3.0"));
    }

    #[test]
    fn the_end_of_a_log_is_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let lines: Vec<String> = (0..100).map(|at| at.to_string()).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        assert!(end_of(&log).starts_with("85\n") && end_of(&log).ends_with("\n99"));
        assert_eq!(end_of(&folder.path().join("none")), "");
    }
}
