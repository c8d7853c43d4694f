//! What this process is: a whole job, or a part of a cluster that runs one.
//!
//! The binary of a job is everything. Its first argument says what it is to be; without one it runs
//! the job in one process.

mod control;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, exit};
use std::sync::OnceLock;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, CommandFactory, Parser};
use tidegate_server::RunError;
use tidegate_server::cluster::{
    ClusterSettings, JobManagerOptions, Task, is_member, run_local_cluster, run_task_manager,
};
use tidegate_server::data::Secret;
use tidegate_server::tls::Tls;
use tidegate_types::ErrorChain;

use crate::args::{Args, InvalidSettings, Part, with_flags};
use crate::logging::log_to_standard_error;

use control::Verb;

/// What the job's code is run for in this process.
#[derive(Debug)]
pub(crate) enum Role {
    /// To run the job here.
    Embedded,
    /// To drive the job on TaskManagers, for which the job's variables are still missing.
    JobManager(JobManagerOptions),
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

/// Ends a JobManager whose job was cancelled, with the status of one that has done what it was
/// told: nobody is to start it again because of an error. In one process it is up to the program.
pub(crate) fn end_if_jobmanager(cancelled: &RunError) {
    if let Role::JobManager(_) = role() {
        tracing::warn!("{cancelled}");
        exit(0);
    }
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
/// | `status`, `checkpoint`, `savepoint`, `stop`, `cancel`, `rescale` | none: it asks this of the job on a cluster, says what came of it, and exits |
///
/// `<role> --help` tells of more. What a role is told may stand in the environment and in the file
/// of `--config`, too. A TaskManager and a local cluster never return from here: they exit when the
/// job is over. Processes that TaskManagers start get the arguments of the JobManager.
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
        let (args, _) = parse_with::<A>(&arguments, None);
        let cluster = cluster_settings(&of_environment());
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
            let (args, own) = parse_with::<A>(&arguments, Some(role));
            let (cluster, inherited) = (guarded_cluster(&own), is_member());
            let options = own.job_manager(cluster, inherited, arguments.split_off(1));
            let options =
                options.unwrap_or_else(|wrong| refuse(&mut command_of::<A>(Some(role)), &wrong));
            let _ = ROLE.set(Role::JobManager(options));
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

/// Not among the flags, which everybody on a machine can see.
const SECRET: &str = "TIDEGATE_CLUSTER_SECRET";

/// What the arguments of a JobManager may hold besides the job's. The processes of attempts get the
/// same arguments, and so does the JobManager of a local cluster.
const JOB_MANAGER: &[Part] = &[Part::JobManager, Part::LocalCluster];

/// Ends the process with a message if the certificates are of no use.
fn cluster_settings(args: &Args) -> ClusterSettings {
    let secret = std::env::var_os(SECRET).unwrap_or_default();
    let tls = args
        .tls_files()
        .and_then(|files| files.as_ref().map(Tls::load).transpose());
    ClusterSettings {
        secret: Secret::new(secret.into_encoded_bytes()),
        insecure: args.insecure(),
        tls: tls.unwrap_or_else(|error| fail(&ErrorChain(&error).to_string())),
    }
}

/// As [`cluster_settings`], for those that others connect with. Ends the process with a message if
/// its secret is one that somebody has forgotten to fill in.
fn guarded_cluster(args: &Args) -> ClusterSettings {
    let cluster = cluster_settings(args);
    if cluster.insecure && cluster.is_open_to_all() && std::env::var_os(SECRET).is_some() {
        fail(&format!(
            "`{SECRET}` is set, but empty, and nothing is encrypted (`--insecure`): whoever \
             reaches this process could take part in the cluster; give all its processes the \
             same secret, or unset the variable to do without one"
        ));
    }
    cluster
}

/// As the TaskManager has set them for the process of an attempt, whose arguments are those of the
/// JobManager and speak of files on its machine.
fn of_environment() -> Args {
    let mut command = with_flags(Command::new(""), &[Part::Request]);
    let (_, args) = settings(&mut command, &[Part::Request], [""]);
    args
}

fn be_task_manager(arguments: &[OsString]) -> ! {
    let command = Command::new("taskmanager").about(
        "Runs a TaskManager of the job of this program: it registers with the JobManager, runs \
         what it is told to, and ends with the job.",
    );
    let parts = &[Part::TaskManager];
    let mut command = named(with_flags(command, parts), RoleWord::TaskManager.word());
    let (_, args) = settings(&mut command, parts, arguments);
    let options = args.task_manager(guarded_cluster(&args));
    match run_task_manager(options.unwrap_or_else(|wrong| refuse(&mut command, &wrong))) {
        Ok(()) => exit(0),
        Err(error) => fail(&ErrorChain(&error).to_string()),
    }
}

fn be_local_cluster<A: Parser>(mut arguments: Vec<OsString>) -> ! {
    // The job's arguments are only checked: what is wrong with them is told once, and now.
    let role = RoleWord::LocalCluster;
    let (_, own) = parse_with::<A>(&arguments, Some(role));
    let secret = std::env::var(SECRET).ok();
    let secret = secret.filter(|secret| !secret.is_empty());
    let cluster = cluster_settings(&own);
    let checked = own.job_manager(cluster.clone(), false, Vec::new());
    let options = checked.and_then(|_| own.local_cluster(cluster, secret, arguments.split_off(1)));
    let options = options.unwrap_or_else(|wrong| refuse(&mut command_of::<A>(Some(role)), &wrong));
    match run_local_cluster(options) {
        Ok(status) => exit(code_of(status)),
        Err(error) => fail(&ErrorChain(&error).to_string()),
    }
}

/// What a shell would say.
fn code_of(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(1)
}

/// The job's arguments, and those of a JobManager among them.
fn command_of<A: CommandFactory>(role: Option<RoleWord>) -> Command {
    let command = with_flags(A::command(), JOB_MANAGER);
    match role {
        Some(role) => named(command, role.word()),
        None => command,
    }
}

/// Parses them.
fn parse_with<A: Parser>(arguments: &[OsString], role: Option<RoleWord>) -> (A, Args) {
    let mut command = command_of::<A>(role);
    // All that is wrong with settings, those of the job too, is told at once.
    let parts = [JOB_MANAGER, &[Part::Job]].concat();
    let (matches, own) = settings(&mut command, &parts, arguments);
    let args = A::from_arg_matches(&matches);
    (args.unwrap_or_else(|error| error.exit()), own)
}

/// Parses arguments, and finds what is set of what these parts may be told. Ends the process with a
/// message if something is wrong.
fn settings(
    command: &mut Command,
    parts: &[Part],
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> (ArgMatches, Args) {
    let matches = command.try_get_matches_from_mut(arguments);
    let matches = matches.unwrap_or_else(|error| error.exit());
    let args = Args::of(parts, &matches).unwrap_or_else(|wrong| refuse(command, &wrong));
    (matches, args)
}

/// Ends the process with a message and the status for wrong arguments.
fn refuse(command: &mut Command, wrong: &InvalidSettings) -> ! {
    command.error(ErrorKind::InvalidValue, wrong).exit()
}

/// Has help and errors name the role.
fn named(command: Command, word: &str) -> Command {
    command.bin_name(format!("{} {word}", program()))
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
