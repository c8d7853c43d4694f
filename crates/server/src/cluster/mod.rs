//! A job on several machines: one JobManager, several TaskManagers, one binary.
//!
//! ```text
//!  JobManager                                     TaskManager (one per machine)
//!  ┌───────────────────────────┐  Register        ┌──────────────────────────────┐
//!  │ driver ── dispatcher ─────┼──────────────────┼─ supervisor                  │
//!  │ (Job)      (Fleet)        │                  │    │ starts, kills, waits for │
//!  │               │           │  Attend          │  ┌─▼──────────────────────┐   │
//!  │               └───────────┼──────────────────┼──┼ process of one attempt ├───┼─▶ its peers
//!  └───────────────────────────┘                  │  └────────────────────────┘   │
//!                                                 └──────────────────────────────┘
//! ```
//!
//! The JobManager drives the job as it would in one process; only where attempts run is different
//! ([`jobmanager`]). A TaskManager decides nothing: it starts the process of an attempt when it is
//! told to, says how it ended, and ends it when it loses its JobManager ([`taskmanager`]). That
//! process talks to the JobManager itself, and ends by exiting, whatever the reason ([`process`]).
//! So whatever dies, the rest is ended by something that watches it, and nothing needs to be asked
//! to clean up.
//!
//! Control messages are gRPC (`proto/cluster.proto`); data goes from process to process
//! ([`data`](crate::data)). A TaskManager may keep a folder with copies of state files, from which
//! the next process restores ([`local_recovery`](crate::local_recovery)).

mod client;
pub mod control;
pub(crate) mod jobmanager;
mod local;
mod parent;
mod process;
mod refusal;
mod search;
mod secret;
mod settings;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod task;
mod taskmanager;
mod wire;

pub use crate::local_recovery::LocalRecovery;
pub use local::{
    LocalCluster, MEMBER as LOCAL_CLUSTER_MEMBER, is_member, is_started_by_cluster,
    run_local_cluster,
};
pub use process::attend;
pub(crate) use process::describe;
pub use settings::{ClusterSettings, JobManagerOptions, TaskManagerOptions, Variable};
pub use task::Task;
pub use taskmanager::{TaskManagerError, run_task_manager};
