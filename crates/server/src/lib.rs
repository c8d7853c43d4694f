//! The drivers that give the sans-IO cores a clock, threads and a disk.
//!
//! In this version there is one: [`run`] executes a job inside the calling process. The driver is
//! dull on purpose: it waits, steps the coordinator, carries out its actions and hands the
//! outcomes back. What it decides by itself is written in [`run`]'s docs, and is little.

mod clock;
mod driver;
mod embedded;
mod files;
mod memory;
mod progress;
mod storage_actions;
mod store;

pub use embedded::{CheckpointLocation, JobOptions, JobReport, RestoreOptions, RunError, run};
pub use progress::{Observer, Progress};
