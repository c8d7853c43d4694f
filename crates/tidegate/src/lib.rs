//! Stateful streams in Rust with Flink's checkpoints, on timely dataflow.
//!
//! A job reads sources, keeps state by key, and writes sinks. While data flows, a coordinator lets
//! barriers travel through it; every operator snapshots what came before its barrier, and when all
//! snapshots are durable, sinks publish what they wrote up to it. After any crash the job goes on
//! from the latest completed checkpoint: state is exact, and what transactional sinks publish is
//! exact. Other effects are at least once; processing time and random values may differ after a
//! replay. Tidegate survives the loss of the process, not the loss of the checkpoint storage.
//!
//! ```
//! use tidegate::prelude::*;
//!
//! # fn main() -> tidegate::Result<()> {
//! let counts = Collect::new();
//! let env = Environment::for_tests();
//! env.source("numbers", Generator::new(Some(1_000), |index| index % 10))
//!     .key_by(|digit| digit)
//!     .count("count")
//!     .sink("counts", counts.clone());
//! env.execute("digits")?;
//! assert_eq!(counts.take().len(), 1_000);
//! # Ok(())
//! # }
//! ```
//!
//! From here: [`Environment`] is where a job begins, [`Stream`] and [`KeyedStream`] are what it is
//! made of, [`Args`] is what its users can set, [`connectors`] is where data comes from and goes
//! to.

mod args;
mod cluster;
mod environment;
mod error;
mod logging;
mod progress;
mod stream;

pub mod testing;

pub use args::{
    Args, ByteSize, CheckpointInterval, CheckpointStorage, InvalidSettings, TolerableFailures,
};
pub use cluster::parse;
pub use environment::Environment;
pub use error::{Error, Result};
pub use stream::{
    BroadcastStreams, ConnectedStreams, IntoSink, KeyedBroadcastStreams, KeyedStream, SinkHandle,
    Stream,
};
pub use tidegate_connectors as connectors;
pub use tidegate_coordinator::{
    AbortReason, CompletedSummary, ParseRestartError, RestartStrategy, RestoreOutlook,
    RestoredSummary, Retention, Statistics, Summary, TriggerRefusal,
};
pub use tidegate_derive::{Record, StateKey};
pub use tidegate_runtime::{
    Batch, BoxError, Collector, Either, Flow, Seal, SideCollector, SideOutputTypeError,
    StatePlacement, Ticks, Traffic, UnknownSideOutputError, Volume, WatermarkGenerator,
    WatermarkStrategy, sink, source,
};
pub use tidegate_server::{
    CheckpointLocation, JobClient, JobOptions, JobOutcome, JobReport, RequestError, RestoreOptions,
    RunError, WaitingFor, WaitingSubtask, WaitsBecause,
};
pub use tidegate_types::{
    AlignmentMode, AttemptNumber, CheckpointId, EventTime, MaxParallelism, OperatorUid,
    RestoreMode, SnapshotFormat, SnapshotLocation, UnixMillis,
};

pub use tidegate_state::text;

/// Functions of your own with state, timers and a second input.
pub use tidegate_runtime::process;

/// State: descriptors, and the handles that functions access it by.
pub mod state {
    pub use tidegate_state::{
        Aggregate, AggregatingState, AggregatingStateDescriptor, At, Fold, ListElements, ListState,
        ListStateDescriptor, MapEntries, MapState, MapStateDescriptor, MergeAggregate,
        OperatorListState, Record, Reduce, ReduceFn, ReducingState, ReducingStateDescriptor, Scope,
        StateDescriptor, StateError, StateKey, StateValue, ValueState, ValueStateDescriptor,
    };
}

/// The parsers, for the fuzz targets (`fuzz/`).
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads the text of a configuration file.
    pub fn config(text: &str) {
        drop(crate::args::read_config(text));
    }
}

/// What the derive macros refer to. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use tidegate_state as state;
}

/// The programs in the documentation, compiled and run by the tests.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;

    #[doc = include_str!("../../../docs/state.md")]
    struct State;

    #[doc = include_str!("../../../docs/cluster.md")]
    struct Cluster;
}

/// What most jobs need.
pub mod prelude {
    pub use std::path::PathBuf;

    pub use tidegate_connectors::{Collect, Discard, FileSink, FileSource, Generator, Print};
    pub use tidegate_derive::{Record, StateKey};
    pub use tidegate_runtime::process::{
        BroadcastContext, BroadcastProcessFunction, BroadcastState, KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction, KeyedContext, KeyedOpenContext, KeyedProcessFunction, OpenContext,
        OutputTag, ProcessContext, ProcessFunction, TimeDomain, Timer,
    };
    pub use tidegate_runtime::{BoxError, Collector, SideCollector};
    pub use tidegate_state::{
        Aggregate, AggregatingState, CompactString, ListState, MapState, OperatorListState,
        Record as _, ReducingState, StateKey as _, ValueState, ValueStateDescriptor,
    };

    pub use crate::{
        Args, Environment, EventTime, KeyedStream, Stream, UnixMillis, WatermarkStrategy,
    };
}
