//! What users of a job can set: by flags, environment variables of the same names, or a file.
//!
//! One table has every setting, of the job ([`SETTINGS`](table::SETTINGS)) and of the parts of a
//! cluster ([`CLUSTER`](cluster::CLUSTER)). All three ways lead through the text form of its value,
//! so that they accept the same and complain in the same words. A flag
//! goes before a variable, a variable before the file, the file before the default. Everything
//! that is wrong is told at once: texts when arguments are parsed, values that don't fit together
//! when the [`Environment`](crate::Environment) is made, so that a program may fill in its own
//! defaults in between.
//!
//! A process that another one of the cluster has started reads no file, which may lie on another
//! machine, or say something else by now: it is handed what the other one has read, as variables.

mod cluster;
#[cfg(test)]
mod damage;
mod file;
mod problem;
mod resolve;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use tidegate_coordinator::{RestartStrategy, Retention};
use tidegate_server::OnSigterm;
use tidegate_server::cluster::{Variable, is_started_by_cluster};
use tidegate_types::{AlignmentMode, RestoreMode};

use cluster::ClusterArgs;
pub use problem::InvalidSettings;
use problem::{Given, Origin, Problem};
pub(crate) use resolve::{BUFFER_TIMEOUT_DEFAULT, misspelt_variables};
pub(crate) use table::Part;
use table::{CONFIG, Kind, Setting};
pub use text::{ByteSize, CheckpointInterval, CheckpointStorage, TolerableFailures};

/// The settings that every job has. Flatten them into the job's own arguments:
///
/// ```
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     tidegate: tidegate::Args,
/// }
/// ```
///
/// Each field is a flag (`min_pause` is `--min-pause`), a variable (`TIDEGATE_MIN_PAUSE`) and a key
/// of the TOML file that `--config` or `TIDEGATE_CONFIG` names (`min-pause`). After parsing, a
/// field has what was given in any of these ways; `None` is the default, which a program may
/// replace by one of its own. `docs/configuration.md` says when to change which.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// Subtasks of operators that don't say otherwise, and worker threads. Default 1.
    pub parallelism: Option<NonZeroU32>,
    /// The smallest parallelism that the job may run at when slots are missing. By default it waits
    /// for all.
    pub parallelism_min: Option<NonZeroU32>,
    /// For how long the number of slots must have been the same before the job is fitted to it.
    /// Default 10 seconds.
    pub stabilization_timeout: Option<Duration>,
    /// Where checkpoints are kept: a path or a `file://` URL. By default nowhere.
    pub checkpoint_dir: Option<String>,
    /// Where keyed state goes. By default into files.
    pub checkpoint_storage: Option<CheckpointStorage>,
    /// Keyed state of at most this size gets no file of its own. Default 20 KiB, at most 1 MiB.
    pub state_inline_threshold: Option<ByteSize>,
    /// Whether a checkpoint writes what has changed since the latest completed one. Default no.
    pub incremental_checkpoints: Option<bool>,
    /// Time between checkpoints. Default 10 s with a checkpoint directory, otherwise off.
    pub checkpoint_interval: Option<CheckpointInterval>,
    /// A checkpoint that takes longer is aborted. Default 10 minutes.
    pub checkpoint_timeout: Option<Duration>,
    /// Least time from a completed checkpoint to the next. Default 0.
    pub min_pause: Option<Duration>,
    /// How many checkpoints may be under way at once. Default 1.
    pub max_concurrent_checkpoints: Option<u32>,
    /// How many checkpoints in a row may fail. Default 10.
    pub tolerable_failed_checkpoints: Option<TolerableFailures>,
    /// How many completed checkpoints are kept. Default 1.
    pub retained_checkpoints: Option<u32>,
    /// Whether completed checkpoints outlive a cancelled or failed job. By default they do.
    pub checkpoint_retention: Option<Retention>,
    /// How many ended checkpoints the statistics remember in detail. Default 10.
    pub checkpoint_history: Option<u32>,
    /// Where savepoints are made by default: a path or a `file://` URL.
    pub savepoint_dir: Option<String>,
    /// A savepoint or checkpoint to start from: a path or a `file://` URL.
    pub restore_from: Option<String>,
    /// Whether the job owns it from then on. By default it doesn't.
    pub restore_mode: Option<RestoreMode>,
    /// Whether state that no operator claims is dropped. Default false.
    pub allow_non_restored_state: Option<bool>,
    /// Only find out whether the job can be restored. Default false.
    pub dry_run: Option<bool>,
    /// How barriers are aligned. Default exactly once.
    pub mode: Option<AlignmentMode>,
    /// What happens after a failure. By default restarts without end, from 100 ms to 1 minute
    /// apart.
    pub restart: Option<RestartStrategy>,
    /// What SIGTERM and Ctrl-C do to the job. By default it is suspended.
    pub on_sigterm: Option<OnSigterm>,
    /// A record waits no longer than this for its batch to fill. Default 5 ms.
    pub buffer_timeout: Option<Duration>,
    /// Print neither progress nor summary. Default false.
    pub quiet: Option<bool>,
    /// What a part of a cluster is told besides.
    cluster: ClusterArgs,
    /// Where what was given was given, by name of the setting.
    origins: BTreeMap<&'static str, Origin>,
}

