//! Settings of the parts of a cluster: those of the same table that no job has.
//!
//! One file may hold those of all parts, and the job's: each takes what is for it.

mod resolve;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::table::{Field, Kind, Part, Setting, field, text};
use super::text::TextForm;

/// What a part of a cluster is told, apart from the job's settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    listen: Option<String>,
    jobmanager: Option<String>,
    slots: Option<NonZeroU32>,
    taskmanagers: Option<NonZeroU32>,
    name: Option<String>,
    host: Option<IpAddr>,
    registration_timeout: Option<Duration>,
    heartbeat_timeout: Option<Duration>,
    task_timeout: Option<Duration>,
    ha: Option<String>,
    ha_lease: Option<Duration>,
    local_recovery: Option<bool>,
    local_dir: Option<String>,
    insecure: Option<bool>,
    tls_cert: Option<String>,
    tls_key: Option<String>,
    tls_ca: Option<String>,
    tls_name: Option<String>,
}

const EVERYBODY: &[Part] = &[
    Part::JobManager,
    Part::TaskManager,
    Part::LocalCluster,
    Part::Request,
];

const PATH: &str = "a path";

/// All settings of the parts of a cluster, in the order of `--help` and of the documentation.
pub(crate) const CLUSTER: &[Setting] = &[
    Setting {
        name: "listen",
        value: "HOST:PORT",
        kind: Kind::Text,
        default: "127.0.0.1:6123",
        meaning: "where others reach the JobManager; that of a local cluster has any port that is \
                  free by default",
        advice: "set it if there is more than one machine",
        of: &[Part::JobManager],
        field: text!(cluster.listen, "`host:port`"),
    },
    Setting {
        name: "jobmanager",
        value: "HOST:PORT",
        kind: Kind::Text,
        default: "127.0.0.1:6123",
        meaning: "where JobManagers may be, separated by commas; the one that leads is found by \
                  trying",
        advice: "name all that may lead",
        of: &[Part::TaskManager, Part::Request],
        field: text!(
            cluster.jobmanager,
            "`host:port`, or several with commas between"
        ),
    },
    Setting {
        name: "slots",
        value: "N",
        kind: Kind::Count,
        default: "(processors of the machine; in a local cluster 1)",
        meaning: "how many worker threads a TaskManager has room for",
        advice: "lower it if the machine has other work to do",
        of: &[Part::TaskManager, Part::LocalCluster],
        field: field!(cluster.slots: NonZeroU32),
    },
    Setting {
        name: "taskmanagers",
        value: "N",
        kind: Kind::Count,
        default: "2",
        meaning: "how many TaskManagers a local cluster has",
        advice: "raise it until there are as many slots as the parallelism needs",
        of: &[Part::LocalCluster],
        field: field!(cluster.taskmanagers: NonZeroU32),
    },
    Setting {
        name: "name",
        value: "NAME",
        kind: Kind::Text,
        default: "(host name and process id)",
        meaning: "what a TaskManager is called; no two of a cluster are called alike, and one that \
                  comes back under its name gets the same part of the job, if it can",
        advice: "set it, for each TaskManager apart, with `local-recovery`",
        of: &[Part::TaskManager],
        field: text!(cluster.name, "a name"),
    },
    Setting {
        name: "host",
        value: "IP",
        kind: Kind::Text,
        default: "(the one from which the JobManager is reached)",
        meaning: "the address that other TaskManagers reach this machine at; ports are any that \
                  are free",
        advice: "set it if the machine has several",
        of: &[Part::TaskManager],
        field: field!(cluster.host: IpAddr),
    },
    Setting {
        name: "registration-timeout",
        value: "TIME",
        kind: Kind::Text,
        default: "5m",
        meaning: "a TaskManager that no JobManager has registered for this long ends with an error",
        advice: "raise it if JobManagers may be gone for longer",
        of: &[Part::TaskManager],
        field: field!(cluster.registration_timeout: Duration),
    },
    Setting {
        name: "heartbeat-timeout",
        value: "TIME",
        kind: Kind::Text,
        default: "5s",
        meaning: "whoever isn't heard of for this long is taken for dead; at least `50ms`",
        advice: "lower it to go on sooner when a machine vanishes; raise it if machines or \
                 networks pause",
        of: &[Part::JobManager],
        field: field!(cluster.heartbeat_timeout: Duration),
    },
    Setting {
        name: "task-timeout",
        value: "TIME",
        kind: Kind::Text,
        default: "(never)",
        meaning: "a worker that is within one piece of work for longer is taken for stuck, and the \
                  job restarted",
        advice: "set it if the job's code may hang",
        of: &[Part::JobManager],
        field: field!(cluster.task_timeout: Duration),
    },
    Setting {
        name: "ha",
        value: "URL",
        kind: Kind::Text,
        default: "(one JobManager, records in `checkpoint-dir`)",
        meaning: "where the leader of several JobManagers is elected, and the job's records are \
                  kept: `zk://host:port,host:port/path`, `s3://bucket/prefix` or `dir:///path`, as \
                  far as the program is built for them",
        advice: "set it to survive the loss of the JobManager's machine",
        of: &[Part::JobManager],
        field: text!(cluster.ha, "a URL, as `zk://host:port/path`"),
    },
    Setting {
        name: "ha-lease",
        value: "TIME",
        kind: Kind::Text,
        default: "6s",
        meaning: "a leader that its store hasn't heard of for this long has lost the lead; \
                  ZooKeeper's session timeout, within the limits of its servers",
        advice: "lower it for another leader to follow sooner; raise it if the store pauses",
        of: &[Part::JobManager],
        field: field!(cluster.ha_lease: Duration),
    },
    Setting {
        name: "local-recovery",
        value: "BOOL",
        kind: Kind::Switch,
        default: "false",
        meaning: "TaskManagers keep copies of the state files that they write, on a disk of their \
                  machine, so that the next attempt needn't read them from `checkpoint-dir`",
        advice: "set it if state is large or `checkpoint-dir` slow",
        of: &[Part::TaskManager, Part::LocalCluster],
        field: field!(cluster.local_recovery: bool),
    },
    Setting {
        name: "local-dir",
        value: "PATH",
        kind: Kind::Text,
        default: "(a folder among the machine's temporary files)",
        meaning: "where the copies go",
        advice: "choose a disk if temporary files are kept in memory",
        of: &[Part::TaskManager, Part::LocalCluster],
        field: text!(cluster.local_dir, PATH),
    },
    Setting {
        name: "insecure",
        value: "BOOL",
        kind: Kind::Switch,
        default: "false",
        meaning: "allows addresses of other machines without certificates, when nothing is \
                  encrypted",
        advice: "set it if nobody else can read the network",
        of: EVERYBODY,
        field: field!(cluster.insecure: bool),
    },
    Setting {
        name: "tls-cert",
        value: "FILE",
        kind: Kind::Text,
        default: "(none)",
        meaning: "encrypts all connections, and shows this certificate to others: a file in PEM, \
                  which may be the same for all processes of the cluster",
        advice: "set it, with the next two, if somebody else may read the network",
        of: EVERYBODY,
        field: text!(cluster.tls_cert, PATH),
    },
    Setting {
        name: "tls-key",
        value: "FILE",
        kind: Kind::Text,
        default: "(none)",
        meaning: "the private key of the certificate, a file in PEM",
        advice: "as above",
        of: EVERYBODY,
        field: text!(cluster.tls_key, PATH),
    },
    Setting {
        name: "tls-ca",
        value: "FILE",
        kind: Kind::Text,
        default: "(none)",
        meaning: "the CA that has signed the certificates of all processes; others are refused",
        advice: "as above",
        of: EVERYBODY,
        field: text!(cluster.tls_ca, PATH),
    },
    Setting {
        name: "tls-name",
        value: "NAME",
        kind: Kind::Text,
        default: "tidegate",
        meaning: "a name that every certificate bears",
        advice: "set it if certificates are made by somebody who chooses the names",
        of: EVERYBODY,
        field: text!(cluster.tls_name, "a name"),
    },
];
