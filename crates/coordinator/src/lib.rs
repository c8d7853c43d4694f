//! Every decision of a job, and nothing else: when a checkpoint starts, completes and aborts, who
//! restores what, when an attempt is restarted, and when the job is over.
//!
//! The crate is sans-IO. It knows no clock, thread, channel, random number or file. Time and news
//! come in as [`JobEvent`]s; what to do goes out as [`JobAction`]s. A driver is a loop without
//! opinions: wait for news or for [`Job::next_deadline`], call [`Job::step`], carry out the
//! actions, hand their outcomes back as events, repeat until [`JobAction::End`].
//!
//! Invariants, checked after every step of a debug build:
//! *completed ids only grow · a completion is announced only after its pointer is stored · a file
//! is discarded once (again only if its acknowledgement is repeated much later; its name is never
//! used again), and never while a retained checkpoint refers to it · at most `max_concurrent`
//! pending checkpoints besides the final one · nothing follows the end.*

mod action;
mod checkpoint;
mod end;
mod event;
mod failure;
mod fleet;
mod job;
mod lifecycle;
mod request;
mod restart;
mod restore;
mod settings;
mod statistics;
mod subtasks;
mod summary;

pub use action::{JobAction, JobEnd, JobNote, NoticeTarget, RestartDecision};
pub use event::{DurableFacts, JobEvent, Now, Recovery};
pub use failure::{
    AbortReason, FailureReason, JobFailure, RescaleReason, RescaleRefusal, StorageStep,
    TriggerRefusal, Waiting,
};
pub use fleet::{
    Deployment, Fleet, FleetAction, FleetEvent, FleetSettings, ManagerId, ManagerInfo, ProcessId,
    WaitingForSlots,
};
pub use job::{Job, JobError};
pub use request::{Answer, Request, RequestId, Rescaled};
pub use restart::{ParseRestartError, RestartStrategy};
pub use restore::{
    DisplayPlan, KeyGroupFault, OperatorOutlook, RestoreError, RestoreOutlook,
    adopt_max_parallelism, plan_restore, preview_restore, refuse_drained,
};
pub use settings::{CheckpointSettings, ElasticSettings, JobSettings, Retention, SettingsError};
pub use statistics::{
    CheckpointStatistics, CheckpointStatus, CompletedSummary, FailedSummary, OperatorStatistics,
    RestoredSummary, Statistics, SubtaskStatistics,
};
pub use summary::Summary;
