//! Known bugs, to be put back in so that the simulator can prove that it finds them.
//!
//! They live in the simulated driver, subtasks and store, never in the production cores. What a
//! core would do wrong is done to its settings, its news and its actions on their way.

use std::time::Duration;

use tidegate_types::SnapshotFormat;

use crate::scenario::Scenario;

/// A bug of the world around the cores, or one that a core might have, put around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Mutation {
    /// A sink commits its transactions when it acknowledges, not when the checkpoint completes.
    CommitOnAck,
    /// A sink's snapshot lists only the transactions of its own checkpoint, not the uncommitted
    /// ones of earlier checkpoints.
    ForgetEarlierTransactions,
    /// The previous checkpoint is deleted before the pointer to the new one is stored.
    DropBeforePointer,
    /// A write of unknown outcome is reported as not done.
    UnknownIsNotDone,
    /// Exactly-once alignment blocks no channel.
    NoBlocking,
    /// Notices of a former attempt reach the next one, and sinks commit whatever they hold.
    StaleNotice,
    /// The counter of checkpoint ids is lost with the process.
    VolatileIdCounter,
    /// A snapshot makes durable only the transactions of its own checkpoint, although those of an
    /// aborted one are part of it.
    SealsLostOnAbort,
    /// Records that wait in an output's batches are overtaken by a barrier.
    BarrierOvertakesBatch,
    /// Transactions in a restored snapshot are not committed.
    RestoreForgetsCommit,
    /// The store reports a pointer as stored before it is.
    PointerReportedEarly,
    /// A reader's snapshot has its splits from their beginning.
    SplitFromStart,
    /// After a rescale a subtask reads only the first of several state files.
    FirstFileOnly,
    /// An attempt counts as stopped while its background threads still work.
    StopWithoutJoin,
    /// A transaction that could not be made durable declines every further checkpoint, instead of
    /// failing the attempt, which would write it anew.
    SpoiltForEver,
    /// A pointer whose fate was unknown may still appear after the list of completed checkpoints
    /// has been read because of it.
    LateAfterRead,
    /// A channel sometimes delivers an item before the one ahead of it.
    OvertakingItems,
    /// A dropped checkpoint loses its files before its pointer.
    FilesBeforePointer,
    /// The sweep at the end overlooks metadata.
    SweepOverlooksMetadata,
    /// Files of checkpoints that didn't complete are left to the sweep.
    DiscardIgnored,
    /// A commit that finds its transaction published already publishes it again.
    CommitTwice,
    /// A broadcast leaves a subtask out now and then.
    BroadcastSkipsOne,
    /// A source that gets a trigger twice emits its barrier twice.
    TriggerRepeated,
    /// A new process overlooks the latest completed checkpoint.
    LatestOverlooked,
    /// What a dead process' attempt reports is taken for news of the running one.
    GhostBelieved,
    /// An acknowledgement that comes twice has its files deleted.
    DuplicateAckDiscarded,
    /// Subtasks are not told of aborts.
    AbortNotTold,
    /// A checkpoint ends twice.
    EndsTwice,
    /// Subtasks are told of a completion twice, one behind the other.
    AnnouncedTwice,
    /// A request is answered twice.
    AnsweredTwice,
    /// A restore gives one split to two readers.
    SplitDealtTwice,
    /// The minimum pause doesn't reach the coordinator.
    MinPauseIgnored,
    /// One checkpoint more than allowed may be under way.
    ConcurrencyIgnored,
    /// Checkpoints are triggered more often than the interval says.
    IntervalIgnored,
    /// Subtasks are told of a plain savepoint, and commit because of it.
    SavepointCommitted,
    /// A savepoint is deleted when a newer checkpoint completes.
    SavepointSubsumed,
    /// After a stop the job goes on from the checkpoint before its savepoint.
    StopForgotten,
    /// What a job was restored from without claiming it is dropped once it has a checkpoint of its
    /// own.
    OriginDropped,
    /// Of what a job has claimed only the pointer is dropped, and nothing says where the rest lies.
    ClaimedIsKept,
    /// Whoever asked for a snapshot that fails is never told.
    FailureUnanswered,
    /// A source emits records behind the barrier of a stop.
    SourceRunsOn,
    /// A sink reports that it has committed what it has not.
    CommitReportedEarly,
    /// Subtasks write the files of a savepoint into the job's own namespace.
    SavepointInNamespace,
    /// A savepoint is triggered although its folder could not be made.
    FolderUnawaited,
    /// A deletion is reported as done when it is begun.
    DeletionsUnawaited,
    /// Whatever was chosen, checkpoints are deleted when the job ends.
    RetentionIgnored,
    /// A dropped checkpoint takes files along that later ones refer to.
    SharedFileDeleted,
    /// A dropped checkpoint takes files along although one that is being taken rests on it.
    BaseNotHeld,
    /// A checkpoint of which files stay is dropped twice.
    SharedFileDroppedTwice,
    /// A subtask refers to a snapshot that didn't complete, and the coordinator accepts that.
    UnknownFileAccepted,
    /// What was spared when its checkpoint was dropped is never deleted.
    SharedFileForgotten,
    /// A new process overlooks the parallelism that somebody asked for.
    ParallelismOverlooked,
    /// Nobody records that somebody has ended the job.
    EndUnrecorded,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 53] = [
        Mutation::CommitOnAck,
        Mutation::ForgetEarlierTransactions,
        Mutation::DropBeforePointer,
        Mutation::UnknownIsNotDone,
        Mutation::NoBlocking,
        Mutation::StaleNotice,
        Mutation::VolatileIdCounter,
        Mutation::SealsLostOnAbort,
        Mutation::BarrierOvertakesBatch,
        Mutation::RestoreForgetsCommit,
        Mutation::PointerReportedEarly,
        Mutation::SplitFromStart,
        Mutation::FirstFileOnly,
        Mutation::StopWithoutJoin,
        Mutation::SpoiltForEver,
        Mutation::LateAfterRead,
        Mutation::OvertakingItems,
        Mutation::FilesBeforePointer,
        Mutation::SweepOverlooksMetadata,
        Mutation::DiscardIgnored,
        Mutation::CommitTwice,
        Mutation::BroadcastSkipsOne,
        Mutation::TriggerRepeated,
        Mutation::LatestOverlooked,
        Mutation::GhostBelieved,
        Mutation::DuplicateAckDiscarded,
        Mutation::AbortNotTold,
        Mutation::EndsTwice,
        Mutation::AnnouncedTwice,
        Mutation::AnsweredTwice,
        Mutation::SplitDealtTwice,
        Mutation::MinPauseIgnored,
        Mutation::ConcurrencyIgnored,
        Mutation::IntervalIgnored,
        Mutation::SavepointCommitted,
        Mutation::SavepointSubsumed,
        Mutation::StopForgotten,
        Mutation::OriginDropped,
        Mutation::ClaimedIsKept,
        Mutation::FailureUnanswered,
        Mutation::SourceRunsOn,
        Mutation::CommitReportedEarly,
        Mutation::SavepointInNamespace,
        Mutation::FolderUnawaited,
        Mutation::DeletionsUnawaited,
        Mutation::RetentionIgnored,
        Mutation::SharedFileDeleted,
        Mutation::BaseNotHeld,
        Mutation::SharedFileDroppedTwice,
        Mutation::UnknownFileAccepted,
        Mutation::SharedFileForgotten,
        Mutation::ParallelismOverlooked,
        Mutation::EndUnrecorded,
    ];

    /// Turns on what the rarer bugs need in order to show, so that few seeds suffice.
    pub(crate) fn provoke(self, scenario: &mut Scenario) {
        let faults = &mut scenario.faults;
        match self {
            Mutation::UnknownIsNotDone => faults.hang = 0.2,
            Mutation::LateAfterRead => {
                (faults.hang, faults.not_done, faults.unknown_not_done) = (0.4, 0.0, 0.0);
                (faults.subtask, faults.crash, faults.launch) = (0.0, 0.000_5, 0.0);
                (faults.file, faults.freeze, faults.seal) = (0.0, 0.0, 0.0);
                scenario.settings.checkpoints.interval = Some(Duration::from_millis(30));
            }
            Mutation::SpoiltForEver => {
                faults.seal = 0.2;
                scenario.settings.checkpoints.tolerable_failures = None;
            }
            Mutation::SweepOverlooksMetadata => faults.hang = 0.2,
            Mutation::SavepointSubsumed
            | Mutation::SavepointInNamespace
            | Mutation::FailureUnanswered => scenario.users.savepoint = 0.004,
            Mutation::FolderUnawaited => {
                (scenario.users.savepoint, faults.not_done) = (0.004, 0.3);
            }
            Mutation::StopForgotten
            | Mutation::SourceRunsOn
            | Mutation::CommitReportedEarly
            | Mutation::EndUnrecorded => {
                (scenario.users.stop, scenario.users.drain) = (0.002, 0.0);
            }
            Mutation::OriginDropped | Mutation::ClaimedIsKept => {
                let users = &mut scenario.users;
                (users.stop, users.drain, users.moves) = (0.002, 0.0, 1.0);
                let claims = self == Mutation::ClaimedIsKept;
                (users.claims, faults.delete) = (f64::from(u8::from(claims)), 0.0);
            }
            Mutation::DeletionsUnawaited => faults.slow_delete = 0.99,
            Mutation::SharedFileDeleted
            | Mutation::BaseNotHeld
            | Mutation::SharedFileDroppedTwice
            | Mutation::UnknownFileAccepted
            | Mutation::SharedFileForgotten => {
                let checkpoints = &mut scenario.settings.checkpoints;
                checkpoints.format = SnapshotFormat::Incremental;
                (checkpoints.retained, checkpoints.max_concurrent) = (1, 3);
                checkpoints.interval = Some(Duration::from_millis(30));
            }
            Mutation::ParallelismOverlooked => {
                (scenario.users.rescale, faults.crash) = (0.01, 0.001)
            }
            Mutation::GhostBelieved => (faults.crash, faults.ghost_report) = (0.003, 1.0),
            Mutation::TriggerRepeated => faults.duplicate_notice = 0.3,
            Mutation::DuplicateAckDiscarded => faults.duplicate_report = 0.5,
            Mutation::LatestOverlooked
            | Mutation::DropBeforePointer
            | Mutation::RestoreForgetsCommit => faults.crash = 0.003,
            _ => {}
        }
    }
}
