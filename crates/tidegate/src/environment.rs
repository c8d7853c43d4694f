//! Where a job begins and is run.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::rc::Rc;

use tidegate_runtime::source::Source;
use tidegate_runtime::{JobPlan, StatePlacement};
use tidegate_server::cluster::{JobManagerOptions, Variable, attend};
use tidegate_server::{
    CheckpointLocation, JobClient, JobOptions, JobReport, Observer, OnSigterm, RunError,
    end_on_signals, start_on_cluster,
};
use tidegate_types::AlignmentMode;
use tracing::warn;

use crate::args::{Args, BUFFER_TIMEOUT_DEFAULT, misspelt_variables};
use crate::cluster::{self, Role};
use crate::error::{Error, Result};
use crate::logging::log_to_standard_error;
use crate::progress::{LogFailures, ProgressLine, print_dry_run};
use crate::stream::{Draft, Stream};

/// A job in the making, and the settings it will run with.
///
/// Streams made from it add to the same job. Give every operator a name that stays the same from
/// version to version: by it the operator's state is found again.
pub struct Environment {
    draft: Rc<RefCell<Draft>>,
    options: JobOptions,
    quiet: bool,
    /// What becomes of the job when its process is told to end; `None` if that is not looked at.
    on_sigterm: Option<OnSigterm>,
    /// What users set, for the processes of a cluster.
    variables: Vec<Variable>,
}

impl Environment {
    /// An empty job with these settings. Logs warnings to standard error, or what the variable
    /// `RUST_LOG` says, unless the program has set up logging itself.
    ///
    /// # Errors
    /// [`Error::Settings`](crate::Error::Settings) with everything that is out of its range, no
    /// place that can be used, or makes no sense without another setting.
    pub fn new(args: Args) -> Result<Self> {
        log_to_standard_error();
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for (variable, setting) in misspelt_variables(names) {
            warn!(%variable, setting, "unknown variable; was this setting meant?");
        }
        let options = args.job_options()?;
        Ok(Environment {
            draft: Draft::new(args.parallelism()),
            options,
            quiet: args.quiet.unwrap_or_default(),
            on_sigterm: Some(args.on_sigterm.unwrap_or_default()),
            variables: args.variables(),
        })
    }

    /// An empty job that keeps its checkpoints in memory and says nothing: for tests. Parallelism
    /// 1; set another with [`with_parallelism`](Self::with_parallelism).
    pub fn for_tests() -> Self {
        let options = JobOptions {
            name: String::new(),
            location: CheckpointLocation::MemoryForTests,
            settings: Default::default(),
            mode: AlignmentMode::ExactlyOnce,
            placement: StatePlacement::default(),
            buffer_timeout: BUFFER_TIMEOUT_DEFAULT,
            restore: None,
            dry_run: false,
            serialize: false,
            injected: None,
        };
        Environment {
            draft: Draft::new(1),
            options,
            quiet: true,
            on_sigterm: None,
            variables: Vec::new(),
        }
    }

    /// Sets the parallelism of operators that don't say otherwise and are added after this.
    pub fn with_parallelism(self, parallelism: u32) -> Self {
        self.draft.borrow_mut().parallelism = parallelism;
        self
    }

