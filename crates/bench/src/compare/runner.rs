//! Runs turns: Tidegate, timely and renoir as processes of their own, Flink on clusters.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Compare;
use super::case::{Case, System};
use super::foreign::Look;
use super::schedule::{Turn, least_disturbed};
use super::summary::Sample;
use crate::corpus;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::peers::flink::{self, Cluster, Installation, Recovery, Shape};
use crate::peers::{Kind, Task};

/// Whatever turns need to be run, from one to the next.
pub(crate) struct Runner<'a> {
    options: &'a Compare,
    /// This program.
    program: PathBuf,
    /// Where Flink's speed is measured.
    cluster: Option<Cluster>,
    /// Which case has run on it before.
    warm: Option<Case>,
    /// Where Flink's recovery is measured.
    recovery: Option<Recovery>,
}

impl<'a> Runner<'a> {
    /// Nothing is started yet.
    ///
    /// # Errors
    /// If this program doesn't know where it is.
    pub(crate) fn new(options: &'a Compare) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::io("find", "tidegate-bench"))?;
        Ok(Runner {
            options,
            program,
            cluster: None,
            warm: None,
            recovery: None,
        })
    }

    /// Runs a turn, and again if others have disturbed it.
    ///
    /// # Errors
    /// If it has no outcome.
    pub(crate) fn run(&mut self, turn: &Turn) -> Result<Sample> {
        self.prepare(turn)?;
        let (outcome, foreign_cores) = least_disturbed(|| {
            let before = self.look();
            let outcome = self.once(turn)?;
            Ok::<_, Error>((outcome, self.look().foreign_cores_since(&before)))
        })?;
        Ok(Sample {
            outcome,
            foreign_cores,
        })
    }

    fn look(&self) -> Look {
        let recovery = self.recovery.as_ref().map(Recovery::cluster);
        let clusters = self.cluster.iter().chain(recovery);
        Look::now(clusters.map(Cluster::cpu_seconds).sum())
    }

    /// Starts what the turn needs and stops what would only be in its way.
    fn prepare(&mut self, turn: &Turn) -> Result<()> {
        let case = turn.case;
        if case != Case::Recovery {
            self.recovery = None;
        }
        if !runs_warm(case) {
            self.cluster = None;
            self.warm = None;
        }
        if turn.contender.system != System::Flink {
            return Ok(());
        }
        if case == Case::Recovery && self.recovery.is_none() {
            let keys = case.keys().unwrap_or_default();
            let parallelism = self.options.parallelism;
            self.recovery = Some(Recovery::start(keys, parallelism, interval_ms(turn))?);
        }
        if runs_warm(case) && self.warm != Some(case) {
            for _ in 0..flink::WARM_UP_RUNS {
                self.on_cluster(turn)?;
            }
            self.warm = Some(case);
        }
        Ok(())
    }

    fn once(&mut self, turn: &Turn) -> Result<Outcome> {
        if turn.contender.system != System::Flink {
            return self.in_process(turn);
        }
        match (&mut self.recovery, turn.case) {
            (Some(recovery), Case::Recovery) => recovery.kill(),
            (_, case) if runs_warm(case) => self.on_cluster(turn),
            _ => flink::run_alone(&self.task(turn)?),
        }
    }

    fn on_cluster(&mut self, turn: &Turn) -> Result<Outcome> {
        let task = self.task(turn)?;
        if self.cluster.is_none() {
            let shape = Shape::fast(self.options.parallelism);
            self.cluster = Some(Cluster::start(&Installation::find()?, shape)?);
        }
        let cluster = self.cluster.as_mut().expect("it has just been started");
        flink::run(cluster, &task)
    }

    fn task(&self, turn: &Turn) -> Result<Task> {
        let keys = turn.case.keys().unwrap_or_default();
        let records = self.options.records(turn).unwrap_or_default();
        let (kind, records) = match turn.case {
            Case::Source => (Kind::Source, records),
            Case::KeyedStrings => (Kind::KeyedStrings(keys), records),
            Case::Wordcount => {
                let files = corpus::files(records, &self.options.data_dir())?;
                (Kind::WordCount(files.paths), files.words)
            }
            _ => (Kind::KeyedCount(keys), records),
        };
        Ok(Task {
            kind,
            records,
            parallelism: self.options.parallelism,
            checkpoint_interval_ms: interval_ms(turn),
        })
    }

    /// Runs this program once more, for one workload.
    fn in_process(&self, turn: &Turn) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments(turn, self.options))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = command.output().map_err(Error::io("run", &self.program))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let wrong = |cause: tidegate::BoxError| Error::Other {
            what: "run a workload in a process of its own",
            cause,
        };
        if !output.status.success() {
            return Err(wrong(output.status.to_string().into()));
        }
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).map_err(|error| wrong(error.into()))
    }
}

/// Whether Flink runs the case on the cluster that is kept warm.
fn runs_warm(case: Case) -> bool {
    !matches!(case, Case::Recovery | Case::Footprint1k | Case::Footprint1m)
}

fn interval_ms(turn: &Turn) -> u64 {
    turn.contender
        .interval
        .map_or(0, |time| time.as_millis() as u64)
}

/// The command line of a run that is a process of its own.
fn arguments(turn: &Turn, options: &Compare) -> Vec<String> {
    let Turn {
        case, contender, ..
    } = turn;
    let mut arguments = vec![
        case.workload().to_owned(),
        "--json".to_owned(),
        "--parallelism".to_owned(),
        options.parallelism.to_string(),
        "--checkpoint-interval".to_owned(),
        contender.interval_name(),
        "--peer".to_owned(),
        contender.system.name().to_owned(),
        "--data-dir".to_owned(),
        options.data_dir().display().to_string(),
    ];
    let numbers = [
        ("--keys", case.keys()),
        ("--records", options.records(turn)),
    ];
    if *case == Case::Recovery {
        // Turns repeat it.
        arguments.extend(["--rounds".to_owned(), "1".to_owned()]);
    }
    for (name, number) in numbers {
        arguments.extend(
            number
                .map(|number| [name.to_owned(), number.to_string()])
                .into_iter()
                .flatten(),
        );
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::schedule::turns;
    use super::*;
    use crate::options::{Command, Options};

    #[test]
    fn what_a_process_is_told_is_what_its_command_line_takes() {
        let Command::Compare(options) = Options::parse_from(["bench", "compare"]).command else {
            panic!("a comparison");
        };
        let all = [
            Case::Source,
            Case::KeyedCount1k,
            Case::KeyedCount1m,
            Case::KeyedStrings,
            Case::Wordcount,
            Case::Recovery,
            Case::Footprint1k,
            Case::Footprint1m,
            Case::Checkpoints1k,
            Case::Checkpoints1m,
        ];
        let peers = [System::Timely, System::Renoir, System::RenoirPacked];
        for turn in turns(&all, &peers, 1) {
            let arguments = arguments(&turn, &options);
            let line = ["tidegate-bench".to_owned()].into_iter().chain(arguments);
            let parsed = Options::try_parse_from(line);
            assert!(parsed.is_ok(), "{turn:?}: {parsed:?}");
        }
    }
}
