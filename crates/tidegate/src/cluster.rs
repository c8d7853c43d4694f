//! What this process is: a whole job, or a part of a cluster that runs one.
//!
//! The binary of a job is everything. Its first argument says what it is to be; without one it runs
//! the job in one process.

mod control;

use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, exit};
use std::sync::OnceLock;
use std::time::Duration;

use clap::{ArgMatches, Args as _, FromArgMatches, Parser};
use tidegate_server::cluster::{
    ClusterSettings, JobManagerOptions, LocalCluster, LocalRecovery, Task, TaskManagerOptions,
    Variable, is_member, run_local_cluster, run_task_manager,
};
use tidegate_server::data::Secret;
use tidegate_server::tls::{Tls, TlsFiles};
use tidegate_storage::HaLocation;
use tidegate_types::ErrorChain;

use crate::logging::log_to_standard_error;

use control::Verb;

/// What the job's code is run for in this process.
#[derive(Debug)]
pub(crate) enum Role {
    /// To run the job here.
    Embedded,
    /// To drive the job on TaskManagers.
    JobManager(JobManager),
    /// To run a part of one attempt.
    Process {
        task: Task,
        cluster: ClusterSettings,
    },
}

static ROLE: OnceLock<Role> = OnceLock::new();

/// The role of this process, which [`parse`] has found out.
pub(crate) fn role() -> &'static Role {
    ROLE.get().unwrap_or(&Role::Embedded)
}