/// What a job takes for itself.
const JOB: &[Part] = &[Part::Job];

/// Under which `--help` lists the settings of the job.
const HEADING: &str = "Tidegate";

/// Reads the text of a configuration file as `--config` would, and all that it says; for the fuzz
/// targets (`fuzz/`) and for tests.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_config(text: &str) -> Result<Args, InvalidSettings> {
    let (mut args, mut problems) = (Args::default(), Vec::new());
    args.take_file(Path::new("job.toml"), text, &[], &mut problems);
    InvalidSettings::check(problems)?;
    args.job_options()?;
    Ok(args)
}

/// Adds the flags of what is for one of these parts, and `--config` if there is none yet.
pub(crate) fn with_flags(command: Command, parts: &[Part]) -> Command {
    let settings = Setting::all().filter(|setting| setting.is_of(parts));
    let command = settings.fold(command, |command, setting| {
        command.arg(setting_flag(setting))
    });
    if command.get_arguments().any(|arg| arg.get_id() == CONFIG) {
        return command;
    }
    let file = "A TOML file with settings, each under the name of its flag";
    command.arg(flag(CONFIG, "FILE", file).help_heading(HEADING))
}

impl Args {
    /// What the command line, the environment and the file say of what is for one of these parts.
    ///
    /// # Errors
    /// Every text that is wrong.
    pub(crate) fn of(parts: &[Part], matches: &ArgMatches) -> Result<Self, InvalidSettings> {
        let mut args = Args::default();
        args.take(parts, matches, is_started_by_cluster())?;
        Ok(args)
    }

    /// Takes what the command line and the environment give, then what the file has besides.
    /// `handed`: another process has read the file.
    fn take(
        &mut self,
        parts: &[Part],
        matches: &ArgMatches,
        handed: bool,
    ) -> Result<(), InvalidSettings> {
        let mut problems = Vec::new();
        let mut settled = Vec::new();
        for setting in Setting::all() {
            if !setting.is_of(parts) {
                settled.push(setting.name);
                continue;
            }
            let Some((given, is_unicode)) = given(matches, setting.name, handed) else {
                continue;
            };
            settled.push(setting.name);
            let text = given.text.clone();
            let outcome = match is_unicode {
                true => self.set(setting, &text, given),
                false => Err(Problem::NotUnicode { given }),
            };
            problems.extend(outcome.err());
        }
        if !handed
            && let Some((config, _)) = given(matches, CONFIG, handed)
            && let Some(path) = matches.get_one::<OsString>(CONFIG).map(Path::new)
        {
            match std::fs::read_to_string(path) {
                Ok(text) => self.take_file(path, &text, &settled, &mut problems),
                Err(cause) => problems.push(Problem::Unreadable {
                    given: config,
                    cause,
                }),
            }
        }
        InvalidSettings::check(problems)
    }

