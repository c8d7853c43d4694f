//! What the processes of a cluster are started with.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_coordinator::FleetSettings;
use tidegate_storage::HaLocation;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::data::Secret;
use crate::local_recovery::LocalRecovery;
use crate::tls::Tls;

/// What holds for every process of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// What they know and nobody else; empty for none.
    pub secret: Secret,
    /// Whether addresses of other machines may be used although nothing is encrypted.
    pub insecure: bool,
    /// What is encrypted with; `None` if nothing is.
    pub tls: Option<Tls>,
}

impl ClusterSettings {
    /// Whether addresses of other machines may be used.
    pub(super) fn leaves_the_machine(&self) -> bool {
        self.insecure || self.tls.is_some()
    }

    /// Whether neither a secret nor a certificate is asked of anybody.
    pub fn is_open_to_all(&self) -> bool {
        self.tls.is_none() && self.secret.is_empty()
    }
}

/// A variable of the environment, in text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// How a JobManager is started.
#[derive(Clone, Debug)]
pub struct JobManagerOptions {
    /// Where TaskManagers reach it: `host:port`. Port 0 is any that is free.
    pub listen: String,
    /// Whether standard input is a socket that listens there already.
    pub inherited: bool,
    /// What holds for the whole cluster.
    pub cluster: ClusterSettings,
    /// Where the leader is elected among several JobManagers, and the job's records are kept;
    /// without it there is one JobManager, and the records lie in the checkpoint directory.
    pub ha: Option<HaLocation>,
    /// A leader that its store hasn't heard of for this long has lost the lead.
    pub ha_lease: Duration,
    /// Whoever isn't heard of for this long is taken for dead. At least 10 ms.
    pub heartbeat_timeout: Duration,
    /// A worker that is within one piece of work for longer is taken for stuck, and the attempt
    /// restarted. `None` waits for ever.
    pub task_timeout: Option<Duration>,
    /// Whether a signal ends the process while it waits for the lead, in an orderly way; otherwise
    /// signals are somebody else's.
    pub ends_on_signals: bool,
    /// The job's arguments, which each process of it is started with.
    pub arguments: Vec<OsString>,
    /// The job's settings as variables, which each process of it is started with.
    pub variables: Vec<Variable>,
}

impl JobManagerOptions {
    pub(super) fn fleet(&self) -> FleetSettings {
        FleetSettings {
            heartbeat_timeout: self.heartbeat_timeout,
            ..FleetSettings::default()
        }
    }
}

/// How a TaskManager is started.
#[derive(Clone, Debug)]
pub struct TaskManagerOptions {
    /// Where JobManagers may be: `host:port` of each. The one that leads is found by trying.
    pub jobmanagers: Vec<String>,
    /// What it is called; no two of a cluster are called alike.
    pub name: String,
    /// How many worker threads it has room for; at least 1.
    pub slots: u32,
    /// Without a JobManager for this long, it gives up.
    pub registration_timeout: Duration,
    /// The address that other TaskManagers reach this machine at; by default the one from which the
    /// JobManager is reached.
    pub host: Option<IpAddr>,
    /// Where copies of state files are kept for the next attempt. `None` keeps none.
    pub local_recovery: Option<LocalRecovery>,
    /// What holds for the whole cluster.
    pub cluster: ClusterSettings,
}

/// Ticks this often. What was missed while this process stood still is not made up for.
pub(super) fn heartbeat(every: Duration) -> Interval {
    let mut heartbeat = interval(every);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

/// How often something that is watched says that it is there.
pub(super) fn heartbeat_interval(timeout: Duration) -> Duration {
    (timeout / 5).max(Duration::from_millis(2))
}