/// Parses the arguments of a job, as `A::parse()` does, and lets the program also be every part of
/// a cluster that runs the job. Call it first thing in `main`.
///
/// | First argument | What the process is |
/// |---|---|
/// | none of these | the job, in this process |
/// | `local-cluster` | a cluster of processes on this machine: `--taskmanagers 3 --slots 1`, and the job's arguments |
/// | `jobmanager` | the JobManager: `--listen host:port`, and the job's arguments |
/// | `taskmanager` | a TaskManager: `--jobmanager host:port --slots 4`, without the job's arguments |
///
/// | `status`, `checkpoint`, `savepoint`, `stop`, `cancel`, `rescale` | none: it asks this of the job on a cluster, says what came of it, and exits |
///
/// `<role> --help` tells of more. A TaskManager and a local cluster never return from here: they
/// exit when the job is over. Processes that TaskManagers start get the arguments of the
/// JobManager.
///
/// Ends the process with a message if the arguments are wrong, or `--help` is among them.
///
/// ```
/// #[derive(clap::Parser)]
/// struct Args {
///     #[arg(long, default_value = "10")]
///     limit: u64,
///     #[command(flatten)]
///     tidegate: tidegate::Args,
/// }
///
/// let args: Args = tidegate::parse();
/// assert_eq!(args.limit, 10);
/// ```
pub fn parse<A: Parser>() -> A {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let task = Task::of_this_process().unwrap_or_else(|error| fail(&error));
    if let Some(task) = task {
        let (args, cluster) = parse_with::<A, JobManagerArgs>(&arguments, None);
        let cluster = cluster_settings(cluster.insecure, TlsArgs::of_environment());
        let _ = ROLE.set(Role::Process { task, cluster });
        return args;
    }
    let word = arguments.get(1).and_then(|word| word.to_str());
    if let Some(verb) = word.and_then(Verb::parse) {
        arguments.remove(1);
        control::ask(verb, &arguments);
    }
    let Some(role) = word.and_then(RoleWord::parse) else {
        return A::parse();
    };
    arguments.remove(1);
    match role {
        RoleWord::TaskManager => {
            log_to_standard_error();
            is_member();
            be_task_manager(&arguments)
        }
        RoleWord::LocalCluster => {
            log_to_standard_error();
            be_local_cluster::<A>(arguments)
        }
        RoleWord::JobManager => {
            let (args, own) = parse_with::<A, JobManagerArgs>(&arguments, Some(role));
            let arguments = arguments.split_off(1);
            let inherited = is_member();
            let jobmanager = JobManager {
                cluster: cluster_settings(own.insecure, own.tls.clone()),
                args: own,
                inherited,
                arguments,
            };
            let _ = ROLE.set(Role::JobManager(jobmanager));
            args
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoleWord {
    JobManager,
    TaskManager,
    LocalCluster,
}

impl RoleWord {
    fn parse(word: &str) -> Option<RoleWord> {
        match word {
            "jobmanager" => Some(RoleWord::JobManager),
            "taskmanager" => Some(RoleWord::TaskManager),
            "local-cluster" => Some(RoleWord::LocalCluster),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            RoleWord::JobManager => "jobmanager",
            RoleWord::TaskManager => "taskmanager",
            RoleWord::LocalCluster => "local-cluster",
        }
    }
}

/// What a JobManager is told, apart from the job's arguments. The processes of attempts get the
/// same arguments, and so does the JobManager of a local cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
struct JobManagerArgs {
    /// Where TaskManagers reach the JobManager
    /// [default: 127.0.0.1:6123; a local cluster: any port that is free]
    #[arg(long, env = "TIDEGATE_LISTEN", value_name = "HOST:PORT")]
    #[arg(overrides_with = "listen", hide_env_values = true)]
    listen: Option<String>,

    /// Whoever isn't heard of for this long is taken for dead
    #[arg(long, env = "TIDEGATE_HEARTBEAT_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = heartbeat_timeout, hide_env_values = true)]
    heartbeat_timeout: Duration,

    /// Where the leader of several JobManagers is elected, and the job's records are kept: a URL,
    /// zk://host:port,host:port/path, s3://bucket/prefix or dir:///path, as far as the program is
    /// built for them [default: one JobManager, records in the checkpoint directory]
    #[arg(long, env = "TIDEGATE_HA", value_name = "URL", hide_env_values = true)]
    #[arg(value_parser = ha_location)]
    ha: Option<HaLocation>,

    /// A leader that its store hasn't heard of for this long has lost the lead
    #[arg(
        long,
        env = "TIDEGATE_HA_LEASE",
        value_name = "DURATION",
        hide_env_values = true
    )]
    #[arg(default_value = "6s", value_parser = humantime::parse_duration)]
    ha_lease: Duration,

    /// A worker that is within one piece of work for longer is taken for stuck, and the job
    /// restarted [default: never]
    #[arg(long, env = "TIDEGATE_TASK_TIMEOUT", value_name = "DURATION")]
    #[arg(value_parser = humantime::parse_duration, hide_env_values = true)]
    task_timeout: Option<Duration>,

    /// Allows addresses of other machines without certificates, when nothing is encrypted
    #[arg(long, env = "TIDEGATE_INSECURE", hide_env_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true")]
    insecure: bool,

    #[command(flatten)]
    tls: TlsArgs,

    /// How many TaskManagers a local cluster has
    #[arg(long, env = "TIDEGATE_TASKMANAGERS", value_name = "COUNT")]
    #[arg(default_value = "2", hide_env_values = true)]
    taskmanagers: NonZeroU32,

    /// How many worker threads each of them has room for
    #[arg(long, env = "TIDEGATE_SLOTS", value_name = "COUNT")]
    #[arg(default_value = "1", hide_env_values = true)]
    slots: NonZeroU32,

    #[command(flatten)]
    local_recovery: LocalRecoveryArgs,
}

/// Whether TaskManagers keep copies of state; those of a local cluster are told by it.
#[derive(Clone, Debug, clap::Args)]
struct LocalRecoveryArgs {
    /// Has TaskManagers keep copies of the state files that they write, on a disk of their machine,
    /// so that the next attempt needn't read them from the checkpoint directory
    #[arg(long, env = "TIDEGATE_LOCAL_RECOVERY", hide_env_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true")]
    local_recovery: bool,

    /// Where the copies go; needs --local-recovery [default: a folder among the machine's temporary
    /// files]
    #[arg(
        long,
        env = "TIDEGATE_LOCAL_DIR",
        value_name = "PATH",
        hide_env_values = true
    )]
    local_dir: Option<PathBuf>,
}

impl LocalRecoveryArgs {
    /// `keep`: whether TaskManagers that come back have the names that they had.
    fn settings(&self, keep: bool) -> Option<LocalRecovery> {
        if !self.local_recovery {
            if self.local_dir.is_some() {
                fail("--local-dir needs --local-recovery");
            }
            return None;
        }
        let directory = self.local_dir.clone();
        Some(LocalRecovery {
            directory: directory.unwrap_or_else(LocalRecovery::default_directory),
            keep,
        })
    }
}

/// What a TaskManager is told.
#[derive(Clone, Debug, clap::Args)]
struct TaskManagerArgs {
    #[command(flatten)]
    connect: ConnectArgs,

