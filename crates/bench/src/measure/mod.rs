//! Clocks and counters: what a run takes of the machine, and when its records arrive.

mod committed;
mod first_record;
mod scheduled;
mod usage;

pub(crate) use committed::{Committed, Ledger};
pub(crate) use first_record::{Arrivals, Arriving, note_process_start};
pub(crate) use scheduled::{Schedule, Scheduled};
pub(crate) use usage::{Meter, Usage, UsageError, process_usage, thread_cpu_time};