    /// Takes what a file has, apart from settings that are another part's, or that something more
    /// important has given. Those are checked all the same.
    fn take_file(
        &mut self,
        path: &Path,
        text: &str,
        settled: &[&str],
        problems: &mut Vec<Problem>,
    ) {
        for entry in file::entries(path, text) {
            let outcome = entry.and_then(|entry| {
                if settled.contains(&entry.setting.name) {
                    Args::default().set(entry.setting, &entry.text, entry.given)
                } else {
                    self.set(entry.setting, &entry.text, entry.given)
                }
            });
            problems.extend(outcome.err());
        }
    }

    /// Everything that is set of the job, as variables that mean the same to a process without
    /// flags or file.
    pub(crate) fn variables(&self) -> Vec<Variable> {
        self.variables_of(|setting| setting.is_of(&[Part::Job]))
    }

    /// Everything that the file has set, as variables that mean the same to a process without it.
    fn variables_of_file(&self) -> Vec<Variable> {
        let origin = |setting: &Setting| self.origins.get(setting.name);
        self.variables_of(|setting| matches!(origin(setting), Some(Origin::File { .. })))
    }

    fn variables_of(&self, which: impl Fn(&Setting) -> bool) -> Vec<Variable> {
        let variable = |setting: &Setting| {
            Some(Variable {
                name: setting.variable(),
                value: (setting.field.get)(self)?,
            })
        };
        let settings = Setting::all().filter(|setting| which(setting));
        settings.filter_map(variable).collect()
    }

    fn set(&mut self, setting: &Setting, text: &str, given: Given) -> Result<(), Problem> {
        match (setting.field.set)(self, text) {
            Ok(()) => {
                self.origins.insert(given.name, given.origin);
                Ok(())
            }
            Err(allowed) => Err(Problem::Value { given, allowed }),
        }
    }
}

/// What the command line or else the environment says, and whether that is Unicode.
fn given(matches: &ArgMatches, name: &'static str, handed: bool) -> Option<(Given, bool)> {
    // Of a program whose arguments don't contain ours, there is no such flag.
    matches.try_contains_id(name).ok()?;
    let origin = match matches.value_source(name)? {
        ValueSource::EnvVariable if handed => Origin::Handed,
        ValueSource::EnvVariable => Origin::Variable,
        _ => Origin::Flag,
    };
    let text = matches.get_one::<OsString>(name)?;
    let given = Given {
        name,
        text: text.to_string_lossy().into_owned(),
        origin,
    };
    Some((given, text.to_str().is_some()))
}

fn flag(name: &'static str, value: &'static str, help: &str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .env(Setting::variable_of(name))
        .hide_env_values(true)
        .help(help.to_owned())
        .value_parser(ValueParser::os_string())
}

fn setting_flag(setting: &Setting) -> Arg {
    let plain = |text: &str| text.replace('`', "");
    let mut help = plain(setting.meaning);
    // Like the help of derived arguments.
    help[..1].make_ascii_uppercase();
    if !setting.default.starts_with('(') && setting.kind != Kind::Switch {
        help = format!("{help} [default: {}]", setting.default);
    }
    let advice = plain(setting.advice);
    let arg = flag(setting.name, setting.value, &help)
        .long_help(format!("{help}\n({advice})"))
        .help_heading(match setting.is_of(JOB) {
            true => HEADING,
            false => "Cluster",
        });
    match setting.kind {
        Kind::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        Kind::Text | Kind::Count | Kind::CountOrWord => arg,
    }
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        with_flags(command, JOB)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Args::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.take(JOB, matches, is_started_by_cluster())
            .map_err(|problems| clap::Error::raw(ErrorKind::InvalidValue, problems.to_string()))
    }
}