    /// How many worker threads it has room for [default: processors of this machine]
    #[arg(
        long,
        env = "TIDEGATE_SLOTS",
        value_name = "COUNT",
        hide_env_values = true
    )]
    slots: Option<NonZeroU32>,

    /// What it is called; no two of a cluster are called alike, and a state that it keeps is found
    /// by it [default: host name and process id]
    #[arg(long, env = "TIDEGATE_NAME", hide_env_values = true)]
    name: Option<String>,

    /// Ends with an error if no JobManager has registered it for this long
    #[arg(
        long,
        env = "TIDEGATE_REGISTRATION_TIMEOUT",
        value_name = "DURATION",
        hide_env_values = true
    )]
    #[arg(default_value = "5m", value_parser = humantime::parse_duration)]
    registration_timeout: Duration,

    /// The address that other TaskManagers reach this machine at [default: the one from which the
    /// JobManager is reached]
    #[arg(long, env = "TIDEGATE_HOST", value_name = "IP", hide_env_values = true)]
    host: Option<IpAddr>,

    #[command(flatten)]
    local_recovery: LocalRecoveryArgs,
}

/// How a JobManager is reached.
#[derive(Clone, Debug, clap::Args)]
struct ConnectArgs {
    /// Where JobManagers may be; the one that leads is found by trying
    #[arg(
        long,
        env = "TIDEGATE_JOBMANAGER",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    #[arg(default_value = "127.0.0.1:6123", hide_env_values = true)]
    jobmanager: Vec<String>,

    /// Allows addresses of other machines without certificates, when nothing is encrypted
    #[arg(long, env = "TIDEGATE_INSECURE", hide_env_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true")]
    insecure: bool,

    #[command(flatten)]
    tls: TlsArgs,
}

impl ConnectArgs {
    /// Ends the process with a message if the certificates are of no use.
    fn resolve(self) -> (Vec<String>, ClusterSettings) {
        let settings = cluster_settings(self.insecure, self.tls);
        (self.jobmanager, settings)
    }
}

/// Certificates, with which connections are encrypted. Everybody is told of their own.
#[derive(Clone, Debug, clap::Args)]
struct TlsArgs {
    /// Encrypts all connections, and shows this certificate to others: a file in PEM, which may be
    /// the same for all processes of the cluster
    #[arg(long, env = "TIDEGATE_TLS_CERT", value_name = "FILE")]
    #[arg(hide_env_values = true)]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate
    #[arg(long, env = "TIDEGATE_TLS_KEY", value_name = "FILE")]
    #[arg(hide_env_values = true)]
    tls_key: Option<PathBuf>,

    /// The CA that has signed the certificates of all processes; others are refused
    #[arg(long, env = "TIDEGATE_TLS_CA", value_name = "FILE")]
    #[arg(hide_env_values = true)]
    tls_ca: Option<PathBuf>,

    /// A name that every certificate bears [default: tidegate]
    #[arg(long, env = "TIDEGATE_TLS_NAME", value_name = "NAME")]
    #[arg(hide_env_values = true)]
    tls_name: Option<String>,
}

