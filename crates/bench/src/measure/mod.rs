//! Clocks and counters: what a run takes of the machine, and when its first record arrives.

mod first_record;
mod usage;

pub(crate) use first_record::{Arrivals, Arriving, note_process_start};
pub(crate) use usage::Meter;
