//! Real timely workers, driven by hand: checkpoints, restore, failures, ends.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

mod chaining;
mod checkpoints;
mod cluster;
mod commits;
mod ends;
mod event_time;
mod failures;
mod held_back;
mod incremental;
mod jobs;
mod measures;
mod pipelines;
mod side_outputs;
mod snapshots;
mod stop;
mod two_inputs;