impl TlsArgs {
    /// As the TaskManager has set them for the process of an attempt, whose arguments are those of
    /// the JobManager and speak of files on its machine.
    fn of_environment() -> TlsArgs {
        let command = TlsArgs::augment_args(clap::Command::new(""));
        let matches = command.get_matches_from([""]);
        TlsArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Ends the process with a message if something is missing.
    fn files(self) -> Option<TlsFiles> {
        let TlsArgs {
            tls_cert,
            tls_key,
            tls_ca,
            tls_name,
        } = self;
        TlsFiles::of_settings(tls_cert, tls_key, tls_ca, tls_name)
            .unwrap_or_else(|error| fail(&ErrorChain(&error).to_string()))
    }
}

/// A JobManager to be.
#[derive(Debug)]
pub(crate) struct JobManager {
    args: JobManagerArgs,
    cluster: ClusterSettings,
    inherited: bool,
    arguments: Vec<OsString>,
}

impl JobManager {
    pub(crate) fn options(&self, variables: Vec<Variable>) -> JobManagerOptions {
        JobManagerOptions {
            listen: self
                .args
                .listen
                .clone()
                .unwrap_or_else(|| LISTEN.to_owned()),
            inherited: self.inherited,
            cluster: self.cluster.clone(),
            ha: self.args.ha.clone(),
            ha_lease: self.args.ha_lease,
            heartbeat_timeout: self.args.heartbeat_timeout,
            task_timeout: self.args.task_timeout,
            arguments: self.arguments.clone(),
            variables,
        }
    }
}

/// Where a JobManager listens by default.
const LISTEN: &str = "127.0.0.1:6123";

/// Not among the flags, which everybody on a machine can see.
const SECRET: &str = "TIDEGATE_CLUSTER_SECRET";

/// Ends the process with a message if the certificates are of no use.
fn cluster_settings(insecure: bool, tls: TlsArgs) -> ClusterSettings {
    let secret = std::env::var_os(SECRET).unwrap_or_default();
    let tls = tls.files().map(|files| Tls::load(&files)).transpose();
    ClusterSettings {
        secret: Secret::new(secret.into_encoded_bytes()),
        insecure,
        tls: tls.unwrap_or_else(|error| fail(&ErrorChain(&error).to_string())),
    }
}

fn ha_location(text: &str) -> Result<HaLocation, String> {
    HaLocation::parse(text).map_err(|error| ErrorChain(&error).to_string())
}

fn heartbeat_timeout(text: &str) -> Result<Duration, String> {
    let timeout = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if timeout < Duration::from_millis(50) {
        return Err("at least 50ms".to_owned());
    }
    Ok(timeout)
}

fn be_task_manager(arguments: &[OsString]) -> ! {
    let command = clap::Command::new("taskmanager").about(
        "Runs a TaskManager of the job of this program: it registers with the JobManager, runs \
         what it is told to, and ends with the job.",
    );
    let command = named(
        TaskManagerArgs::augment_args(command),
        RoleWord::TaskManager,
    );
    let matches = command.get_matches_from(arguments);
    let args = TaskManagerArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let (jobmanagers, cluster) = args.connect.resolve();
    let processors = || std::thread::available_parallelism().map_or(1, |p| p.get() as u32);
    let options = TaskManagerOptions {
        local_recovery: args.local_recovery.settings(args.name.is_some()),
        jobmanagers,
        name: args.name.unwrap_or_else(default_name),
        slots: args.slots.map_or_else(processors, NonZeroU32::get),
        host: args.host,
        registration_timeout: args.registration_timeout,
        cluster,
    };
    match run_task_manager(options) {
        Ok(()) => exit(0),
        Err(error) => fail(&ErrorChain(&error).to_string()),
    }
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "taskmanager".to_owned());
    format!("{}-{}", host.trim(), std::process::id())
}

fn be_local_cluster<A: Parser>(mut arguments: Vec<OsString>) -> ! {
    // The job's arguments are only checked: what is wrong with them is told once, and now.
    let (_, own) = parse_with::<A, JobManagerArgs>(&arguments, Some(RoleWord::LocalCluster));
    let settings = cluster_settings(own.insecure, own.tls);
    let cluster = LocalCluster {
        taskmanagers: own.taskmanagers.get(),
        slots: own.slots.get(),
        listen: own.listen.unwrap_or_else(|| "127.0.0.1:0".to_owned()),
        insecure: own.insecure,
        local_recovery: own.local_recovery.settings(true),
        jobmanager: arguments.split_off(1),
        secret: std::env::var(SECRET)
            .ok()
            .filter(|secret| !secret.is_empty()),
        tls: settings.tls.map(|tls| tls.files().clone()),
    };
    match run_local_cluster(cluster) {
        Ok(status) => exit(code_of(status)),
        Err(error) => fail(&ErrorChain(&error).to_string()),
    }
}

/// What a shell would say.
fn code_of(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(1)
}

/// Parses the job's arguments, and others among them.
fn parse_with<A: Parser, B: clap::Args>(arguments: &[OsString], role: Option<RoleWord>) -> (A, B) {
    let command = B::augment_args(A::command());
    let command = match role {
        Some(role) => named(command, role),
        None => command,
    };
    let matches: ArgMatches = command.get_matches_from(arguments);
    let args = A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let others = B::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    (args, others)
}

/// Has help and errors name the role.
fn named(command: clap::Command, role: RoleWord) -> clap::Command {
    command.bin_name(format!("{} {}", program(), role.word()))
}

/// What this program is called.
fn program() -> String {
    let program = std::env::args().next().unwrap_or_default();
    let program = std::path::Path::new(&program).file_name();
    program.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn fail(what: &str) -> ! {
    use std::io::Write;
    // There is nobody left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "error: {what}");
    exit(1)
}
