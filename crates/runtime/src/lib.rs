//! Runs a job as a timely dataflow: items and channels, credit, barriers and their alignment,
//! sources, operators and sinks, and the worker threads of an attempt.
//!
//! This is the only crate that names timely. It takes [notices](tidegate_types::message::Notice)
//! and gives [reports](tidegate_types::message::Report); it decides nothing about checkpoints
//! beyond one subtask's part in them.
//!
//! From the outside in: an [`Attempt`] runs a [`JobPlan`] on worker threads; each operator is a
//! subtask around a [`Logic`]; a subtask reads [channels](crate::alignment) and writes to a
//! [`Collector`].

mod alive;
mod attempt;
mod background;
mod batch;
mod chaining;
mod chains;
mod clock;
mod either;
mod encoding;
mod error;
mod harness;
mod input;
mod item;
mod keyed;
mod keyed_state;
mod logic;
mod look_ahead;
mod metrics;
mod output;
mod piece;
mod plan;
mod report;
mod snapshot;
mod stateless;
mod subtask;

pub mod alignment;
pub mod credit;
pub mod process;
pub mod sink;
pub mod source;
pub mod watermark;

pub use alive::{BusyWorker, Stage};
pub use attempt::{Attempt, AttemptContext, ClusterPart, Connection, StartError};
pub use batch::Batch;
pub use chains::KeyedSnapshot;
pub use clock::{Clock, ManualClock, Ticks, wall_clock};
pub use either::Either;
pub use error::BoxError;
pub use harness::{HarnessSetup, OperatorHarness};
pub use keyed::{Count, KeyedMap};
pub use logic::{Activity, Flow, Logic, Seal, Snapshot, SubtaskContext, WatermarkProgress};
pub use metrics::{
    AttemptMetrics, ChannelRun, HeldBack, HeldBackBy, MetricsExport, SnapshotPhase,
    SubtaskProgress, Traffic, Volume,
};
pub use output::{
    Broadcast, ByKeyGroup, ByReference, ByValue, Collector, Forward, KeySelector, Rebalance, Route,
    SideCollector, SideOutputTypeError, Targets, UnknownSideOutputError,
};
pub use piece::StatePlacement;
pub use plan::{CheckError, EdgeKind, JobPlan, Output, RouteContext, SideOutputId};
pub use report::ReportSink;
pub use snapshot::{StateFileRead, StateFileWrite, StateFiles};
pub use stateless::FlatMap;
pub use watermark::{WatermarkGenerator, WatermarkStrategy};
