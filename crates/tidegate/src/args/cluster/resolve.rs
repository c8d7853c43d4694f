//! From what was given to what the parts of a cluster are started with.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_coordinator::FleetSettings;
use tidegate_server::cluster::{
    ClusterSettings, JobManagerOptions, LocalCluster, LocalRecovery, TaskManagerOptions,
};
use tidegate_server::tls::{TlsError, TlsFiles};
use tidegate_storage::HaLocation;

use crate::args::Args;
use crate::args::problem::{InvalidSettings, Problem};

/// Where a JobManager listens by default, and is looked for.
const JOB_MANAGER: &str = "127.0.0.1:6123";
/// What the JobManager of a local cluster listens at by default: any port that is free.
const LOCAL_JOB_MANAGER: &str = "127.0.0.1:0";
/// For how long a TaskManager looks for a JobManager by default.
const REGISTRATION_TIMEOUT: Duration = Duration::from_mins(5);
/// Less than this, and nobody could be told from the dead.
const HEARTBEAT_TIMEOUT_MIN: Duration = Duration::from_millis(50);
/// How many TaskManagers a local cluster has by default.
const TASK_MANAGERS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

impl Args {
    /// Whether addresses of other machines may be used although nothing is encrypted.
    pub(crate) fn insecure(&self) -> bool {
        self.cluster.insecure.unwrap_or_default()
    }

    /// The certificates, if there are any.
    ///
    /// # Errors
    /// If one is missing.
    pub(crate) fn tls_files(&self) -> Result<Option<TlsFiles>, TlsError> {
        let of = &self.cluster;
        let file = |file: &Option<String>| file.as_ref().map(PathBuf::from);
        TlsFiles::of_settings(
            file(&of.tls_cert),
            file(&of.tls_key),
            file(&of.tls_ca),
            of.tls_name.clone(),
        )
    }

    /// Where JobManagers may be.
    pub(crate) fn jobmanagers(&self) -> Vec<String> {
        let all = self.cluster.jobmanager.as_deref().unwrap_or(JOB_MANAGER);
        all.split(',').map(|one| one.trim().to_owned()).collect()
    }

    /// How a JobManager is started, with these arguments of the job. What the job's code settles is
    /// still missing. `inherited`: whether its socket is.
    ///
    /// # Errors
    /// Everything that is out of its range, or no place.
    pub(crate) fn job_manager(
        &self,
        cluster: ClusterSettings,
        inherited: bool,
        arguments: Vec<OsString>,
    ) -> Result<JobManagerOptions, InvalidSettings> {
        let of = &self.cluster;
        let mut problems = Vec::new();
        let ha = of.ha.as_deref().map(HaLocation::parse);
        let ha = ha.transpose().unwrap_or_else(|cause| {
            problems.push(Problem::Location {
                given: self.given("ha"),
                cause: Box::new(cause),
            });
            None
        });
        let heartbeat_timeout = of
            .heartbeat_timeout
            .unwrap_or(FleetSettings::default().heartbeat_timeout);
        if heartbeat_timeout < HEARTBEAT_TIMEOUT_MIN {
            problems.push(Problem::Value {
                given: self.given("heartbeat-timeout"),
                allowed: format!("at least `{HEARTBEAT_TIMEOUT_MIN:?}`").into(),
            });
        }
        InvalidSettings::check(problems)?;
        Ok(JobManagerOptions {
            listen: of.listen.as_deref().unwrap_or(JOB_MANAGER).to_owned(),
            inherited,
            cluster,
            ha,
            ha_lease: of.ha_lease.unwrap_or(HaLocation::LEASE),
            heartbeat_timeout,
            task_timeout: of.task_timeout,
            ends_on_signals: false,
            arguments,
            variables: Vec::new(),
        })
    }

    /// How a TaskManager is started.
    ///
    /// # Errors
    /// Whatever doesn't fit together.
    pub(crate) fn task_manager(
        &self,
        cluster: ClusterSettings,
    ) -> Result<TaskManagerOptions, InvalidSettings> {
        let of = &self.cluster;
        let processors = || std::thread::available_parallelism().map_or(1, |p| p.get() as u32);
        Ok(TaskManagerOptions {
            jobmanagers: self.jobmanagers(),
            local_recovery: self.local_recovery(of.name.is_some())?,
            name: of.name.clone().unwrap_or_else(default_name),
            slots: of.slots.map_or_else(processors, NonZeroU32::get),
            registration_timeout: of.registration_timeout.unwrap_or(REGISTRATION_TIMEOUT),
            host: of.host,
            cluster,
        })
    }

    /// How a cluster on this machine is started, with these arguments of the job.
    ///
    /// # Errors
    /// Whatever doesn't fit together.
    pub(crate) fn local_cluster(
        &self,
        cluster: ClusterSettings,
        secret: Option<String>,
        arguments: Vec<OsString>,
    ) -> Result<LocalCluster, InvalidSettings> {
        let of = &self.cluster;
        let listen = of.listen.as_deref().unwrap_or(LOCAL_JOB_MANAGER);
        Ok(LocalCluster {
            taskmanagers: of.taskmanagers.unwrap_or(TASK_MANAGERS).get(),
            slots: of.slots.unwrap_or(NonZeroU32::MIN).get(),
            local_recovery: self.local_recovery(true)?,
            listen: listen.to_owned(),
            insecure: cluster.insecure,
            jobmanager: arguments,
            variables: self.variables_of_file(),
            secret,
            tls: cluster.tls.map(|tls| tls.files().clone()),
        })
    }

    /// `keep`: whether TaskManagers that come back have the names that they had.
    fn local_recovery(&self, keep: bool) -> Result<Option<LocalRecovery>, InvalidSettings> {
        let directory = self.cluster.local_dir.as_ref().map(PathBuf::from);
        match (self.cluster.local_recovery, directory) {
            (Some(true), directory) => Ok(Some(LocalRecovery {
                directory: directory.unwrap_or_else(LocalRecovery::default_directory),
                keep,
            })),
            (_, None) => Ok(None),
            (_, Some(_)) => Err(InvalidSettings::from(Problem::Needs {
                given: self.given("local-dir"),
                needs: "--local-recovery",
                why: "without it there are no copies to keep",
            })),
        }
    }
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "taskmanager".to_owned());
    format!("{}-{}", host.trim(), std::process::id())
}
