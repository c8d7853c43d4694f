//! What a job's binary can be told to do to the job that runs on a cluster: `job savepoint`,
//! `job stop`, `job rescale --parallelism 5` and so on.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::process::exit;
use std::time::Duration;

use clap::{ArgMatches, Args as _, Command, FromArgMatches};
use tidegate_server::cluster::control::{
    ControlClient, ControlError, Rescaled, Snapshot, Traffic, Volume,
};
use tidegate_types::ErrorChain;

use super::{cluster_settings, fail, named, settings};
use crate::args::{Part, with_flags};

/// What may be asked of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Status,
    Checkpoint,
    Savepoint,
    Stop,
    Cancel,
    Rescale,
}

impl Verb {
    const ALL: [Verb; 6] = [
        Verb::Status,
        Verb::Checkpoint,
        Verb::Savepoint,
        Verb::Stop,
        Verb::Cancel,
        Verb::Rescale,
    ];

    pub(super) fn parse(word: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            Verb::Status => "status",
            Verb::Checkpoint => "checkpoint",
            Verb::Savepoint => "savepoint",
            Verb::Stop => "stop",
            Verb::Cancel => "cancel",
            Verb::Rescale => "rescale",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Verb::Status => "Says what the job on the cluster is doing.",
            Verb::Checkpoint => "Takes a checkpoint of the job now, and waits until it is durable.",
            Verb::Savepoint => {
                "Takes a savepoint of the job, and waits until it is durable. The job goes on."
            }
            Verb::Stop => {
                "Stops the job with a savepoint, and waits until everything up to it is committed. \
                 Started again, the job goes on from there."
            }
            Verb::Cancel => {
                "Stops the job without a savepoint. Whether its checkpoints are kept is said by \
                 its --checkpoint-retention."
            }
            Verb::Rescale => {
                "Takes a checkpoint of the job and goes on from it with another parallelism, as if \
                 the job had been started with that. Waits until every subtask runs."
            }
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
struct SavepointArgs {
    /// The folder to make the savepoint in: a path on the JobManager's machine, or a URL
    /// [default: the job's --savepoint-dir]
    #[arg(long, value_name = "URL")]
    savepoint_dir: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct StopArgs {
    #[command(flatten)]
    savepoint: SavepointArgs,

    /// Brings all data to its end first, as if the sources had ended: the job is done for good
    #[arg(long)]
    drain: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct RescaleArgs {
    /// Subtasks of operators that don't say otherwise
    #[arg(long, value_name = "N")]
    parallelism: NonZeroU32,
}

/// Asks, prints what came of it, and ends the process: with status 1 if it came to nothing.
pub(super) fn ask(verb: Verb, arguments: &[OsString]) -> ! {
    let parts = &[Part::Request];
    let command = Command::new(verb.word()).about(verb.about());
    let command = with_flags(command, parts);
    let command = match verb {
        Verb::Savepoint => SavepointArgs::augment_args(command),
        Verb::Stop => StopArgs::augment_args(command),
        Verb::Rescale => RescaleArgs::augment_args(command),
        Verb::Status | Verb::Checkpoint | Verb::Cancel => command,
    };
    let mut command = named(command, verb.word());
    let (matches, args) = settings(&mut command, parts, arguments);
    let (addresses, cluster) = (args.jobmanagers(), cluster_settings(&args));
    let asked = ControlClient::connect(&addresses, &cluster);
    match asked.and_then(|mut job| carry_out(verb, &mut job, &matches)) {
        Ok(said) => print(&said),
        Err(error) => fail(&ErrorChain(&error).to_string()),
    }
    exit(0)
}

fn of<T: FromArgMatches>(matches: &ArgMatches) -> T {
    T::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

fn carry_out(
    verb: Verb,
    job: &mut ControlClient,
    matches: &ArgMatches,
) -> Result<String, ControlError> {
    match verb {
        Verb::Status => status(job),
        Verb::Checkpoint => Ok(taken(&job.checkpoint()?)),
        Verb::Savepoint => {
            let SavepointArgs { savepoint_dir } = of(matches);
            Ok(taken(&job.savepoint(savepoint_dir)?))
        }
        Verb::Stop => {
            let StopArgs { savepoint, drain } = of(matches);
            let stopped = job.stop(savepoint.savepoint_dir, drain)?;
            Ok(format!("stopped: {}", taken(&stopped)))
        }
        Verb::Cancel => {
            job.cancel()?;
            Ok("the job is being cancelled".to_owned())
        }
        Verb::Rescale => {
            let RescaleArgs { parallelism } = of(matches);
            Ok(rescaled(&job.rescale(parallelism.get())?))
        }
    }
}

fn status(job: &mut ControlClient) -> Result<String, ControlError> {
    let job = job.describe()?;
    let state = if job.running { "running" } else { "starting" };
    let latest = match &job.latest {
        None => "no checkpoint has completed".to_owned(),
        Some(latest) => format!("the latest is {}", taken(latest)),
    };
    let traffic = job.traffic.as_ref().map(traffic).unwrap_or_default();
    Ok(format!(
        "job `{}`: {state} with a parallelism of {}, {} restarts; {} checkpoints completed, {} \
         failed; {latest}; {} records read since the last start{traffic}",
        job.name,
        job.parallelism,
        job.restarts,
        job.checkpoints_completed,
        job.checkpoints_failed,
        job.records,
    ))
}

/// Nothing of a cluster of one process.
fn traffic(sent: &Traffic) -> String {
    let volume = |volume: Option<Volume>| {
        let Volume { messages, bytes } = volume.unwrap_or_default();
        format!("{messages} ({bytes} bytes)")
    };
    match *sent == Traffic::default() {
        true => String::new(),
        false => format!(
            "; messages between its processes: {} with items, {} with \
             credit, {} about progress",
            volume(sent.items),
            volume(sent.credit),
            volume(sent.progress),
        ),
    }
}

fn taken(snapshot: &Snapshot) -> String {
    let took = Duration::from_millis(snapshot.duration_millis);
    let place = match &snapshot.location {
        None => format!("chk-{}", snapshot.id),
        Some(location) => location.clone(),
    };
    format!("{place}, {} bytes in {took:?}", snapshot.bytes)
}

fn rescaled(rescaled: &Rescaled) -> String {
    let downtime = Duration::from_millis(rescaled.downtime_millis);
    let recorded = match rescaled.recorded {
        true => "",
        false => {
            "; that could not be recorded: whoever goes on with the job if the JobManager fails \
             runs it as it was started"
        }
    };
    let said = match rescaled.checkpoint {
        None if rescaled.from == rescaled.to => {
            format!("the job runs with a parallelism of {} already", rescaled.to)
        }
        None => format!(
            "rescaled from {} to {}, down for {downtime:?}",
            rescaled.from, rescaled.to
        ),
        Some(checkpoint) => format!(
            "rescaled from {} to {} by chk-{checkpoint}, down for {downtime:?}",
            rescaled.from, rescaled.to
        ),
    };
    said + recorded
}

#[allow(clippy::print_stdout, reason = "what was asked for is what it prints")]
fn print(said: &str) {
    println!("{said}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_told_of_where_there_is_some() {
        let mut sent = Traffic::default();
        assert_eq!(traffic(&sent), "");
        sent.credit = Some(Volume {
            messages: 3,
            bytes: 192,
        });
        assert_eq!(
            traffic(&sent),
            "; messages between its processes: 0 (0 bytes) with items, 3 (192 \
             bytes) with credit, 0 (0 bytes) about progress"
        );
    }
}
