//! What people and programs ask of a running job from outside, at the address of its JobManager.
//!
//! The definition is `proto/control.proto`. It is apart from what the processes of a cluster say to
//! each other, since others may use it, too. Whoever knows the cluster's secret may ask.

mod client;
#[rustfmt::skip]
#[allow(missing_docs, clippy::all, unreachable_pub)]
mod generated;
mod service;

pub use client::{ControlClient, ControlError};
pub use generated::{Job, Rescaled, Snapshot, Traffic, Volume};

pub(super) use generated::control_server::ControlServer;
pub(super) use service::ControlService;
