//! Process functions: driven by hand, and in jobs that fail, stop and are rescaled.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod driven;
mod in_jobs;
mod operator_state;
mod timers_in_jobs;