    /// Changes how the job runs, beyond what [`Args`] offer.
    pub fn with_options(mut self, change: impl FnOnce(&mut JobOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Adds a source.
    pub fn source<S: Source>(&self, name: &str, source: S) -> Stream<S::Item> {
        let mut draft = self.draft.borrow_mut();
        let spec = draft.spec(name);
        let operator = draft.plan.source(spec, source);
        Stream::from_operator(Rc::clone(&self.draft), operator)
    }

    /// Runs the job in this process until it is finished, stopped or fails for good. With a
    /// checkpoint directory, it goes on from the latest completed checkpoint of the job of this
    /// name. Shows a line of progress on standard error, unless told to be quiet. With `--dry-run`
    /// nothing runs: what the job would go on from is printed to standard output, or the error says
    /// everything that stands in the way.
    ///
    /// SIGTERM and Ctrl-C end the job in the way that the setting `--on-sigterm` says. If it was
    /// suspended, the process ends here, with status 128 and the number of the signal. So does a
    /// JobManager whose job is cancelled, with status 0.
    ///
    /// # Errors
    /// See [`RunError`](crate::RunError). Unless the settings say otherwise, completed checkpoints
    /// are kept whatever the error, and the next run goes on from them.
    pub fn execute(self, job_name: &str) -> Result<JobReport> {
        if self.options.dry_run {
            let report = self
                .launch(job_name, Box::new(LogFailures), false)?
                .wait()?;
            print_dry_run(&report);
            return Ok(report);
        }
        let on_sigterm = self.on_sigterm;
        let line = (!self.quiet).then(|| ProgressLine::new(std::io::stderr().is_terminal()));
        let observer: Box<dyn Observer> = match &line {
            Some(line) => Box::new(line.clone()),
            None => Box::new(LogFailures),
        };
        let started = self.launch(job_name, observer, on_sigterm.is_some());
        let mut ends = None;
        let outcome = started.and_then(|job| {
            if let Some(how) = on_sigterm {
                ends = Some(end_on_signals(job.clone(), how).map_err(RunError::Threads)?);
            }
            Ok(job.wait()?)
        });
        if let Some(line) = line {
            line.finish(outcome.as_ref().ok());
        }
        match &outcome {
            Err(Error::Run(suspended @ RunError::Suspended { .. })) => {
                if let Some(ends) = ends.filter(|ends| ends.is_told()) {
                    warn!("{suspended}");
                    ends.exit();
                }
            }
            Err(Error::Run(cancelled @ RunError::Cancelled { .. })) => {
                cluster::end_if_jobmanager(cancelled);
            }
            _ => {}
        }
        outcome
    }

    /// Starts the job on threads of its own and returns a handle on it, by which it can be looked
    /// at, asked for checkpoints and savepoints, stopped and waited for. Otherwise as
    /// [`execute`](Self::execute), but without a line of progress.
    ///
    /// ```
    /// use tidegate::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let env = Environment::for_tests();
    /// env.source("numbers", Generator::new(None, |index| index % 10))
    ///     .key_by(|digit| digit)
    ///     .count("count")
    ///     .sink("counts", Discard);
    /// let job = env.start("digits")?;
    /// if job.wait_until_running() {
    ///     let checkpoint = job.checkpoint()?;
    ///     assert_eq!(job.statistics().latest_completed, Some(checkpoint));
    /// }
    /// job.cancel();
    /// assert!(job.wait().is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RunError`](crate::RunError): whatever is known before anything runs.
    pub fn start(self, job_name: &str) -> Result<JobClient> {
        self.launch(job_name, Box::new(LogFailures), false)
    }

    /// `ends_on_signals`: whether the process may end here when it is told to.
    fn launch(
        self,
        job_name: &str,
        observer: Box<dyn Observer>,
        ends_on_signals: bool,
    ) -> Result<JobClient> {
        let plan = Self::take_plan(&self.draft);
        let options = JobOptions {
            name: job_name.to_owned(),
            ..self.options
        };
        match cluster::role() {
            Role::Embedded => Ok(tidegate_server::start(plan, &options, observer)?),
            Role::JobManager(jobmanager) => {
                let jobmanager = JobManagerOptions {
                    variables: self.variables,
                    ends_on_signals,
                    ..jobmanager.clone()
                };
                let started = start_on_cluster(plan, &options, &jobmanager, observer);
                Ok(started?)
            }
            Role::Process { task, cluster } => attend(plan, &options, cluster, task),
        }
    }

    fn take_plan(draft: &Rc<RefCell<Draft>>) -> JobPlan {
        std::mem::take(&mut *draft.borrow_mut()).into_plan()
    }
}
