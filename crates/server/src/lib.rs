//! The drivers that give the sans-IO cores a clock, threads and a disk.
//!
//! In this version there is one: [`start`] starts a job inside the calling process and returns a
//! [`JobClient`], a handle on it. The driver is dull on purpose: it waits, steps the coordinator,
//! carries out its actions and hands the outcomes back. What is decided here and not by the
//! coordinator is written in [`start`]'s docs, and is little.

mod client;
mod clock;
mod driver;
mod dry_run;
mod error;
mod farewell;
mod files;
mod hex;
mod local_recovery;
mod namespace;
mod options;
mod progress;
mod report;
mod restore;
mod start;
mod storage_actions;
mod termination;
mod waiting;

pub mod cluster;
pub mod data;
pub mod tls;

pub use client::{JobClient, RequestError};
pub use error::RunError;
pub use options::{CheckpointLocation, InjectedFailures, JobOptions, RestoreOptions};
pub use progress::{Observer, Progress};
pub use report::{JobOutcome, JobReport};
pub use start::{start, start_on_cluster};
pub use termination::{EndsOnSignals, OnSigterm, end_on_signals};
pub use waiting::{WaitingFor, WaitingSubtask, WaitsBecause};
