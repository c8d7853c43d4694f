//! Event time: what may be said about the time of records that are still to come.
//!
//! A watermark *t* says that no record with a time up to *t* follows; what comes nevertheless is
//! late. Watermarks travel in-band, each behind the data it speaks about. A stream that has nothing
//! to say says so (it is *idle*), so that nobody waits for its watermarks. They are made by an
//! [`AssignWatermarks`] from the times that records carry, are combined by a [`WatermarkValve`] in
//! every subtask, and end with [`EventTime::MAX`] before the end of data.
//!
//! Watermarks are no part of snapshots: after a restore an operator knows none until one comes.
//!
//! [`EventTime::MAX`]: tidegate_types::EventTime::MAX

mod assign;
mod strategy;
mod valve;

pub use assign::AssignWatermarks;
pub use strategy::{BoundedOutOfOrderness, WatermarkGenerator, WatermarkStrategy};
pub use valve::{ValveChange, WatermarkStatus, WatermarkValve};
